"""
What a box promises apart from its walls: results, streams, files, and nothing left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.backends.landlock.conftest import SHARED, workspace
from tests.conformance.conftest import gone, running

from sandboxkit.backends import attack
from sandboxkit.backends.landlock._scratch import scratch
from sandboxkit.errors import BackendError, FileAccessError, ProgramNotExecutableError, ProgramNotFoundError
from sandboxkit.model import Control, EnvironmentPolicy, Grade, Limits, SandboxSpec, Termination

if TYPE_CHECKING:
    from sandboxkit.backends.landlock import LandlockBackend

pytestmark = pytest.mark.anyio


async def test_the_shared_attack_finds_what_is_claimed(backend: LandlockBackend, ws: Path) -> None:
    verified = await attack(backend)
    assert verified.failure == ""
    grades = {finding.control: finding.grade for finding in verified.findings}
    assert grades.pop(Control.PROCESS_ISOLATION) is Grade.PARTIAL
    assert set(grades.values()) == {Grade.ENFORCED}


async def test_exit_codes_signals_and_missing_programs(backend: LandlockBackend, ws: Path) -> None:
    (ws / "plain").write_text("x")
    async with backend.open(workspace(ws)) as box:
        said = await box.run(["sh", "-c", "exit 137"])
        killed = await box.run(["sh", "-c", "kill -9 $$"])
        with pytest.raises(ProgramNotFoundError, match="'no-such-program' was not found in the landlock sandbox"):
            await box.run(["no-such-program"])
        with pytest.raises(ProgramNotExecutableError):
            await box.run([f"{ws}/plain"])
        late = await box.run(["sleep", "30"], timeout=0.3)
    assert (said.exit_code, said.termination) == (137, Termination.EXITED)
    assert (killed.signal, killed.termination) == (signal.SIGKILL, Termination.SIGNALED)
    assert late.termination is Termination.TIMED_OUT
    assert late.duration_s < 3
    assert said.backend == "landlock"
    assert said.usage is not None


async def test_limits_of_one_process_hold(backend: LandlockBackend, ws: Path) -> None:
    spec = SandboxSpec.workspace_write(
        ws, limits=Limits(cpu=1.0, file_size_bytes=1000), allow_degraded=SHARED | {Control.LIMITS_CPU}
    )
    async with backend.open(spec) as box:
        spun = await box.run(["sh", "-c", "while :; do :; done"], timeout=30)
        written = await box.run(["sh", "-c", "head -c 5000 /dev/zero >big"])
    assert spun.termination is Termination.CPU_LIMIT
    assert not written.ok
    assert (ws / "big").stat().st_size == 1000


async def test_files_are_reached_through_the_box(backend: LandlockBackend, ws: Path) -> None:
    async with backend.open(workspace(ws)) as box:
        await box.files.write("a b", b"x\0y")
        assert await box.files.read("a b") == b"x\0y"
        assert await box.files.list() == ("a b",)
        await box.files.remove("a b")
        with pytest.raises(FileAccessError, match="Permission denied"):
            await box.files.write("/etc/x", b"")
    with pytest.raises(BackendError, match="closed"):
        await box.run(["true"])


async def test_a_started_command_streams_takes_signals_and_descriptors(backend: LandlockBackend, ws: Path) -> None:
    ours, theirs = os.pipe()
    script = f"echo ready; read line; echo $line; trap 'exit 4' TERM; echo fd >&{theirs}; while :; do sleep 0.05; done"
    try:
        async with (
            backend.open(workspace(ws)) as box,
            box.start(["bash", "-c", script], stdin=-1, pass_fds={theirs}) as process,
        ):
            assert process.stdin
            assert process.stdout
            assert await process.stdout.receive() == b"ready\n"
            await process.stdin.send(b"line\n")
            assert await process.stdout.receive() == b"line\n"
            await anyio.wait_readable(ours)
            assert os.read(ours, 10) == b"fd\n"
            process.send_signal(signal.SIGTERM)
            assert (await process.wait()).exit_code == 4
    finally:
        os.close(ours)
        os.close(theirs)


async def test_descriptors_and_environment_are_those_of_the_spec(
    backend: LandlockBackend, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_CANARY", "x")
    one, other = os.pipe()
    os.set_inheritable(one, True)
    async with backend.open(workspace(ws)) as box:
        shown = await box.run(["sh", "-c", "ls /proc/self/fd; env"])
    os.close(one)
    os.close(other)
    lines = shown.text().splitlines()
    assert lines[:4] == ["0", "1", "2", "3"]  # the last is ls's own
    assert "SECRET_CANARY" not in shown.text()


async def test_home_and_temporary_files_are_private_and_go(backend: LandlockBackend, ws: Path) -> None:
    async with backend.open(workspace(ws)) as box:
        private = Path((await box.run(["sh", "-c", "echo $TMPDIR"])).text().strip()).parent
        made = await box.run(
            ["sh", "-c", "echo x >$HOME/a; echo x >$TMPDIR/b; mkdir $TMPDIR/c; umask 777; mkdir $TMPDIR/c/d; ls $HOME"]
        )
        kept = await box.run(["sh", "-c", "cat $HOME/a; echo x >/tmp/sandboxkit-must-not-be"])
        assert private.name.startswith("sandboxkit-landlock-")
        assert private.is_dir()
    assert made.text() == "a\n"
    assert kept.text() == "x\n"
    assert not kept.ok
    assert not private.exists()
    assert not Path("/tmp/sandboxkit-must-not-be").exists()


async def test_an_application_without_a_home_variable_gets_a_private_home_too(
    backend: LandlockBackend, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    own = "/its/own"
    told = workspace(ws).model_copy(update={"environment": EnvironmentPolicy(set={"HOME": own})})
    async with backend.open(workspace(ws)) as box:
        made = await box.run(["sh", "-c", "cd; echo x >made; echo $HOME; ls; echo $TMPDIR"])
    async with backend.open(told) as box:
        kept = await box.run(["sh", "-c", "echo $HOME"])
    home, listed, temporary = made.text().splitlines()
    assert (os.path.dirname(home), listed) == (os.path.dirname(temporary), "made")
    assert kept.text() == f"{own}\n"


KILLED = """
import os, signal, sys
import anyio
from sandboxkit.backends.landlock import LandlockBackend
from sandboxkit.model import SandboxSpec

