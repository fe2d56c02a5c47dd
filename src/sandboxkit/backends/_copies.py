"""
Copies of what a box may write, shown in its place, so that a run leaves nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from typing import TYPE_CHECKING

from sandboxkit.backends._temporary import temporary_directory
from sandboxkit.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["MAX_COPIED_BYTES", "MAX_COPIED_FILES", "copies"]

MAX_COPIED_BYTES = 512 << 20
MAX_COPIED_FILES = 100_000
_PREFIX = "sandboxkit-copy-"
_REMEDY = "name smaller directories, or run without discarding what is written"


@contextlib.contextmanager
def copies(paths: Sequence[str]) -> Iterator[tuple[tuple[str, str], ...]]:
    """
    Each of *paths* with a copy of it, as (path, copy); removed afterwards. Owners, modes,
    times and symbolic links are kept; sockets, devices and pipes are left out.

    Args:
        paths: Real paths on the host.

    Raises:
        BackendError: They hold more than `MAX_COPIED_BYTES` or `MAX_COPIED_FILES`, or
            cannot be copied.
    """
    if not paths:
        yield ()
        return
    with temporary_directory(_PREFIX) as root:
        if os.geteuid() == 0:
            os.chmod(root, 0o711)  # noqa: S103 - the command's user must get through it
        copier = _Copier()
        found = []
        for number, path in enumerate(paths):
            try:
                copier.copy(path, f"{root}/{number}")
            except _TooMuchError as exc:
                raise BackendError(f"what {path} holds cannot be copied: {exc}; {_REMEDY}") from None
            except OSError as exc:
                where = exc.filename or path
                raise BackendError(f"{where} cannot be copied: {exc.strerror}; {_REMEDY}") from exc
            found.append((path, f"{root}/{number}"))
        yield tuple(found)


class _TooMuchError(Exception):
    """
    More than is copied.
    """


class _Copier:
    """
    Copies trees and counts what they hold. Nothing in them is followed.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._files = 0

    def copy(self, source: str, target: str) -> None:
        """
        Copies *source* to *target*, which does not exist.
        """
        waiting = [(source, target)]
        made: list[tuple[str, str]] = []
        while waiting:
            source, target = waiting.pop()
            seen = os.lstat(source)
            self._count(seen)
            if stat.S_ISDIR(seen.st_mode):
                os.mkdir(target, 0o700)
                made.append((source, target))
                with os.scandir(source) as entries:
                    waiting += [(entry.path, f"{target}/{entry.name}") for entry in entries]
            elif stat.S_ISLNK(seen.st_mode):
                os.symlink(os.readlink(source), target)
                _owned(target, seen)
            elif stat.S_ISREG(seen.st_mode):
                shutil.copyfile(source, target, follow_symlinks=False)
                _like(source, target, seen)
        # A directory gets its mode last: it may forbid its owner to write.
        for source, target in reversed(made):
            _like(source, target, os.lstat(source))

    def _count(self, seen: os.stat_result) -> None:
        self._files += 1
        self._bytes += seen.st_size if stat.S_ISREG(seen.st_mode) else 0
        if self._bytes > MAX_COPIED_BYTES:
            raise _TooMuchError(f"more than {MAX_COPIED_BYTES >> 20} MiB")
        if self._files > MAX_COPIED_FILES:
            raise _TooMuchError(f"more than {MAX_COPIED_FILES} files")


def _like(source: str, target: str, seen: os.stat_result) -> None:
    _owned(target, seen)
    shutil.copystat(source, target, follow_symlinks=False)


def _owned(target: str, seen: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.chown(target, seen.st_uid, seen.st_gid, follow_symlinks=False)
