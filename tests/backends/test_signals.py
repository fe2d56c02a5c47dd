"""
Signals to a command: each one arrives, or is refused by name; none ends or stops what ends
the box.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.backends.landlock import LandlockBackend
from sandboxkit.errors import SpecError
from sandboxkit.model import Control, SandboxSpec, Termination
from sandboxkit.process import broker_pid, interpreter

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.backends import SandboxBackend

pytestmark = pytest.mark.anyio

SHARED = frozenset({Control.PROCESS_ISOLATION, Control.LIMITS_PROCESSES})
KEPT = {int(signal.SIGCHLD), int(signal.SIGSTOP), 34}
PASSED = sorted({int(number) for number in signal.valid_signals()} - KEPT - {int(signal.SIGKILL)})
HEARD = f"""
import os, signal
for number in {PASSED}:
    signal.signal(number, lambda number, frame: os.write(1, b"%d\\n" % number))
os.write(1, b"%d\\n" % os.getppid())
while True:
    signal.pause()
"""


@pytest.fixture
def spec(tmp_path: Path) -> SandboxSpec:
    return SandboxSpec.read_only(tmp_path.resolve(), allow_degraded=SHARED)


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest, require: Any) -> SandboxBackend:
    """
    Each backend whose boxes have a supervisor on this machine.
    """
    require(request.param)
    return BubblewrapBackend() if request.param == "bubblewrap" else LandlockBackend()


async def test_every_signal_arrives_or_is_refused(backend: SandboxBackend, spec: SandboxSpec) -> None:
    async with backend.open(spec) as box, box.start([interpreter(), "-I", "-S", "-c", HEARD]) as process:
        assert process.stdout
        await process.stdout.receive()
        for number in PASSED:
            process.send_signal(number)
            with anyio.fail_after(20):
                assert await process.stdout.receive() == b"%d\n" % number
        for number in sorted(KEPT):
            with pytest.raises(SpecError, match=f"signal {number} cannot be passed on"):
                process.send_signal(number)
        process.send_signal(signal.SIGKILL)
        result = await process.wait()
    assert result.termination is Termination.KILLED


async def test_a_signal_that_does_not_exist_ends_no_other_box(backend: SandboxBackend, spec: SandboxSpec) -> None:
    async with backend.open(spec) as box, box.start(["cat"], stdin=-1) as process:
        before = broker_pid()
        for number in (-1, 0, 65, 1 << 31, 1 << 40):
            with pytest.raises(SpecError, match=f"there is no signal {number}"):
                process.send_signal(number)
        assert process.stdin
        await process.stdin.aclose()
        assert (await process.wait()).ok
        assert broker_pid() == before


async def test_a_stopped_supervisor_still_ends_its_box(spec: SandboxSpec, require: Any) -> None:
    require("landlock")
    async with LandlockBackend().open(spec) as box, box.start([interpreter(), "-I", "-S", "-c", HEARD]) as process:
        assert process.stdout
        supervisor = int(await process.stdout.receive())
        os.kill(supervisor, signal.SIGSTOP)
        process.kill()
        result = await process.wait()
    # What it reports itself: else it was killed, after the seconds it has for that.
    assert (result.termination, result.signal) == (Termination.KILLED, signal.SIGKILL)
