"""
One launched command as the broker holds it: what it reports, its deadline, its end.

Part of the broker: standard library only, imports nothing of the package.

Source: pidfd_open(2), pidfd_send_signal(2).
"""

from __future__ import annotations

import json
import os
import signal
import time

TYPE_CHECKING = False  # as in typing, whose import is spared
if TYPE_CHECKING:
    import socket
    from typing import Any

    from sandboxkit.process import _leaves, _watcher

PATIENCE = 3.0
"""Seconds a supervisor has to end its box."""
LOOK_SECONDS = 0.1
"""How often the processor time of a box is looked at when its limit is near."""
PROCESSORS = os.cpu_count() or 1


def parent_of(pid: int) -> int | None:
    """
    The parent of *pid*, or None where it is gone.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


class Box:
    """
    One launched command and the processes that came of it.
    """

    def __init__(
        self,
        control: socket.socket,
        pid: int,
        launcher: int,
        status: int,
        order: dict[str, Any],
        leaves: _leaves.Leaves | None,
        watcher: _watcher.Watcher | None,
    ) -> None:
        timeout: float | None = order["timeout"]
        self.end_signal: int | None = order["end_signal"]
        self.control = control
        self.leaves = leaves
        self.next_look = time.monotonic() if leaves and leaves.cpu_us is not None else None
        self.watcher = watcher
        self.next_watch = time.monotonic() + watcher.pause() if watcher else None
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.launcher = launcher
        self.launcher_fd = self.open_launcher() if launcher != pid else None
        self.status = status
        self.init: int | None = None
        self.pending = b""
        self.records: dict[str, object] = {}
        self.seen: dict[str, int] = {}
        self.is_killed = False
        self.deadline = None if timeout is None else time.monotonic() + timeout

    def open_launcher(self) -> int | None:
        """
        A descriptor of the launcher where that is not our child but a tracer's.
        """
        try:
            return os.pidfd_open(self.launcher)
        except OSError:
            return None  # it has ended

    def kill(self) -> None:
        """
        Ends the box: through its first process where that is known, or through a
        supervisor that can end all of it at one stroke and has a moment to do so. A
        tracer, too, has a moment, to report.
        """
        is_first, self.is_killed = not self.is_killed, True
        if is_first and (self.end_signal is not None or self.is_traced):
            self.send(signal.SIGKILL if self.end_signal is None else self.end_signal)
            self.send(signal.SIGCONT)  # somebody may have stopped the supervisor
            self.deadline = time.monotonic() + PATIENCE
        if self.deadline is not None and (self.end_signal is not None or self.is_traced):
            return
        self.send(signal.SIGKILL)
        if self.is_traced:
            self.signal(self.pidfd, signal.SIGKILL)  # with it goes all it traces
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except OSError:
            pass  # no group of its own, or gone

    def due(self) -> float | None:
        """
        When, on the monotonic clock, something is to be looked at, or None.
        """
        times = [moment for moment in (self.deadline, self.next_look, self.next_watch) if moment is not None]
        return min(times) if times else None

    def look(self, now: float) -> None:
        """
        Ends the box where its time is over, or its share of the processors is used up.
        """
        if self.deadline is not None and self.deadline <= now:
            self.deadline = None
            self.kill() if self.is_killed else self.stop("timed_out")
        if self.next_look is not None and self.next_look <= now:
            self.next_look = None
            left = self.leaves.unused_cpu() if self.leaves else None
            if left is not None and left <= 0:
                self.stop("cpu_limit")
            elif left is not None:
                self.next_look = now + min(1.0, max(LOOK_SECONDS, left / PROCESSORS))
        if self.watcher and self.next_watch is not None and self.next_watch <= now:
            reached = self.watcher.look()
            self.next_watch = None if reached else now + self.watcher.pause()
            if reached:
                self.seen = self.watcher.figures
                self.stop(reached)

    def stop(self, reason: str) -> None:
        """
        Ends the box for *reason*, unless it is ended for another already.
        """
        self.records.setdefault("ended", reason)
        self.kill()

    def send(self, number: int) -> None:
        """
        Sends signal *number* to the box's first process, or to what builds the box.
        """
        if self.init is not None:
            self.signal(self.init, number)
        elif not self.is_traced:
            self.signal(self.pidfd, number)
        elif self.launcher_fd is not None:
            self.signal(self.launcher_fd, number)

    def signal(self, pidfd: int, number: int) -> None:
        """
        Sends signal *number* to the process behind *pidfd*.
        """
        try:
            signal.pidfd_send_signal(pidfd, number)
        except (OSError, OverflowError):
            pass  # it has ended, or there is no such signal

    @property
    def is_traced(self) -> bool:
        """
        Whether a tracer stands between us and the launcher.
        """
        return self.launcher != self.pid

    def read_status(self) -> bool:
        """
        Takes what the sandbox program and the child inside reported; False at the end.
        """
        try:
            data = os.read(self.status, 65536)
        except BlockingIOError:
            return True
        if not data:
            return False
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            self.take(line)
        if len(self.pending) > 65536:
            self.pending = b""
        return True

    def take(self, line: bytes) -> None:
        """
        Acts on one status line.
        """
        try:
            record = json.loads(line)
        except ValueError:
            return  # not ours; a record that matters is never broken
        if not isinstance(record, dict):
            return
        if "child-pid" in record:
            self.adopt(record["child-pid"])
        elif record.keys() & {"started", "exit", "error"}:
            self.records.update(record)

    def adopt(self, pid: int) -> None:
        """
        Holds on to the box's first process, if it really is one of this box.
        """
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        if parent_of(pid) not in (self.launcher, os.getpid()):
            os.close(fd)
            return
        self.init = fd
        if self.is_killed:
            self.send(signal.SIGKILL)

    def close(self) -> None:
        """
        Lets go of every descriptor.
        """
        self.control.close()
        for fd in (self.pidfd, self.launcher_fd, self.status, self.init):
            if fd is not None:
                os.close(fd)
