"""
What only one of this machine's applications may ask of an engine at a time.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["alone"]

_SECONDS = 5.0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """
    One of this machine's applications, and one of its threads, at a time. Two cases need it.

    Whoever gives its image a name second takes the name away from the first, which would stay
    for good. And Podman's rootless service ends with all it runs when it reads the ranges of
    ids for two new containers at once (libsubid; seen with 4.3.1).

    Not for ever: others may hold the lock.
    """
    with open(__file__, "rb") as file:
        deadline = time.monotonic() + _SECONDS
        while not _is_locked(file.fileno()) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
