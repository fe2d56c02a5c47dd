"""
What only one of this machine's applications may ask of an engine at a time.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

import anyio

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

__all__ = ["alone", "turn"]

_SECONDS = 5.0
_TURN_SECONDS = 60.0
_POLL_SECONDS = 0.02
_BEHIND_ALL = 1 << 30
"""Behind the end of the file: on Windows nobody else can read what is locked."""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """
    One of this machine's applications, and one of its threads, at a time. Not for ever:
    others may hold the lock.
    """
    with open(__file__, "rb") as file:
        deadline = time.monotonic() + _SECONDS
        while not _is_locked(file) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        yield


async def turn() -> BinaryIO:
    """
    Waits for its turn among all who ask, which lasts until what it gives is closed. Not for
    ever either.
    """
    file = open(__file__, "rb")  # noqa: ASYNC230, SIM115 - a small file of our own; the caller closes it
    try:
        with anyio.move_on_after(_TURN_SECONDS):
            while not _is_locked(file):  # noqa: ASYNC110 - another process has it
                await anyio.sleep(_POLL_SECONDS)
    except BaseException:
        file.close()
        raise
    return file


def _is_locked(file: BinaryIO) -> bool:
    """
    Whether this has taken the lock, which lasts until *file* is closed.

    Source: flock(2); Microsoft, LockFile.
    """
    if sys.platform == "win32":
        import msvcrt

        file.seek(_BEHIND_ALL)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
