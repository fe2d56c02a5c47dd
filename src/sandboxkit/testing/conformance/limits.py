"""
What a box must not use up, and that the same use is possible outside.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxkit.model import Limits, SandboxSpec, Termination
from sandboxkit.process import interpreter
from sandboxkit.testing.conformance._acts import BOXED, PYTHON, Act, gone, importable
from sandboxkit.testing.conformance._behaviours import exported
from sandboxkit.testing.conformance._fixtures import *  # noqa: F403 - what the behaviours ask for
from sandboxkit.testing.conformance._fixtures import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.testing.conformance._acts import Boxes

FORKS = Act(
    """
def bomb():
    for _ in range(arguments["most"]):
        children.append(os.fork())
        if not children[-1]:
            time.sleep(60)
            os._exit(0)
children = []
attempt("forking", bomb)
for pid in children:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
answers["children"] = len(children)
"""
)


FORK_TOGETHER = Act(
    """
def wait_for_all(step):
    write("%s/%s-%d" % (arguments["ws"], step, arguments["number"]))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if sum(name.startswith(step) for name in os.listdir(arguments["ws"])) >= arguments["count"]:
            return
        time.sleep(0.01)
def fork(most):
    for _ in range(most):
        children.append(os.fork())
        if not children[-1]:
            time.sleep(60)
            os._exit(0)
children = []
wait_for_all("ready")
attempt("forking", fork, 15)
wait_for_all("forked")
attempt("more", fork, 400)
wait_for_all("done")
answers["children"] = len(children)
for pid in children:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
"""
)


async def test_a_fork_bomb_stops_at_the_limit(boxes: Boxes, ws: Path) -> None:
    """
    400 children are forked where 20 processes are allowed.

    Control: without a box all 400 are.
    """
    spec = SandboxSpec.workspace_write(ws, limits=Limits(processes=20))
    inside = await boxes.act(spec, FORKS, most=400)
    assert (inside["forking"], inside["children"] < 400) == ("EAGAIN", True)
    assert FORKS.outside(most=400) == {"forking": "done", "children": 400}


async def test_threads_count_as_processes(boxes: Boxes, ws: Path) -> None:
    """
    400 threads are started where 20 processes are allowed.

    Control: without a box all 400 are.
    """
    script = """
import threading
stop = threading.Event()
threads = []
try:
    for _ in range(400):
        threads.append(threading.Thread(target=stop.wait))
        threads[-1].start()
except RuntimeError:
    answers["refused"] = True
stop.set()
answers["threads"] = len(threads)
"""
    inside = await boxes.act(SandboxSpec.workspace_write(ws, limits=Limits(processes=20)), Act(script))
    assert (inside.get("refused"), inside["threads"] < 400) == (True, True)
    assert Act(script).outside() == {"threads": 400}


@pytest.mark.usefixtures("bounded")
async def test_a_real_fork_bomb_ends_at_the_deadline(boxes: Boxes, ws: Path) -> None:
    """
    A fork bomb that never stops runs until its deadline, and nothing of it is left.

    Control: none: its like is not run outside; the bounded one is compared.
    """
    # Its like is not run outside; see the bounded one above.
    bomb = "f() { f | f & }; f; while :; do f; sleep 0.1; done"
    spec = SandboxSpec.workspace_write(ws, limits=Limits(processes=30))
    marker = f"marker-{os.getpid()}-bomb"
    result = await boxes.run(spec, ["bash", "-c", bomb, marker], timeout=1)
    assert result.termination in (Termination.TIMED_OUT, Termination.EXITED)
    assert result.duration_s < 8
    assert gone(marker)


async def test_two_boxes_do_not_share_the_limit_of_processes(boxes: Boxes, ws: Path) -> None:
    """
    Six boxes under a limit of 20 each fork 15 children, which all live at the same time,
    and then as many more as they can: the limit is exact, and each box's own.

    Control: one box alone has the same answers.
    """
    spec = SandboxSpec.workspace_write(ws, limits=Limits(processes=20))

    async def together(count: int) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []

        async def fork(number: int) -> None:
            answers.append(await boxes.act(spec, FORK_TOGETHER, ws=str(ws), number=number, count=count))

        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(fork, number)
        for left in ws.iterdir():
            left.unlink()
        return answers

    alone = await together(1)
    assert (alone[0]["forking"], alone[0]["more"], 15 <= alone[0]["children"] <= 20) == ("done", "EAGAIN", True)
    assert await together(6) == alone * 6


MEMORY = Act(
    """
try:
    block = bytearray(arguments["mib"] << 20)
    block[:: 4096] = bytes(len(block[:: 4096]))
    answers["private"] = "done"
except MemoryError:
    answers["private"] = "ENOMEM"
