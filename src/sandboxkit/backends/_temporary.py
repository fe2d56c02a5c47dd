"""
Directories on the host that go when they are done with, however the application ends.

While one is in use it is locked; the kernel lets go of the lock when the application
dies, and the next that makes one of the same kind removes what it left. One that was
removed between its making and its lock is made anew.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["temporary_directory"]

_DAY_SECONDS = 86_400.0


@contextlib.contextmanager
def temporary_directory(prefix: str) -> Iterator[str]:
    """
    A new directory below the host's temporary one, its name beginning with *prefix*; a
    real path that only its owner may enter, removed afterwards.

    On Windows, where no directory can be locked, what an application that was killed left
    goes once it is a day old.
    """
    base = os.path.realpath(tempfile.gettempdir())
    if sys.platform == "win32":
        with _of_windows(base, prefix) as root:
            yield root
        return
    _sweep(base, prefix)
    root, lock = _made(base, prefix)
    try:
        yield root
    finally:
        _remove(root)
        os.close(lock)


@contextlib.contextmanager
def _of_windows(base: str, prefix: str) -> Iterator[str]:
    root = tempfile.mkdtemp(prefix=prefix, dir=base)
    try:
        oldest = os.stat(root).st_mtime - _DAY_SECONDS
        with os.scandir(base) as entries:
            for entry in [entry for entry in entries if entry.name.startswith(prefix)]:
                with contextlib.suppress(OSError):  # another application was faster
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        shutil.rmtree(entry.path, ignore_errors=True)
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _made(base: str, prefix: str) -> tuple[str, int]:
    """
    A new directory in *base*, and the descriptor that holds its lock.
    """
    while True:
        root = tempfile.mkdtemp(prefix=prefix, dir=base)
        try:
            lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another application took it for one that was left
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:
                return root, lock
        os.close(lock)


def _sweep(base: str, prefix: str) -> None:
    """
    Removes what applications that were killed left of theirs.
    """
    with os.scandir(base) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(prefix)]
    for path in found:
        with contextlib.suppress(OSError):
            _sweep_one(path)


def _sweep_one(path: str) -> None:
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
    finally:
        os.close(lock)


def _remove(root: str) -> None:
    """
    Removes *root*, also directories in it that a command closed to itself. They never
    stop root, who must not follow a link that somebody swaps in.
    """
    for place, directories, _ in os.walk(root) if os.geteuid() else ():
        for name in directories:
            with contextlib.suppress(OSError):
                path = f"{place}/{name}"
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
    shutil.rmtree(root, ignore_errors=True)
