"""
The blocking door, from everywhere: threads, event loops, forks, and at the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import trio

import sandboxkit
from sandboxkit import (
    CommandDeniedError,
    CommandError,
    CommandFailedError,
    ProgramNotFoundError,
    SandboxSpec,
    ShutDownError,
    SpecError,
    sync,
)
from sandboxkit.process import Loop, shared_loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.requires("bubblewrap")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SandboxSpec:
    monkeypatch.chdir(tmp_path)
    return SandboxSpec.workspace_write()


def _said(spec: SandboxSpec) -> str:
    return sync.run(["echo", "hello"], spec=spec).check().text()


def test_it_runs_where_no_loop_is(spec: SandboxSpec) -> None:
    assert _said(spec) == "hello\n"


def test_it_runs_inside_asyncio(spec: SandboxSpec) -> None:
    async def main() -> str:
        return _said(spec)

    assert asyncio.run(main()) == "hello\n"


def test_it_runs_inside_trio(spec: SandboxSpec) -> None:
    async def main() -> str:
        return _said(spec)

    assert trio.run(main) == "hello\n"


def test_it_runs_beside_the_async_door(spec: SandboxSpec) -> None:
    async def main() -> tuple[str, str]:
        result, said = await asyncio.gather(
            sandboxkit.run(["echo", "hello"], spec=spec), asyncio.to_thread(_said, spec)
        )
        return result.text(), said

    assert asyncio.run(main()) == ("hello\n", "hello\n")


@pytest.mark.timeout(180)
def test_two_hundred_threads_share_one_loop(spec: SandboxSpec) -> None:
    before = threading.active_count()
    with ThreadPoolExecutor(200) as pool:
        results = list(pool.map(lambda number: sync.run(["echo", str(number)], spec=spec).check().text(), range(200)))
    assert results == [f"{number}\n" for number in range(200)]
    assert threading.active_count() <= before + 1


def test_a_call_adds_less_than_a_millisecond() -> None:
    async def nothing() -> None: ...

    loop, times = shared_loop(), []
    for _ in range(500):
        started = time.perf_counter()
        loop.call(nothing)
        times.append(time.perf_counter() - started)
    assert statistics.median(times) < 0.001


def test_route_says_where_it_ran_and_why(spec: SandboxSpec) -> None:
    routed = sync.route(["true"], spec=spec)
    assert routed.mode == "sandbox"
    assert routed.backend == routed.result.backend != "direct"
    assert routed.evaluation.reason


def test_input_directory_and_deadline_are_passed_on(spec: SandboxSpec, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    assert sync.run(["cat"], spec=spec, stdin=b"given\0bytes").stdout == b"given\0bytes"
    assert sync.run(["pwd"], spec=spec, cwd=tmp_path / "below").text() == f"{tmp_path}/below\n"
    assert sync.run(["sleep", "60"], spec=spec, timeout=0.2).termination is sandboxkit.Termination.TIMED_OUT


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("", CommandError),
        ([], CommandError),
        ("a\0b", CommandError),
        (["echo", "a\0b"], CommandError),
        (["no-such-program-anywhere"], ProgramNotFoundError),
        ("rm -rf /", CommandDeniedError),
    ],
)
def test_failures_are_those_of_the_async_door(
    spec: SandboxSpec, command: str | list[str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        sync.run(command, spec=spec)


def test_an_argument_of_a_megabyte_is_refused_as_one(spec: SandboxSpec) -> None:
    with pytest.raises(CommandError, match="pass the data by stdin or a file"):
        sync.run(["echo", "x" * (1 << 20)], spec=spec)


def test_a_box_runs_several_commands(spec: SandboxSpec, tmp_path: Path) -> None:
    with sync.open_sandbox(spec) as box:
        box.run(["sh", "-c", "echo one > file"]).check()
        assert box.run(["cat", "file"], cwd=str(tmp_path)).text() == "one\n"
        assert box.run(["cat"], stdin=b"two").stdout == b"two"
        assert box.run(["sleep", "60"], timeout=0.2).termination is sandboxkit.Termination.TIMED_OUT
        assert box.run(["printenv"], environment={"A": "b"}).text() == "A=b\n"
        assert box.spec == spec
        assert box.enforcement.grade(sandboxkit.Control.FS_WRITE) is sandboxkit.Grade.ENFORCED


def test_what_the_body_raises_comes_out(spec: SandboxSpec) -> None:
    with pytest.raises(CommandFailedError), sync.open_sandbox(spec) as box:
        box.run(["false"]).check()


def test_a_box_that_cannot_open_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(SpecError, match="does not exist"),
        sync.open_sandbox(SandboxSpec.workspace_write(tmp_path / "missing")),
    ):
        pass


def test_it_goes_on_after_shutdown(spec: SandboxSpec) -> None:
    sandboxkit.shutdown()
    assert _said(spec) == "hello\n"


def test_an_approver_may_use_the_blocking_door(spec: SandboxSpec) -> None:
    seen: list[str] = []

    async def approve(_request: sandboxkit.ApprovalRequest) -> sandboxkit.ApprovalReply:
        seen.append(_said(spec))
        return sandboxkit.ApprovalReply(approved=True)

    policy = sandboxkit.ExecPolicy.from_dict({"rules": [{"id": "asks", "prefix": ["true"], "action": "ask"}]})
    router = sandboxkit.AutoSandboxRouter(policy=policy, approver=sandboxkit.CallbackApprover(approve))
    assert sync.run(["true"], spec=spec, router=router).ok
    assert seen == ["hello\n"]


def test_a_box_cannot_wait_for_itself(spec: SandboxSpec) -> None:
    with sync.open_sandbox(spec) as box:

        async def inside() -> None:
            box.run(["true"])

        with pytest.raises(RuntimeError, match="on the loop that runs it"):
            box._loop.call(inside)


# --- fork -----------------------------------------------------------------------------


def _in_child(action: Callable[[], object]) -> str:
    """
    What a forked child writes: the repr of what *action* gives, or of what it raises.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                answer = repr(action())
            except Exception as exc:  # noqa: BLE001 - the parent looks at it
                answer = f"{type(exc).__name__}: {exc}"
            os.write(writer, answer.encode())
            sandboxkit.shutdown()
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:
        answer = stream.read().decode()
    os.waitpid(pid, 0)
    return answer


