"""
Whether the records of a log hang together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandboxkit.audit._anchor import read_anchors
from sandboxkit.audit._chain import START, Head, Link, Region, is_earlier
from sandboxkit.audit._failures import LOG
from sandboxkit.audit._files import absolute, at_hand
from sandboxkit.audit._read import Line
from sandboxkit.errors import AuditError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from sandboxkit.audit._files import LogFile
    from sandboxkit.audit._key import AuditKey

__all__ = ["FileCheck", "Problem", "Tear", "Verification", "examine", "verify"]

_REMEDY = "compare it with a copy you trust"
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """
    The first place where a log does not hold together.

    Attributes:
        file: The file.
        line: The line in it, from 1; None where it is the log as a whole.
        reason: What is wrong, in one sentence.
    """

    file: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        return f"line {self.line} {self.reason}" if self.line is not None else self.reason


@dataclass(frozen=True, slots=True)
class Tear:
    """
    Half a record that a crash left, and that the record after it accounts for.

    Attributes:
        file: The file.
        line: The line in it, from 1.
        bytes: How much of the record that was being written is there.
        marked_by: The number of the record that says so.
    """

    file: str
    line: int
    bytes: int
    marked_by: int


@dataclass(frozen=True, slots=True)
class FileCheck:
    """
    What was found in one file.

    Attributes:
        path: The file.
        records: How many records of it were checked.
        first: Its first record's number, or None where it holds none.
        last: Its last record's head, or None.
        is_whole: Whether nothing is wrong in it; None where checking ended before it.
    """

    path: str
    records: int
    first: int | None
    last: Head | None
    is_whole: bool | None


@dataclass(frozen=True, slots=True)
class Verification:
    """
    What `examine` found.

    Attributes:
        path: The log.
        files: Each of its files, oldest first.
        problem: What is wrong, or None. Checking ends at the first problem.
        records: How many records were checked.
        first: The first record's number; above 1 where older files were deleted.
        head: The last record that was checked.
        tears: What crashes left.
        key_id: Which key the records are hashed with, or None.
        not_proven: What this does not show, in a sentence each.
    """

    path: str
    files: tuple[FileCheck, ...]
    problem: Problem | None
    records: int
    first: int | None
    head: Head | None
    tears: tuple[Tear, ...]
    key_id: str | None
    not_proven: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """
        Whether every record follows the one before, and whatever was expected is there.
        """
        return self.problem is None

    @property
    def remedy(self) -> str:
        """
        What to do about the problem.
        """
        return _REMEDY if self.records else f"{_REMEDY}, or name the file that JsonlAudit writes"

    def check(self) -> None:
        """
        Does nothing where the log holds together.

        Raises:
            AuditError: There is a problem.
        """
        if self.problem:
            raise AuditError(self.problem.file, str(self.problem), remedy=self.remedy, role=LOG)

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form.
        """
        return {
            "log": self.path,
            "whole": self.is_whole,
            "problem": _dict(self.problem, "file", "line", "reason") if self.problem else None,
            "records": self.records,
            "first": self.first,
            "head": _dict(self.head, "sequence", "hash") if self.head else None,
            "key_id": self.key_id,
            "files": [
                {
                    **_dict(file, "path", "records", "first"),
                    "last": str(file.last) if file.last else None,
                    "whole": file.is_whole,
                }
                for file in self.files
            ],
            "tears": [_dict(tear, "file", "line", "bytes", "marked_by") for tear in self.tears],
            "not_proven": list(self.not_proven),
        }


