"""
The private directory of an open box, for its home and temporary files: without a mount
namespace there is no /tmp of its own.

It lies in the host's temporary directory and goes when the box is closed. While the box
is open its directory is locked; the kernel lets go of the lock when the application
dies, however it dies, and the next box that is opened removes what it left. One that was
removed between its making and its lock is made anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["scratch"]

_PREFIX = "sandboxkit-landlock-"


@contextlib.contextmanager
def scratch(settings: bytes, user: tuple[int, int] | None) -> Iterator[str]:
    """
    A new directory with an empty `home` and `tmp`, removed afterwards.

    Args:
        settings: The content of the home's `.gitconfig`; none is made for an empty one.
        user: Who is to own what is in it, or None for the caller.
    """
    base = os.path.realpath(tempfile.gettempdir())
    _sweep(base)
    root, lock = _made(base)
    try:
        made = []
        for name in ("home", "tmp"):
            made.append(f"{root}/{name}")
            os.mkdir(made[-1], 0o700)
        if settings:
            made.append(f"{root}/home/.gitconfig")
            with open(made[-1], "xb") as file:
                file.write(settings)
        if user is not None:
            os.chmod(root, 0o711)  # noqa: S103 - the command's user must get through it
            for path in made:
                os.chown(path, *user)
        yield root
    finally:
        _remove(root)
        os.close(lock)


def _made(base: str) -> tuple[str, int]:
    """
    A new directory in *base*, and the descriptor that holds its lock.
    """
    while True:
        root = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
        try:
            lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another application took it for one that was left
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:
                return root, lock
        os.close(lock)


def _sweep(base: str) -> None:
    """
    Removes what applications that were killed left of theirs.
    """
    with os.scandir(base) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(_PREFIX)]
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
    Removes *root*, also directories in it that the command closed to itself. They never
    stop root, who must not follow a link that somebody swaps in.
    """
    for place, directories, _ in os.walk(root) if os.geteuid() else ():
        for name in directories:
            with contextlib.suppress(OSError):
                path = f"{place}/{name}"
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
    shutil.rmtree(root, ignore_errors=True)
