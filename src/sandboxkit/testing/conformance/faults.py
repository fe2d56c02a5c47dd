"""
What must hold when things go wrong: the application dies, the run is cancelled, output
floods, boxes are many and runs never end. Nothing is left, on time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from sandboxkit.errors import ProgramNotFoundError
from sandboxkit.model import Limits, SandboxSpec, Termination
from sandboxkit.testing.conformance._acts import PYTHON, end, importable, running
from sandboxkit.testing.conformance._behaviours import exported
from sandboxkit.testing.conformance._fixtures import *  # noqa: F403 - what the behaviours ask for
from sandboxkit.testing.conformance._fixtures import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

    from sandboxkit.testing.conformance._acts import Boxes

PROMPT_S = 1.0
"""How soon after a cancellation the whole tree must be gone, in seconds."""

GONE_S = 5.0
"""How soon after the application's death, in seconds; the machine may be busy."""

KEPT_KB = 16 * 1024
"""Allocators keep some of what they once had; a leak of each run is more than this."""

_numbers = itertools.count()


def unique_seconds(whole: int) -> str:
    """
    A word for sleep(1): *whole* seconds, and a fraction that no other process has.
    """
    return f"{whole}.0{os.getpid():08d}{next(_numbers):04d}"


async def gone_after(marker: str, seconds: float) -> float | None:
    """
    After how many seconds nothing with *marker* runs any more, or None if that takes
    longer than *seconds*; what runs then is ended.
    """
    started = time.monotonic()
    while running(marker):
        if time.monotonic() - started > seconds:
            end(marker)
            return None
        await anyio.sleep(0.005)
    return time.monotonic() - started


# --- what the host has, before and after -------------------------------------------------


@dataclass(frozen=True)
class Traces:
    """
    Where a run could leave something.

    Attributes:
        names: Every path below the directories looked at.
        mounts: The mounts this process sees.
    """

    names: frozenset[str]
    mounts: tuple[str, ...]

    @classmethod
    def of(cls, *directories: Path) -> Traces:
        names = frozenset(str(path) for directory in directories for path in directory.rglob("*"))
        mounts = tuple(sorted(row.split()[4] for row in Path("/proc/self/mountinfo").read_text().splitlines()))
        return cls(names, mounts)


