"""
The way a Mac goes, on a host that looks like one to this library, with a program in the
place of sandbox-exec(1) that puts no sandbox on. Everything runs and nothing is held back,
so both attacks must find that out, and no command may run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sandboxkit as sk
from sandboxkit.model import Control

ROOT = Path(__file__).resolve().parents[3]
OWN = Path(sk.__file__).resolve().parent.parent
PROGRAM = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
CODE = """
from tests.macos_host import become_macos
become_macos()
import json, os, sys
import sandboxkit as sk
from sandboxkit.backends.seatbelt import _detect
import anyio
program, work = sys.argv[1:]
_detect.PROGRAM = program
registry = sk.SandboxRegistry.default()
async def main():
    status, docker = await registry.list(sk.SandboxSpec.workspace_write(work))
    assert docker.name == "docker"
    found = status.to_dict()
    for allowed in (frozenset(), frozenset(sk.Control)):
        spec = sk.SandboxSpec.workspace_write(work, allow_degraded=allowed)
        try:
            async with registry.open(spec) as box:
                result = await box.run(["/bin/sh", "-c", "pwd; exit 3"], cwd=work)
                found["ran"] = [result.exit_code, result.text(), str(result.enforcement.grade(sk.Control.FS_READ))]
        except sk.SandboxError as exc:
            found.setdefault("refused", []).append([type(exc).__name__, str(exc)])
    hosts = sk.NetworkPolicy(allow_hosts=("open.example",))
    for missing in ({sk.Control.NET_ALLOWLIST}, set()):
        allowed = frozenset(sk.Control) - missing
        spec = sk.SandboxSpec.workspace_write(work, network=hosts, allow_degraded=allowed)
        try:
            async with registry.open(spec) as box:
                found["listed"] = (await box.run(["/bin/sh", "-c", "echo $http_proxy"])).text()
        except sk.SandboxError as exc:
            found.setdefault("unlisted", []).append([type(exc).__name__, str(exc)])
    print(json.dumps(found))
anyio.run(main)
"""


def as_on_a_mac(tmp_path: Path) -> dict[str, Any]:
    program, work = tmp_path / "sandbox-exec", tmp_path / "work"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(program), str(work)],
        env={**os.environ, "PYTHONPATH": f"{OWN}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(os.geteuid() == 0, reason="a root caller is refused: see the next test")
def test_a_sandbox_that_holds_nothing_back_is_found_out(tmp_path: Path) -> None:
    found = as_on_a_mac(tmp_path)
    assert found["name"] == "seatbelt"
    assert found["available"], found["reason"]
    graded = {Control(name): row["grade"] for name, row in found["enforcement"].items()}
    for control in (
        Control.FS_READ,
        Control.FS_WRITE,
        Control.FS_DENY_INSIDE_ALLOW,
        Control.NET_NONE,
        Control.PROCESS_ISOLATION,
        Control.PROCESS_KILL_TREE,
        Control.SYSCALLS,
    ):
        assert graded[control] == "absent", (control, found["enforcement"])
    assert found["missing"]
    kinds = [kind for kind, _ in found["refused"]]
    assert kinds == ["EnforcementError"], "only a spec that requires nothing at all runs"
    assert found["ran"] == [3, f"{tmp_path}/work\n", "absent"], "and is told what it got"
    ((kind, why),) = found["unlisted"]
    assert kind == "EnforcementError"
    assert "own attack connected to another port of the loopback than its proxy's" in why
    assert re.fullmatch(r"http://sandboxkit:[\w-]{32}@127\.0\.0\.1:[0-9]+\n", found["listed"])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_root_caller_is_refused(tmp_path: Path) -> None:
    found = as_on_a_mac(tmp_path)
    assert not found["available"]
    assert "run as an ordinary user" in str(found["remedy"])
    assert [kind for kind, _ in found["refused"]] == ["NoBackendError"] * 2
    assert "ran" not in found
    assert "listed" not in found
