"""
The keeper of one command, run for real: what starts commands on macOS is plain POSIX, so
all but the look for marked processes works here as it does there.
"""

from __future__ import annotations

import marshal
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxkit.confine import child_code
from sandboxkit.errors import BrokerError, ProgramNotExecutableError, ProgramNotFoundError, SetupError
from sandboxkit.model import Confinement, LaunchPlan, PlanFile, Termination
from sandboxkit.process import interpreter, launch, run, shutdown
from sandboxkit.process._keeper import end_tree, members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.anyio
MARK = "org.example.kept"
BOOT = "import marshal,os;exec(marshal.loads(os.read(6,1<<24)))"


def direct(*argv: str, **fields: object) -> LaunchPlan:
    return LaunchPlan("direct", argv, mark=MARK, **fields)  # type: ignore[arg-type]  # each test names real fields


def shell(script: str, **environment: str) -> LaunchPlan:
    return direct("/bin/sh", "-c", script, environment=tuple(environment.items()))


def seated(
    *argv: str, cwd: str = "/", rlimits: tuple[tuple[str, int], ...] = (), program: str = "", **environment: str
) -> LaunchPlan:
    """
    The plan of a Seatbelt box, without the program that puts the sandbox on.
    """
    inner = Confinement(argv, tuple(environment.items()), cwd)
    order = {"argv": argv, "environment": inner.environment, "cwd": cwd, "rlimits": rlimits, "pass_fds": ()}
    return LaunchPlan(
        backend="seatbelt",
        argv=(program or interpreter(), "-I", "-S", "-c", BOOT, "5", "4"),
        status_fd=4,
        files=(PlanFile(5, marshal.dumps(order), ""), PlanFile(6, child_code("seated"), "")),
        confinement=inner,
        mark=MARK,
    )


@pytest.fixture
def nothing() -> Iterator[int]:
    """
    A descriptor that drops what is written to it.
    """
    fd = os.open(os.devnull, os.O_WRONLY)
    yield fd
    os.close(fd)


async def until(what: Callable[[], bool], seconds: float = 10.0) -> None:
    """
    Returns when *what* holds, and fails when it takes longer than *seconds*.
    """
    with anyio.fail_after(seconds):
        while not what():  # noqa: ASYNC110 - another process makes it so
            await anyio.sleep(0.02)


async def test_streams_exit_code_and_environment_are_the_commands_own() -> None:
    outcome = await run(shell("cat; env; pwd; echo err >&2; exit 3", A="1"), stdin=b"in\n" * 3)
    lines = outcome.stdout.splitlines()
    assert lines[:3] == [b"in"] * 3
    assert set(lines[3:]) == {b"A=1", b"PWD=/", b"/"}
    assert (outcome.stderr, outcome.exit_code, outcome.signal) == (b"err\n", 3, None)
    assert outcome.termination is Termination.EXITED
    assert outcome.usage is not None
    assert (outcome.usage.max_rss_bytes or 0) > 1 << 16


async def test_much_goes_in_and_out() -> None:
    outcome = await run(shell("cat"), stdin=b"x" * 3_000_000, max_output_bytes=4_000_000)
    assert len(outcome.stdout) == 3_000_000


async def test_a_signal_is_no_exit_code() -> None:
    outcome = await run(shell("kill -9 $$"))
    assert (outcome.exit_code, outcome.signal, outcome.termination) == (None, 9, Termination.SIGNALED)


async def test_the_deadline_ends_what_ignores_sigterm_and_its_children() -> None:
    outcome = await run(shell("trap '' TERM; sleep 60 & sleep 60"), timeout=0.3)
    assert outcome.termination is Termination.TIMED_OUT
    assert 0.3 <= outcome.duration_s < 5


async def test_what_is_left_in_the_group_is_ended_with_the_command() -> None:
    started = time.monotonic()
    outcome = await run(shell("sleep 60 & echo started"))
    assert outcome.stdout == b"started\n"
    assert time.monotonic() - started < 5  # it holds the pipe: without its end, this would wait for it


