"""
The application's side of a keeper: one process for each command, where there is no broker.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from sandboxkit.errors import BrokerError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from sandboxkit.model import LaunchPlan

__all__ = ["LineControl", "keep"]

_KEEPER = Path(__file__).with_name("_keeper.py")
_READ_SIZE = 65536
_PATIENCE = 5.0
"""Seconds a keeper may take to end after its last word, or after ours."""
_LIMITS = {
    0: "RLIMIT_CPU",
    1: "RLIMIT_FSIZE",
    2: "RLIMIT_DATA",
    4: "RLIMIT_CORE",
    6: "RLIMIT_NPROC",
    7: "RLIMIT_NOFILE",
    8: "RLIMIT_MEMLOCK",
    12: "RLIMIT_MSGQUEUE",
}
"""Plans have Linux's numbers, which other systems give other meanings. Source: asm-generic/resource.h."""


class LineControl:
    """
    The application's end of one kept command: one message comes in, orders go out.

    Attributes:
        lost: What it means when no message comes.
    """

    lost = (
        "the process that kept the command was killed during the run, and nobody ends what it started; "
        "look for processes of the command, and leave processes of this library alone"
    )

    def __init__(self, sock: socket.socket, keeper: subprocess.Popen[bytes]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._keeper = keeper

    async def receive(self) -> dict[str, Any] | None:
        """
        How it ended, or None when the keeper is gone without having said so.
        """
        text = b""
        while not text.endswith(b"\n"):
            try:
                data = self._sock.recv(_READ_SIZE)
            except BlockingIOError:
                await anyio.wait_readable(self._sock)
                continue
            except OSError:
                return None
            if not data:
                return None
            text += data
        found: dict[str, Any] = json.loads(text)
        return found

    def order(self, message: str) -> None:
        """
        Sends `kill` or `signal N`. Too late is not an error.
        """
        with contextlib.suppress(OSError):
            self._sock.send(message.encode() + b"\n")

    def close(self) -> None:
        """
        Lets go; what still runs is killed.
        """
        import subprocess  # Linux, which has a broker, is spared this and tempfile

        self._sock.close()
        try:
            self._keeper.wait(_PATIENCE)
        except subprocess.TimeoutExpired:  # somebody has to take its status when it ends
            threading.Thread(target=self._keeper.wait, daemon=True).start()

    def drop(self) -> None:
        """
        Lets go in a forked process, whose child the keeper is not.
        """
        self._sock.close()
        self._keeper.returncode = 0  # it is the parent's to wait for


def keep(plan: LaunchPlan, fds: Sequence[tuple[int, int]], timeout: float | None, python: str) -> LineControl:
    """
    Has a keeper of its own start *plan*.

    Args:
        plan: What to start. Its `mark` tells its processes from others.
        fds: (descriptor here, its number in the started program), for all it gets
            besides the plan's own files.
        timeout: Seconds after which the keeper ends it; None is no deadline.
        python: The interpreter that runs the keeper.

    Raises:
        BrokerError: The keeper did not start.
    """
    import subprocess

    with contextlib.ExitStack() as stack:
        files = [(_unnamed(file.content, stack), file.fd) for file in plan.files]
        passed = [*fds, *plan.open_files, *files]
        order = _unnamed(_order(plan, passed, timeout), stack)
        ours, theirs = socket.socketpair()
        stack.callback(theirs.close)
        try:
            keeper = subprocess.Popen(
                [python, "-I", "-S", str(_KEEPER), str(theirs.fileno()), str(order)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                pass_fds=[theirs.fileno(), order, *(fd for fd, _ in passed)],
                start_new_session=True,
            )
        except OSError as exc:
            ours.close()
            raise BrokerError(f"the process that keeps a command did not start: {exc}") from exc
    return LineControl(ours, keeper)


def _unnamed(content: bytes, stack: contextlib.ExitStack) -> int:
    """
    A descriptor of a file without a name that holds *content*.
    """
    import tempfile

    file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack is the context
    file.write(content)
    file.flush()
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    return file.fileno()


def _order(plan: LaunchPlan, fds: Sequence[tuple[int, int]], timeout: float | None) -> bytes:
    return json.dumps(
        {
            "argv": plan.argv,
            "environment": dict(plan.environment),
            "cwd": plan.cwd,
            "fds": fds,
            "report": plan.status_fd,
            "step": "exec" if plan.confinement is None else "launcher",
            "rlimits": [(_LIMITS[number], limit) for number, limit in plan.rlimits if number in _LIMITS],
            "timeout": timeout,
            "mark": plan.mark,
        }
    ).encode()
