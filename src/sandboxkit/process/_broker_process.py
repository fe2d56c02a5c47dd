"""
The process that starts commands: how an application starts it.

Loads little, so that a program that will need it can have it start while the rest is
loaded (`start_early`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NamedTuple

from sandboxkit.errors import BrokerError

if sys.platform != "win32":
    import fcntl

__all__ = ["IDLE_SECONDS", "Broker", "interpreter", "reap", "start", "start_early", "started"]

_BROKER = Path(__file__).with_name("_broker.py")
_FIRST_SPARE_FD = 10
IDLE_SECONDS = 60.0
"""
After how many seconds without a box a broker ends; the next run starts another.
"""


class Broker(NamedTuple):
    """
    A broker that was started.

    Attributes:
        pid: Its process.
        channel: Where launches are ordered.
    """

    pid: int
    channel: socket.socket


_early: list[Broker] = []


def start_early() -> None:
    """
    Starts the broker of this process before anything asks for it. Where it does not start,
    whoever needs it is told.
    """
    try:
        _early.append(start())
    except (BrokerError, OSError):
        return
    atexit.register(_end_early)


def _end_early() -> None:
    while _early:
        reap(_early.pop(), patience=0)  # nobody gave it anything to end


def started() -> Broker | None:
    """
    The broker that was started early, once; None where there is none.
    """
    return _early.pop() if _early else None


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


def start() -> Broker:
    """
    Starts a broker.

    Raises:
        BrokerError: It did not start.
        OSError: No descriptors are left.
    """
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
    return Broker(pid, ours)


def reap(broker: Broker, *, patience: float) -> None:
    """
    Ends *broker* and waits for that.

    Args:
        broker: Whose channel is closed, so that it ends every box and itself.
        patience: Seconds it has for that; then it is killed.
    """
    broker.channel.close()
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        fd = os.pidfd_open(broker.pid)
        try:
            if not select.select([fd], [], [], patience)[0]:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            os.waitpid(broker.pid, 0)
        finally:
            os.close(fd)
