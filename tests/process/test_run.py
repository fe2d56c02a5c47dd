"""
A launch plan, run: streams, bounds, deadlines, and the end of everything.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxkit.errors import ProgramNotExecutableError, ProgramNotFoundError
from sandboxkit.model import LaunchPlan, Termination
from sandboxkit.process import direct_plan, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


def shell(script: str, **environment: str) -> LaunchPlan:
    return direct_plan(["/bin/sh", "-c", script], environment=environment, cwd="/")


async def test_streams_exit_code_and_environment_are_the_commands_own() -> None:
    outcome = await run(shell("cat; env; echo err >&2; exit 3", A="1"), stdin=b"in\n" * 3)
    lines = outcome.stdout.splitlines()
    assert lines[:3] == [b"in"] * 3
    assert set(lines[3:]) == {b"A=1", b"PWD=/"}
    assert (outcome.stderr, outcome.exit_code, outcome.signal) == (b"err\n", 3, None)
    assert outcome.termination is Termination.EXITED


async def test_a_large_input_goes_through_whole() -> None:
    outcome = await run(shell("wc -c"), stdin=b"x" * 5_000_000)
    assert outcome.stdout.strip() == b"5000000"


async def test_an_input_nobody_reads_is_no_error() -> None:
    outcome = await run(shell("exit 0"), stdin=b"x" * 5_000_000)
    assert outcome.exit_code == 0


async def test_no_input_is_an_end_of_file() -> None:
    outcome = await run(shell("cat; echo end"))
    assert outcome.stdout == b"end\n"


async def test_a_signal_is_no_exit_code() -> None:
    outcome = await run(shell("kill -9 $$"))
    assert (outcome.exit_code, outcome.signal, outcome.termination) == (None, 9, Termination.SIGNALED)


async def test_the_deadline_ends_what_ignores_sigterm_and_its_children() -> None:
    outcome = await run(shell("trap '' TERM; sleep 60 & sleep 60"), timeout=0.3)
    assert outcome.termination is Termination.TIMED_OUT
    assert outcome.duration_s < 5


async def test_what_outlives_the_command_is_ended_with_it() -> None:
    started = time.monotonic()
    outcome = await run(shell("setsid sleep 60 & echo started"))
    assert outcome.stdout == b"started\n"
    assert time.monotonic() - started < 5  # it holds the pipe: without its end, this would wait for it


async def test_output_past_the_limit_is_dropped_and_counted() -> None:
    outcome = await run(shell("head -c 5000 /dev/zero"), max_output_bytes=1000)
    assert len(outcome.stdout) == 1000
    assert outcome.truncated
    assert outcome.termination is Termination.EXITED


async def test_a_flood_is_ended() -> None:
    outcome = await run(direct_plan(["/usr/bin/yes"], environment={}, cwd="/"), max_output_bytes=1000, timeout=30)
    assert outcome.termination is Termination.OUTPUT_LIMIT
    assert outcome.duration_s < 10


async def test_a_missing_program_is_no_exit_code() -> None:
    with pytest.raises(ProgramNotFoundError, match="'/no/such'"):
        await run(direct_plan(["/no/such"], environment={}, cwd="/"))
    assert (await run(shell("exit 127"))).exit_code == 127


async def test_a_file_that_is_no_program_is_named(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(b"\x00\x01")
    script.chmod(0o755)
    with pytest.raises(ProgramNotExecutableError, match=r"neither a program .* nor a script"):
        await run(direct_plan([str(script)], environment={}, cwd="/"))
    with pytest.raises(ProgramNotExecutableError, match="not marked executable"):
        await run(direct_plan(["/etc/passwd"], environment={}, cwd="/"))


async def test_an_argument_larger_than_the_kernel_takes_is_explained() -> None:
    with pytest.raises(ProgramNotExecutableError, match="128 KiB an argument"):
        await run(direct_plan(["/bin/echo", "x" * (1 << 20)], environment={}, cwd="/"))


async def test_limits_are_set_and_never_raised() -> None:
    plan = direct_plan(["/bin/sh", "-c", "ulimit -n"], environment={}, cwd="/", rlimits=[(7, 64)])
    assert (await run(plan)).stdout == b"64\n"


async def test_no_descriptor_is_inherited(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    fd = os.open(secret, os.O_RDONLY)
    os.set_inheritable(fd, True)
    try:
        outcome = await run(direct_plan(["/bin/ls", "-l", "/proc/self/fd"], environment={}, cwd="/"))
    finally:
        os.close(fd)
    assert b"secret" not in outcome.stdout
    assert len(outcome.stdout.splitlines()) == 5  # a total, the three streams, and the listing's own


async def test_cancelling_ends_the_command_within_a_second() -> None:
    with anyio.move_on_after(0.2) as scope:
        await run(shell("sleep 60"))
    assert scope.cancelled_caught
    assert anyio.current_time() - scope.deadline < 1


async def test_two_hundred_at_once() -> None:
    async def one(number: int) -> None:
        outcome = await run(direct_plan(["/bin/echo", str(number)], environment={}, cwd="/"))
        assert outcome.stdout == b"%d\n" % number

    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(one, number)


def test_threads_share_one_broker() -> None:
    outcomes = []

    def work() -> None:
        outcomes.append(anyio.run(run, shell("echo $PPID")).stdout)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 8
    assert len(set(outcomes)) == 1


async def test_nothing_is_left_open() -> None:
    await run(shell("true"))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        await run(shell("cat"), stdin=b"x")
    assert len(os.listdir("/proc/self/fd")) == before
