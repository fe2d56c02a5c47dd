"""
The files of a log on disk: the one that is written, and those it was before.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.audit._failures import CHOICE, check_regular, reading
from sandboxkit.errors import AuditError
from sandboxkit.model import open_flags

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "LONGEST_LINE",
    "LogFile",
    "Place",
    "absolute",
    "at_hand",
    "is_at",
    "last_lines",
    "lock",
    "next_rotated",
    "open_to_read",
    "opened_to_read",
    "place",
    "rotated",
]

LONGEST_LINE = 16 * 1024 * 1024
"""A longer line is none of ours, and is not read into memory."""
LOCK_SECONDS = 2.0
_PAUSE_SECONDS = 0.001
_BLOCK = 8192
_READ_FLAGS = open_flags("RDONLY", "NOFOLLOW", "CLOEXEC", "NONBLOCK", "NOCTTY")
_DIGITS = 6

Place = tuple[int, int]
"""Names a file whatever it is called: its device and inode."""


def place(found: os.stat_result) -> Place:
    """
    The place of a file.
    """
    return found.st_dev, found.st_ino


def absolute(path: str | os.PathLike[str]) -> str:
    """
    *path* with a real directory; its last name is left alone, so that a link shows.
    """
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def rotated(path: str) -> list[str]:
    """
    The older files of the log *path*, oldest first.

    Raises:
        OSError: The directory cannot be read.
    """
    folder, name = os.path.split(path)
    pattern = re.compile(re.escape(name) + rf"\.([0-9]{{{_DIGITS},18}})")
    found = [(int(match[1]), entry) for entry in os.listdir(folder) if (match := pattern.fullmatch(entry))]
    return [os.path.join(folder, entry) for _, entry in sorted(found)]


def next_rotated(path: str) -> str:
    """
    What the log *path* is called when it becomes an older file.

    Raises:
        OSError: The directory cannot be read.
    """
    before = rotated(path)
    number = int(before[-1].rpartition(".")[2]) + 1 if before else 1
    return f"{path}.{number:0{_DIGITS}}"


def lock(fd: int, path: str, *, shared: bool = False) -> None:
    """
    Waits for the lock of an open file, at most two seconds.

    Raises:
        AuditError: Another process holds it longer, or this is Windows, where a lock of
            flock(2)'s kind cannot be had.
        OSError: The file system has no locks.
    """
    if sys.platform == "win32":
        raise AuditError(
            path,
            "Windows has no lock of flock(2)'s kind",
            remedy="keep records in memory (MemoryAudit), or run in WSL 2",
        )
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise AuditError(
                    path,
                    f"another process has held its lock for {LOCK_SECONDS:g} s",
                    remedy="end that process (lslocks shows it)",
                ) from None
            time.sleep(_PAUSE_SECONDS)


def open_to_read(path: str) -> int:
    """
    A descriptor of the regular file *path*, which is no link.

    Raises:
        AuditError: It is something else.
        OSError: It cannot be opened.
    """
    fd = os.open(path, _READ_FLAGS)
    try:
        check_regular(path, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def opened_to_read(path: str, role: str) -> Iterator[int]:
    """
    The regular file *path*, open while it is read; *role* is that of the errors.

    Raises:
        AuditError: It is something else, or cannot be read.
    """
    with reading(path, role):
        fd = open_to_read(path)
        try:
            yield fd
        finally:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class LogFile:
    """
    A file of a log, as it was at one moment.

    Attributes:
        path: What it was called.
        fd: A descriptor of it, or None where it is opened when its turn comes.
        size: Where to stop, in bytes; None is its end. What is appended later does not
            count.
        start: Where to begin: the first byte of a line.
    """

    path: str
    fd: int | None = None
    size: int | None = None
    start: int = 0

    def opened(self) -> int:
        """
        A descriptor of its own.

        Raises:
            FileNotFoundError: It has been taken away.
            AuditError: It cannot be read.
        """
        with reading(self.path):
            try:
                return os.dup(self.fd) if self.fd is not None else open_to_read(self.path)
            except FileNotFoundError as exc:
                gone = exc
        raise gone

    def lines(self) -> Iterator[bytes]:
        """
        Its lines, each with its end if it has one, a few at a time in memory.

        Raises:
            FileNotFoundError: It has been taken away.
            AuditError: It cannot be read.
        """
        with open(self.opened(), "rb", buffering=1 << 16) as file:
            file.seek(self.start)
            left = (os.fstat(file.fileno()).st_size if self.size is None else self.size) - self.start
            with reading(self.path):
                while left > 0 and (line := file.readline(min(left, LONGEST_LINE))):
                    left -= len(line)
                    yield line


@contextlib.contextmanager
def at_hand(path: str) -> Iterator[list[LogFile]]:
    """
    The files of the log *path*, oldest first, as they are at one moment: nobody is in
    the middle of a record or of a rotation then.

    Raises:
        AuditError: There is none, it cannot be read, or somebody holds its lock.
    """
    with reading(path):
        files = _files(path)
    try:
        yield files
    finally:
        for file in files:
            if file.fd is not None:
                os.close(file.fd)


def _files(path: str) -> list[LogFile]:
    try:
        fd = _current(path)
    except FileNotFoundError:
        files = [LogFile(name) for name in rotated(path)]  # a rotation was cut off in its middle
        if not files:
            raise
        return files
    try:
        files = [*map(LogFile, rotated(path)), LogFile(path, fd, os.fstat(fd).st_size)]
        fcntl.flock(fd, fcntl.LOCK_UN)
    except BaseException:
        os.close(fd)
        raise
    return files


def _current(path: str) -> int:
    """
    The file that is called *path* now, locked so that it keeps that name.
    """
    while True:
        fd = open_to_read(path)
        try:
            lock(fd, path, shared=True)
            if is_at(path, os.fstat(fd)):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def is_at(path: str, found: os.stat_result) -> bool:
    """
    Whether *path* still names the file that was *found* open.
    """
    try:
        return place(os.lstat(path)) == place(found)
    except FileNotFoundError:
        return False


def last_lines(fd: int, size: int, path: str) -> Iterator[tuple[int, bytes]]:
    """
    The lines of the open file *path* from its end, each with where it begins and without
    its end.

    Raises:
        AuditError: One is longer than 16 MiB, so it is none of ours.
        OSError: It cannot be read.
    """
    # The end of the last line is not the beginning of another.
    start = size - 1 if size and os.pread(fd, 1, size - 1) == b"\n" else size
    held = b""
    while start:
        step = min(start, max(_BLOCK, len(held)))
        start -= step
        held = os.pread(fd, step, start) + held
        while (at := held.rfind(b"\n")) >= 0:
            yield start + at + 1, held[at + 1 :]
            held = held[:at]
        if len(held) > LONGEST_LINE:
            raise AuditError(
                path, "a line at its end is longer than 16 MiB, so it is no log", remedy=f"rename it, {CHOICE}"
            )
    if size:
        yield 0, held