@pytest.fixture
def private_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    A directory for temporary files that nobody else uses.
    """
    directory = tmp_path.resolve() / "tmp"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return directory


def children_of(pid: int) -> set[tuple[int, str]]:
    """
    The descendants of *pid*, each with its starting time, which makes it unique.
    """
    parents: dict[int, list[tuple[int, str]]] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append((int(entry.name), fields[19]))
    found: set[tuple[int, str]] = set()
    waiting = list(parents.get(pid, ()))
    while waiting:
        child = waiting.pop()
        found.add(child)
        waiting += parents.get(child[0], ())
    return found


def is_alive(process: tuple[int, str]) -> bool:
    """
    Whether *process* still runs; a zombie does not.
    """
    try:
        fields = Path(f"/proc/{process[0]}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return (fields[19], fields[0] in "ZX") == (process[1], False)


def groups_of(processes: set[tuple[int, str]]) -> list[str]:
    """
    The control groups whose name bears the number and the starting time of one of *processes*.
    """
    marks = tuple(f"-{pid}-{start}-" for pid, start in processes)
    found = []
    for place, names, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{place}/{name}" for name in names if any(mark in name for mark in marks)]
    return found


LEAVE = 'sleep "$0" & setsid sleep "$0" & (trap "" TERM HUP; setsid sleep "$0") &'
"""Leaves processes: one in the background, one in a session of its own, one deaf to signals."""


@pytest.mark.usefixtures("confined")
async def test_nothing_of_a_run_is_left_on_the_host(
    boxes: Boxes, ws: Path, home: Path, outside: Path, private_tmp: Path
) -> None:
    """
    Runs that succeed, fail, are killed, pass their deadline, flood, and never start: no
    file, mount or process is there afterwards that was not before.

    Control: the same commands leave files and processes without a box.
    """
    marker = unique_seconds(3600)
    spec = SandboxSpec.workspace_write(ws, limits=Limits(max_output_bytes=10_000))
    await boxes.run(spec, ["true"])  # what is made once and kept
    before = Traces.of(ws, home, outside, private_tmp)
    litter = f"echo x > ${{TMPDIR:-/tmp}}/litter; echo x > ~/litter; {LEAVE}"
    for tail in ("exit 0", "exit 3", "kill -9 $$", "sleep 60", "yes"):
        await boxes.run(spec, ["sh", "-c", f"{litter} {tail}", marker], timeout=0.5 if "sleep" in tail else 20)
    with pytest.raises(ProgramNotFoundError):
        await boxes.run(spec, ["no-such-program"])
    assert await gone_after(marker, PROMPT_S) is not None
    assert Traces.of(ws, home, outside, private_tmp) == before
    subprocess.run(["sh", "-c", litter, marker], check=True, stdout=subprocess.DEVNULL)
    left = Traces.of(ws, home, outside, private_tmp)
    assert len(left.names - before.names) == 2
    assert end(marker) >= 1


# --- many at once, many in a row -------------------------------------------------------------


async def test_fifty_boxes_at_once(boxes: Boxes, tmp_path: Path) -> None:
    """
    Fifty boxes run at the same time, each in a workspace of its own beside the others';
    each has its own result, and sees no other.

    Control: the host sees all fifty workspaces, each with what its own box wrote.
    """
    root = tmp_path.resolve() / "all"
    answers: dict[int, str] = {}

    async def one(number: int) -> None:
        workspace = root / str(number)
        workspace.mkdir(parents=True)
        script = 'echo "$0" > mine; tmp=${TMPDIR:-/tmp}; echo "$0" > "$tmp/mine"; sleep 0.3; cat mine "$tmp/mine"; ls -A .. 2> /dev/null || echo "$0"'
        spec = SandboxSpec.workspace_write(workspace)
        result = await boxes.run(spec, ["sh", "-c", script, str(number)], cwd=str(workspace), timeout=50)
        answers[number] = result.check().text()

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(one, number)
    assert answers == {number: f"{number}\n{number}\n{number}\n" for number in range(50)}
    assert {path.name: (path / "mine").read_text() for path in root.iterdir()} == {
        str(number): f"{number}\n" for number in range(50)
    }


@dataclass(frozen=True)
class Held:
    """
    What this process and its children hold.

    Attributes:
        descriptors: Open descriptors, of all of them.
        processes: How many they are.
        resident_kb: Resident memory of all of them, in KiB.
    """

    descriptors: int
    processes: int
    resident_kb: int

    @classmethod
    async def at_rest(cls) -> Held:
        """
        What is held once the last box has been put away.
        """
        await anyio.sleep(0.5)
        pids = [os.getpid(), *(pid for pid, start in children_of(os.getpid()) if is_alive((pid, start)))]
        return cls(
            sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids), len(pids), sum(resident_kb(pid) for pid in pids)
        )


def resident_kb(pid: int) -> int:
    """
    The resident memory of *pid*, in KiB.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


COMMANDS = (
    ["true"],
    ["sh", "-c", "exit 3"],
    ["sh", "-c", "kill -9 $$"],
    ["sh", "-c", "sleep 60 & setsid sleep 60 & echo started"],
    ["sh", "-c", "head -c 300000 /dev/zero; echo x > ${TMPDIR:-/tmp}/x"],
)


