"""
What runs in a container as its first process: starts commands, bounds them, ends all they
started, and says what is really in force. Standard library only; it imports nothing of
the package, and its text is handed to whatever Python 3.8 or newer the container has.

Frames go both ways over the one stream that the engine attaches to it: a type, the number
of the command it is about, a length, and as many bytes. When the stream ends, so does this
process, and the kernel ends the whole container with it: nothing has to be told that the
application is gone.

Source: pid_namespaces(7), prctl(2) PR_SET_DUMPABLE, signal(7), proc(5).
"""

from __future__ import annotations

import base64
import ctypes
import errno
import json
import os
import re
import select
import signal
import struct
import sys
import time
from typing import Any, NoReturn

if sys.platform != "win32":  # there it is only read, to be handed into a container
    import resource

HEAD = struct.Struct("!BII")
HELLO, RUN, IN, ACK, SIGNAL, KILL, LISTEN = range(7)
READY, STARTED, OUT, ERR, TAKEN, END, FAILED, LISTENING = range(16, 24)

CHUNK = 1 << 16
WINDOW = 1 << 20
"""
Bytes of one stream that may be on the way and not yet taken.
"""
BACKLOG = 1 << 21
"""
Bytes waiting for the engine above which no command is read from.
"""
HELLO_SECONDS = 30.0
DETACHED_SECONDS = 0.2
"""
How long the output of what detached itself is waited for, where other commands run.
"""
CPU_POLL_SECONDS = 0.05
CONNECTIONS_WAITING = 128
"""
Connections to one listener that nobody has taken yet.
"""
SCRIPT_BYTES, DEEPEST_SCRIPT = 256, 5
PR_SET_DUMPABLE, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 4, 22, 2


def text_of(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def row(text: str, key: str) -> int | None:
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0].rstrip(":") == key:
            return int(words[1])
    return None


def number(*paths: str) -> int | None:
    for path in paths:
        word = text_of(path).split()[:1]
        if word:
            return int(word[0]) if word[0].lstrip("-").isdigit() else None
    return None


GROUP = "/sys/fs/cgroup"


def forget_group() -> None:
    """
    Reads no control group any more: the container has none, and those it sees are the host's.
    """
    global GROUP
    GROUP = "/nonexistent"


def cpu_s() -> float | None:
    """
    Seconds of processor time of the whole container, or None.
    """
    used = number(GROUP + "/cpuacct/cpuacct.usage", GROUP + "/cpu,cpuacct/cpuacct.usage")
    if used is not None:
        return used / 1e9
    used = row(text_of(GROUP + "/cpu.stat"), "usage_usec")
    return None if used is None else used / 1e6


def kills() -> int | None:
    """
    How many processes the kernel ended at the container's limit of memory, or None.
    """
    found = row(text_of(GROUP + "/memory.events"), "oom_kill")
    return row(text_of(GROUP + "/memory/memory.oom_control"), "oom_kill") if found is None else found


def refused() -> int | None:
    return row(text_of(GROUP + "/pids.events"), "max") or row(text_of(GROUP + "/pids/pids.events"), "max")


def quota() -> float | None:
    """
    Processors the container may use, or None for no bound.
    """
    words = text_of(GROUP + "/cpu.max").split()
    if not words:
        words = [str(number(GROUP + "/cpu/cpu.cfs_quota_us")), str(number(GROUP + "/cpu/cpu.cfs_period_us"))]
    try:
        return int(words[0]) / int(words[1]) if int(words[0]) > 0 else None
    except (ValueError, IndexError, ZeroDivisionError):
        return None


