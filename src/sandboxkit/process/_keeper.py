"""
The process that keeps one command where the kernel has no namespaces, pidfds or files in
memory, as on macOS: it starts the command, waits for it, and ends all it started.

It is a child of the application and leads a session of its own; the command leads
another. It ends the command when the application asks for it, when its end of the socket
is closed, when the application is gone (its parent is another process then), and at the
deadline, whatever the application is doing then.

What the command started is ended by its process group, and by its mark: a name that only
processes under the command's sandbox profile may look up, so the kernel itself tells
which those are. Where that cannot be asked, what left the group stays.

Runs under `python -I -S`, standard library only, and imports nothing of the package.
Reads one JSON order, and writes one line of JSON at the end: {"done": wait status, what
the child inside reported, "exit", "signal", "user_us", "system_us", "max_rss_kb", or
"ended": why it was ended, or "error": step and "errno"}.

Source: setsid(2), wait4(2), kill(2), sandbox_check (libsystem_sandbox, as WebKit's
SandboxSPI.h declares it), proc_listpids (libproc.h).
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FIRST_SPARE_FD = 200
"""Above every number a plan uses for what the command gets."""
LOOK_SECONDS = 0.25
"""How often it is looked whether the application is still the parent."""
END_SECONDS = 3.0
"""How long what is left of a command is looked for."""
PROC_UID_ONLY = 4
SANDBOX_FILTER_GLOBAL_NAME = 2
SANDBOX_CHECK_NO_REPORT = 0x40000000
ALLOWED, DENIED = 0, 1
READ_SIZE = 1 << 16


def members(mark: str) -> list[int]:
    """
    The processes of this user that run under the sandbox profile with *mark*: they may look
    up the mark, and not a name beside it. What has no sandbox may look up both.
    """
    if sys.platform != "darwin" or not mark:
        return []
    import ctypes

    library = ctypes.CDLL(None)
    size = library.proc_listpids(PROC_UID_ONLY, os.getuid(), None, 0)
    numbers = (ctypes.c_int * (size // 4 + 256))()
    size = library.proc_listpids(PROC_UID_ONLY, os.getuid(), numbers, ctypes.sizeof(numbers))
    check = library.sandbox_check
    # The fixed ones only: on arm64 what a variadic function gets besides is passed otherwise.
    check.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int)
    kind = SANDBOX_FILTER_GLOBAL_NAME | SANDBOX_CHECK_NO_REPORT

    def answer(pid: int, name: str) -> int:
        return int(check(pid, b"mach-lookup", kind, ctypes.c_char_p(name.encode())))

    found = [number for number in numbers[: max(0, size) // 4] if number not in (0, os.getpid())]
    return [pid for pid in found if answer(pid, mark) == ALLOWED and answer(pid, mark + ".not") == DENIED]


def end_tree(group: int, find: Callable[[], list[int]], patience: float = END_SECONDS) -> bool:
    """
    Kills process group *group* and whatever *find* gives, until it gives nothing. Whether
    nothing was left.

    What is found is stopped first, and looked for again until nothing new is found: a
    process that starts others while the first are killed would always be ahead.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            pass  # it is empty, or on macOS all zombies (EPERM)
        stopped: set[int] = set()
        new = set(find())
        if not new:
            return True
        while new and time.monotonic() < deadline:
            tell(new, signal.SIGSTOP)
            stopped |= new
            new = set(find()) - stopped
        tell(stopped | new, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)


def tell(pids: set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass  # it has just gone


def start(order: dict[str, Any], report: int) -> int:
    """
    Starts the command with *report* as the writing end it tells by how far it came, and
    returns its process id, which is that of its group.
    """
    pid = os.fork()
    if pid:
        return pid
    step, spare = order["step"], report
    try:
        os.setsid()
        moved = [(fcntl.fcntl(here, fcntl.F_DUPFD, FIRST_SPARE_FD), there) for here, there in order["fds"]]
        spare = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, FIRST_SPARE_FD)
        for here, there in moved:
            os.dup2(here, there)
        kept = {there for _, there in moved}
        if order["report"] is not None:
            os.dup2(spare, order["report"])
            kept.add(order["report"])
        highest = max((spare, report, FIRST_SPARE_FD, *(here for here, _ in moved), *kept)) + 1
        for number in range(3, highest):
            if number not in kept and number != spare:
                close(number)
        os.closerange(highest, max(highest, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16)))
        os.chdir(order["cwd"])
        for name, limit in order["rlimits"]:
            lower(name, limit)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.execve(order["argv"][0], order["argv"], order["environment"])
    except OSError as error:
        os.write(spare, line({"error": step, "errno": error.errno}))
    os._exit(126)


