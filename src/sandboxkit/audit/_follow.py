"""
A log as it grows.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandboxkit.audit._chain import Link
from sandboxkit.audit._failures import reading
from sandboxkit.audit._files import LONGEST_LINE, LogFile, at_hand, open_to_read, place, rotated
from sandboxkit.audit._read import Line, last_lines_of, lines

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Follower", "Notice"]

_BLOCK = 1 << 16


class Notice(str):
    """
    What whoever follows a log should know beside its lines.
    """

    __slots__ = ()


class Follower:
    """
    Gives the last lines of a log and then the new ones, over rotations.

    Args:
        path: The log, an absolute path. It has to be there to begin with.
        count: How many lines there are to begin with.
    """

    def __init__(self, path: str, count: int) -> None:
        self._path = path
        self._count = count
        self._file: _Growing | None = None
        self._seen = 0

    def close(self) -> None:
        """
        Lets go of the file that is read.
        """
        if self._file:
            os.close(self._file.fd)
            self._file = None

    def lines(self) -> Iterator[Line | Notice]:
        """
        What is new. Ends where there is nothing more yet: call it again later.

        Raises:
            AuditError: A file cannot be read.
        """
        with reading(self._path):
            if self._file is None:
                yield from self._begin()
            while self._file:
                yield from self._read(self._file)
                if not (following := self._following(self._file)):
                    return
                yield from self._read(self._file)  # what came before it was renamed
                yield from self._go_on(following)

    def _begin(self) -> Iterator[Line]:
        with at_hand(self._path) as files:
            chosen = last_lines_of(files, self._count) or [_at_its_end(files[-1])]
            yield from lines(chosen[:-1])
            self._file = _Growing(chosen[-1].path, chosen[-1].opened(), chosen[-1].start)

    def _read(self, file: _Growing) -> Iterator[Line | Notice]:
        if file.is_cut():
            file.offset, file.held = 0, b""
            yield Notice("the log was cut off; what follows are the records that are in it now")
        for line in file.lines():
            if link := Link.of(line.text):
                self._seen = link.head.sequence
            yield line

    def _following(self, file: _Growing) -> str | None:
        """
        The file that comes after *file*; None while that is the one that is written.
        """
        mine = place(os.fstat(file.fd))
        if _place_of(self._path) == mine:
            return None
        older = rotated(self._path)
        places = [_place_of(path) for path in older]
        if mine in places:
            later = older[places.index(mine) + 1 :]
        else:
            later = [path for path in older if _first_number(path) > self._seen]
        return next(iter(later), self._path if os.path.lexists(self._path) else None)

    def _go_on(self, path: str) -> Iterator[Notice]:
        try:
            fd = open_to_read(path)
        except FileNotFoundError:
            return  # renamed or deleted this moment; the next look finds where it went
        if self._seen and _first_number(path) > self._seen + 1:
            yield Notice("records were deleted before they were read")
        self.close()
        self._file = _Growing(path, fd, 0)


class _Growing:
    """
    A file that is read while it is written.
    """

    def __init__(self, path: str, fd: int, offset: int) -> None:
        self.path = path
        self.fd = fd
        self.offset = offset
        self.held = b""

    def is_cut(self) -> bool:
        """
        Whether something that was read is not there any more.
        """
        return os.fstat(self.fd).st_size < self.offset

    def lines(self) -> Iterator[Line]:
        """
        The lines that have an end by now.
        """
        while block := os.pread(self.fd, _BLOCK, self.offset):
            self.offset += len(block)
            *whole, rest = block.split(b"\n")
            if whole:
                whole[0] = self.held + whole[0]
                self.held = rest
            elif len(self.held) < LONGEST_LINE:
                self.held += rest
            for text in whole:
                yield Line(self.path, 0, text)


def _at_its_end(file: LogFile) -> LogFile:
    size = os.stat(file.path).st_size if file.size is None else file.size
    return LogFile(file.path, file.fd, file.size, size)


def _place_of(path: str) -> tuple[int, int] | None:
    try:
        return place(os.lstat(path))
    except FileNotFoundError:
        return None


def _first_number(path: str) -> int:
    """
    The number of the first record in the file *path*; 0 where there is none.
    """
    try:
        links = (Link.of(line.removesuffix(b"\n")) for line in LogFile(path).lines())
        return next((link.head.sequence for link in links if link), 0)
    except FileNotFoundError:
        return 0
