"""
Many boxes one after another and side by side leave nothing behind.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

import sandboxkit as sk
from sandboxkit.process import broker_pid

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

pytestmark = [pytest.mark.anyio, pytest.mark.requires("bubblewrap")]

COMMANDS = (
    ["true"],
    ["sh", "-c", "exit 3"],
    ["sh", "-c", "kill -9 $$"],
    ["sh", "-c", "sleep 60 & sleep 60 & setsid sleep 60 & echo started"],
    ["sh", "-c", "head -c 300000 /dev/zero"],
    ["no-such-program"],
    ["sleep", "60"],
)
KEPT_KB = 16 * 1024
"""Allocators keep some of what they once had; a leak of each run is more than this."""


async def at_rest() -> list[tuple[int, int]]:
    """
    What this process and the broker hold once the broker has put away the last box.
    """
    broker = broker_pid()
    assert broker is not None
    await anyio.sleep(0.5)
    return [held(os.getpid()), held(broker)]


def held(pid: int) -> tuple[int, int]:
    """
    The open descriptors and the resident kilobytes of *pid*.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return len(os.listdir(f"/proc/{pid}/fd")), int(resident)


async def one(box: sk.Sandbox, argv: list[str]) -> None:
    try:
        result = await box.run(argv, timeout=0.3 if argv[0] == "sleep" else 20)
    except sk.ProgramNotFoundError:
        assert argv == ["no-such-program"]
    else:
        assert (result.termination is sk.Termination.TIMED_OUT) == (argv[0] == "sleep")


async def test_runs_leave_no_descriptor_and_no_memory(
    rounds: Iterator[int], rng: random.Random, tmp_path: Path
) -> None:
    async with sk.open_sandbox(sk.SandboxSpec.workspace_write(tmp_path)) as box:

        async def several() -> None:
            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(one, box, rng.choice(COMMANDS))

        for _ in range(3):  # what is started or cached once
            await several()
        before = await at_rest()
        for _ in rounds:
            await several()
        after = await at_rest()
    assert [fds for fds, _ in after] == [fds for fds, _ in before]
    assert all(late - early < KEPT_KB for (_, early), (_, late) in zip(before, after, strict=True)), (before, after)
