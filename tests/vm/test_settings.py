"""
Settings of a kernel that keep a box from starting or from being explained: `doctor` and
`detect()` name each with its remedy. They change the machine, so they are run in the
virtual one alone, by root.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(
    "SANDBOXKIT_MACHINE" not in os.environ, reason="only in the virtual machine of nox -s vm"
)
ORDINARY = ("setpriv", "--reuid=tester", "--regid=tester", "--init-groups", "--")
EXPLAINED = ("run", "--explain", "--json", "--", "touch", "/usr/denied")
WHO = pytest.mark.parametrize("who", [(), ORDINARY], ids=["root", "tester"])


@contextlib.contextmanager
def setting(name: str, value: str) -> Iterator[None]:
    """
    The kernel's setting *name* is *value* for as long.
    """
    file = Path("/proc/sys") / name.replace(".", "/")
    before = file.read_text()
    file.write_text(value)
    try:
        yield
    finally:
        file.write_text(before)


def program(who: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    home = "/home/tester" if who else "/root"
    environment = {"PATH": os.environ["PATH"], "HOME": home}
    command = [*who, sys.executable, "-m", "sandboxkit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd="/tmp")


def gap_of(who: tuple[str, ...]) -> str:
    """
    Why a run of *who* was not explained; empty where it was.
    """
    done = program(who, *EXPLAINED)
    answer = json.loads(done.stdout)
    assert "result" in answer, (done.stdout, done.stderr)
    gap: str = answer["result"]["explain_gap"]
    return gap


def doctor(who: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """
    The features of the machine and the backends, by name.
    """
    done = program(who, "doctor", "--json")
    found = json.loads(done.stdout)
    return ({row["name"]: row for row in found["machine"]}, {row["name"]: row for row in found["backends"]})


@WHO
def test_with_the_settings_of_the_distribution_a_box_starts(who: tuple[str, ...]) -> None:
    features, backends = doctor(who)
    assert backends["bubblewrap"]["available"], backends["bubblewrap"]
    assert features["user namespaces"]["remedy"] == ""
    assert features["tracing"]["remedy"] == ""


@WHO
@pytest.mark.parametrize("name", ["user.max_user_namespaces", "kernel.unprivileged_userns_clone"])
def test_switched_off_user_namespaces_are_named_with_the_remedy(who: tuple[str, ...], name: str) -> None:
    with setting(name, "0"):
        features, backends = doctor(who)
    assert f"{name}=0" in features["user namespaces"]["state"]
    assert features["user namespaces"]["remedy"].startswith(f"sysctl -w {name}=")
    bubblewrap = backends["bubblewrap"]
    assert not bubblewrap["available"]
    assert f"{name}=0" in bubblewrap["reason"]
    assert f"sysctl -w {name}=" in bubblewrap["remedy"]
    assert backends["landlock"]["available"], backends["landlock"]  # it needs none


@WHO
def test_a_run_is_explained_where_the_setting_allows_it(who: tuple[str, ...]) -> None:
    with setting("kernel.yama.ptrace_scope", "1"):  # the distribution's 0 allows more
        features, _ = doctor(who)
        gap = gap_of(who)
    assert (features["tracing"]["state"], gap) == ("on (kernel.yama.ptrace_scope=1)", "")


@WHO
def test_what_forbids_tracing_is_named_with_the_remedy(who: tuple[str, ...]) -> None:
    with setting("kernel.yama.ptrace_scope", "2"):
        features, _ = doctor(who)
        gap = gap_of(who)
    if not who:  # root may trace
        assert (features["tracing"]["remedy"], gap) == ("", "")
        return
    assert features["tracing"]["remedy"] == "sysctl -w kernel.yama.ptrace_scope=1, for --explain"
    assert "kernel.yama.ptrace_scope=2" in gap
    assert "set it to 1 or 0" in gap


def test_the_last_value_is_told_to_hold_until_a_restart() -> None:
    # The last test of the machine's life: the kernel takes this value back for nobody.
    Path("/proc/sys/kernel/yama/ptrace_scope").write_text("3")
    for who in ((), ORDINARY):
        features, _ = doctor(who)
        gap = gap_of(who)
        assert features["tracing"]["state"] == "forbidden (kernel.yama.ptrace_scope=3)"
        assert "restart" in features["tracing"]["remedy"]
        assert "kernel.yama.ptrace_scope=3" in gap
        assert "restart" in gap
