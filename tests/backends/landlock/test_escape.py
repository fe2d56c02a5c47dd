"""
Ways out of a box without namespaces. Each act is tried outside first, where it succeeds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.backends.landlock.conftest import IS_ROOT, OTHER_UID, SHARED, SYSTEM_PYTHON, workspace
from tests.conformance.conftest import PYTHON, Act, gone, running

from sandboxkit.model import Control, Limits, SandboxSpec, Termination

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.backends.landlock import LandlockBackend

pytestmark = pytest.mark.anyio


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """
    A process of the same user outside.
    """
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


LOOKS = """
import os, sys
hidden = sys.argv[1]
print(os.stat(hidden + "/file").st_size, os.readlink(hidden + "/seen"))
for refused in (lambda: open(hidden + "/file"), lambda: os.listdir(hidden)):
    try:
        refused()
    except PermissionError as error:
        print(error.errno)
"""


async def test_what_can_be_seen_of_another_path_is_what_is_claimed(
    backend: LandlockBackend, ws: Path, outside: Path
) -> None:
    (outside / "seen").symlink_to("text of a link")
    (outside / "file").write_bytes(b"12345")
    async with backend.open(workspace(ws)) as box:
        result = await box.run([*SYSTEM_PYTHON, LOOKS, str(outside)])
    assert result.text() == "5 text of a link\n13\n13\n"
    reason = dict(result.enforcement)[Control.FS_READ].reason
    assert "what stat, readlink and getxattr tell" in reason


FILES = Act("""
outside, ws = arguments["outside"], arguments["ws"]
file = outside + "/file"
attempt("read", read, file)
attempt("list", os.listdir, outside)
attempt("change", write, file, "content")
attempt("create", write, outside + "/new")
attempt("mkdir", os.mkdir, outside + "/directory")
attempt("truncate", os.truncate, file, 7)
attempt("link out", os.symlink, file, ws + "/link")
attempt("through link", read, ws + "/link")
attempt("hard link", os.link, file, ws + "/hard")
attempt("chmod", os.chmod, file, 0o600)
attempt("chown", os.chown, file, os.getuid(), os.getgid())
attempt("utime", os.utime, file, (1, 1))
attempt("xattr", os.setxattr, file, "user.x", b"x")
attempt("fifo", os.mkfifo, outside + "/fifo")
attempt("take", os.rename, file, ws + "/taken")
attempt("remove", os.rmdir, outside)
""")
_HARMLESS = {"link out"}


async def test_files_outside_are_out_of_reach(backend: LandlockBackend, ws: Path, outside: Path) -> None:
    async with backend.open(workspace(ws)) as box:
        inside = await FILES.inside(box, outside=str(outside), ws=str(ws))
    (ws / "link").unlink()
    control = FILES.outside(outside=str(outside), ws=str(ws))
    # The file and two more names lie in it by now.
    assert control.pop("remove") == "ENOTEMPTY"
    assert set(control.values()) == {"done"}
    assert {what for what, answer in inside.items() if answer == "done"} == _HARMLESS
    assert {answer for what, answer in inside.items() if what not in _HARMLESS} <= {"EACCES", "EPERM", "EXDEV"}


WATCH = Act("""
place = arguments["outside"].encode()
attempt("inotify", kernel, "inotify_add_watch", libc.inotify_init1(0), place, 0x100)
attempt("fanotify", kernel, "fanotify_mark", libc.fanotify_init(0x200, 0), 1, ctypes.c_ulonglong(0x08000100), -100, place)
""")


async def test_directories_outside_are_not_watched(backend: LandlockBackend, ws: Path, outside: Path) -> None:
    # Whoever watches a directory learns the names of what is made in it.
    async with backend.open(workspace(ws)) as box:
        assert await WATCH.inside(box, outside=str(outside)) == {"inotify": "EACCES", "fanotify": "EACCES"}
        assert box.enforcement.grade(Control.FS_READ) == 2
    async with backend.open(workspace(ws, Control.FS_READ)) as box:
        assert (await WATCH.inside(box, outside=str(outside)))["inotify"] == "done"
        assert box.enforcement.grade(Control.FS_READ) == 1
        assert "by watching it" in box.enforcement.reason(Control.FS_READ)
    assert WATCH.outside(outside=str(outside))["inotify"] == "done"  # the other only from Linux 5.13 on


OWN = Act("""
def flags():
    request = (1 << 30) | (8 << 16) | (ord("f") << 8) | 2  # FS_IOC_SETFLAGS
    with open(ws + "/d/a", "rb") as file:
        try:
            fcntl.ioctl(file, request, bytes(8))
        except OSError as error:
            if error.errno not in (errno.ENOTTY, errno.EOPNOTSUPP):  # this file system has none
                raise