async def test_a_flood_of_output_is_ended() -> None:
    outcome = await run(shell("cat /dev/zero"), max_output_bytes=1000)
    assert outcome.termination is Termination.OUTPUT_LIMIT
    assert len(outcome.stdout) == 1000


INHERITED = """
import os
def is_open(fd):
    try: os.fstat(fd)
    except OSError: return False
    return True
print(os.getsid(0) == os.getpid(), [fd for fd in range(1000) if is_open(fd)])
"""


async def test_it_leads_a_session_of_its_own_and_inherits_nothing() -> None:
    canary = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(canary, True)
    try:
        outcome = await run(direct(interpreter(), "-I", "-S", "-c", INHERITED))
        control = subprocess.run(
            [sys.executable, "-c", INHERITED], capture_output=True, text=True, close_fds=False, check=True
        )
    finally:
        os.close(canary)
    assert outcome.stdout == b"True [0, 1, 2]\n"
    assert str(canary) in control.stdout
    assert control.stdout.startswith("False")


async def test_leaving_the_context_ends_it(nothing: int) -> None:
    async with launch(shell("sleep 60"), stdin=None, stdout=nothing, stderr=nothing) as running:
        await anyio.sleep(0.1)
    assert running.is_done


async def test_shutdown_ends_it(nothing: int) -> None:
    async with launch(shell("sleep 60"), stdin=None, stdout=nothing, stderr=nothing) as running:
        shutdown()
        with anyio.fail_after(5):
            await running.wait()
        assert running.outcome().termination is Termination.KILLED


