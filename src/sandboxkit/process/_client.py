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
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import weakref
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from sandboxkit.errors import BrokerError, SetupError
from sandboxkit.process._explain import trace_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxkit.model import LaunchPlan

__all__ = ["Control", "broker_pid", "ensure_broker", "interpreter", "shutdown", "submit"]

_BROKER = Path(__file__).with_name("_broker.py")
_FIRST_SPARE_FD = 10
_RESTARTS = 3
IDLE_SECONDS = 60.0
"""
After how many seconds without a box a broker ends; the next run starts another.
"""
_SHUTDOWN_SECONDS = 8.0


def interpreter() -> str:
    """
    The host path of the interpreter that runs the broker and the in-box child.

    It is the base interpreter, not a virtual environment's link to it: neither needs
    more than the standard library.

    Raises:
        BrokerError: None can be found, as in an embedded interpreter.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (getattr(sys, "_base_executable", None), sys.executable, f"{sys.base_exec_prefix}/bin/{version}"):
        if candidate and Path(candidate).name.startswith("python") and os.access(candidate, os.X_OK):
            return os.path.realpath(candidate)
    raise BrokerError("no Python interpreter was found next to the running one; the broker needs one to start commands")


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
class _Broker:
    pid: int
    channel: socket.socket


@dataclass(slots=True)
class _State:
    lock: threading.Lock = field(default_factory=threading.Lock)
    broker: _Broker | None = None
    controls: weakref.WeakSet[Control] = field(default_factory=weakref.WeakSet)


_state = _State()


def _start() -> _Broker:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    owner = os.pidfd_open(os.getpid())
    spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_SPARE_FD) for fd in (theirs.fileno(), owner)]
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, 0, 1),
        (os.POSIX_SPAWN_DUP2, 0, 2),
        (os.POSIX_SPAWN_DUP2, spare[0], 3),
        (os.POSIX_SPAWN_DUP2, spare[1], 4),
    ]
    python = interpreter()
    try:
        pid = os.posix_spawn(
            python,
            [python, "-I", "-S", str(_BROKER), "3", "4", str(IDLE_SECONDS)],
            {},
            file_actions=actions,
            setsid=True,
        )
    except OSError as exc:
        ours.close()
        raise BrokerError(f"the process that starts commands did not start: {exc}") from exc
    finally:
        theirs.close()
        for fd in (owner, *spare):
            os.close(fd)
    return _Broker(pid, ours)


def _reap(broker: _Broker, *, patience: float) -> None:
    broker.channel.close()
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        fd = os.pidfd_open(broker.pid)
        try:
            if not select.select([fd], [], [], patience)[0]:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            os.waitpid(broker.pid, 0)
        finally:
            os.close(fd)


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
    Ends the broker and with it every box of this process, and waits for that.

    The next run starts a new broker. Called by itself when the interpreter ends.
    """
    with _state.lock:
        broker, _state.broker = _state.broker, None
    if broker:
        _reap(broker, patience=_SHUTDOWN_SECONDS)


def _drop_after_fork() -> None:
    # The broker belongs to the parent: the child must not be able to order from it,
    # nor keep its boxes alive by holding their control sockets.
    global _state
    inherited, _state = _state, _State()
    if inherited.broker:
        inherited.broker.channel.close()
    for control in list(inherited.controls):
        control.close()


atexit.register(shutdown)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_after_fork)


class Control:
    """
    The application's end of one launch: messages come in, orders go out.
    """

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
            "groups": plan.groups and asdict(plan.groups),
            "trace": trace_order(plan.trace) if explain and plan.trace else None,
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


async def submit(
    plan: LaunchPlan,
    fds: Sequence[tuple[int, int]],
    timeout: float | None,  # noqa: ASYNC109 - the broker's to keep
    found: int | None = None,
) -> Control:
    """
    Has the broker start *plan*.

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


def _broker() -> _Broker:
    with _state.lock:
        if _state.broker is None:
            _state.broker = _start()
        return _state.broker


def _discard(broker: _Broker) -> None:
    with _state.lock:
        if _state.broker is not broker:
            return
        _state.broker = None
    _reap(broker, patience=_SHUTDOWN_SECONDS)