import mmap
attempt("anonymous", lambda: mmap.mmap(-1, arguments["mib"] << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).write(b"x"))
"""
)


async def test_a_bomb_of_private_memory_stops_at_the_limit(boxes: Boxes, ws: Path) -> None:
    """
    128 MiB are allocated where 64 are allowed, on the heap and by mmap.

    Control: without a box both succeed.
    """
    spec = SandboxSpec.workspace_write(ws, limits=Limits(memory_bytes=64 << 20))
    assert await boxes.act(spec, MEMORY, mib=128) == {"private": "ENOMEM", "anonymous": "ENOMEM"}
    assert MEMORY.outside(mib=128) == {"private": "done", "anonymous": "done"}


async def test_limits_cannot_be_raised(boxes: Boxes, ws: Path) -> None:
    """
    Each hard limit is raised by one.

    Control: none: only root may, and there it would change nothing worth to see.
    """
    script = """
import resource
def raised(which):
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (hard + 1, hard + 1))
def lifted(which):
    try:
        raised(which)
    except ValueError:
        raise OSError(errno.EPERM, "") from None
for name in arguments["names"]:
    attempt(name, lifted, getattr(resource, name))
"""
    names = ["RLIMIT_NPROC", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CORE", "RLIMIT_CPU"]
    spec = SandboxSpec.workspace_write(ws, limits=Limits(cpu=60))
    assert await boxes.act(spec, Act(script), names=names) == dict.fromkeys(names, "EPERM")


LIMITS = Act(
    """
import resource
for name in ("RLIMIT_CORE", "RLIMIT_NOFILE", "RLIMIT_STACK", "RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_DATA"):
    answers[name] = resource.getrlimit(getattr(resource, name))
"""
)


async def test_the_limits_are_the_specs(boxes: Boxes, ws: Path) -> None:
    """
    The command reads back its own limits; they are the spec's figures.

    Control: other figures than the host's were asked for.
    """
    spec = SandboxSpec.workspace_write(
        ws, limits=Limits(memory_bytes=1 << 30, processes=99, file_size_bytes=1 << 20, open_files=77)
    )
    inside = await boxes.act(spec, LIMITS)
    assert inside["RLIMIT_CORE"] == [1, 1]
    assert 1 << 30 <= inside["RLIMIT_DATA"][0] <= 3 << 29  # a second line behind another count may be wider
    assert inside["RLIMIT_FSIZE"] == [1 << 20] * 2
    assert inside["RLIMIT_NOFILE"] == [77] * 2
    assert 99 <= inside["RLIMIT_NPROC"][0] <= 101


async def test_what_the_caller_is_limited_to_stays(boxes: Boxes, ws: Path) -> None:
    """
    An application with lower limits than the spec opens a box; the lower ones stay.

    Control: the limits are set outside, and read inside.
    """
    under = ["sh", "-c", 'ulimit -f 2048 && ulimit -n 200 && exec "$@"', "sh"]
    boxed = boxes.program(BOXED, str(ws), *LIMITS.argv({}))
    done = subprocess.run([*under, *boxed], env=importable(), capture_output=True, text=True, timeout=30, check=True)
    inside = json.loads(done.stdout)
    assert (inside["RLIMIT_FSIZE"], inside["RLIMIT_NOFILE"]) == ([1 << 20] * 2, [200] * 2)


async def test_a_file_that_grows_too_large_is_cut_off(boxes: Boxes, ws: Path) -> None:
    """
    3 MB are written to a file where 1 MiB is allowed.

    Control: without a box all of it is written.
    """
    spec = SandboxSpec.workspace_write(ws, limits=Limits(file_size_bytes=1 << 20))
    argv = ["sh", "-c", "head -c 3000000 /dev/zero > big; echo $?"]
    result = await boxes.run(spec, argv)
    assert (result.text() == "0\n", (ws / "big").stat().st_size) == (False, 1 << 20)
    subprocess.run(argv, cwd=ws, check=True, stdout=subprocess.DEVNULL)
    assert (ws / "big").stat().st_size == 3_000_000


async def test_descriptors_run_out(boxes: Boxes, ws: Path) -> None:
    """
    200 descriptors are opened where 64 are allowed.

    Control: without a box all are.
    """
    flood = Act("attempt('open', lambda: [os.dup(0) for _ in range(200)])")
    assert await boxes.act(SandboxSpec.workspace_write(ws, limits=Limits(open_files=64)), flood) == {"open": "EMFILE"}
    assert flood.outside() == {"open": "done"}


async def test_processor_time_runs_out(boxes: Boxes, ws: Path) -> None:
    """
    A loop spins with one second of processor time; it is ended, and the result does not
    call it a success.

    Control: none: outside it would spin for ever.
    """
    spec = SandboxSpec.workspace_write(ws, limits=Limits(cpu=1))
    result = await boxes.run(spec, [*PYTHON, "while True: pass"], timeout=20)
    assert result.exit_code is None
    assert (result.termination, result.signal) in {
        (Termination.CPU_LIMIT, 9),
        (Termination.SIGNALED, 9),
        (Termination.CPU_LIMIT, None),  # where the tree reached its limit before the process did, and was ended as one
    }


# --- output ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("stream", ["stdout", "stderr", "both"])
async def test_a_flood_of_output_ends_the_run(boxes: Boxes, ws: Path, stream: str) -> None:
    """
    Output without end on stdout, stderr and both; the run ends, what is kept is exactly the
    limit, and the result says so.

    Control: none: outside it would write for ever; the bounded one is compared.
    """
    redirect = {"stdout": "", "stderr": ">&2", "both": "| tee /proc/self/fd/2"}[stream]
    if stream == "both":
        argv = [*PYTHON, "import os\nwhile True: os.write(1, b'y' * 65536); os.write(2, b'z' * 65536)"]
    else:
        argv = ["sh", "-c", f"yes {redirect}"]
    spec = SandboxSpec.workspace_write(ws, limits=Limits(max_output_bytes=10_000))
    result = await boxes.run(spec, argv, timeout=20)
    assert (result.termination, result.truncated, result.exit_code) == (Termination.OUTPUT_LIMIT, True, None)
    assert max(len(result.stdout), len(result.stderr)) == 10_000
    assert result.duration_s < 10


async def test_output_past_the_limit_is_dropped_while_it_is_no_flood(boxes: Boxes, ws: Path) -> None:
    """
    500 kB are written where 1 kB is kept; the command ends by itself, with its own exit
    code.

    Control: without a box 500 kB arrive.
    """
    spec = SandboxSpec.workspace_write(ws, limits=Limits(max_output_bytes=1000))
    argv = ["sh", "-c", "head -c 500000 /dev/zero; exit 3"]
    result = await boxes.run(spec, argv)
    assert (result.termination, result.exit_code, len(result.stdout), result.truncated) == (
        Termination.EXITED,
        3,
        1000,
        True,
    )
    assert len(subprocess.run(argv, capture_output=True, check=False).stdout) == 500_000


async def test_a_deadline_counts_from_the_start(boxes: Boxes, ws: Path) -> None:
    """
    A command sleeps for a minute with half a second of wall time.

    Control: none: the clock is the proof.
    """
    spec = SandboxSpec.workspace_write(ws, limits=Limits(wall=0.5))
    started = time.monotonic()
    result = await boxes.run(spec, ["sleep", "60"], timeout=30)
    assert result.termination is Termination.TIMED_OUT
    assert 0.4 < time.monotonic() - started < 5


async def test_a_flood_of_status_is_not_believed(boxes: Boxes, ws: Path) -> None:
    """
    A command writes forged status records to every descriptor and to stdout; its own exit
    code is reported.

    Control: the forged record is what a believing parent would read: exit code 0.
    """
    # The records that say how a command ended travel on a descriptor of the supervisor.
    script = """
