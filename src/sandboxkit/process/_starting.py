"""
How the broker starts a program: with which descriptors, limits and signals, and what is
said where that fails.

Part of the broker: standard library only, imports nothing of the package.

Source: posix_spawn(3), execve(2), prctl(2) PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal

TYPE_CHECKING = False  # as in typing, whose import is spared
if TYPE_CHECKING:
    from typing import Any

PR_SET_PDEATHSIG = 1
# A terminal's signals are for the application; a broken pipe or a file limit is an error.
IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ)

libc = ctypes.CDLL(None, use_errno=True)


def above(fds: list[int], floor: int) -> list[int]:
    """
    Copies of *fds* with numbers of at least *floor*, so that no target covers a source.
    """
    copies: list[int] = []
    try:
        for fd in fds:
            copies.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, floor))  # noqa: PERF401 - those made before a failure are to be closed
    except OSError:
        close_all(copies)
        raise
    return copies


def close_all(fds: list[int]) -> None:
    """
    Closes every descriptor of *fds*.
    """
    for fd in fds:
        os.close(fd)


def set_limit(number: int, limit: int) -> None:
    """
    Sets both limits of a resource to *limit*, or to what is permitted if that is less.
    """
    hard = resource.getrlimit(number)[1]
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(number, (limit, limit))


class LaunchFailure(OSError):  # noqa: N818 - it carries what the application is told
    """
    A launch did not work, in another process of ours: the message about it.
    """

    def __init__(self, message: dict[str, object]) -> None:
        super().__init__(message["errno"], message["text"])
        self.message = message


def failure(error: Exception) -> dict[str, object]:
    """
    The message about a launch that *error* ended.
    """
    if isinstance(error, LaunchFailure):
        return error.message
    number = getattr(error, "errno", None) or errno.EINVAL
    if stage := getattr(error, "stage", None):
        return {"error": stage, "errno": number, "text": str(getattr(error, "strerror", error))}
    return {"error": "broker", "errno": number, "text": str(error)}


def spawn(order: dict[str, Any], moves: list[tuple[int, int]]) -> int:
    """
    Starts the program of *order* as this process is now, without copying it.
    """
    actions = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in moves]
    return os.posix_spawn(
        order["argv"][0],
        order["argv"],
        order["environment"],
        file_actions=actions,
        setsigdef=IGNORED,
        setsigmask=(),
    )


def fork(order: dict[str, Any], moves: list[tuple[int, int]], report: int) -> int:
    """
    Starts the program of *order* in a child that first takes its limits, its session
    and its working directory, which posix_spawn(3) cannot give.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    step = "exec"
    try:
        for number in IGNORED:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        step = "cwd"
        os.chdir(order["cwd"])
        step = "limits"
        for number, limit in order["rlimits"]:
            set_limit(number, limit)
        libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(125)
        step = "exec"
        for source, target in moves:
            os.dup2(source, target)
        os.execve(order["argv"][0], order["argv"], order["environment"])
    except OSError as error:
        failure = {"error": step, "errno": error.errno or errno.EIO, "text": str(error.strerror)}
        os.write(report, json.dumps(failure).encode() + b"\n")
    finally:
        os._exit(125)


def fork_held(order: dict[str, Any], moves: list[tuple[int, int]], report: int, gate: tuple[int, int]) -> int:
    """
    Starts the program of *order* in a child that waits for a byte through *gate*, so that
    it can be attached to before it does anything; without one it ends.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        os.close(gate[1])
        if not os.read(gate[0], 1):
            os._exit(125)
        for number in IGNORED:
            signal.signal(number, signal.SIG_DFL)
        for source, target in moves:
            os.dup2(source, target)
        os.execve(order["argv"][0], order["argv"], order["environment"])
    except OSError as error:
        os.write(report, json.dumps(failure(error)).encode() + b"\n")
    finally:
        os._exit(125)


def keep_only(fds: list[int]) -> None:
    """
    Closes every descriptor the application left open, except 0, 1, 2 and *fds*.
    """
    previous = 2
    for fd in sorted(fds):
        os.closerange(previous + 1, fd)
        previous = fd
    os.closerange(previous + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