async def test_signals_reach_the_command(nothing: int, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    plan = shell(f"trap 'exit 7' USR1; : > {ready}; while :; do sleep 0.05; done", PATH="/usr/bin:/bin")
    async with launch(plan, stdin=None, stdout=nothing, stderr=nothing) as running:
        await until(ready.exists)
        running.send_signal(signal.SIGUSR1)
        with anyio.fail_after(5):
            await running.wait()
        assert running.outcome().exit_code == 7


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(ProgramNotFoundError, match="no-such-program"):
        await run(direct("/no-such-program"))
    with pytest.raises(ProgramNotExecutableError):
        await run(direct("/etc/passwd"))


async def test_the_last_step_inside_sets_the_place_and_the_limits(tmp_path: Path) -> None:
    script = "pwd; ulimit -c; ulimit -n; echo $SECRET"
    plan = seated(
        "/bin/sh", "-c", script, cwd=str(tmp_path), rlimits=(("RLIMIT_CORE", 0), ("RLIMIT_NOFILE", 77)), SECRET="x"
    )
    outcome = await run(plan)
    assert outcome.stdout.decode().splitlines() == [str(tmp_path), "0", "77", "x"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 77, "only the command's"


async def test_variables_act_on_the_command_only() -> None:
    plan = seated("/bin/sh", "-c", "echo $PYTHONSTARTUP$LD_PRELOAD", PYTHONSTARTUP="/nowhere", LD_PRELOAD="/nowhere.so")
    outcome = await run(plan)
    assert outcome.stdout == b"/nowhere/nowhere.so\n"
    assert outcome.stderr.count(b"nowhere.so") == 1, "the command's loader complains, and no other"


async def test_what_cannot_be_executed_inside_is_no_exit_code() -> None:
    with pytest.raises(ProgramNotFoundError, match="in the seatbelt sandbox"):
        await run(seated("no-such-program", PATH="/usr/bin"))
    with pytest.raises(ProgramNotExecutableError):
        await run(seated("/etc/passwd"))
    with pytest.raises(SetupError, match="step 'cwd' failed"):
        await run(seated("/bin/true", cwd="/no/such/directory"))


async def test_a_sandbox_that_was_not_put_on_is_no_exit_code() -> None:
    """
    What sandbox-exec does with a profile it does not take: words, and an end of its own.
    """
    with pytest.raises(SetupError, match="not the program that was meant"):
        await run(direct_refusal("echo not the program that was meant >&2; exit 65"))
    with pytest.raises(SetupError, match="step 'launcher' failed"):
        await run(seated("/bin/true", program="/no-such-launcher"))


def direct_refusal(script: str) -> LaunchPlan:
    plan = seated("/bin/true")
    return LaunchPlan(
        plan.backend, ("/bin/sh", "-c", script), status_fd=4, files=plan.files, confinement=plan.confinement, mark=MARK
    )


APPLICATION = """
import anyio, os, sys
from sandboxkit.model import LaunchPlan
from sandboxkit.process import run
plan = LaunchPlan("direct", ("/bin/sh", "-c", "echo $$ > %s; sleep 60"), environment=(("PATH", "/usr/bin:/bin"),), mark="m")
if %r:
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "2"])
anyio.run(run, plan)
"""


@pytest.mark.parametrize("forks", [False, True])
async def test_an_application_that_is_killed_takes_its_command_along(tmp_path: Path, forks: bool) -> None:
    place = tmp_path / "pid"
    environ = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", APPLICATION % (place, forks)], env=environ) as application:
        await until(lambda: place.exists() and place.read_text().endswith("\n"))
        pid = int(place.read_text())
        assert is_alive(pid)
        application.kill()
    await until(lambda: not is_alive(pid), 5)


async def test_a_keeper_that_is_killed_is_reported(nothing: int) -> None:
    async with launch(shell("sleep 0.5"), stdin=None, stdout=nothing, stderr=nothing) as running:
        keeper = running._control._keeper  # type: ignore[union-attr]  # which of them this is is the point
        keeper.kill()
        await running.wait()
        with pytest.raises(BrokerError, match="nobody ends what it started"):
            running.outcome()
    await anyio.sleep(0.7)  # nothing ends what a killed keeper leaves


def is_alive(pid: int) -> bool:
    if sys.platform != "linux":
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are told by their variables in /proc")


@pytest.fixture
def runaway(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """
    A command whose child left its group, and the variable that marks both.
    """
    mark = os.urandom(8).hex()
    script = "sleep 30 & exec sleep 30"
    command = subprocess.Popen(
        ["/bin/sh", "-c", f"setsid sh -c '{script}' & wait"],
        env={"PATH": "/usr/bin:/bin", "MARKED": mark},
        start_new_session=True,
    )
    with command:
        deadline = time.monotonic() + 5
        while len(marked(mark)) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        yield command.pid, mark
        command.kill()


def marked(mark: str) -> list[int]:
    """
    What on macOS the kernel is asked for, here by a variable of the processes.
    """
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                if f"MARKED={mark}".encode() in (place / "environ").read_bytes() and is_alive(int(place.name)):
                    found.append(int(place.name))
            except OSError:
                continue  # it has just gone
    return found


@linux
def test_what_left_the_group_is_found_by_its_mark(runaway: tuple[int, str]) -> None:
    pid, mark = runaway
    assert len(marked(mark)) >= 3
    assert end_tree(pid, lambda: marked(mark))
    assert marked(mark) == []


@linux
def test_the_group_alone_does_not_reach_it(runaway: tuple[int, str]) -> None:
    pid, mark = runaway
    assert end_tree(pid, list)
    deadline = time.monotonic() + 2
    while pid in marked(mark) and time.monotonic() < deadline:
        time.sleep(0.01)
    left = marked(mark)
    assert left
    assert pid not in left
    assert end_tree(pid, lambda: marked(mark))


def test_patience_ends_and_is_told() -> None:
    child = subprocess.Popen(["/bin/sleep", "0"])
    child.wait()
    assert not end_tree(child.pid, lambda: [child.pid], patience=0.05), "what is found again and again is not ended"


@linux
def test_nobody_is_marked_without_macos() -> None:
    assert members(MARK) == []
