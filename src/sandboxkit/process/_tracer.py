"""
Follows the processes of one box by ptrace(2) and notes every call the kernel refused.

It only listens: it never writes to a process, its memory or its registers, and what it
lets go on runs under the same filter and the same rights. A refusal is what the kernel
itself returned. What a program asked for is read when the call has ended; another thread
of it may have changed that meanwhile, so a hostile program can put wrong names into the
report, and nothing else.

Runs in a process of its own, forked from the broker, that is the parent of the launcher
(kernel.yama.ptrace_scope=1 wants an ancestor). Part of the broker: standard library
only, imports nothing of the package. Which calls are looked at, and where their paths
are, is in the order: a table of the application's.

Source: ptrace(2), PTRACE_SEIZE, PTRACE_O_TRACESYSGOOD, PTRACE_GET_SYSCALL_INFO,
PTRACE_LISTEN; proc_pid_mem(5).
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import posixpath
import signal
import socket
import stat
import struct

TYPE_CHECKING = False  # as in typing, whose import is spared
if TYPE_CHECKING:
    from typing import Any

CONT, SYSCALL, GETSIGINFO, SEIZE, LISTEN, GET_SYSCALL_INFO = 7, 24, 0x4202, 0x4206, 0x4208, 0x420E
OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x100000  # SYSGOOD FORK VFORK CLONE EXEC EXITKILL
EVENT_EXEC, EVENT_STOP = 4, 128
SYSCALL_STOP = signal.SIGTRAP | 0x80
STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
WALL = 0x40000000
ENTRY, EXIT = 1, 2
INFO = struct.Struct("=B3xI2Q8Q")  # op, arch, instruction and stack pointers, then a union
AT_FDCWD = -100
LONGEST = 4096
MOST_LINKS = 40

MOST = 200
"""Different refusals that are kept; the others are only counted."""

DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
ENTRIES = DENIED | {errno.EXDEV, errno.EBUSY}
NO_NETWORK = {errno.EACCES, errno.EPERM, errno.ENETUNREACH, errno.EHOSTUNREACH}
FILTERED = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT}
DEEPEST_SCRIPT = 5
"""How often a script may name a script as its interpreter."""
SCRIPT_BYTES = 256
"""Of a first line, as many are looked at."""
POSSIBLE = ENTRIES | NO_NETWORK | FILTERED | {errno.ENOENT, errno.ECONNREFUSED}

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Unreadable(Exception):  # noqa: N818 - it is no failure of ours
    """
    What a call was given cannot be read.
    """


class Memory:
    """
    What one process asked for, seen from outside: its memory, its directories.

    Args:
        pid: The process, stopped.
    """

    def __init__(self, pid: int) -> None:
        self.proc = f"/proc/{pid}"

    def read(self, address: int, size: int) -> bytes:
        """
        At most *size* bytes at *address*.
        """
        try:
            fd = os.open(f"{self.proc}/mem", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.pread(fd, size, address)
            finally:
                os.close(fd)
        except (OSError, OverflowError) as error:
            raise Unreadable from error

    def text(self, address: int) -> str:
        """
        The string at *address*; the kernel takes none that is longer than a page.
        """
        found, end, _ = self.read(address, LONGEST).partition(b"\0")
        if not address or not end:
            raise Unreadable
        return os.fsdecode(found)

    def link(self, name: str) -> str:
        """
        Where the link *name* of the process's own directory leads: a path in the box.
        """
        try:
            found = os.readlink(f"{self.proc}/{name}")
        except OSError as error:
            raise Unreadable from error
        return found.removesuffix(" (deleted)")

    def place(self, directory: int | None, address: int | None, is_followed: bool) -> str:
        """
        The path a call means, without links: the string at *address* below descriptor
        *directory*, or what that descriptor is open on where there is no string.
        """
        text = self.text(address) if address else ""
        if text.startswith("/"):
            return self.real(text, is_followed)
        base = self.link("cwd" if directory in (None, AT_FDCWD) else f"fd/{directory}")
        return self.real(f"{base}/{text}", is_followed) if text else base

    def missing_program(self, path: str) -> str:
        """
        Of the program *path* and the interpreters that it and they name, the first that is
        not in the box: the kernel's answer is the same for each of them.

        Source: execve(2), "Interpreter scripts"; fs/binfmt_script.c.
        """
        for _ in range(DEEPEST_SCRIPT):
            named = self.interpreter_of(path)
            if not named:
                break
            base = "" if named.startswith("/") else self.link("cwd")
            path = self.real(f"{base}/{named}", True)
        return path

    def interpreter_of(self, path: str) -> str:
        """
        What the first line of the script *path* names; empty where it is none, or missing.
        """
        try:
            fd = os.open(f"{self.proc}/root{path}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return ""
        try:
            begin = os.read(fd, SCRIPT_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        except OSError:
            return ""
        finally:
            os.close(fd)
        line, end, _ = begin.partition(b"\n")
        words = line[2:].split(maxsplit=1)
        return os.fsdecode(words[0].partition(b"\0")[0]) if begin[:2] == b"#!" and words and (end or words[1:]) else ""

    def real(self, path: str, is_followed: bool) -> str:
        """
        *path* of the box without links, as far as it exists there.
        """
        waiting = [name for name in reversed(path.split("/")) if name not in ("", ".")]
        found, links = "", 0
        while waiting:
            name = waiting.pop()
            if name == "..":
                found = posixpath.dirname(found).rstrip("/")
                continue
            target = self.target(f"{found}/{name}") if waiting or is_followed else None
            if target is None or links == MOST_LINKS:
                found = f"{found}/{name}"
                continue
            links += 1
            found = "" if target.startswith("/") else found
            waiting += [name for name in reversed(target.split("/")) if name not in ("", ".")]
        return found or "/"

    def target(self, path: str) -> str | None:
        """
        The text of the link *path* of the box, or None where it is none.
        """
        if path.startswith("/proc/"):
            return None  # what its links say depends on who asks
        try:
            return os.readlink(f"{self.proc}/root{path}")
        except OSError:
            return None


def signed(register: int) -> int:
    """
    The `int` in *register*.
    """
    value = register & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def address_of(raw: bytes) -> tuple[str, str, int]:
    """
    (family, address, port) of a sockaddr; the family is empty where it is another's.
    """
    if len(raw) < 2:
        return "", "", 0
    (family,) = struct.unpack_from("=H", raw)
    try:
        if family == socket.AF_INET:
            return "inet", socket.inet_ntop(family, raw[4:8]), int.from_bytes(raw[2:4], "big")
        if family == socket.AF_INET6:
            return "inet", socket.inet_ntop(family, raw[8:24]), int.from_bytes(raw[2:4], "big")
    except (OSError, ValueError):
        return "", "", 0
    if family == socket.AF_UNIX:
        name = raw[2:]
        return (
            ("abstract", os.fsdecode(name[1:]), 0)
            if name[:1] == b"\0"
            else ("unix", os.fsdecode(name.split(b"\0")[0]), 0)
        )
    return "", "", 0


def local_forms(address: str) -> tuple[str, ...]:
    """
    How the kernel lists the local address of a socket that answers on the loopback *address*;
    empty where that is none. An IPv6 socket on any address takes IPv4 as well by default.

    Source: proc_pid_net(5), tcp; ipv6(7), IPV6_V6ONLY.
    """
    if address in ("::", "::1"):
        return (*map(listed_form, (socket.inet_pton(socket.AF_INET6, "::1"), bytes(16))),)
    plain = address.removeprefix("::ffff:")
    if not plain.startswith(("127.", "0.0.0.0")):  # noqa: S104 - one may connect to it, and means oneself
        return ()
    raw = socket.inet_aton("127.0.0.1" if plain == "0.0.0.0" else plain)  # noqa: S104 - as above
    return (*map(listed_form, (raw, bytes(4), bytes(10) + b"\xff\xff" + raw, bytes(16))),)


def listed_form(raw: bytes) -> str:
    """
    An address as the tables of sockets have it: words of 4 bytes as numbers of this machine.
    """
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(raw) // 4}I", raw))


def listens(address: str, port: int) -> bool:
    """
    Whether something on the host listens on *port* of the loopback *address*.
    """
    forms = local_forms(address)
    for table in ("tcp", "tcp6") if forms else ():
        try:
            with open(f"/proc/self/net/{table}") as file:
                rows = [row.split() for row in file.readlines()[1:]]
        except OSError:
            continue
        if any(row[3] == "0A" and row[1] in [f"{form}:{port:04X}" for form in forms] for row in rows):
            return True
    return False


def is_bound(name: str) -> bool:
    """
    Whether something on the host listens on the abstract socket *name*.

    Source: proc_pid_net(5), unix: the flag is __SO_ACCEPTCON.
    """
    try:
        with open("/proc/self/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            rows = [row.rstrip("\n").split(" ", 6) for row in file]
    except OSError:
        return False
    shown = "@" + name.replace("\0", "@")
    return any(len(row) == 7 and row[3] == "00010000" and row[6].lstrip(" ").partition(" ")[2] == shown for row in rows)


class Refusals:
    """
    What was refused, each once, with how often.

    Args:
        order: `calls`, {number: row of the table}; the numbers `ignored`; `filters`, the
            box's own, in hex.
        verdict: The module that runs them.
    """

    def __init__(self, order: dict[str, Any], verdict: Any) -> None:
        self.calls = {int(number): row for number, row in order["calls"].items()}
        self.ignored = frozenset(order["ignored"])
        self.filters = tuple(bytes.fromhex(program) for program in order["filters"])
        self.machine = os.uname().machine
        self.verdict = verdict
        self.found: dict[tuple[object, ...], dict[str, Any]] = {}
        self.dropped = 0
        self.unread = 0
        self.space = os.stat("/proc/self/ns/pid").st_ino
        self.network = os.stat("/proc/self/ns/net").st_ino
        self.mounted_on_demand = automounts()

    def take(self, pid: int, number: int, arguments: tuple[int, ...], error: int) -> None:
        """
        Notes that process *pid* got *error*, if that may be a refusal of the box.
        """
        if number in self.ignored:
            return
        row = self.calls.get(number)
        is_filtered = error in FILTERED and self.verdict.filter_refuses(
            self.filters, self.machine, number, arguments, error
        )
        if row is None and not is_filtered:
            return
        try:
            seen = self.look(Memory(pid), row or {"kind": "other"}, arguments, error, is_filtered)
        except Unreadable:
            self.unread += 1
            return
        if seen is not None:
            self.keep(pid, number, arguments, error, is_filtered, seen)

    def keep(
        self, pid: int, number: int, arguments: tuple[int, ...], error: int, is_filtered: bool, seen: dict[str, Any]
    ) -> None:
        """
        Adds one refusal to the list, or to its like.
        """
        program = program_of(pid)
        key = (number, error, program, is_filtered, *map(str, seen.values()))
        if key in self.found:
            self.found[key]["count"] += 1
        elif len(self.found) >= MOST:
            self.dropped += 1
        else:
            self.found[key] = {
                "number": number,
                "arguments": arguments,
                "error": error,
                "is_filtered": is_filtered,
                "program": program,
                "count": 1,
                **seen,
            }

    def look(
        self, memory: Memory, row: dict[str, Any], arguments: tuple[int, ...], error: int, is_filtered: bool
    ) -> dict[str, Any] | None:
        """
        What the call was about; None where the box had no part in the answer.
        """
        kind = row["kind"]
        if kind in ("connect", "bind"):
            return self.address(memory, row, arguments, error)
        if kind == "signal":
            return self.signal(memory, signed(arguments[row["target"]]), error)
        if kind in ("socket", "other"):
            return {"act": kind} if is_filtered else None
        act = act_of(row, arguments)
        is_followed = row["is_followed"] and not (
            "nofollow" in row and arguments[row["nofollow"]] & row["nofollow_bit"]
        )
        paths = [
            memory.place(
                None if directory is None else signed(arguments[directory]),
                None if path is None else arguments[path],
                is_followed,
            )
            for directory, path in row["places"]
        ]
        if error == errno.ENOENT and act == "exec":
            paths = [memory.missing_program(paths[0])]
        if error == errno.ENOENT:
            return {"act": act, "paths": paths} if self.is_hidden(memory, paths, act) else None
        counts = error in (ENTRIES if act == "entry" else DENIED) or is_filtered
        return {"act": act, "paths": paths} if counts else None

    def address(
        self, memory: Memory, row: dict[str, Any], arguments: tuple[int, ...], error: int
    ) -> dict[str, Any] | None:
        """
        Where a connection was to go, or a socket to be bound.
        """
        where, size = arguments[row["address"]], arguments[row["size"]] if "size" in row else 0
        if row.get("is_message"):
            header = memory.read(where, 12)
            if len(header) < 12:
                raise Unreadable
            where, size = struct.unpack("=QI", header)
        if not where or (act := row["kind"]) not in ("connect", "bind"):
            return None
        family, address, port = address_of(memory.read(where, min(size, 128)))
        if family == "unix":
            base = "" if address.startswith("/") else memory.link("cwd")
            paths = [memory.real(f"{base}/{address}", True)]
            counts = error in DENIED or (
                error == errno.ENOENT and self.is_hidden(memory, paths, "read" if act == "connect" else "entry")
            )
            return {"act": act, "paths": paths} if counts else None
        if family == "abstract":
            is_refused = error == errno.ECONNREFUSED and self.is_apart(memory) and is_bound(address)
            return {"act": act, "address": f"@{address}"} if error in DENIED or is_refused else None
        is_refused = error == errno.ECONNREFUSED and self.is_apart(memory) and listens(address, port)
        if family != "inet" or not (error in NO_NETWORK or is_refused):
            return None
        shown = f"[{address}]" if ":" in address else address
        return {"act": act, "address": f"{shown}:{port}"}

    def is_apart(self, memory: Memory) -> bool:
        """
        Whether a process has another network than the host: there nothing of the host's
        listens, and what answers on the host does not answer it.
        """
        return os.stat(f"{memory.proc}/ns/net").st_ino != self.network

    def signal(self, memory: Memory, target: int, error: int) -> dict[str, Any] | None:
        """
        Whom a signal was meant for, where the box alone forbade it: this process, which
        has the application's rights, may send it one.
        """
        if error != errno.EPERM or target <= 0:
            return None
        try:
            if os.stat(f"{memory.proc}/ns/pid").st_ino != self.space:
                return None  # the number means another process there
            os.kill(target, 0)
        except OSError:
            return None
        return {"act": "signal", "address": str(target)}

    def is_hidden(self, memory: Memory, paths: list[str], act: str) -> bool:
        """
        Whether what is missing in the box is on the host: each of the paths, or for what
        would be made its directory, of which at least one is not in the box.

        Raises:
            Unreadable: It must not be looked for.
        """
        places = []
        for path in paths:
            if path.startswith("/proc/"):
                return False  # of other processes
            if any(path == place or path.startswith(f"{place}/") for place in self.mounted_on_demand):
                raise Unreadable
            places.append(posixpath.dirname(path) if act in ("entry", "create") else path)
            if not os.path.lexists(places[-1]):
                return False
        return not all(os.path.lexists(f"{memory.proc}/root{place}") for place in places)

    def report(self) -> dict[str, Any]:
        """
        All of it, ready for JSON.
        """
        return {"refusals": list(self.found.values()), "dropped": self.dropped, "unread": self.unread}


def act_of(row: dict[str, Any], arguments: tuple[int, ...]) -> str:
    """
    What the call does with its paths: `read`, `exec`, `content` (changes what stands
    there), `attributes` (its mode, owner, times) or `entry` (makes, moves or removes it).
    """
    if row["kind"] == "open":
        flags = arguments[row["flags"]]
        if flags & (os.O_CREAT | 0o20000000):
            return "entry" if flags & (os.O_EXCL | 0o20000000) else "create"
        return "content" if flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC) else "read"
    if row["kind"] == "access":
        return "content" if arguments[row["flags"]] & os.W_OK else "read"
    return str(row["kind"])


def automounts() -> tuple[str, ...]:
    """
    Where this mount namespace mounts what is asked for: merely to look at a path there
    may reach another machine, which a command without network must not bring about.

    Source: autofs(5), proc_pid_mountinfo(5).
    """
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        rows = [row.split() for row in file]
    return tuple(row[4] for row in rows if row[row.index("-") + 1] == "autofs")


def program_of(pid: int) -> str:
    """
    What process *pid* runs: the path of its program, or its name where that is not shown.
    """
    try:
        return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError:
        pass
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return os.fsdecode(file.read().rstrip(b"\n"))
    except OSError:
        return ""


class Tracer:
    """
    The loop over the stops of one box's processes.

    Args:
        launcher: The process all others come from, a child of this one.
        programs: How many processes execute a program before the command's own does.
        refusals: Where they are noted.
    """

    def __init__(self, launcher: int, programs: int, refusals: Refusals) -> None:
        self.launcher = launcher
        self.programs = programs
        self.refusals = refusals
        self.executed: set[int] = set()
        self.quiet: set[int] = {launcher}
        self.calls: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.info = ctypes.create_string_buffer(INFO.size)

    @property
    def is_on(self) -> bool:
        """
        Whether the command has been executed. What builds the box before is not looked at.
        """
        return len(self.executed) > self.programs

    def seize(self) -> int:
        """
        Attaches to the launcher, which waits; the error number where that is refused.
        """
        return 0 if self.ask(SEIZE, self.launcher, OPTIONS) == 0 else ctypes.get_errno()

    def ask(self, request: int, pid: int, data: int = 0) -> int:
        """
        ptrace(2); -1 where the process has just been killed, which waiting tells.
        """
        return int(libc.ptrace(request, pid, None, data or None))

    def follow(self) -> int:
        """
        Serves every stop until the launcher has ended; its wait status.
        """
        while True:
            pid, status = os.waitpid(-1, WALL)
            if os.WIFSTOPPED(status):
                self.serve(pid, os.WSTOPSIG(status), status >> 16)
                continue
            self.calls.pop(pid, None)
            self.quiet.discard(pid)
            if pid == self.launcher:
                return status

    def serve(self, pid: int, number: int, event: int) -> None:
        """
        Acts on one stop, and lets the process go on.
        """
        if not self.is_on:
            self.quiet.add(pid)
        if event == 0 and number == SYSCALL_STOP:
            self.call(pid)
            self.go_on(pid)
        elif event == EVENT_STOP:
            # A stop of the whole group lasts until SIGCONT; else it is a new process.
            self.ask(LISTEN, pid) if number in STOPPING else self.go_on(pid)
        elif event:
            if event == EVENT_EXEC:
                self.execute(pid)
            self.go_on(pid)
        else:
            self.go_on(pid, number)

    def go_on(self, pid: int, number: int = 0) -> None:
        """
        Lets *pid* run, with signal *number* delivered.
        """
        self.ask(CONT if pid in self.quiet else SYSCALL, pid, number)

    def execute(self, pid: int) -> None:
        """
        Counts the processes that execute a program: the one after the launchers becomes
        the command. A launcher may be a script that executes another program.
        """
        self.calls.pop(pid, None)
        if not self.is_on:
            self.executed.add(pid)
            if self.is_on:
                self.quiet.discard(pid)

    def call(self, pid: int) -> None:
        """
        Notes what a call asks for when it begins, and its answer when it ends.
        """
        size = libc.ptrace(GET_SYSCALL_INFO, pid, INFO.size, self.info)
        if size <= 0:
            return
        op, _, _, _, *values = INFO.unpack(self.info)
        if op == ENTRY:
            self.calls[pid] = (values[0], tuple(values[1:7]))
        elif op == EXIT:
            entered = self.calls.pop(pid, None)
            answer = values[0]
            if entered is None or answer < 0xFFFFFFFFFFFFF001 or (error := (1 << 64) - answer) not in POSSIBLE:
                return
            self.refusals.take(pid, *entered, error)


def trace(launcher: int, order: dict[str, Any], verdict: Any, *, told: int, gate: int, found: int) -> int:
    """
    Follows *launcher*, a child that waits at *gate*, and all that comes of it, to the end.
    Where that is forbidden it runs all the same.

    Args:
        launcher: Its process id.
        order: What is looked at; see `Refusals`, and `programs` of `Tracer`.
        verdict: The module that runs filters.
        told: Where the launcher's process id is told once it is attached to.
        gate: Where a byte lets the launcher go on.
        found: A file for the report.

    Returns:
        The launcher's exit code, or 128 and the number of the signal that ended it.
    """
    tracer = Tracer(launcher, order["programs"], Refusals(order, verdict))
    problem = tracer.seize()
    os.write(told, json.dumps({"launcher": launcher}).encode())
    os.close(told)
    os.write(gate, b"1")
    os.close(gate)
    status = os.waitpid(launcher, 0)[1] if problem else tracer.follow()
    said = {"problem": problem} if problem else {"is_on": tracer.is_on, **tracer.refusals.report()}
    os.write(found, json.dumps(said).encode())
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