def test_a_forked_child_starts_anew_and_the_parent_goes_on(spec: SandboxSpec) -> None:
    assert _said(spec) == "hello\n"
    assert _in_child(lambda: _said(spec)) == repr("hello\n")
    assert _said(spec) == "hello\n"


def test_a_box_stays_with_the_process_that_opened_it(spec: SandboxSpec) -> None:
    with sync.open_sandbox(spec) as box:
        assert _in_child(lambda: box.run(["true"])).startswith("ShutDownError: this belongs to the process")
        assert box.run(["echo", "mine"]).text() == "mine\n"


def test_a_fork_inside_the_body_leaves_the_box_to_the_parent(spec: SandboxSpec) -> None:
    opened = sync.open_sandbox(spec)
    box = opened.__enter__()
    assert _in_child(lambda: opened.__exit__(None, None, None)) == "False"
    assert box.run(["echo", "mine"]).text() == "mine\n"
    opened.__exit__(None, None, None)


# --- the end --------------------------------------------------------------------------

FORKED = """
import os, sys
from sandboxkit import SandboxSpec, sync
spec = SandboxSpec.workspace_write(".")
sync.run(["true"], spec=spec)
if os.fork() == 0:
    if "use" in sys.argv:
        sync.run(["true"], spec=spec)
    sys.exit(7)  # with everything an interpreter does at its end
print(os.waitstatus_to_exitcode(os.wait()[1]), sync.run(["true"], spec=spec).outcome, flush=True)
"""

NO_DESCRIPTORS = """
import os, resource
from sandboxkit import SandboxError, SandboxSpec, router, sync
spec = SandboxSpec.workspace_write(".")
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, limits[1]))
try:
    sync.run(["true"], spec=spec)
except SandboxError as exc:
    print(type(exc).__name__, flush=True)
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
print(sync.run(["true"], spec=spec).outcome, flush=True)
"""

