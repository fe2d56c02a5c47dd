"""
What older kernels lose, in the grades and in the kernel: `max_abi` lowers the ABI.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.backends.landlock.conftest import SHARED
from tests.conformance.conftest import Act, gone

from sandboxkit.backends._kernel import landlock_abi
from sandboxkit.backends.landlock import LandlockBackend, LandlockFacts
from sandboxkit.errors import EnforcementError
from sandboxkit.model import Control, FilesystemPolicy, Grade, SandboxSpec

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

ALL = frozenset(Control)
NEWEST = 9


def lowered(abi: int) -> LandlockBackend:
    """
    The backend with this ABI, which the kernel must have.
    """
    if (found := landlock_abi()) < abi:
        pytest.skip(f"this kernel has Landlock ABI {found}; the test is about {abi}")
    return LandlockBackend(max_abi=abi)


def facts(abi: int) -> LandlockFacts:
    """
    A machine with this ABI, which this one need not be.
    """
    return LandlockFacts(abi=abi, kernel_abi=abi, machine="x86_64", kernel="", interpreter="/usr/bin/python3")


@pytest.mark.parametrize("abi", range(1, NEWEST + 1))
def test_the_grades_of_each_abi(abi: int) -> None:
    claim = LandlockBackend().enforcement(SandboxSpec.isolated(), facts(abi))
    grades = {
        Control.FS_READ: Grade.ENFORCED,
        Control.FS_WRITE: Grade.ENFORCED if abi >= 3 else Grade.PARTIAL,
        Control.FS_DENY_INSIDE_ALLOW: Grade.ENFORCED if abi >= 3 else Grade.PARTIAL,
        Control.NET_NONE: Grade.ENFORCED,
        Control.PROCESS_ISOLATION: Grade.PARTIAL if abi >= 6 else Grade.ABSENT,
        Control.PROCESS_KILL_TREE: Grade.ENFORCED if abi >= 6 else Grade.PARTIAL,
    }
    assert {control: claim.grade(control) for control in grades} == grades


@pytest.mark.parametrize(
    ("abi", "control", "text"),
    [
        (1, Control.FS_WRITE, "does not hold back truncation"),
        (2, Control.FS_WRITE, "use Linux 6.2 or newer"),
        (3, Control.NET_NONE, "connected pairs"),
        (4, Control.NET_NONE, "TCP refused by Landlock ABI 4 too"),
        (5, Control.PROCESS_ISOLATION, "use Linux 6.12 or newer"),
        (5, Control.PROCESS_KILL_TREE, "signals leave the box before ABI 6"),
        (8, Control.NET_NONE, "AF_UNIX too"),
        (9, Control.NET_NONE, "every family but AF_UNIX"),
    ],
)
def test_the_reasons_name_the_loss(abi: int, control: Control, text: str) -> None:
    assert text in LandlockBackend().enforcement(SandboxSpec.isolated(), facts(abi)).reason(control)


def test_abi_3_does_without_tcp_rules() -> None:
    reason = LandlockBackend().enforcement(SandboxSpec.isolated(), facts(3)).reason(Control.NET_NONE)
    assert "TCP refused" not in reason


TRIES = Act("""
import signal
ws, outside, pid = arguments["ws"], arguments["outside"], arguments["pid"]
write(ws + "/a")
os.mkdir(ws + "/d")
attempt("move", os.rename, ws + "/a", ws + "/d/a")
attempt("truncate", os.truncate, outside + "/file", 7)
attempt("write", write, outside + "/file")
attempt("read", read, outside + "/file")
attempt("signal", os.kill, pid, 0)
attempt("trace", os.listdir, f"/proc/{pid}/root/")
attempt("tcp", lambda: socket.create_server(("127.0.0.1", 0)).close())
attempt("unix", lambda: socket.socket(socket.AF_UNIX).close())
""")


@pytest.mark.parametrize("abi", [1, 2, 3, 4, 5, 6])
async def test_what_each_abi_lets_through(ws: Path, outside: Path, abi: int) -> None:
    backend = lowered(abi)
    spec = SandboxSpec.workspace_write(ws, allow_degraded=ALL - {Control.FS_WRITE, Control.FS_DENY_INSIDE_ALLOW})
    if abi < 3:
        spec = SandboxSpec.workspace_write(ws, allow_degraded=ALL)
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]) as other:
        async with backend.open(spec) as box:
            inside = await TRIES.inside(box, ws=str(ws), outside=str(outside), pid=other.pid)
        other.kill()
    through = {what for what, answer in inside.items() if answer == "done"}
    assert through == (
        ({"move"} if abi >= 2 else set()) | ({"truncate"} if abi < 3 else set()) | ({"signal"} if abi < 6 else set())
    )


DENIED = Act("""
attempt("read", read, arguments["denied"])
attempt("write", write, arguments["denied"])
attempt("mode", os.chmod, arguments["denied"], 0o600)
attempt("empty", os.truncate, arguments["denied"], 0)
""")


@pytest.mark.parametrize(
    ("abi", "less", "done"),
    [
        (3, ALL - {Control.FS_WRITE, Control.FS_DENY_INSIDE_ALLOW}, set()),
        (3, ALL - {Control.FS_DENY_INSIDE_ALLOW}, {"mode"}),
        (2, ALL - {Control.FS_DENY_INSIDE_ALLOW}, {"mode", "empty"}),
    ],
)
async def test_what_can_be_done_to_a_denied_file_is_in_its_grade(
    ws: Path, abi: int, less: set[Control], done: set[str]
) -> None:
    denied = ws / "secret"
    denied.write_text("kept")
    spec = SandboxSpec(
        filesystem=FilesystemPolicy(read=(str(ws),), deny=(str(denied),)), allow_degraded=frozenset(less)
    )
    backend = lowered(abi)
    async with backend.open(spec) as box:
        inside = await DENIED.inside(box, denied=str(denied))
        grade = box.enforcement.grade(Control.FS_DENY_INSIDE_ALLOW)
    assert {what for what, answer in inside.items() if answer == "done"} == done
    assert grade is (Grade.PARTIAL if done else Grade.ENFORCED)
    if done:
        strict = spec.model_copy(update={"require": {Control.FS_DENY_INSIDE_ALLOW: Grade.ENFORCED}})
        with pytest.raises(EnforcementError, match=r"fs\.deny_inside_allow is partial"):
            async with backend.open(strict):
                pass
    assert set(DENIED.outside(denied=str(denied)).values()) == {"done"}


async def test_abi_2_is_refused_where_writes_must_hold(ws: Path) -> None:
    with pytest.raises(EnforcementError, match="does not hold back truncation; use Linux"):
        async with lowered(2).open(SandboxSpec.workspace_write(ws, allow_degraded=SHARED)):
            pass


async def test_without_scoped_signals_the_tree_is_ended_child_by_child(ws: Path) -> None:
    marker = f"unscoped-{os.getpid()}"
    script = "import os, time\nfor _ in range(3): os.fork()\nos.fork() or os.setsid()\nif os.getppid() > 1 and os.fork(): os._exit(0)\ntime.sleep(60)"
    spec = SandboxSpec.workspace_write(ws, allow_degraded=ALL)
    async with lowered(5).open(spec) as box:
        result = await box.run([sys.executable, "-I", "-S", "-c", script, marker], timeout=20)
    assert result.exit_code == 0
    assert gone(marker)