async def test_many_runs_leave_nothing(boxes: Boxes, ws: Path, private_tmp: Path, run_count: int) -> None:
    """
    Hundreds of runs, four at a time, which succeed, fail, are killed and leave processes:
    descriptors, processes, memory, control groups, mounts and temporary files are as many as
    before.

    Control: one more descriptor is noticed.
    """
    spec = SandboxSpec.workspace_write(ws)
    commands = itertools.cycle(COMMANDS)

    async def several(count: int) -> None:
        for _ in range(count):
            await boxes.run(spec, next(commands), timeout=30)

    async def batch(count: int) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(several, count)

    await batch(5)  # what is started or cached once
    before, names, groups = await Held.at_rest(), Traces.of(private_tmp, ws), groups_of(children_of(os.getpid()))
    await batch(run_count // 4)
    after = await Held.at_rest()
    assert len(groups_of(children_of(os.getpid()))) == len(groups)
    # Fewer where the process that starts commands has left meanwhile, being idle.
    assert after.descriptors <= before.descriptors
    assert after.processes <= before.processes
    assert after.resident_kb - before.resident_kb < KEPT_KB, (before, after)
    assert Traces.of(private_tmp, ws) == names
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        assert (await Held.at_rest()).descriptors == after.descriptors + 1
    finally:
        os.close(descriptor)


FLOOD = "import os\nblock = bytes(1 << 20)\nwhile True: os.write(1, block)"


@pytest.mark.usefixtures("confined")
async def test_a_flood_does_not_starve_the_caller(boxes: Boxes, ws: Path) -> None:
    """
    A command writes as fast as it can until 16 times what is kept, 256 MiB, have come: the
    caller's event loop goes on meanwhile, and keeps no more than the limit.

    Control: without a box, the same program fills a pipe with as much.
    """
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            started = time.monotonic()
            await anyio.sleep(0.005)
            gaps.append(time.monotonic() - started)

    kept = 16 << 20
    spec = SandboxSpec.workspace_write(ws, limits=Limits(max_output_bytes=kept))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        result = await boxes.run(spec, [*PYTHON, FLOOD], timeout=40)
        tasks.cancel_scope.cancel()
    assert (result.termination, len(result.stdout), result.truncated) == (Termination.OUTPUT_LIMIT, kept, True)
    assert (len(gaps) > 3, max(gaps) < 0.5) == (True, True), max(gaps)
    with subprocess.Popen([*PYTHON, FLOOD], stdout=subprocess.PIPE) as outside:
        assert outside.stdout is not None
        assert len(outside.stdout.read(16 * kept)) == 16 * kept
        outside.kill()


# --- the application dies -----------------------------------------------------------------------

APPLICATION = """
import pickle, sys
import anyio
from sandboxkit.model import SandboxSpec

async def main():
    backend = pickle.loads(bytes.fromhex(sys.argv[1]))()
    spec = SandboxSpec.workspace_write(sys.argv[2])

    async def again_and_again():
        while True:
            async with backend.open(spec) as box:
                await box.run(["sh", "-c", sys.argv[3], sys.argv[4]])
            print("ran", flush=True)

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(again_and_again)

anyio.run(main)
"""
UNBOXED = "import subprocess, sys\nsubprocess.Popen(['sleep', sys.argv[4]], stdout=-3, stderr=-3)\nprint('ran', flush=True)\nsys.stdin.read()"


@dataclass
class Application:
    """
    A program of its own that runs boxes until it dies.

    Attributes:
        process: It.
        marker: What all its commands have among their words.
        before: What it had started when it died, each with its starting time.
    """

    process: subprocess.Popen[bytes]
    marker: str
    before: set[tuple[int, str]] = field(default_factory=set)

    @classmethod
    def launched(cls, boxes: Boxes, ws: Path, source: str = APPLICATION) -> Application:
        """
        One that has just been started.
        """
        marker = unique_seconds(3600)
        argv = boxes.program(source, str(ws), f"{LEAVE} sleep 0.05", marker)
        pipe = subprocess.PIPE
        return cls(subprocess.Popen(argv, env=importable(), stdin=pipe, stdout=pipe, stderr=pipe), marker)

    def wait_until_it_ran(self) -> None:
        """
        Waits for the end of its first command.
        """
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        if self.process.stdout.readline() != b"ran\n":
            self.process.kill()
            raise AssertionError(self.process.stderr.read().decode())

    def die(self, number: signal.Signals) -> None:
        """
        Ends it by a signal.
        """
        self.before = children_of(self.process.pid)
        self.process.send_signal(number)
        self.process.communicate(timeout=20)

    async def left(self) -> list[object]:
        """
        What of it still runs after a while; its commands are ended then.
        """
        deadline = time.monotonic() + GONE_S
        while left := [*filter(is_alive, self.before), *running(self.marker), *groups_of(self.before)]:
            if time.monotonic() > deadline:
                end(self.marker)
                break
            await anyio.sleep(0.02)
        return left


async def test_an_application_that_dies_leaves_nothing(
    boxes: Boxes, ws: Path, home: Path, private_tmp: Path, crash_count: int
) -> None:
    """
    An application that runs boxes without end is killed at random moments, mostly by
    SIGKILL and sometimes by SIGTERM: no process of it or of its boxes goes on running, no
    control group of theirs stays, and once another box was opened no mount, file or named socket is there that was not before.

    Control: an application that starts its commands without a box leaves them running.
    """
    first = Application.launched(boxes, ws)
    first.wait_until_it_ran()
    first.die(signal.SIGKILL)
    assert await first.left() == []
    await boxes.run(SandboxSpec.workspace_write(ws), ["true"])
    before = Traces.of(ws, home, private_tmp)
    chance = random.Random()
    for _ in range((crash_count + 3) // 4):
        applications = [Application.launched(boxes, ws) for _ in range(4)]
        for application in applications:
            application.wait_until_it_ran()
        for application in applications:
            await anyio.sleep(chance.random() * 0.1)
            application.die(chance.choice([signal.SIGKILL] * 4 + [signal.SIGTERM]))
        assert [await application.left() for application in applications] == [[]] * 4
    await boxes.run(SandboxSpec.workspace_write(ws), ["true"])  # what nothing runs in may stay until then
    assert Traces.of(ws, home, private_tmp) == before
    plain = Application.launched(boxes, ws, UNBOXED)
    plain.wait_until_it_ran()
    plain.die(signal.SIGKILL)
    assert end(plain.marker) == 1


# --- the run is cancelled -------------------------------------------------------------------------


class Interrupted:
    """
    Awaits *coroutine*, and calls *act* when it suspends for the *number*-th time.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, object], number: int, act: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._number = number
        self._act = act

    def __await__(self) -> Generator[Any, Any, object]:
        resume: Callable[[], Any] = lambda: self._coroutine.send(None)  # noqa: E731 - replaced in the loop below
        for count in itertools.count(1):
            try:
                waited_for = resume()
            except StopIteration as stop:
                return stop.value
            if count == self._number:
                self._act()
            resume = yield from _resumption(self._coroutine, waited_for)
        raise AssertionError("unreachable")


def _resumption(coroutine: Coroutine[Any, Any, object], waited_for: object) -> Generator[Any, Any, Callable[[], Any]]:
    """
    Hands *waited_for* to the event loop; how to go on with what comes back.
    """
    try:
        value = yield waited_for
    except BaseException as exc:  # noqa: BLE001 - a cancellation is handed on, as everything else
        error = exc
        return lambda: coroutine.throw(error)
    return lambda: coroutine.send(value)


async def cancelled(
    boxes: Boxes, spec: SandboxSpec, number: int, marker: str, prompt_s: float
) -> tuple[bool, float | None]:
    """
    Runs a command, cancelled at its *number*-th await: whether it came so far, and how many
    seconds later nothing of it ran any more.
    """
    called = [0.0]
    with anyio.CancelScope() as scope:

        def cancel() -> None:
            called[0] = time.monotonic()
            scope.cancel()

        argv = ["sh", "-c", 'trap "" TERM; setsid sleep "$0" & sleep 0.5', marker]
        await Interrupted(boxes.run(spec, argv), number, cancel)
    rest = await gone_after(marker, prompt_s)
    if not scope.cancel_called:
        return False, rest
    return True, None if rest is None else time.monotonic() - called[0]


@pytest.fixture(params=["asyncio", "trio"])
def loop(request: pytest.FixtureRequest) -> str:
    """
    The event loops; trio where it is installed.
    """
    name: str = request.param
    pytest.importorskip(name, reason=f"not applicable: {name} is not installed")
    return name


def test_a_run_cancelled_at_any_await_ends_its_tree(boxes: Boxes, ws: Path, loop: str, prompt_s: float) -> None:
    """
    A run is cancelled where its own task suspends for the first time, the second, and so
    on to the last: each time the command and what it left are gone within a second.

    Control: the run that is not cancelled comes to its own end, after every await was tried.
    """
    spec = SandboxSpec.workspace_write(ws)

    async def main() -> list[float | None]:
        times = []
        for number in itertools.count(1):
            was_reached, seconds = await cancelled(boxes, spec, number, unique_seconds(3600), prompt_s)
            if not was_reached:
                break
            times.append(seconds)
        return times

    times = anyio.run(main, backend=loop)
    assert times, "a run suspends at least once"
    assert [seconds for seconds in times if seconds is None or seconds > prompt_s] == []


PASSES = (*range(24), *(2**power for power in range(5, 15)))
"""
After how many passes of the event loop: each of the first ones, in which the box is made
and every task of the run starts, then ever fewer while the command runs.
"""


async def passes(count: int) -> None:
    """
    Returns after *count* passes of the event loop: each lets every ready task go on.
    """
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


async def begun(ws: Path) -> None:
    """
    Returns once a command has begun: a box may take longer to come up than all passes.
    """
    while not (ws / "begun").exists():  # noqa: ASYNC110 - a process of its own makes it
        await anyio.sleep(0.01)


async def cancelled_after(
    boxes: Boxes, spec: SandboxSpec, count: int, moment: Awaitable[object], prompt_s: float
) -> float | None:
    """
    Runs *count* commands at once until *moment* comes: how many seconds later nothing of
    them ran any more.
    """
    marker = unique_seconds(3600)
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(boxes.run, spec, ["sh", "-c", 'touch begun; sleep "$0"', marker])
        await moment
        called = time.monotonic()
        tasks.cancel_scope.cancel()
    rest = await gone_after(marker, prompt_s)
    return None if rest is None else time.monotonic() - called


def test_a_run_cancelled_after_any_pass_of_the_loop_ends_its_tree(
    boxes: Boxes, ws: Path, loop: str, prompt_s: float
) -> None:
    """
    A run is cancelled after no pass of the event loop, after one, and so on: wherever
    each of its tasks waits then, the tree is gone within `prompt_s`, a second.

    Control: the command has begun in at least one of the runs, and would run for an hour.
    """
    spec = SandboxSpec.workspace_write(ws)

    async def main() -> list[float | None]:
        moments = [*map(passes, PASSES), begun(ws)]
        return [await cancelled_after(boxes, spec, 1, moment, prompt_s) for moment in moments]

    times = anyio.run(main, backend=loop)
    assert [seconds for seconds in times if seconds is None or seconds > prompt_s] == []
    assert (ws / "begun").exists(), "no run came so far as to start its command"


def test_a_run_cancelled_at_any_moment_ends_its_tree(boxes: Boxes, ws: Path, loop: str, prompt_s: float) -> None:
    """
    Runs are cancelled at random moments within their first quarter of a second, alone
    and three at a time: each tree is gone within a second.

    Control: the command has begun in at least one of them, and would run for an hour.
    """
    spec = SandboxSpec.workspace_write(ws)
    chance = random.Random()

    async def main() -> list[float | None]:
        moments = [(count, anyio.sleep(chance.random() * 0.25)) for count in (1, 3) * 8]
        times = [await cancelled_after(boxes, spec, count, moment, prompt_s) for count, moment in moments]
        return [*times, await cancelled_after(boxes, spec, 1, begun(ws), prompt_s)]

    times = anyio.run(main, backend=loop)
    assert [seconds for seconds in times if seconds is None or seconds > prompt_s] == []
    assert (ws / "begun").exists(), "no run came so far as to start its command"


__all__ = exported(globals(), "loop", "private_tmp", *FIXTURES)
