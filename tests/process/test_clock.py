"""
Clocks that jump do not move a deadline: what counts is the monotonic clock, of the
application and of its broker alike.
"""

from __future__ import annotations

import ast
import itertools
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sandboxkit
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.model import SandboxSpec, Termination

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(sandboxkit.__file__).parent
WALL = {"time", "time_ns", "localtime", "gmtime", "strftime", "ctime", "now", "utcnow", "today", "CLOCK_REALTIME"}
TOLD = {
    "backends/_quarantine.py": "names a directory by the day",
    "router/_record.py": "a record says when",
}
"""Where the time of day is only told, never waited for."""


def wall_clocks(source: str) -> Iterator[str]:
    """
    The places in *source* that ask for the time of day.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ("time", "datetime", "date") and node.attr in WALL:
                yield f"{node.lineno}: {node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"):
            yield f"{node.lineno}: from {node.module}"


@pytest.mark.parametrize("room", ["process", "confine", "backends", "router"])
def test_no_deadline_asks_for_the_time_of_day(room: str) -> None:
    found = {
        name: places
        for path in (PACKAGE / room).rglob("*.py")
        if (places := list(wall_clocks(path.read_text()))) and (name := str(path.relative_to(PACKAGE))) not in TOLD
    }
    assert found == {}
    assert list(wall_clocks("import time\nend = time.time() + 5")) == ["2: time.time"]


@pytest.mark.anyio
@pytest.mark.requires("bubblewrap")
async def test_a_time_of_day_that_jumps_moves_no_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = itertools.cycle((0.0, 4e8, -4e8, 1.0))
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
    async with BubblewrapBackend().open(SandboxSpec.workspace_write(tmp_path.resolve())) as box:
        started = time.monotonic()
        late = await box.run(["sleep", "60"], timeout=0.5)
        took = time.monotonic() - started
        early = await box.run(["sleep", "0.3"], timeout=30)
    assert (late.termination, 0.5 <= late.duration_s <= took < 20) == (Termination.TIMED_OUT, True)
    assert (early.ok, 0.3 <= early.duration_s < 30) == (True, True)
    assert abs(time.time() - time.time()) > 1e6, "the clock did jump"


PROGRAM = """
import sys, time
from sandboxkit import SandboxSpec, sync
started = time.monotonic()
late = sync.run(["sleep", "60"], timeout=0.5, spec=SandboxSpec.workspace_write(sys.argv[1]))
early = sync.run(["sleep", "0.3"], timeout=30, spec=SandboxSpec.workspace_write(sys.argv[1]))
print(started > 4e6, late.termination, 0.5 <= late.duration_s < 20, early.outcome, 0.3 <= early.duration_s < 20)
"""


@pytest.mark.requires("bubblewrap")
def test_clocks_of_another_time_namespace_move_no_deadline(tmp_path: Path) -> None:
    if not shutil.which("unshare"):
        pytest.skip("unshare is not installed")
    shifted = ["unshare", "--user", "--map-root-user", "--time", "--monotonic", "5000000", "--boottime", "9000000"]
    argv = [*shifted, "--fork", "--", sys.executable, "-c", PROGRAM, str(tmp_path.resolve())]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False)
    if "unshare" in done.stderr and done.returncode:
        pytest.skip(f"not applicable: no time namespace can be made: {done.stderr.strip()}")
    assert (done.stdout, done.returncode) == ("True timed_out True exited with code 0 True\n", 0), done.stderr