def _dict(value: object, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def verify(
    path: str | os.PathLike[str],
    *,
    key: AuditKey | None = None,
    expect_head: Head | str | None = None,
    anchors: str | os.PathLike[str] | None = None,
) -> int:
    """
    How many records the log holds, if it holds together; the arguments are those of
    `examine`.

    Raises:
        AuditError: The log cannot be read, or a record was changed, inserted, taken out
            or cut off; it names the first line that does not fit.
        ValueError: *expect_head* is no head.
    """
    found = examine(path, key=key, expect_head=expect_head, anchors=anchors)
    found.check()
    return found.records


def examine(
    path: str | os.PathLike[str],
    *,
    key: AuditKey | None = None,
    expect_head: Head | str | None = None,
    anchors: str | os.PathLike[str] | None = None,
) -> Verification:
    """
    Reads the log *path*, over all its files, and says whether it holds together. The
    log may be in use meanwhile: what is checked is how it was at the beginning.

    Found is every record that was changed, inserted, moved or taken out before the
    last. What is not proven is said in the result: without a key whoever can write the
    files can write them anew, and without a head from elsewhere records may be missing
    at the end.

    Args:
        path: The log.
        key: The key of a log that has one.
        expect_head: A head that was kept elsewhere: the log has to hold that record.
            Later ones may follow.
        anchors: The file of a `FileAnchor`: the log has to agree with every head in it.

    Raises:
        AuditError: A file cannot be read.
        ValueError: *expect_head* is no head.
    """
    name = absolute(path)
    expected = Head.parse(expect_head) if isinstance(expect_head, str) else expect_head
    anchored: dict[int, str] = {}
    for head in read_anchors(anchors) if anchors is not None else ():
        anchored.setdefault(head.sequence, head.hash)  # the first says what the record was
    tries = _TRIES
    while True:
        tries -= 1
        with at_hand(name) as files:
            walk = _Walk(name, key, expected, anchored)
            if walk.through(files) or not tries:
                return walk.verification(files)


class _Broken(Exception):  # noqa: N818 - a way out of the walk, not an error of the tree
    def __init__(self, line: Line, reason: str) -> None:
        self.problem = Problem(line.file, line.number, reason)
        super().__init__(reason)


@dataclass(slots=True)
class _Count:
    """
    What was seen of one file.
    """

    records: int = 0
    first: int | None = None
    last: Head | None = None


@dataclass(slots=True)
class _Walk:
    """
    Goes through a log from its first record to its last.
    """

    path: str
    key: AuditKey | None
    expected: Head | None
    anchored: dict[int, str]
    head: Head | None = None
    first: int | None = None
    has_expected: bool = False
    problem: Problem | None = None
    region: Region | None = None
    region_begin: Line | None = None
    last: Line | None = None
    tears: list[Tear] = field(default_factory=list)
    counts: dict[str, _Count] = field(default_factory=dict)

    def through(self, files: list[LogFile]) -> bool:
        """
        Whether every file was there when its turn came. Where one was not, a rotation
        deleted it meanwhile, and the log is another one now.
        """
        try:
            for file in files:
                self._file(file)
            self._end()
        except FileNotFoundError:
            return False
        except _Broken as exc:
            self.problem = exc.problem
        return True

    def _file(self, file: LogFile) -> None:
        self.counts[file.path] = _Count()
        for number, raw in enumerate(file.lines(), start=1):
            text = raw.removesuffix(b"\n")
            self._line(Line(file.path, number, text, is_ended=len(text) < len(raw)))

    def _line(self, line: Line) -> None:
        self.last = line
        if is_earlier(line.text):
            raise _Broken(line, "is of a version before 0.2, whose chain is another; check it with that version")
        link = Link.of(line.text)
        if link:
            self._check_key(line, link)
        record = _content(line.text) if link and link.fits(line.text, self.key) else None
        if link is None or record is None:
            self._unreadable(line)
            return
        self._check_between(line, record, link)
        self._check_order(line, link)
        self._check_kept(line, link.head)
        self._count(line, link.head)

    def _check_key(self, line: Line, link: Link) -> None:
        key_id = self.key.id if self.key else None
        if link.key_id == key_id:
            return
        if key_id is None:
            raise _Broken(line, f"is hashed with a key (its id is {link.key_id}); only with that key it can be checked")
        said = f"with the key {link.key_id}" if link.key_id else "without a key"
        raise _Broken(line, f"is hashed {said}, not with the given one ({key_id})")

    def _unreadable(self, line: Line) -> None:
        if self.region is None:
            self.region, self.region_begin = Region(), line
        self.region.add(line.text)

    def _check_between(self, line: Line, record: dict[str, Any], link: Link) -> None:
        torn = record.get("torn")
        if self.region is None or self.region_begin is None:
            if torn is not None:
                raise _Broken(line, "follows half a record that is not there any more")
        else:
            self._check_torn(self.region, self.region_begin, torn, link)
            self.region = self.region_begin = None
        if gone := record.get("gone"):
            latest = gone.get("seq") if isinstance(gone, dict) else gone
            raise _Broken(
                line,
                f"was written when records before it, up to {latest}, had been cut off while the log was in use",
            )

    def _check_torn(self, region: Region, begin: Line, torn: object, link: Link) -> None:
        said = dict(torn) if isinstance(torn, dict) else {}
        is_damaged = said.pop("damaged", True)
        if region.was_whole:
            raise _Broken(begin, _CHANGED)
        if said != region.described():
            raise _Broken(begin, "is no record")
        if is_damaged:
            raise _Broken(
                begin, f"was damaged after it was written; record {link.head.sequence}, the next one, says so"
            )
        self.tears.append(Tear(begin.file, begin.number, region.bytes, link.head.sequence))

    def _check_order(self, line: Line, link: Link) -> None:
        before = self.head
        if before is None and link.head.sequence > 1:
            self.first = link.head.sequence  # older files were deleted, or moved
        elif not link.follows(before or START):
            raise _Broken(
                line, "does not follow the record before it: something was changed, inserted, moved or taken out"
            )
        self.first = self.first or link.head.sequence

    def _check_kept(self, line: Line, head: Head) -> None:
        if self.anchored.get(head.sequence, head.hash) != head.hash:
            raise _Broken(line, f"is not record {head.sequence} as it was anchored")
        if self.expected and self.expected.hash == head.hash and self.expected.sequence in (0, head.sequence):
            self.has_expected = True

    def _count(self, line: Line, head: Head) -> None:
        self.head = head
        count = self.counts[line.file]
        count.records += 1
        count.first = count.first or head.sequence
        count.last = head

    def _end(self) -> None:
        if self.region and self.region_begin and self.last:
            raise _Broken(self.region_begin, self._unfinished(self.region, self.last))
        ends = self.head.sequence if self.head else 0
        if self.anchored and (latest := max(self.anchored)) > ends:
            self.problem = Problem(
                self.path, None, f"record {latest} was anchored, and the log ends with {ends}: its end was cut off"
            )
        elif self.expected and not self.has_expected:
            self.problem = Problem(
                self.path,
                None,
                f"the expected head {self.expected.hash} is not in it: its end was cut off, it was written anew, or the file that held it is gone",
            )

    def _unfinished(self, region: Region, last: Line) -> str:
        if region.was_whole:
            return _CHANGED
        return "is no record" if last.is_ended else "is half a record; the write was cut off, or the file was"

    def verification(self, files: list[LogFile]) -> Verification:
        """
        What was found.
        """
        return Verification(
            path=self.path,
            files=tuple(self._checked(file.path) for file in files),
            problem=self.problem,
            records=sum(count.records for count in self.counts.values()),
            first=self.first,
            head=self.head,
            tears=tuple(self.tears),
            key_id=self.key.id if self.key else None,
            not_proven=tuple(self._not_proven()),
        )

    def _checked(self, path: str) -> FileCheck:
        count = self.counts.get(path)
        if count is None:
            return FileCheck(path, 0, None, None, None)
        is_whole = self.problem is None or self.problem.file != path or self.problem.line is None
        return FileCheck(path, count.records, count.first, count.last, is_whole)

    def _not_proven(self) -> Iterator[str]:
        if self.key:
            yield "that nobody who holds the key wrote it anew"
        else:
            yield "that nobody wrote it anew: its chain has no key, so whoever can write the files can do that"
        known = max([*self.anchored, self.expected.sequence if self.expected else 0], default=0)
        if known or self.expected:
            yield f"that no record is missing after {f'record {known}' if known else 'the expected head'}"
        else:
            yield "that no record is missing at the end: that takes a head that was kept elsewhere"
        if self.first and self.first > 1:
            yield f"what the records 1 to {self.first - 1} said: their files are not here"


_CHANGED = "was changed after it was written: its hash does not fit"


def _content(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
