"""
Who ends the boxes when the application cannot.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxkit.errors import BrokerError
from sandboxkit.process import _broker_process, _client, broker_pid, direct_plan, run, shutdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BOX = """
import anyio, os, sys
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.model import SandboxSpec
from sandboxkit.process import broker_pid

async def main():
    async with BubblewrapBackend().open(SandboxSpec.isolated()) as box:
        async with box.start(["/bin/sh", "-c", "sleep {mark} & setsid sleep {mark} & echo ready; sleep {mark}"]) as process:
            await process.stdout.receive()
            {then}
            print(broker_pid(), {worker}, flush=True)
            await process.wait()

anyio.run(main)
"""


def mark() -> str:
    """
    A duration no other process sleeps for: how a box's processes are found on the host.
    """
    return f"{1000 + os.getpid() % 9000}.{time.monotonic_ns() % 10**9:09d}"


def running(words: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if line.startswith("sleep") and words in line:
                found.append(int(entry.name))
    return found


def is_idle(words: str) -> bool:
    return not running(words)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def wait_until(condition: Callable[[], object], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


@contextmanager
def application(
    words: str, *, then: str = "pass", worker: str = "0"
) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    code = BOX.format(mark=words, then=then, worker=worker)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        broker, other = map(int, process.stdout.readline().split())
        assert wait_until(lambda: len(running(words)) == 3)
        yield process, broker, other
    finally:
        process.kill()
        process.wait()
        process.communicate()


@pytest.mark.requires("bubblewrap")
def test_a_killed_application_takes_its_boxes_along() -> None:
    words = mark()
    with application(words) as (process, broker, _):
        process.kill()
        process.wait()
        assert wait_until(lambda: not running(words))
        assert wait_until(lambda: is_gone(broker))


@pytest.mark.requires("bubblewrap")
def test_a_forked_worker_that_lives_on_keeps_nothing_alive() -> None:
    words = mark()
    fork = "worker = os.fork()\n            if worker == 0: os.close(1); import time; time.sleep(600)"
    with application(words, then=fork, worker="worker") as (process, broker, worker):
        try:
            process.kill()
            process.wait()
            assert wait_until(lambda: not running(words))
            assert wait_until(lambda: is_gone(broker))
            assert not is_gone(worker)
        finally:
            os.kill(worker, signal.SIGKILL)


@pytest.mark.requires("bubblewrap")
def test_application_and_broker_killed_together_leave_nothing() -> None:
    words = mark()
    with application(words) as (process, broker, _):
        os.kill(broker, signal.SIGKILL)
        process.kill()
        process.wait()
        assert wait_until(lambda: not running(words))


@pytest.mark.requires("bubblewrap")
def test_an_application_killed_at_any_moment_leaves_nothing() -> None:
    for delay in (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6):
        words = mark()
        code = BOX.format(mark=words, then="pass", worker="0")
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
        time.sleep(delay)
        process.kill()
        process.wait()
        assert wait_until(partial(is_idle, words)), delay


@pytest.mark.anyio
async def test_a_killed_broker_is_an_error_of_ours_and_the_next_run_gets_another() -> None:
    await run(direct_plan(["/bin/true"], environment={}, cwd="/"))
    first = broker_pid()
    assert first

    async def kill_soon() -> None:
        await anyio.sleep(0.2)
        os.kill(first, signal.SIGKILL)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kill_soon)
        with pytest.raises(BrokerError, match="ended during the run"):
            await run(direct_plan(["/bin/sleep", "60"], environment={}, cwd="/"))
    outcome = await run(direct_plan(["/bin/true"], environment={}, cwd="/"))
    assert outcome.exit_code == 0
    assert broker_pid() not in (None, first)


@pytest.mark.anyio
async def test_a_deadline_of_a_year_is_one_that_can_be_waited_for() -> None:
    outcome = await run(direct_plan(["/bin/sleep", "0.1"], environment={}, cwd="/"), timeout=365 * 86400.0)
    assert outcome.exit_code == 0


@pytest.mark.anyio
async def test_shutdown_ends_the_broker_and_the_next_run_starts_one() -> None:
    await run(direct_plan(["/bin/true"], environment={}, cwd="/"))
    pid = broker_pid()
    assert pid
    shutdown()
    assert broker_pid() is None
    assert is_gone(pid)
    assert (await run(direct_plan(["/bin/true"], environment={}, cwd="/"))).exit_code == 0


def test_a_forked_child_has_a_broker_of_its_own() -> None:
    code = """
import anyio, os
from sandboxkit.process import broker_pid, direct_plan, run
plan = direct_plan(["/bin/true"], environment={}, cwd="/")
anyio.run(run, plan)
mine = broker_pid()
child = os.fork()
if child == 0:
    assert broker_pid() is None
    assert anyio.run(run, plan).exit_code == 0
    assert broker_pid() not in (None, mine)
    from sandboxkit.process import shutdown
    shutdown()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert anyio.run(run, plan).exit_code == 0
assert broker_pid() == mine
"""
    subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code], check=True, timeout=60
    )


def test_an_idle_broker_ends_and_serves_what_already_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_broker_process, "IDLE_SECONDS", 0.3)
    shutdown()
    plan = direct_plan(["/bin/true"], environment={}, cwd="/")
    try:
        assert anyio.run(run, plan).exit_code == 0
        first = broker_pid()
        assert first
        assert wait_until(lambda: is_gone(first))
        assert anyio.run(run, plan).exit_code == 0
        assert broker_pid() != first
    finally:
        shutdown()


def test_orders_that_make_no_sense_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shutdown()
    assert anyio.run(run, direct_plan(["/bin/true"], environment={}, cwd="/")).exit_code == 0
    first, broker = broker_pid(), _client._state.broker
    assert broker
    broker.channel.send(b"no descriptors")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    plan = _client.memfd("broken", b"{")
    try:
        socket.send_fds(broker.channel, [b"launch"], [theirs.fileno(), plan])
        theirs.close()
        assert select.select([ours], [], [], 5)[0]
        assert b"error" in ours.recv(4096)
    finally:
        ours.close()
        os.close(plan)
    assert anyio.run(run, direct_plan(["/bin/true"], environment={}, cwd="/")).exit_code == 0
    assert broker_pid() == first