INTERRUPTED = """
import sys
from sandboxkit import SandboxSpec, sync
print("ready", flush=True)
try:
    sync.run(["sh", "-c", "touch started; sleep MARK"], spec=SandboxSpec.workspace_write("."))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

INTERRUPTED_IN_BOX = """
from sandboxkit import SandboxSpec, sync
print("ready", flush=True)
try:
    with sync.open_sandbox(SandboxSpec.workspace_write(".")) as box:
        box.run(["sh", "-c", "touch started; sleep MARK"])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

LEFT_RUNNING = """
import pathlib, threading, time
from sandboxkit import SandboxSpec, sync
def work():
    try:
        sync.run(["sh", "-c", "touch started; sleep MARK"], spec=SandboxSpec.workspace_write("."))
    except Exception as exc:
        print(type(exc).__name__, flush=True)
threading.Thread(target=work, daemon=True).start()
while not pathlib.Path("started").exists():
    time.sleep(0.01)
"""

TOO_LATE = """
import atexit
def late():
    from sandboxkit import SandboxSpec, sync
    try:
        sync.run(["true"], spec=SandboxSpec.workspace_write("."))
    except Exception as exc:
        print(type(exc).__name__, flush=True)
atexit.register(late)
from sandboxkit import SandboxSpec, sync
sync.run(["true"], spec=SandboxSpec.workspace_write("."))
"""


def _mark(directory: Path) -> str:
    """
    How long the command of a test in *directory* sleeps: what no other test's does.
    """
    return f"61.{zlib.crc32(bytes(directory)):010d}"


def _started(code: str, directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code.replace("MARK", _mark(directory))],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, "the command did not start"
        time.sleep(0.01)


def _is_running(marker: str) -> bool:
    return subprocess.run(["pgrep", "-f", marker], stdout=subprocess.DEVNULL, check=False).returncode == 0


@pytest.mark.parametrize("code", [INTERRUPTED, INTERRUPTED_IN_BOX], ids=["run", "box"])
def test_ctrl_c_ends_the_command_first(tmp_path: Path, code: str) -> None:
    with _started(code, tmp_path) as program:
        _wait_for(tmp_path / "started")
        asked = time.monotonic()
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=20)
    assert (out, err) == ("ready\ninterrupted\n", "")
    assert time.monotonic() - asked < 5
    assert not _is_running(f"sleep {_mark(tmp_path)}")


def test_the_interpreter_ends_promptly_whatever_runs(tmp_path: Path) -> None:
    started = time.monotonic()
    with _started(LEFT_RUNNING, tmp_path) as program:
        out, err = program.communicate(timeout=30)
    assert program.returncode == 0
    assert err == ""
    assert out in ("", "ShutDownError\n")
    assert time.monotonic() - started < 15
    assert not _is_running(f"sleep {_mark(tmp_path)}")


def test_a_process_without_descriptors_says_so_and_recovers(tmp_path: Path) -> None:
    with _started(NO_DESCRIPTORS, tmp_path) as program:
        out, err = program.communicate(timeout=30)
    assert (out, err) == ("LaunchError\nexited with code 0\n", "")


@pytest.mark.parametrize("word", ["use", "leave"])
def test_a_forked_child_ends_like_any_other(tmp_path: Path, word: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKED, word],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("7 exited with code 0\n", "")


def test_a_call_after_the_end_is_refused(tmp_path: Path) -> None:
    with _started(TOO_LATE, tmp_path) as program:
        out, err = program.communicate(timeout=30)
    assert (out, err, program.returncode) == ("ShutDownError\n", "", 0)


def test_a_closed_loop_takes_no_more() -> None:
    loop = Loop()

    async def nothing() -> None: ...

    loop.call(nothing)
    loop.close()
    loop.close()
    with pytest.raises(ShutDownError):
        loop.call(nothing)
