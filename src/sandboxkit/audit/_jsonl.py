"""
Records in a file: one JSON line each, chained by hashes.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandboxkit.audit._anchor import FileAnchor
from sandboxkit.audit._bounded import MAX_FIELD_CHARS, MAX_RECORD_BYTES, bounded, encoded
from sandboxkit.audit._chain import START, Head, Link, Region, is_earlier, sealed
from sandboxkit.audit._failures import CHOICE, check_private, failure
from sandboxkit.audit._files import (
    LONGEST_LINE,
    Place,
    absolute,
    is_at,
    last_lines,
    lock,
    next_rotated,
    open_to_read,
    place,
    rotated,
)
from sandboxkit.errors import AuditError
from sandboxkit.model import SCHEMA_VERSION, open_flags
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandboxkit.audit._key import AuditKey
    from sandboxkit.audit._rotation import Rotation
    from sandboxkit.model import AuditEvent

__all__ = ["JsonlAudit"]

_FLAGS = open_flags("RDWR", "APPEND", "CREAT", "CLOEXEC", "NOFOLLOW", "NONBLOCK", "NOCTTY")
_BEGINNING = encoded({"schema": SCHEMA_VERSION})[:-1] + b","
"""How every record begins; in a file without a whole one, every line has to, as far as it goes."""
_MOST_BAD_LINES = 1000
"""Crashes leave one each; more of them in a row are something else."""
_SEAL_BYTES = 256
"""At least what the chain adds to a record."""


@dataclass(frozen=True, slots=True)
class _End:
    """
    Where a file ends.

    Attributes:
        head: Its last whole record; None where it holds none.
        marks: What the next record has to say about what lies between: `torn`, `gone`.
        is_open: Whether the last line lacks its end.
    """

    head: Head | None
    marks: dict[str, Any] = field(default_factory=dict)
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class _Known:
    """
    What this object wrote last, and where.
    """

    place: Place
    size: int
    head: Head


class JsonlAudit:
    """
    Appends each record to a file as one line of JSON.

    Each record bears its number and its hash (`seq`, `hash`) and the hash of the one
    before (`prev`), so `sandboxkit audit verify` finds what was changed, inserted or
    taken out. Without a *key* the hashes prove nothing against whoever can write the
    file: that one can write all of it anew. With or without, records cut off at the end
    are missed only by whoever kept a later `head` elsewhere (*anchor*).

    The file is opened anew for each record, and locked: threads, forked children and
    other processes may share it, if all of them give the same *key* and *rotation*. A
    renamed file is followed by a new one. A write that was cut off by a crash is marked
    by the next record (`torn`) and costs at most the record that was being written.
    Keep the file outside of every directory a box may write.

    Args:
        path: The file, created with mode 0600. Its directory must exist. Neither a
            link nor anything but a regular file of this user that nobody else can
            write is taken.
        secrets: What is masked besides the shapes of well-known tokens.
        max_field_chars: Longer texts are cut, with a marker. A record has at most
            64 KiB in any case.
        rotation: When the log goes on in a new file; None is never.
        key: Makes the hashes HMACs, which only its holders can write.
        anchor: Called with the head after every *anchor_every*th record, to keep it
            elsewhere, for example a `FileAnchor`. What it raises refuses the run, as a
            record that cannot be written does.
        anchor_every: How many records lie between two calls, at least 1.
        fsync: Whether each record is on the disk before `write` returns. Off by
            default: it costs a hundred times the write (3 ms on a usual disk), and only
            a power cut or a crash of the kernel loses what was not synced.

    Raises:
        AuditError: The file cannot be opened, or was written with another key.
        ValueError: *anchor_every* is below 1.

    Source: open(2) O_APPEND, flock(2), rename(2).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        secrets: SecretRegistry | None = None,
        max_field_chars: int = MAX_FIELD_CHARS,
        rotation: Rotation | None = None,
        key: AuditKey | None = None,
        anchor: Callable[[Head], object] | None = None,
        anchor_every: int = 1,
        fsync: bool = False,
    ) -> None:
        if anchor_every < 1:
            raise ValueError(f"anchor_every {anchor_every}: give at least 1")
        self._path = absolute(path)
        self._secrets = secrets or SecretRegistry()
        self._max_field_chars = max_field_chars
        self._rotation = rotation
        self._key = key
        self._anchor = anchor
        self._anchor_every = anchor_every
        self._fsync = fsync
        self._known: _Known | None = None
        self._first: tuple[Place, tuple[Head, float]] | None = None
        self.head()

    @property
    def name(self) -> str:
        """
        Names the sink in errors: its path.
        """
        return self._path

    @property
    def paths(self) -> tuple[str, ...]:
        """
        The files it writes, those it wrote before a rotation, and the file of a
        `FileAnchor`. A box never writes them, whatever its spec says.
        """
        anchors = (self._anchor.path,) if isinstance(self._anchor, FileAnchor) else ()
        with contextlib.suppress(OSError):
            return (self._path, *rotated(self._path), *anchors)
        return (self._path, *anchors)

    def head(self) -> Head | None:
        """
        The number and the hash of the last record, to be kept elsewhere; None where
        there is no record yet.

        Raises:
            AuditError: The file cannot be read, or was written with another key.
        """
        with self._locked() as (fd, found):
            head = self._end(fd, found).head or self._before().head
        return None if head in (None, START) else head

    def write(self, event: AuditEvent) -> None:
        """
        Appends *event*, in one write.

        Raises:
            AuditError: It could not be appended, and the file is as it was; or the
                record was appended and *anchor* failed.
        """
        record = bounded(event, self._secrets, max_field_chars=self._max_field_chars, max_record_bytes=MAX_RECORD_BYTES)
        head = None
        while head is None:  # a file that is full is renamed first
            with self._locked() as (fd, found):
                head = self._written(fd, found, record, event.time)
        if self._anchor and head.sequence % self._anchor_every == 0:
            self._anchored(self._anchor, head)

    def _anchored(self, anchor: Callable[[Head], object], head: Head) -> None:
        try:
            anchor(head)
        except Exception as exc:
            raise AuditError(
                self._path,
                f"record {head.sequence} is written, and its head could not be anchored ({type(exc).__name__}: {exc})",
                remedy="mend the anchor, or go on without one",
            ) from exc

    # -- the file that is called so, open and locked ----------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[tuple[int, os.stat_result]]:
        try:
            fd, found = self._current()
            try:
                yield fd, found
            finally:
                os.close(fd)
        except AuditError:
            raise
        except OSError as exc:
            raise failure(self._path, exc) from exc

    def _current(self) -> tuple[int, os.stat_result]:
        while True:
            fd = os.open(self._path, _FLAGS, 0o600)
            try:
                lock(fd, self._path)
                found = os.fstat(fd)
                check_private(self._path, found)
                if is_at(self._path, found):  # otherwise it was rotated while we waited
                    return fd, found
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def _written(self, fd: int, found: os.stat_result, record: bytes, time: float) -> Head | None:
        """
        The head after *record*; None where the file was full, and was renamed.
        """
        end = self._end(fd, found)
        if (
            self._rotation
            and end.head
            and not end.marks
            and self._is_full(self._rotation, fd, found, end.head, len(record), time)
        ):
            self._rotate(fd)
            return None
        is_new = end.head is None
        if is_new:
            end = self._with_before(end)
        head = self._append(fd, found, end, record)
        if is_new and self._rotation and self._rotation.keep:
            self._delete_old(self._rotation.keep)
        return head

    # -- where the chain stands -------------------------------------------------------

    def _end(self, fd: int, found: os.stat_result) -> _End:
        known = self._known
        if known and (known.place, known.size) == (place(found), found.st_size):
            return _End(known.head)
        end = self._read_end(fd, found.st_size)
        if known and known.place == place(found) and (end.head or START).sequence < known.head.sequence:
            # Records this object wrote are not there any more. No writer takes one back.
            gone = {"seq": known.head.sequence, "hash": known.head.hash}
            return _End(end.head, {**end.marks, "gone": gone}, end.is_open)
        return end

    def _read_end(self, fd: int, size: int) -> _End:
        is_open = bool(size) and os.pread(fd, 1, size - 1) != b"\n"
        bad: list[bytes] = []
        left = LONGEST_LINE
        head = None
        for _, line in last_lines(fd, size, self._path):
            if (link := Link.of(line)) and self._is_ours(link) and link.fits(line, self._key):
                head = link.head
                break
            if is_earlier(line):
                raise AuditError(
                    self._path, "it was begun by a version before 0.2, whose chain is another", remedy="rename it"
                )
            bad.append(line)
            left -= len(line) + 1
            if left < 0 or len(bad) > _MOST_BAD_LINES:
                raise AuditError(self._path, "too much of its end is no records", remedy="rename it")
        if head is None and not all(map(_may_be_ours, bad)):
            raise AuditError(self._path, "it holds lines that are no records of a log", remedy=f"rename it, {CHOICE}")
        return _End(head, _torn(bad, is_open=is_open), is_open)

    def _is_ours(self, link: Link) -> bool:
        key_id = self._key.id if self._key else None
        if link.key_id == key_id:
            return True
        whose = f"the key {link.key_id}" if link.key_id else "no key"
        given = f"the key {key_id} was" if key_id else "no key was"
        raise AuditError(
            self._path,
            f"its records are hashed with {whose}, and {given} given",
            remedy="give that key, or rename the file",
        )

    def _with_before(self, end: _End) -> _End:
        """
        The end of the file before, where this one holds no record.
        """
        before = self._before()
        marks = {**before.marks, **end.marks}
        return _End(before.head, marks, end.is_open)

    def _before(self) -> _End:
        """
        What the first record of a file follows: the end of the newest older file, or
        what was written last, or nothing.
        """
        for path in reversed(rotated(self._path)):
            fd = open_to_read(path)
            try:
                end = self._end(fd, os.fstat(fd))
            finally:
                os.close(fd)
            if end.head:
                return end
        return _End(self._known.head if self._known else START)

    # -- writing ----------------------------------------------------------------------

    def _append(self, fd: int, found: os.stat_result, end: _End, record: bytes) -> Head:
        if end.marks:
            record = record[:-1] + b"," + json.dumps(end.marks, separators=(",", ":")).encode("ascii")[1:]
        line, head = sealed(record, end.head or START, self._key)
        data = (b"\n" if end.is_open else b"") + line + b"\n"
        try:
            written = os.write(fd, data)
            if written != len(data):
                raise AuditError(
                    self._path,
                    f"only {written} of {len(data)} bytes fitted",
                    remedy="free the disk, or name another file",
                )
            if self._fsync:
                _sync(fd)
        except OSError:
            self._known = None
            with contextlib.suppress(OSError):  # what stays is half a line, which the next record marks
                os.ftruncate(fd, found.st_size)
            raise
        self._known = _Known(place(found), found.st_size + len(data), head)
        return head

    # -- rotation ---------------------------------------------------------------------

    def _is_full(
        self, rotation: Rotation, fd: int, found: os.stat_result, head: Head, record_bytes: int, time: float
    ) -> bool:
        if rotation.max_bytes is not None and found.st_size + record_bytes + _SEAL_BYTES > rotation.max_bytes:
            return True
        if not rotation.needs_first:
            return False
        first, begun = self._first_of(fd, place(found), head, time)
        if rotation.max_records is not None and head.sequence - first.sequence + 1 >= rotation.max_records:
            return True
        return rotation.max_age_s is not None and time - begun >= rotation.max_age_s

    def _first_of(self, fd: int, where: Place, head: Head, time: float) -> tuple[Head, float]:
        """
        The head and the time of the first record of an open file.
        """
        if self._first is None or self._first[0] != where:
            with open(os.dup(fd), "rb") as file:
                file.seek(0)
                found = next(filter(None, map(_begun, file)), (head, time))
            self._first = where, found
        return self._first[1]

    def _rotate(self, fd: int) -> None:
        os.fsync(fd)  # once renamed, nobody writes it any more; a power cut must not lose what the next file builds on
        os.rename(self._path, next_rotated(self._path))
        folder = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _delete_old(self, keep: int) -> None:
        for path in rotated(self._path)[:-keep]:
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                os.unlink(path)


_sync = getattr(os, "fdatasync", os.fsync)
"""Darwin has no fdatasync."""


def _torn(bad: list[bytes], *, is_open: bool) -> dict[str, Any]:
    if not bad:
        return {}
    region = Region()
    for line in reversed(bad):
        region.add(line)
    # A write that was cut off leaves no end of line, unless it was the one that closes
    # the half line of another.
    is_damaged = region.was_whole or (not is_open and len(bad) == 1)
    return {"torn": {**region.described(), "damaged": is_damaged}}


def _may_be_ours(line: bytes) -> bool:
    return line.startswith(_BEGINNING) or _BEGINNING.startswith(line)


def _begun(line: bytes) -> tuple[Head, float] | None:
    link = Link.of(line.removesuffix(b"\n"))
    try:
        return (link.head, float(json.loads(line)["time"])) if link else None
    except (ValueError, TypeError, KeyError):
        return None