def in_force() -> dict[str, Any]:
    """
    What the kernel says about this container, for whoever asked for it to compare.
    """
    status = dict(line.split(":", 1) for line in text_of("/proc/self/status").splitlines() if ":" in line)
    field = {name: status.get(name, "").strip() for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Uid")}
    devices = [line.split(":")[0].strip() for line in text_of("/proc/net/dev").splitlines()[2:]]
    return {
        **field,
        "pid": os.getpid(),
        "interfaces": devices,
        "memory": number(GROUP + "/memory.max", GROUP + "/memory/memory.limit_in_bytes"),
        "swap": number(GROUP + "/memory.swap.max", GROUP + "/memory/memory.memsw.limit_in_bytes"),
        "is_v2": os.path.exists(GROUP + "/cgroup.controllers"),
        "processes": number(GROUP + "/pids.max", GROUP + "/pids/pids.max"),
        "cpus": quota(),
        "counts_cpu": cpu_s() is not None,
        "counts_kills": kills() is not None,
        "rootfs": os.access("/", os.W_OK) and not os.statvfs("/").f_flag & os.ST_RDONLY,
        "python": sys.version.split()[0],
        "kernel": os.uname().release,
    }


def mount_points() -> set[str]:
    """
    Where something is mounted. Source: proc_pid_mountinfo(5).
    """
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        written = [line.split(" ")[4] for line in file]
    return {re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point) for point in written}


def place(path: str, mounted: set[str]) -> list[int] | None:
    """
    What is mounted at *path*; None where nothing is: a link there led the engine elsewhere.
    """
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return [found.st_dev, found.st_ino] if path in mounted else None


def first_free(listener: Any, ports: list[int]) -> int:
    """
    The first of loopback *ports* that *listener* could be bound to.
    """
    for port in ports:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port
    raise OSError(errno.EADDRINUSE, "every port is in use")


def processes() -> dict[int, tuple[int, int]]:
    """
    Parent and session of every process of the container.
    """
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = text_of("/proc/" + name + "/stat").rpartition(")")[2].split()
            if fields:
                found[int(name)] = (int(fields[1]), int(fields[3]))
    return found


class Command:
    def __init__(self, ident: int, order: dict[str, Any], pid: int, feed: int, pipes: dict[int, int]) -> None:
        self.ident, self.pid, self.pipes = ident, pid, pipes
        self.feed: int | None = feed
        self.waiting, self.is_fed = bytearray(), False
        self.room = {OUT: WINDOW, ERR: WINDOW}
        self.status: int | None = None
        self.usage: resource.struct_rusage | None = None
        self.ended: str | None = None
        wall = order["wall"]
        self.deadline = None if wall is None else time.monotonic() + wall
        self.drain_until: float | None = None
        self.cpu = order["cpu"]
        self.cpu_before, self.kills_before, self.refused_before = cpu_s(), kills(), refused()

    def used(self) -> float | None:
        now = cpu_s()
        return None if now is None or self.cpu_before is None else now - self.cpu_before