ws = arguments["ws"]
write(ws + "/a")
os.mkdir(ws + "/d")
attempt("move", os.rename, ws + "/a", ws + "/d/a")
attempt("truncate", os.truncate, ws + "/d/a", 0)
attempt("touch", kernel, "futimens", os.open(ws + "/d/a", os.O_WRONLY), None)
attempt("chmod", os.chmod, ws + "/d/a", 0o755)
attempt("utime", os.utime, ws + "/d/a", (1, 1))
import fcntl
attempt("flags", flags)
attempt("fchmod", os.fchmod, os.open(ws + "/d/a", os.O_WRONLY), 0o755)
attempt("remove", os.unlink, ws + "/d/a")
import tempfile
attempt("temporary", tempfile.TemporaryFile)
attempt("home", write, os.environ["HOME"] + "/x")
attempt("null", write, "/dev/null")
attempt("pair", socket.socketpair)
""")


async def test_modes_are_changed_only_where_the_spec_permits(backend: LandlockBackend, ws: Path) -> None:
    async with backend.open(workspace(ws)) as box:
        strict = await OWN.inside(box, ws=str(ws))
        assert box.enforcement.grade(Control.FS_WRITE) == 2
    (ws / "d").rmdir()
    async with backend.open(workspace(ws, Control.FS_WRITE)) as box:
        loose = await OWN.inside(box, ws=str(ws))
        assert box.enforcement.grade(Control.FS_WRITE) == 1
        assert "modes, owners" in box.enforcement.reason(Control.FS_WRITE)
    assert set(loose.values()) == {"done"}
    assert {what: answer for what, answer in strict.items() if answer != "done"} == dict.fromkeys(
        ("chmod", "utime", "fchmod", "flags"), "EPERM"
    )


NETWORK = Act("""
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", arguments["port"]), 2).close())
def datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", 9))
attempt("udp", datagram)
def unix(name):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(name)
attempt("abstract", unix, chr(0) + arguments["abstract"])
attempt("path", unix, arguments["path"])
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close())
def pair():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.connect(arguments["datagram"])
attempt("reconnected pair", pair)
def stream():
    one, other = socket.socketpair()
    one.connect(arguments["path"])
attempt("stream pair", stream)
def listen():
    socket.create_server(("127.0.0.1", 0)).close()
