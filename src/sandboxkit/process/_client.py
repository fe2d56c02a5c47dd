"""
The application's side of the spawn broker.

One broker serves a process, whatever threads and event loops it has: only sending goes
over the shared channel, and every launch brings its own control socket, which the
caller's own event loop waits for.

Source: unix(7) SCM_RIGHTS, memfd_create(2), pidfd_open(2).
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import json
import os
import socket
import struct
import sys
import threading
import weakref
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any

import anyio

from sandboxkit.errors import BrokerError, SetupError
from sandboxkit.process._broker_process import Broker, interpreter, reap, start, started
from sandboxkit.process._kept import LineControl, keep

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxkit.model import ControlGroup, ControlGroups, LaunchPlan, Trace

__all__ = ["Control", "broker_pid", "ensure_broker", "shutdown", "submit"]

_RESTARTS = 3
_SHUTDOWN_SECONDS = 8.0


def memfd(name: str, content: bytes) -> int:
    """
    A descriptor of an anonymous file that holds *content* and can never change.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(
            fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        )
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_place(path: str) -> int:
    """
    A descriptor of *path* that only names it, refused if a symbolic link leads there.

    Raises:
        SetupError: There is a link on the way, or it is gone.

    Source: openat2(2), RESOLVE_NO_SYMLINKS.
    """
    how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)
    arguments = (ctypes.c_long(_AT_FDCWD), os.fsencode(path), how, ctypes.c_size_t(len(how)))
    fd = int(_libc().syscall(ctypes.c_long(_SYS_OPENAT2), *arguments))
    if fd < 0:
        why = os.strerror(ctypes.get_errno())
        raise SetupError("process", f"{path} was replaced while the box was made: {why}")
    return fd


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


_SYS_OPENAT2 = 437
_AT_FDCWD = -100
_RESOLVE_NO_SYMLINKS = 0x04


@dataclass(slots=True)
class _State:
    lock: threading.Lock = field(default_factory=threading.Lock)
    broker: Broker | None = field(default_factory=started)
    controls: weakref.WeakSet[Control | LineControl] = field(default_factory=weakref.WeakSet)


_state = _State()


def broker_pid() -> int | None:
    """
    The broker's process id, or None while there is none.
    """
    broker = _state.broker
    return broker.pid if broker else None


def ensure_broker() -> int:
    """
    The broker's process id; it is started where there is none.

    Raises:
        BrokerError: It cannot be started.
    """
    return _broker().pid


def shutdown() -> None:
    """
    Ends the broker and with it every box of this process, and waits for that. Commands that
    have a keeper of their own are ended by it; whoever runs them sees their end.

    The next run starts a new broker. Called by itself when the interpreter ends.
    """
    for control in list(_state.controls):
        if isinstance(control, LineControl):
            control.order("kill")
    with _state.lock:
        broker, _state.broker = _state.broker, None
    if broker:
        reap(broker, patience=_SHUTDOWN_SECONDS)


def _drop_after_fork() -> None:
    # The broker belongs to the parent: the child must not be able to order from it,
    # nor keep its boxes alive by holding their control sockets.
    global _state
    inherited, _state = _state, _State()
    if inherited.broker:
        inherited.broker.channel.close()
    for control in list(inherited.controls):
        control.drop()


atexit.register(shutdown)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_after_fork)


class Control:
    """
    The application's end of one launch: messages come in, orders go out.

    Attributes:
        lost: What it means when no more messages come.
    """

    lost = "the process that starts commands was ended during the run, and the box with it"

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        _state.controls.add(self)

    async def receive(self) -> dict[str, Any] | None:
        """
        The next message, or None when the broker is gone.
        """
        while True:
            try:
                data = self._sock.recv(65536)
            except BlockingIOError:
                await anyio.wait_readable(self._sock)
                continue
            except OSError:
                return None
            return json.loads(data) if data else None

    def order(self, message: str) -> None:
        """
        Sends `kill` or `signal N`. Too late is not an error.
        """
        with contextlib.suppress(OSError):
            self._sock.send(message.encode())

    def close(self) -> None:
        """
        Lets go; what still runs is killed.
        """
        self._sock.close()

    def drop(self) -> None:
        """
        Lets go in a forked process.
        """
        self._sock.close()