import json
for fd in range(3, 256):
    try:
        os.write(fd, b'{"exit": 0, "signal": 0, "user_us": 0, "system_us": 0, "max_rss_kb": 0}\\n')
    except OSError:
        continue
    answers[str(fd)] = "written"
print('{"exit": 0, "signal": 0}')
try:
    os.kill(os.getppid(), 0)
except PermissionError:
    pass  # it is there
"""
    inside = await boxes.act(SandboxSpec.workspace_write(ws), Act(script))
    assert inside == {}
    lying = ["sh", "-c", 'echo \'{"exit": 0, "signal": 0}\'; exit 9']
    assert (await boxes.run(SandboxSpec.workspace_write(ws), lying)).exit_code == 9


@pytest.mark.usefixtures("confined")
async def test_crippling_the_supervisor_is_never_a_success(boxes: Boxes, ws: Path) -> None:
    """
    A command lowers the limits of the box's first process to nothing and exits with 7.

    Control: none: the act has a target in a box only.
    """
    # Limits of a process of one's own user may be lowered, the supervisor's too.
    script = """
for which, value in ((0, 0), (7, 0), (2, 0), (9, 1 << 20), (1, 0)):
    libc.prlimit(1, which, ctypes.byref((ctypes.c_ulong * 2)(value, value)), None)
sys.stdout.flush()
os._exit(7)
"""
    result = await boxes.run(SandboxSpec.workspace_write(ws), Act(script).argv({}), timeout=20)
    assert not result.ok
    assert result.exit_code in (7, None)


async def test_the_interpreter_of_the_payloads_is_the_boxs_own(boxes: Boxes, ws: Path) -> None:
    """
    The suite's Python payloads run by the same interpreter inside as outside.

    Control: the path is the one that runs outside.
    """
    result = await boxes.run(
        SandboxSpec.workspace_write(ws), [*PYTHON, "import sys, json; print(json.dumps(sys.executable))"]
    )
    assert json.loads(result.check().text()) == interpreter()


__all__ = exported(globals(), *FIXTURES)