attempt("listen", listen)
""")


async def test_nothing_is_reached_over_sockets(
    backend: LandlockBackend, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"sandboxkit-test-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        path = stack.enter_context(socket.socket(socket.AF_UNIX))
        datagram = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        monkeypatch.chdir(ws)  # a socket's path must be short
        for server, address in ((abstract, "\0" + name), (path, "s"), (datagram, "d")):
            server.bind(address)
        for server in (abstract, path):
            server.listen()
        given = {"port": tcp.getsockname()[1], "abstract": name, "path": "s", "datagram": "d"}
        control = NETWORK.outside(**given)
        async with backend.open(workspace(ws)) as box:
            inside = await NETWORK.inside(box, **given)
            assert "connected pairs" in box.enforcement.reason(Control.NET_NONE)
    assert control.pop("stream pair") == inside.pop("stream pair") == "EISCONN"
    assert set(control.values()) == {"done"}
    assert set(inside.values()) == {"EACCES"}


PROCESSES = Act("""
import signal
pid = arguments["pid"]
PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17
def seize():
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    kernel("ptrace", PTRACE_SEIZE, pid, 0, 0)
attempt("environ", read, f"/proc/{pid}/environ")
attempt("memory", lambda: open(f"/proc/{pid}/mem", "rb").close())
attempt("root", os.listdir, f"/proc/{pid}/root/")
attempt("limit", kernel, "prlimit", pid, 7, ctypes.create_string_buffer(b"", 0), ctypes.create_string_buffer(16))
attempt("shared memory", kernel, "shmget", 0, 4096, 0o600)
attempt("queue", kernel, "mq_open", b"/sandboxkit-test-queue", os.O_CREAT, 0o600, None)
attempt("unlink", kernel, "mq_unlink", b"/sandboxkit-test-queue")
attempt("trace", seize)
attempt("signal", os.kill, pid, signal.SIGWINCH)
attempt("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGWINCH))
""")


async def test_processes_outside_are_out_of_reach(
    backend: LandlockBackend, ws: Path, victim: subprocess.Popen[bytes]
) -> None:
    async with backend.open(workspace(ws)) as box:
        inside = await PROCESSES.inside(box, pid=victim.pid)
    control = PROCESSES.outside(pid=victim.pid)
    assert set(control.values()) == {"done"}
    assert set(inside.values()) <= {"EPERM", "EACCES"}


async def test_a_process_outside_is_seen_and_the_grade_says_so(
    backend: LandlockBackend, ws: Path, victim: subprocess.Popen[bytes]
) -> None:
    async with backend.open(workspace(ws)) as box:
        result = await box.run(["cat", f"/proc/{victim.pid}/cmdline"])
    assert b"time.sleep" in result.stdout
    assert result.enforcement.grade(Control.PROCESS_ISOLATION) == 1
    assert "can be listed, with their command lines" in result.enforcement.reason(Control.PROCESS_ISOLATION)


SUPERVISOR = Act("""
import signal
attempt("supervisor", os.kill, os.getppid(), signal.SIGKILL)
attempt("stop", os.kill, os.getppid(), signal.SIGSTOP)
attempt("all", os.kill, -1, signal.SIGCONT)
attempt("own", os.kill, os.getpid(), 0)
""")


async def test_the_command_cannot_end_what_would_end_it(backend: LandlockBackend, ws: Path) -> None:
    async with backend.open(workspace(ws)) as box:
        inside = await SUPERVISOR.inside(box)
    assert (inside["supervisor"], inside["stop"], inside["own"]) == ("EPERM", "EPERM", "done")


DAEMON = """
import os, sys, time
for _ in range(3):
    if os.fork():
        os._exit(0) if _ else None
        break
    os.setsid()
else:
    os.close(1); os.close(2)
    open("started", "w").close()
    time.sleep(60)
while not os.path.exists("started"):
    time.sleep(0.01)
"""


async def test_a_daemon_in_its_own_session_ends_with_the_command(backend: LandlockBackend, ws: Path) -> None:
    marker = f"daemon-{os.getpid()}"
    # The control: outside, the same program leaves its daemon running.
    subprocess.run([*PYTHON, DAEMON, marker], cwd=ws, check=True)
    left = running(marker)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert len(left) == 1
    (ws / "started").unlink()
    async with backend.open(workspace(ws)) as box:
        result = await box.run([*PYTHON, DAEMON, marker])
        assert result.ok, result.text("stderr")
        assert (ws / "started").exists()
        assert running(marker) == []


BOMB = """
import os, time
open("started", "w").close()
while True:
    try:
        if not os.fork():
            os.setsid()
    except OSError:
        time.sleep(0.001)
"""


async def test_a_fork_bomb_is_ended_at_once(backend: LandlockBackend, open_ws: Path) -> None:
    if not os.access(SYSTEM_PYTHON[0], os.X_OK):
        pytest.skip(f"{SYSTEM_PYTHON[0]} is not installed")
    marker, ws = f"bomb-{os.getpid()}", open_ws
    if IS_ROOT:
        os.chown(ws, OTHER_UID, OTHER_UID)  # root's own processes are not counted
    spec = SandboxSpec.workspace_write(
        ws, limits=Limits(processes=60), allow_degraded=SHARED | {Control.LIMITS_PROCESSES}
    )
    async with backend.open(spec) as box:
        result = await box.run([*SYSTEM_PYTHON, BOMB, marker], timeout=1)
    assert result.termination is Termination.TIMED_OUT
    assert (ws / "started").exists()
    assert result.duration_s < 5
    assert gone(marker)


BOXED = """
import sys
import anyio
from sandboxkit.backends.landlock import LandlockBackend
from sandboxkit.model import SandboxSpec
from sandboxkit.process import broker_pid

async def main():
    async with LandlockBackend().open(SandboxSpec.workspace_write(sys.argv[1], allow_degraded={"process.isolation", "limits.processes"})) as box:
        async with box.start(sys.argv[2:], stdout=None, stderr=None) as process:
            print(broker_pid(), flush=True)
            await process.wait()

anyio.run(main)
"""


@pytest.mark.parametrize("victim_is", ["application", "broker"])
async def test_nothing_outlives_whoever_started_it(backend: LandlockBackend, ws: Path, victim_is: str) -> None:
    marker = f"orphan-{victim_is}-{os.getpid()}"
    script = "import os, sys, time; os.fork() or os.setsid(); time.sleep(60)"
    argv = [sys.executable, "-c", BOXED, str(ws), *PYTHON, script, marker]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as application:
        assert application.stdout
        broker = int(application.stdout.readline())
        deadline = time.monotonic() + 10
        # The application has the marker among its words, too.
        while len(running(marker)) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(running(marker)) == 3
        os.kill(broker if victim_is == "broker" else application.pid, signal.SIGKILL)
        application.wait(20)
    assert gone(marker)


async def test_what_loses_its_supervisor_is_ended_too(backend: LandlockBackend, ws: Path) -> None:
    marker = f"unsupervised-{os.getpid()}"
    script = "import os, time; os.fork() or os.setsid(); time.sleep(60)"
    async with backend.open(workspace(ws)) as box, box.start([*PYTHON, script, marker], stdout=None) as process:
        deadline = time.monotonic() + 10
        while len(running(marker)) < 2 and time.monotonic() < deadline:  # noqa: ASYNC110 - another process gets there
            await anyio.sleep(0.02)
        first = min(running(marker))
        parent = int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        result = await process.wait()
    assert result.termination is Termination.KILLED
    assert gone(marker)


LIMITS = Act("""
import resource
pid = arguments["pid"]
soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
attempt("limit", resource.prlimit, pid, resource.RLIMIT_CPU, (soft, hard))
attempt("own limit", resource.prlimit, 0, resource.RLIMIT_CPU, (soft, hard))
attempt("affinity", os.sched_setaffinity, pid, os.sched_getaffinity(0))
attempt("priority", os.setpriority, os.PRIO_PROCESS, pid, 5)
attempt("own priority", os.nice, 1)
""")


async def test_limits_and_priorities_of_others_cannot_be_set(
    backend: LandlockBackend, ws: Path, victim: subprocess.Popen[bytes]
) -> None:
    async with backend.open(workspace(ws)) as box:
        inside = await LIMITS.inside(box, pid=victim.pid)
    control = LIMITS.outside(pid=victim.pid)
    assert set(control.values()) == {"done"}
    assert {what: answer for what, answer in inside.items() if answer != "done"} == dict.fromkeys(
        ("limit", "affinity", "priority"), "EPERM"
    )
