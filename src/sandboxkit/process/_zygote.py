"""
Standing processes that fork a worker for each request, and the conversations with them.

A zygote is started bare, like the broker, and holds a pidfd of this process, so it ends
with it however it ends. What it forks and how that is confined is its program's affair;
this side starts it, hands it one end of a socket pair for each worker, kills workers
and ends it.

Source: unix(7) SCM_RIGHTS, pidfd_open(2), pidfd_send_signal(2), posix_spawn(3).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from sandboxkit.errors import SetupError
from sandboxkit.process._broker_process import interpreter
from sandboxkit.process._client import shutdown as end_broker

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["Conversation", "Zygote", "end_waiting", "shutdown", "socket_pair", "zygote_pids"]

IDLE_SECONDS = 60.0
"""After how many seconds without a request and a worker a zygote ends; the next request starts another."""
MAX_AHEAD = 4
"""How many workers that were forked ahead wait at most, each for requests with other limits."""

_START_SECONDS = 20.0
_END_SECONDS = 5.0
_RESTARTS = 3
_FIRST_SPARE_FD = 10
_CHUNK = 1 << 16
_GLANCES = 40
"""How often at most it is looked for an answer before it is waited for: about 40 us."""
_GLANCELESS = 4
"""How many answers are waited for at once after one did not come so soon."""
_LENGTH = struct.Struct("<I").pack


class Conversation:
    """
    One worker: messages to and from it, by either door, and its death.

    Not for two threads or tasks at once.

    Args:
        sock: This side's end.
        max_frame: The most bytes of one message of the worker's.
        kill: Ends the worker. None: it sends its pidfd along with a first, empty message.

    Attributes:
        uses: How often it was given back.
        is_waiting: Whether it waits for its next message and may have ended meanwhile.
    """

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_glance_at",
        "_kill",
        "_max_frame",
        "_patience_ms",
        "_pidfd",
        "_sock",
        "is_waiting",
        "uses",
    )

    def __init__(self, sock: socket.socket, max_frame: int, kill: Callable[[], object] | None = None) -> None:
        self._sock = sock
        self._max_frame = max_frame
        self._buffer = bytearray()
        self._patience_ms = 0
        self._glance_at = 1
        self._pidfd: int | None = None
        self._kill = kill
        self.uses = 0
        self.is_waiting = False
        _conversations.add(self)

    def _take(self, flags: int = 0) -> bytes | None:
        """
        Reads what has come; the frame, if it is complete now.

        Raises:
            BlockingIOError: Nothing came in time.
            EOFError: The worker is gone.
        """
        try:
            if self._pidfd is None and self._kill is None:
                data, fds, _, _ = socket.recv_fds(self._sock, _CHUNK, 4, flags | socket.MSG_CMSG_CLOEXEC)
                self._adopt(fds)
            else:
                data = self._sock.recv(_CHUNK, flags)
        except ConnectionError:
            data = b""
        if not data:
            raise EOFError
        length = len(data) - 4
        if not self._buffer and 0 < length <= self._max_frame and data[:4] == _LENGTH(length):
            return data[4:]  # as most answers come: one, and whole
        self._buffer += data
        return self._frame()

    def _adopt(self, fds: list[int]) -> None:
        for fd in fds[1:]:
            os.close(fd)
        if fds:
            self._pidfd = fds[0]

    def _frame(self) -> bytes | None:
        buffer = self._buffer
        while len(buffer) >= 4:
            length = int.from_bytes(buffer[:4], "little")
            if length > self._max_frame:
                raise EOFError
            if len(buffer) < 4 + length:
                return None
            frame = bytes(buffer[4 : 4 + length])
            del buffer[: 4 + length]
            if frame:
                return frame
        return None

    def send(self, body: bytes, deadline: float) -> None:
        """
        Sends one message; blocks until *deadline*, in time.monotonic().

        Raises:
            TimeoutError: It passed.
            EOFError: The worker is gone.
        """
        data = _LENGTH(len(body)) + body
        sent = self._send(data)
        if sent == len(data):
            return
        view = memoryview(data)[sent:]
        while view := view[self._send(view) :]:
            if not _is_ready(self._sock.fileno(), select.POLLOUT, _left(deadline)):
                raise TimeoutError

    def _send(self, view: bytes | memoryview) -> int:
        try:
            return self._sock.send(view, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0
        except OSError:  # it ended, or belongs to the process this one was forked from
            raise EOFError from None

    def receive(self, deadline: float) -> bytes:
        """
        The next message; blocks until *deadline*.

        Raises:
            TimeoutError: It passed.
            EOFError: The worker is gone.
        """
        frame = self._frame() if self._buffer else self._at_once()
        while frame is None:
            self._wait_at_most(_left(deadline))
            try:
                frame = self._take()
            except BlockingIOError:
                raise TimeoutError from None
        return frame

    def _at_once(self) -> bytes | None:
        # A worker that goes on answers a cached expression in less time than it takes to be
        # woken from another core: measured 56 us with the wait alone, 35 with a glance before
        # it. On the same core, or where it takes longer, they are in vain, and are left out
        # for a while. To other threads that want the interpreter each would hand it over.
        if self.uses < self._glance_at or threading.active_count() > 1:
            return None
        for _ in range(_GLANCES):
            try:
                return self._take(socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
        self._glance_at = self.uses + _GLANCELESS
        return None

    def _wait_at_most(self, seconds: float) -> None:
        # The kernel keeps the time, so that receiving is one call; whole milliseconds, so
        # that the same timeout need not be set again.
        milliseconds = math.ceil(seconds * 1000)
        if milliseconds != self._patience_ms:
            value = struct.pack("ll", milliseconds // 1000, milliseconds % 1000 * 1000)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self._patience_ms = milliseconds

    async def asend(self, body: bytes) -> None:
        """
        As `send`, for an event loop. The caller keeps the deadline.
        """
        view = memoryview(_LENGTH(len(body)) + body)
        while view := view[self._send(view) :]:
            await anyio.wait_writable(self._sock)

    async def areceive(self) -> bytes:
        """
        As `receive`, for an event loop. The caller keeps the deadline.
        """
        frame = self._frame()
        while frame is None:
            await anyio.wait_readable(self._sock)
            with contextlib.suppress(BlockingIOError):
                frame = self._take(socket.MSG_DONTWAIT)
        return frame

    def is_open(self) -> bool:
        """
        Whether this end is: not after `end` or `drop`.
        """
        return self._sock.fileno() >= 0

    def has_ended(self) -> bool:
        """
        Whether the worker has ended.
        """
        return self._pidfd is None or _is_ready(self._pidfd, select.POLLIN, 0)

    def end(self) -> None:
        """
        Kills the worker, whatever it does, and lets go of it.
        """
        self._sock.close()
        if self._kill is not None:
            self._kill()
        fd, self._pidfd = self._pidfd, None
        if fd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            os.close(fd)

    def drop(self) -> None:
        """
        Lets go without killing: what a forked child does with its parent's workers.
        """
        self._sock.close()
        self._kill = None
        fd, self._pidfd = self._pidfd, None
        if fd is not None:
            os.close(fd)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """
    Our end of a new conversation, and the worker's.
    """
    return socket.socketpair()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _is_ready(fd: int, events: int, seconds: float) -> bool:
    # Not select(), which cannot look at descriptors from 1024 on.
    poll = select.poll()
    poll.register(fd, events)
    return bool(poll.poll(math.ceil(seconds * 1000)))


@dataclass(slots=True)
class _Standing:
    pid: int
    channel: socket.socket
    report: dict[str, Any]


class Zygote:
    """
    A program that forks workers, started when it is first needed and again when it ended.

    Args:
        name: Names it in errors.
        program: The file to run, with the interpreter's `-I -S -B -W ignore`. It finds its channel at
            descriptor 3 and a pidfd of this process at 4.
        order: Its first message. Adds `idle_seconds`.
        remedy: What the caller can do where it cannot be confined; errors end with it.
    """

    def __init__(self, name: str, program: Path, order: Mapping[str, object], remedy: str) -> None:
        self.name = name
        self._remedy = remedy
        self._program = program
        self._order = json.dumps({**order, "idle_seconds": IDLE_SECONDS}).encode()
        self._lock = threading.Lock()
        self._standing: _Standing | None = None
        self._retired: list[_Standing] = []
        self._ahead: dict[tuple[str, int], Conversation] = {}
        _zygotes.add(self)

    @property
    def pid(self) -> int | None:
        """
        Its process id, or None while there is none.
        """
        standing = self._standing
        return standing.pid if standing else None

    def pids(self) -> list[int]:
        """
        The ids of all its processes that are there, those among them that are ending.
        """
        return [standing.pid for standing in (*self._retired, *filter(None, [self._standing]))]

    def report(self) -> dict[str, Any]:
        """
        What it said when it was ready; starts it where there is none.

        Raises:
            SetupError: It does not come up.
        """
        with self._lock:
            if self._standing is None:
                self._standing = self._start()
            return self._standing.report

    def take(self, header: Mapping[str, object], max_frame: int) -> Conversation:
        """
        As `converse`, with the worker `fork_ahead` had forked, where there is one. It may
        have ended meanwhile: while it `is_waiting`, `Conversation.send` raises EOFError for
        that, and nothing of the message was carried out.
        """
        found = self._ahead.pop((json.dumps(header), max_frame), None)
        if found is None or not found.is_open():
            return self.converse(header, max_frame)
        found.is_waiting = True
        return found

    def fork_ahead(self, header: Mapping[str, object], max_frame: int) -> None:
        """
        Has a worker forked for the next `take` of the same; does not wait for it.

        Raises:
            SetupError: As `converse`.
        """
        key = (json.dumps(header), max_frame)
        if key in self._ahead:
            return
        made = self.converse(header, max_frame)
        if self._ahead.setdefault(key, made) is not made:
            made.end()  # another thread was faster
        while len(self._ahead) > MAX_AHEAD:
            with contextlib.suppress(KeyError, StopIteration, RuntimeError):  # likewise
                self._ahead.pop(next(iter(self._ahead))).end()

    def converse(self, header: Mapping[str, object], max_frame: int) -> Conversation:
        """
        A conversation with a new worker.

        Args:
            header: What the zygote is told about it.
            max_frame: The most bytes of one message of the worker's; one that sends more
                counts as gone.

        Raises:
            SetupError: The zygote does not come up, or keeps ending.
        """
        message = json.dumps(header).encode()
        for _ in range(_RESTARTS):
            self.report()
            standing = self._standing
            ours, theirs = socket.socketpair()
            try:
                if standing is not None:
                    socket.send_fds(standing.channel, [message], [theirs.fileno()], socket.MSG_NOSIGNAL)
                    return Conversation(ours, max_frame)
            except OSError:
                self._discard(standing)  # it was idle and ended, or was killed
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            ours.close()
        raise SetupError(
            self.name, "the process it is forked from keeps ending; look for what kills it (out of memory)"
        )

    def _start(self) -> _Standing:
        try:
            owner = os.pidfd_open(os.getpid())
        except OSError as exc:
            raise SetupError(
                self.name, f"the kernel gives no pidfd, which Linux 5.3 brought: {exc}; {self._remedy}"
            ) from exc
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        spare: list[int] = []
        try:
            spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_SPARE_FD) for fd in (theirs.fileno(), owner)]
            python = interpreter()
            actions: list[tuple[Any, ...]] = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
                (os.POSIX_SPAWN_DUP2, 0, 1),
                (os.POSIX_SPAWN_DUP2, 0, 2),
                (os.POSIX_SPAWN_DUP2, spare[0], 3),
                (os.POSIX_SPAWN_DUP2, spare[1], 4),
            ]
            argv = [python, "-I", "-S", "-B", "-W", "ignore", str(self._program)]
            pid = os.posix_spawn(python, argv, {"TZ": "UTC0"}, file_actions=actions, setsid=True)
        except OSError as exc:
            ours.close()
            raise SetupError(self.name, f"its process did not start: {exc}") from exc
        finally:
            theirs.close()
            for fd in (owner, *spare):
                os.close(fd)
        return self._ready(_Standing(pid, ours, {}))

    def _ready(self, standing: _Standing) -> _Standing:
        standing.channel.settimeout(_START_SECONDS)
        try:
            standing.channel.send(self._order)
            said = json.loads(standing.channel.recv(_CHUNK) or b'{"error": "it ended while it started"}')
        except (OSError, ValueError) as exc:
            _reap(standing)
            raise SetupError(self.name, f"its process does not answer: {type(exc).__name__}: {exc}") from exc
        if "error" in said:
            _reap(standing)
            raise SetupError(self.name, f"its process could not give up its rights: {said['error']}; {self._remedy}")
        standing.channel.settimeout(_END_SECONDS)
        standing.report = said
        return standing

    def _discard(self, standing: _Standing | None) -> None:
        # It may have closed its door to end when its last workers have: they are others'.
        with self._lock:
            if standing is not None and self._standing is standing:
                self._standing = None
                standing.channel.close()
                self._retired = [old for old in (*self._retired, standing) if not _has_ended(old.pid)]

    def end(self) -> None:
        """
        Ends it and every worker of it; the next request starts another.
        """
        with self._lock:
            ending = [*self._retired, *filter(None, [self._standing])]
            self._standing, self._retired = None, []
        self.end_ahead()
        for standing in ending:
            _reap(standing)

    def end_ahead(self) -> None:
        """
        Ends the workers that were forked ahead and wait.
        """
        ahead, self._ahead = self._ahead, {}
        for conversation in ahead.values():
            conversation.end()

    def drop(self) -> None:
        """
        Forgets it without ending it: what a forked child does with its parent's.
        """
        for standing in (*self._retired, *filter(None, [self._standing])):
            standing.channel.close()
        self._standing, self._retired, self._ahead, self._lock = None, [], {}, threading.Lock()


_zygotes: weakref.WeakSet[Zygote] = weakref.WeakSet()
_conversations: weakref.WeakSet[Conversation] = weakref.WeakSet()


def _has_ended(pid: int) -> bool:
    """
    Whether the child *pid* is gone; collects it.
    """
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _reap(standing: _Standing) -> None:
    standing.channel.close()
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        fd = os.pidfd_open(standing.pid)
        try:
            signal.pidfd_send_signal(fd, signal.SIGKILL)  # its workers are bound to it
            _is_ready(fd, select.POLLIN, _END_SECONDS)
            os.waitpid(standing.pid, 0)
        finally:
            os.close(fd)


def zygote_pids() -> list[int]:
    """
    The process ids of the zygotes that are there.
    """
    return [pid for zygote in list(_zygotes) for pid in zygote.pids()]


def end_waiting() -> None:
    """
    Ends the workers of all zygotes that were forked ahead and wait to be needed. They end
    by themselves a little later; this is for who counts processes.
    """
    for zygote in list(_zygotes):
        zygote.end_ahead()


def shutdown() -> None:
    """
    Ends every process this library keeps: the broker with its boxes, and the evaluation
    workers; waits for that. What is asked for next starts new ones.

    Called by itself when the interpreter ends.
    """
    _end_zygotes()
    end_broker()


def _end_zygotes() -> None:
    for zygote in list(_zygotes):
        zygote.end()


def _drop_after_fork() -> None:
    for zygote in list(_zygotes):
        zygote.drop()
    for conversation in list(_conversations):
        conversation.drop()


atexit.register(_end_zygotes)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_after_fork)