class Agent:
    def __init__(self) -> None:
        self.commands: dict[int, Command] = {}
        self.poll = select.epoll()
        self.watched: dict[int, tuple[int, Command | None]] = {}
        self.inbox, self.outbox = bytearray(), bytearray()
        self.is_greeted = False
        self.door: Any = None
        self.born = time.monotonic()

    # -- frames ------------------------------------------------------------------

    def send(self, kind: int, ident: int = 0, content: bytes = b"") -> None:
        self.outbox += HEAD.pack(kind, ident, len(content)) + content

    def tell(self, kind: int, ident: int, **fields: Any) -> None:
        self.send(kind, ident, json.dumps(fields).encode())

    def take(self) -> None:
        data = os.read(0, CHUNK)
        if not data:
            raise SystemExit(0)
        self.inbox += data
        while len(self.inbox) >= HEAD.size:
            kind, ident, length = HEAD.unpack_from(self.inbox)
            if len(self.inbox) < HEAD.size + length:
                return
            content = bytes(self.inbox[HEAD.size : HEAD.size + length])
            del self.inbox[: HEAD.size + length]
            self.obey(kind, ident, content)

    def obey(self, kind: int, ident: int, content: bytes) -> None:
        if kind == HELLO:
            self.greet(json.loads(content))
        elif kind == RUN:
            self.start(ident, json.loads(content))
        elif kind == LISTEN:
            self.listen(ident, json.loads(content)["ports"])
        elif ident in self.commands:
            command = self.commands[ident]
            if kind == IN and content:
                command.waiting += content
                self.pour(command)
            elif kind == IN:
                command.is_fed = True
                self.pour(command)
            elif kind == ACK:
                command.room[content[0]] += struct.unpack("!I", content[1:])[0]
            elif kind == SIGNAL and command.status is None:
                self.signal(command, content[0])
            elif kind == KILL:
                self.end(command, content.decode())

    def greet(self, order: dict[str, Any]) -> None:
        if not order["is_counted"]:
            forget_group()
        if order["filter"]:
            filter_calls(base64.b64decode(order["filter"]))
        for path, text in order["files"]:
            with open(path, "w", errors="surrogateescape") as file:
                file.write(text)
        self.is_greeted = True
        mounted, shut = mount_points(), self.knock(order["door"])
        self.tell(READY, 0, places=[place(path, mounted) for path in order["places"]], shut=shut, **in_force())

    # -- the way out -------------------------------------------------------------

    def knock(self, path: str) -> str:
        """
        Connects to the application's socket at *path*, where there is one. What keeps it
        from that; empty where nothing does.
        """
        if not path:
            return ""
        try:
            import socket  # most boxes have no network at all

            self.door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.door.connect(path)
        except (ImportError, OSError) as error:
            return str(error) or type(error).__name__
        return ""

    def listen(self, ident: int, ports: list[int]) -> None:
        """
        Listens at the first loopback port that is free, and hands the listener out: whoever
        has it is this network namespace's only way out. Keeps none.
        """
        import socket

        try:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                port = first_free(listener, ports)
                listener.listen(CONNECTIONS_WAITING)
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", listener.fileno()))
                self.door.sendmsg([struct.pack("!I", ident)], [rights])
        except OSError as error:
            self.tell(FAILED, ident, step="listener", errno=error.errno or errno.EIO)
        else:
            self.tell(LISTENING, ident, port=port)

    # -- commands ----------------------------------------------------------------

    def start(self, ident: int, order: dict[str, Any]) -> None:
        ends: list[int] = []
        try:
            for _ in range(4):
                ends += os.pipe()
            pid = os.fork()
        except OSError as error:  # too many commands at once, or one has lowered our limits
            for fd in ends:
                os.close(fd)
            self.tell(FAILED, ident, step="setup", errno=error.errno)
            return
        source, feed, out, out_end, err, err_end, report, report_end = ends
        if pid == 0:
            become(order, (source, out_end, err_end), report_end)
        for fd in (source, out_end, err_end, report_end):
            os.close(fd)
        said = b""
        while True:  # until it has become the command: the descriptor closes then
            part = os.read(report, 4096)
            if not part:
                break
            said += part
        os.close(report)
        if said:
            for fd in (feed, out, err):
                os.close(fd)
            os.waitpid(pid, 0)
            step, code, named = said.decode().split(" ")
            self.tell(FAILED, ident, step=step, errno=int(code), interpreter=os.fsdecode(bytes.fromhex(named)))
            return
        for fd in (feed, out, err):
            os.set_blocking(fd, False)
        self.commands[ident] = Command(ident, order, pid, feed, {OUT: out, ERR: err})
        self.send(STARTED, ident)

    def pour(self, command: Command) -> None:
        if command.feed is None:
            self.send(TAKEN, command.ident, struct.pack("!I", len(command.waiting)))
            command.waiting.clear()
            return
        try:
            while command.waiting:
                done = os.write(command.feed, command.waiting[:CHUNK])
                del command.waiting[:done]
                self.send(TAKEN, command.ident, struct.pack("!I", done))
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.close_feed(command)
            return
        if command.is_fed:
            self.close_feed(command)

    def close_feed(self, command: Command) -> None:
        if command.feed is not None:
            os.close(command.feed)
            command.feed = None
            self.pour(command)

    def read(self, command: Command, kind: int) -> None:
        try:
            data = os.read(command.pipes[kind], min(CHUNK, command.room[kind]))
        except BlockingIOError:
            return
        if data:
            command.room[kind] -= len(data)
            self.send(kind, command.ident, data)
        else:
            os.close(command.pipes.pop(kind))

    def signal(self, command: Command, what: int) -> None:
        try:
            os.kill(command.pid, what)
        except ProcessLookupError:
            pass

    def end(self, command: Command, because: str) -> None:
        command.ended = command.ended or because
        if len(self.commands) == 1:
            everything()
        else:
            tree(command.pid)

    def reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for command in self.commands.values():
                if command.pid == pid:
                    command.status, command.usage = status, usage
                    self.end_rest(command)

    def end_rest(self, command: Command) -> None:
        """
        The command has ended; what it left goes too.
        """
        if len(self.commands) == 1:
            everything()
        else:
            tree(command.pid)
            command.drain_until = time.monotonic() + DETACHED_SECONDS

    def finish(self, command: Command) -> None:
        """
        Says how it ended, once nothing more can come of it.
        """
        late = command.drain_until is not None and time.monotonic() > command.drain_until
        if command.status is None or (command.pipes and not late):
            return
        for fd in command.pipes.values():
            os.close(fd)
        if command.feed is not None:
            os.close(command.feed)
        del self.commands[command.ident]
        spent, killed = command.used(), kills()
        self.tell(
            END,
            command.ident,
            code=os.WEXITSTATUS(command.status) if os.WIFEXITED(command.status) else None,
            signal=os.WTERMSIG(command.status) if os.WIFSIGNALED(command.status) else None,
            ended=command.ended,
            user_s=command.usage.ru_utime if command.usage else 0.0,
            system_s=command.usage.ru_stime if command.usage else 0.0,
            rss_bytes=command.usage.ru_maxrss * 1024 if command.usage else None,
            cpu_s=spent,
            oom=None if killed is None or command.kills_before is None else killed - command.kills_before,
            refused=None if command.refused_before is None else (refused() or 0) - command.refused_before,
        )

    # -- time --------------------------------------------------------------------

    def overdue(self) -> None:
        now = time.monotonic()
        if not self.is_greeted and now > self.born + HELLO_SECONDS:
            raise SystemExit(1)  # whoever made this container has gone
        for command in tuple(self.commands.values()):
            if command.status is not None:
                continue
            if command.deadline is not None and now > command.deadline:
                self.end(command, "timed_out")
            elif command.cpu is not None and (command.used() or 0) > command.cpu:
                self.end(command, "cpu_limit")

    def patience(self) -> float:
        now = time.monotonic()
        waits = [1.0]
        for command in self.commands.values():
            if command.ended and command.status is None:
                waits.append(0.01)  # what was killed is about to be reaped
            elif command.drain_until is not None:
                waits.append(max(0.0, command.drain_until - now) + 0.001)
            elif command.deadline is not None:
                waits.append(max(0.0, command.deadline - now) + 0.001)
            if command.cpu is not None and command.status is None:
                waits.append(CPU_POLL_SECONDS)
        return min(waits)

    # -- the loop ----------------------------------------------------------------

    def wanted(self) -> dict[int, tuple[int, Command | None, int]]:
        """
        What is waited for, by descriptor: (events, the command, the stream).
        """
        wanted: dict[int, tuple[int, Command | None, int]] = {0: (select.EPOLLIN, None, 0)}
        if self.outbox:
            wanted[1] = (select.EPOLLOUT, None, 0)
        for command in self.commands.values():
            if command.waiting and command.feed is not None:
                wanted[command.feed] = (select.EPOLLOUT, command, IN)
            for kind, fd in command.pipes.items():
                if command.room[kind] > 0 and len(self.outbox) < BACKLOG:
                    wanted[fd] = (select.EPOLLIN, command, kind)
        return wanted

    def watch(self, wanted: dict[int, tuple[int, Command | None, int]]) -> None:
        """
        Not poll(2): that fails once somebody has lowered this process's limit of descriptors,
        which a command can, as it has the same user.
        """
        for fd in [fd for fd in self.watched if fd not in wanted]:
            del self.watched[fd]
            try:
                self.poll.unregister(fd)
            except OSError:
                pass  # closed meanwhile, which took it out
        for fd, (events, command, _) in wanted.items():
            if self.watched.get(fd) != (events, command):
                if fd in self.watched:
                    try:
                        self.poll.unregister(fd)
                    except OSError:
                        pass
                self.poll.register(fd, events)
                self.watched[fd] = (events, command)

    def serve(self) -> None:
        wake, waker = os.pipe()
        for fd in (wake, waker, 1):
            os.set_blocking(fd, False)
        self.poll.register(wake, select.EPOLLIN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        while True:
            wanted = self.wanted()
            self.watch(wanted)
            for fd, _ in self.poll.poll(self.patience()):
                if fd == wake:
                    os.read(wake, 4096)
                elif fd == 0:
                    self.take()
                elif fd == 1:
                    self.flush()
                else:
                    _, command, kind = wanted[fd]
                    if command is None:
                        continue
                    if kind == IN:
                        self.pour(command)
                    elif kind in command.pipes:
                        self.read(command, kind)
            self.reap()
            self.overdue()
            for command in tuple(self.commands.values()):
                self.finish(command)

    def flush(self) -> None:
        try:
            done = os.write(1, self.outbox[: CHUNK * 4])
        except BlockingIOError:
            return
        except OSError:
            raise SystemExit(0) from None
        del self.outbox[:done]


class Program(ctypes.Structure):
    # struct sock_fprog, seccomp(2)
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def filter_calls(program: bytes) -> None:
    """
    Puts a filter on this process and all it starts. It comes after the engine's, so where both
    refuse, its answer counts: an engine from before Docker 23 knows EPERM alone, and
    without ENOSYS for clone3 no thread starts.
    """
    ours = Program(len(program) // 8, program)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(ours), 0, 0):
        raise OSError(ctypes.get_errno(), "the seccomp filter was refused")


def everything() -> None:
    """
    Ends every process of the container but this one, at one stroke: a process that is
    being made while the kernel goes through them does not come into being.
    """
    if os.getpid() != 1:
        return
    try:
        os.kill(-1, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def tree(pid: int) -> None:
    """
    Ends what descends from *pid*, or is in its session; twice, because what it makes
    meanwhile is found only then.
    """
    for _ in range(2):
        found = processes()
        ended = {pid}
        while True:
            more = {one for one, (parent, session) in found.items() if parent in ended or session == pid} - ended
            if not more:
                break
            ended |= more
        for one in ended - {1, os.getpid()}:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                pass


def become(order: dict[str, Any], streams: tuple[int, ...], report: int) -> NoReturn:
    """
    The rest of a child's life: its rights and limits, and then the command.
    """
    step = "setup"
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")  # at the limit of memory the command goes, not this program's parent
        except OSError:
            pass
        for fd, ours in enumerate(streams):
            os.dup2(ours, fd)
        step = "cwd"
        os.chdir(order["cwd"])
        step = "limits"
        for what, bound in order["rlimits"]:
            _, hard = resource.getrlimit(what)
            bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
            resource.setrlimit(what, (bound, bound))
        step = "exec"
        signal.set_wakeup_fd(-1)
        for which in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ):
            signal.signal(which, signal.SIG_DFL)
        environment = dict(order["environment"])
        os.execvpe(order["argv"][0], order["argv"], environment)
    except OSError as error:
        named = refused_interpreter(order) if step == "exec" else ""
        os.write(report, ("%s %d %s" % (step, error.errno or errno.EIO, os.fsencode(named).hex())).encode())
    except BaseException:  # noqa: BLE001 - nothing may return into the parent's loop
        os.write(report, ("%s %d " % (step, errno.EIO)).encode())
    finally:
        os._exit(127)


def refused_interpreter(order: dict[str, Any]) -> str:
    """
    Of the interpreters that the script which was to be executed names, and they in turn, the
    first that cannot be; empty where that is the script itself, or no script. The kernel
    answers the same for both.

    Source: execve(2), "Interpreter scripts"; fs/exec.c exec_binprm().
    """
    path = order["argv"][0]
    if "/" not in path:
        places = [directory + "/" + path for directory in os.get_exec_path(dict(order["environment"]))]
        path = next(filter(may_execute, places), "")
    for _ in range(DEEPEST_SCRIPT):
        if not may_execute(path):
            return ""
        path = interpreter_of(path)
        if path and not may_execute(path):
            return path
    return ""


def may_execute(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def interpreter_of(path: str) -> str:
    """
    What the first line of the script *path* names; empty where it is none.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            begin = file.read(SCRIPT_BYTES) or b""
    except OSError:
        return ""
    words = begin.partition(b"\n")[0][2:].split(None, 1)
    return os.fsdecode(words[0].partition(b"\0")[0]) if begin[:2] == b"#!" and words else ""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # from inside, a first process takes only what it handles
    # The commands have this program's uid: none may trace it or read what it holds.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    Agent().serve()


if __name__ == "__main__":
    main()
