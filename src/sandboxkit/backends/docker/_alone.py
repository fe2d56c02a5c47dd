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
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