def _order(plan: LaunchPlan, targets: Sequence[int], timeout: float | None, *, explain: bool) -> bytes:
    staging = plan.staging
    reports = (plan.status_fd, plan.status_fd + 1) if plan.status_fd is not None else ()
    return json.dumps(
        {
            "argv": plan.argv,
            "environment": dict(plan.environment),
            "cwd": plan.cwd,
            "fds": targets,
            "report_fds": reports,
            "timeout": timeout,
            "end_signal": plan.end_signal,
            "is_direct": plan.confinement is None,
            "rlimits": plan.rlimits,
            "groups": plan.groups and _flat(plan.groups) | {"groups": [*map(_flat, plan.groups.groups)]},
            "watched": plan.watched,
            "trace": _trace(plan.trace) if explain and plan.trace else None,
            "staging": staging
            and {
                "uid": staging.uid,
                "gid": staging.gid,
                "sources": staging.sources,
                "directory": staging.directory,
                "memory": staging.memory,
            },
        }
    ).encode()


def _trace(trace: Trace) -> dict[str, Any]:
    from sandboxkit.process._explain import trace_order  # few runs are explained

    return trace_order(trace)


def _flat(value: ControlGroups | ControlGroup) -> dict[str, Any]:
    return {row.name: getattr(value, row.name) for row in fields(value)}


async def submit(
    plan: LaunchPlan,
    fds: Sequence[tuple[int, int]],
    timeout: float | None,  # noqa: ASYNC109 - the broker's to keep
    found: int | None = None,
) -> Control | LineControl:
    """
    Has the broker start *plan*, or a keeper of its own: where the plan has a mark, and on
    systems the broker is not made for.

    Args:
        plan: What to start.
        fds: (descriptor here, its number in the started program), for all it gets
            besides the plan's own files.
        timeout: Seconds after which the broker ends it; None is no deadline. The
            broker keeps it, so that a blocked event loop does not lengthen it.
        found: A descriptor of a file in which is written, as JSON, what the command was
            refused; None does without. Only for a plan with a `trace`.

    Raises:
        BrokerError: The broker could not be started or keeps going away.
    """
    if plan.mark or sys.platform not in ("linux", "win32"):
        kept = keep(plan, fds, timeout, interpreter())
        _state.controls.add(kept)
        return kept
    with contextlib.ExitStack() as stack:
        files = []
        for file in plan.files:
            fd = memfd(f"sandboxkit-{file.fd}", file.content)
            stack.callback(os.close, fd)
            files.append((fd, file.fd))
        places = []
        for path, target in plan.places:
            fd = open_place(path)
            stack.callback(os.close, fd)
            places.append((fd, target))
        passed = [*fds, *plan.open_files, *places, *files]
        order = memfd(
            "sandboxkit-plan", _order(plan, [target for _, target in passed], timeout, explain=found is not None)
        )
        stack.callback(os.close, order)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.callback(theirs.close)
        try:
            last = [] if found is None else [found]
            await _send(array.array("i", [theirs.fileno(), order, *(fd for fd, _ in passed), *last]))
        except BaseException:
            ours.close()
            raise
    return Control(ours)


async def _send(fds: array.array[int]) -> None:
    for _ in range(_RESTARTS):
        broker = _broker()
        try:
            while not _sent(broker.channel, fds):  # noqa: ASYNC110 - the broker drains its queue in another process
                await anyio.sleep(0.001)
        except OSError:
            _discard(broker)  # it went idle, or was killed
        else:
            return
    raise BrokerError(
        "the process that starts commands keeps ending; look for what kills it (out of memory, a process limit)"
    )


def _sent(channel: socket.socket, fds: array.array[int]) -> bool:
    try:
        channel.sendmsg(
            [b"launch"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        )
    except BlockingIOError:
        return False  # its queue is full; it is working on it
    except OSError as exc:
        if exc.errno == _ETOOMANYREFS:
            return False  # too many descriptors under way
        raise
    return True


_ETOOMANYREFS = 109


def _broker() -> Broker:
    if sys.platform != "linux":
        raise BrokerError(f"the process that starts commands needs Linux, this is {sys.platform}; use Docker")
    with _state.lock:
        if _state.broker is None:
            _state.broker = start()
        return _state.broker


def _discard(broker: Broker) -> None:
    with _state.lock:
        if _state.broker is not broker:
            return
        _state.broker = None
    reap(broker, patience=_SHUTDOWN_SECONDS)