def close(number: int) -> None:
    try:
        os.close(number)
    except OSError:
        pass  # it was not open


def lower(name: str, limit: int) -> None:
    """
    Sets the resource limit *name*, soft and hard, to *limit*; what is lower already stays,
    and so does one this system does not have.
    """
    number = getattr(resource, name, None)
    if number is None:
        return
    _, hard = resource.getrlimit(number)
    bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(number, (bound, bound))


def line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


class Keeper:
    """
    One command and what is known of it.
    """

    def __init__(self, control: int, order: dict[str, Any]) -> None:
        self.control = control
        self.order = order
        self.owner = os.getppid()
        self.records: dict[str, Any] = {}
        self.ended = ""
        self.unread = b""
        self.reported = b""

    def run(self) -> dict[str, Any]:
        """
        Starts the command, waits for it, ends what it left, and says how it went.
        """
        report, theirs = os.pipe()
        wake, waker = os.pipe()
        for fd in (report, wake, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda number, frame: self.heard(number))
        pid = start(self.order, theirs)
        os.close(theirs)
        for here, _ in self.order["fds"]:
            close(here)  # what reads the command's output sees its end when the command ends
        status, usage = self.wait(pid, report, wake)
        end_tree(pid, lambda: members(self.order["mark"]))
        self.read(report)
        if self.ended:
            self.records["ended"] = self.ended
        else:
            self.records |= figures(status, usage)
        return {**self.records, "done": status}

    def heard(self, number: int) -> None:
        """
        Ends the command where somebody ends this process.
        """
        if number != signal.SIGCHLD:
            self.ended = self.ended or "killed"

    def wait(self, pid: int, report: int, wake: int) -> tuple[int, resource.struct_rusage]:
        """
        The command's wait status and usage, when it has ended or was ended.
        """
        deadline = time.monotonic() + self.order["timeout"] if self.order["timeout"] is not None else None
        watched = select.poll()  # select(2) takes no descriptor above 1023
        for fd in (self.control, report, wake):
            watched.register(fd, select.POLLIN)
        while True:
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                return status, usage
            if os.getppid() != self.owner:
                self.ended = self.ended or "killed"
            if self.ended:
                end_tree(pid, lambda: members(self.order["mark"]))
            left = LOOK_SECONDS if deadline is None else min(LOOK_SECONDS, deadline - time.monotonic())
            if left <= 0 and not self.ended:
                self.ended = "timed_out"
                continue
            ready = {fd for fd, _ in watched.poll(max(2.0, left * 1000))}
            if wake in ready:
                os.read(wake, READ_SIZE)
            if report in ready and not self.read(report):
                watched.unregister(report)
            if self.control in ready and not self.listen(pid):
                watched.unregister(self.control)

    def read(self, report: int) -> bool:
        """
        Takes what the child inside reported; False when it will report nothing more.
        """
        try:
            data = os.read(report, READ_SIZE)
        except BlockingIOError:
            return True
        *lines, self.reported = (self.reported + data).split(b"\n")
        for text in lines:
            self.records.update(json.loads(text))
        return bool(data)

    def listen(self, pid: int) -> bool:
        """
        Carries out what the application asks for; False when it has gone.
        """
        try:
            data = os.read(self.control, READ_SIZE)
        except OSError:
            data = b""
        *orders, self.unread = (self.unread + data).split(b"\n")
        for order in orders:
            word, _, number = order.partition(b" ")
            if word == b"kill":
                self.ended = self.ended or "killed"
            elif word == b"signal":
                try:
                    os.kill(pid, int(number))
                except OSError:
                    pass  # it has just ended
        if not data:
            self.ended = self.ended or "killed"
        return bool(data)


def figures(status: int, usage: resource.struct_rusage) -> dict[str, int]:
    """
    How the command ended by itself, and what it used. Source: getrusage(2): ru_maxrss is in
    bytes on macOS.
    """
    return {
        "exit": os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "user_us": int(usage.ru_utime * 1e6),
        "system_us": int(usage.ru_stime * 1e6),
        "max_rss_kb": usage.ru_maxrss // 1024 if sys.platform == "darwin" else usage.ru_maxrss,
    }


def main(control: int, order: int) -> None:
    """
    Carries out the order that descriptor *order* holds, for whom socket *control* leads to.
    """
    text = b""
    while data := os.read(order, READ_SIZE):
        text += data
    os.close(order)
    message = Keeper(control, json.loads(text)).run()
    try:
        os.set_blocking(control, True)
        os.write(control, line(message))
    except OSError:
        pass  # nobody listens any more


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