async def main():
    spec = SandboxSpec.workspace_write(sys.argv[1], allow_degraded={"process.isolation", "limits.processes"})
    async with LandlockBackend().open(spec) as box:
        print((await box.run(["sh", "-c", "echo x >$HOME/a; echo $HOME"])).text(), end="", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main)
"""


async def test_what_a_killed_application_left_goes_with_the_next_box(backend: LandlockBackend, ws: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(ws)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = Path(done.stdout.strip()).parent
    assert left.is_dir()
    async with backend.open(workspace(ws)) as box, backend.open(workspace(ws)):
        assert not left.exists()
        assert (await box.run(["sh", "-c", "echo x >$HOME/a"])).ok  # one that is open stays


async def test_boxes_that_open_and_sweep_at_once_keep_their_directories() -> None:
    """
    One that was made and not locked yet looks like one that was left.
    """

    def many() -> None:
        for _ in range(100):
            with scratch(b"", None) as directory:
                assert Path(directory, "home").is_dir()

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(anyio.to_thread.run_sync, many)


async def test_a_box_that_is_left_ends_what_runs_in_it(backend: LandlockBackend, ws: Path) -> None:
    marker = f"left-{os.getpid()}"
    with anyio.move_on_after(0.5):
        async with backend.open(workspace(ws)) as box:
            await box.run(["sh", "-c", "setsid sleep 60 & sleep 60", marker])
    assert gone(marker)


async def test_a_plan_can_be_read(backend: LandlockBackend, ws: Path) -> None:
    from sandboxkit.model import Invocation

    spec = workspace(ws)
    found = await backend.detect(spec)
    plan = backend.plan(Invocation(("true",), (), str(ws)), spec, found.facts)
    assert plan.confinement
    assert plan.confinement.landlock
    granted = dict(plan.confinement.landlock.paths)
    assert str(ws) in granted
    assert "/tmp" not in granted
    assert "command   true" in plan.describe()


async def test_many_boxes_at_once_do_not_end_each_other(backend: LandlockBackend, ws: Path) -> None:
    marker = f"many-{os.getpid()}"
    codes: dict[int, int | None] = {}
    private: set[str] = set()

    async def one(number: int) -> None:
        async with backend.open(workspace(ws)) as box:
            script = f"echo $TMPDIR; setsid sleep 60 & sleep 0.{number % 5}; exit {number}"
            result = await box.run(["sh", "-c", script, marker])
            codes[number] = result.exit_code
            private.add(result.text().strip())

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(one, number)
    assert codes == {number: number for number in range(30)}
    assert gone(marker)
    assert len(private) == 30
    assert not any(map(os.path.exists, private))


async def test_boxes_of_one_user_cannot_reach_each_other(backend: LandlockBackend, ws: Path, outside: Path) -> None:
    marker = f"neighbour-{os.getpid()}"
    async with (
        backend.open(workspace(ws)) as one,
        backend.open(workspace(outside)) as other,
        one.start(["sh", "-c", "echo $HOME; sleep 60 & wait", marker], stdout=-1) as process,
    ):
        assert process.stdout
        home = (await process.stdout.receive()).decode().strip()
        pid, *_ = running(marker)  # what is to be sleep may still have the shell's words
        tried = await other.run(["sh", "-c", f"kill -0 {pid}; cat /proc/{pid}/environ; echo x >{home}/a; ls {home}"])
        assert tried.stdout == b""
        assert tried.text("stderr").count("ermitted") == 1
        assert tried.text("stderr").count("ermission denied") == 3


async def test_writes_cannot_be_discarded(backend: LandlockBackend, ws: Path) -> None:
    async with backend.open(workspace(ws)) as box:
        with pytest.raises(BackendError, match="landlock cannot discard what a command writes"):
            await box.run(["true"], discard=True)
