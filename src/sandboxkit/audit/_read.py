"""
Records as values, read back from a log.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sandboxkit.audit._bounded import RESERVED
from sandboxkit.audit._chain import Head, Link
from sandboxkit.audit._failures import reading
from sandboxkit.audit._files import LogFile, absolute, at_hand, last_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

__all__ = ["AuditRecord", "Line", "last_lines_of", "lines", "read_records"]

_JUDGED = ("command", "argv", "cwd", "home", "workspace_roots", "user", "numbers")
_EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Line:
    """
    A line of a log.

    Attributes:
        file: The file it stands in.
        number: Its number there, from 1; 0 where it was not counted.
        text: The line without its end.
        is_ended: Whether it has an end.
    """

    file: str
    number: int
    text: bytes
    is_ended: bool = True


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """
    A record as it was read back. That it can be read does not say that it is genuine:
    `examine` does.

    Attributes:
        head: Its number and the hash it bears.
        kind: `decided` or `finished`.
        run_id: Names the run.
        time: Seconds since the epoch (UTC).
        fields: What the event held, as the sink kept it.
        masked: The names of the fields in which a secret was masked.
        cut: The names of the fields of which something is missing; `*` is all.
        file: The file it was read from.
        line: Its line there, from 1; 0 where it was not counted.
    """

    head: Head
    kind: str
    run_id: str
    time: float
    fields: Mapping[str, Any]
    masked: tuple[str, ...]
    cut: tuple[str, ...]
    file: str
    line: int

    @classmethod
    def of(cls, line: Line) -> Self | None:
        """
        The record in *line*, or None where it holds none.
        """
        link = Link.of(line.text)
        try:
            found = json.loads(line.text) if link else None
        except (ValueError, RecursionError):
            return None
        if link is None or not isinstance(found, dict):
            return None
        return cls(
            head=link.head,
            kind=str(found.get("kind")),
            run_id=str(found.get("run_id")),
            time=_number(found.get("time")),
            fields={name: value for name, value in found.items() if name not in RESERVED},
            masked=_names(found.get("masked")),
            cut=_names(found.get("cut")),
            file=line.file,
            line=line.number,
        )

    @property
    def command(self) -> str | tuple[str, ...] | None:
        """
        What was given: words, or a text; None where the record holds neither. See
        `is_exact`.
        """
        argv = self.fields.get("argv")
        if isinstance(argv, list):
            return tuple(map(str, argv))
        text = self.fields.get("command")
        return text if isinstance(text, str) else None

    @property
    def is_exact(self) -> bool:
        """
        Whether the command and the place it was judged for are what they were: nothing
        in them was masked or cut, so that they can be judged again.
        """
        changed = {*self.masked, *self.cut}
        has_place = {"cwd", "home", "workspace_roots"} <= self.fields.keys()
        judged = _JUDGED if "argv" not in self.fields else _JUDGED[1:]  # then the text is only for people
        return self.command is not None and has_place and not changed & {*judged, _EVERYTHING}

    @property
    def action(self) -> str | None:
        """
        What the policy said, in a `decided` record.
        """
        return _text(self.fields.get("action"))

    @property
    def cwd(self) -> str | None:
        """
        The working directory it was judged for.
        """
        return _text(self.fields.get("cwd"))

    @property
    def home(self) -> str | None:
        """
        The home it was judged for.
        """
        return _text(self.fields.get("home"))

    @property
    def workspace_roots(self) -> tuple[str, ...]:
        """
        The directories the command could write, by which it was judged.
        """
        roots = self.fields.get("workspace_roots")
        return tuple(map(str, roots)) if isinstance(roots, list) else ()

    @property
    def user(self) -> str | None:
        """
        The user's name it was judged for.
        """
        return _text(self.fields.get("user"))

    @property
    def numbers(self) -> dict[str, float]:
        """
        What the caller had counted, by name.
        """
        found = self.fields.get("numbers")
        return {name: _number(value) for name, value in found.items()} if isinstance(found, dict) else {}

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form: the members of the record, without those of the chain that a
        reader has no use for.
        """
        changed = {name: list(names) for name, names in (("masked", self.masked), ("cut", self.cut)) if names}
        return {
            "seq": self.head.sequence,
            "kind": self.kind,
            "run_id": self.run_id,
            "time": self.time,
            **self.fields,
            **changed,
            "hash": self.head.hash,
        }


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return 0.0
    return number if math.isfinite(number) else 0.0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _names(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def lines(files: list[LogFile]) -> Iterator[Line]:
    """
    Every line of *files*. One that has been taken away meanwhile is left out.

    Raises:
        AuditError: A file cannot be read.
    """
    for file in files:
        try:
            for number, line in enumerate(file.lines(), start=1):
                text = line.removesuffix(b"\n")
                yield Line(file.path, 0 if file.start else number, text, is_ended=len(text) < len(line))
        except FileNotFoundError:
            continue


def read_records(path: str | os.PathLike[str]) -> Iterator[AuditRecord]:
    """
    The records of the log *path*, oldest first, over all its files, as it is when the
    first is asked for. A few at a time are in memory.

    A line that is no record, such as half a one that a crash left, is left out. Nothing
    is verified: call `examine` first where that matters.

    Raises:
        AuditError: A file cannot be read.
    """
    with at_hand(absolute(path)) as files:
        for line in lines(files):
            if record := AuditRecord.of(line):
                yield record


def last_lines_of(files: list[LogFile], count: int) -> list[LogFile]:
    """
    What of *files* holds the last *count* lines, found from the end: however long the
    log is, little of it is read.

    Raises:
        AuditError: A file cannot be read.
    """
    found: list[LogFile] = []
    for file in reversed(files):
        if count <= 0:
            break
        try:
            start, count = _start_of(file, count)
        except FileNotFoundError:
            break  # it was the oldest, and is deleted now
        found.insert(0, replace(file, start=start))
    return found


def _start_of(file: LogFile, count: int) -> tuple[int, int]:
    fd = file.opened()
    try:
        with reading(file.path):
            start = size = os.fstat(fd).st_size if file.size is None else file.size
            for start, _ in itertools.islice(last_lines(fd, size, file.path), count):  # noqa: B007 - the last one counts
                count -= 1
        return start, count
    finally:
        os.close(fd)
