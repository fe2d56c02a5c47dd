"""
Pieces of a text with carets under the places that matter, for a terminal.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Mark", "columns", "excerpt", "shown"]

_GAP = "\N{HORIZONTAL ELLIPSIS}"
_TAB = "    "
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(code)
    for first, last in ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
    for code in range(first, last + 1)
}
"""
Characters that `str.isprintable` takes and no terminal shows.

Source: Unicode 15, DerivedCoreProperties.txt, Default_Ignorable_Code_Point; U+2800 is
the braille pattern without a dot.
"""


@dataclass(frozen=True, slots=True)
class Mark:
    """
    A place in a text, and what is to be said about it.

    Attributes:
        start, end: The place, in characters.
        labels: One line each.
    """

    start: int
    end: int
    labels: tuple[str, ...]


def shown(text: str) -> str:
    """
    *text* on one line, with everything escaped that a terminal would obey or hide.
    """
    return "".join(map(_cell, text))


def columns(text: str) -> int:
    """
    How many columns of a terminal *text* takes, which is as `shown` gives it.
    """
    return sum(map(_width, text))


def excerpt(text: str, marks: Iterable[Mark], *, width: int) -> Iterator[str]:
    """
    The lines of *text* that hold *marks*, numbered, each with its carets and labels
    below; what is far from every mark is left out.

    A mark over several lines has its carets on the first. Takes time by what is shown,
    not by the length of *text*, but for counting its lines.

    Args:
        text: The text; lines end at ``\\n`` only.
        marks: The places, each within *text*.
        width: Columns a line may take. Labels are not cut.
    """
    rows = list(_rows(text, sorted(marks, key=lambda mark: (mark.start, mark.end)), width))
    gutter = len(str(max((row.number for row in rows), default=1)))
    empty = " " * gutter + " |"
    yield empty
    for before, row in pairwise([None, *rows]):
        if before and row and row.number > before.number + 1:
            yield "..."
        if row:
            yield f"{row.number:>{gutter}} | {row.line.text}".rstrip()
            yield from (f"{empty} {line}".rstrip() for line in row.below())
    yield empty


@dataclass(frozen=True, slots=True)
class _Line:
    """
    What is shown of a line.

    Attributes:
        source: The whole text.
        text: What is shown.
        kept: The pieces of the whole text in it: start, end, and the column of the start.
    """

    source: str
    text: str
    kept: tuple[tuple[int, int, int], ...]

    def column(self, place: int) -> int:
        """
        Where the character *place* of the whole text stands, or the first that is
        shown after it.
        """
        for start, end, column in self.kept:
            if place <= end:
                return column + columns(shown(self.source[start : max(start, place)]))
        return columns(self.text)


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    line: _Line
    end: int
    marks: tuple[Mark, ...]

    def below(self) -> Iterator[str]:
        for mark in self.marks:
            left = self.line.column(mark.start)
            right = self.line.column(min(mark.end, self.end))
            carets = " " * left + "^" * max(1, right - left)
            indent = " " * len(carets)
            yield " ".join((carets, *mark.labels[:1]))
            yield from (f"{indent} {label}" for label in mark.labels[1:])


def _rows(text: str, marks: Sequence[Mark], width: int) -> Iterator[_Row]:
    number, counted = 1, 0
    waiting: list[Mark] = []
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        number += text.count("\n", counted, mark.start)
        counted = mark.start
        start = text.rfind("\n", 0, mark.start) + 1
        end = _or(text.find("\n", mark.start), len(text))
        waiting.append(mark)
        more = following is not None and following.start <= end
        if more and following and columns(_line(text, start, end, [*waiting, following], width).text) <= width:
            continue
        yield _Row(number, _line(text, start, end, waiting, width), end, tuple(waiting))
        waiting = []


def _or(found: int, otherwise: int) -> int:
    return otherwise if found < 0 else found


def _line(text: str, start: int, end: int, marks: Sequence[Mark], width: int) -> _Line:
    """
    What is shown of the line from *start* to *end*: all of it where that fits.
    """
    if _reach(text, start, end, width) == end:
        keep = [(start, end)]
    else:
        keep = _merged(piece for mark in marks for piece in _pieces(text, start, end, mark, width))
    kept: list[tuple[int, int, int]] = []
    line = _GAP if keep[0][0] > start else ""
    for first, last in keep:
        kept.append((first, last, columns(line)))
        line += shown(text[first:last]) + (_GAP if last < end else "")
    return _Line(text, line, tuple(kept))


def _pieces(text: str, start: int, end: int, mark: Mark, width: int) -> Iterator[tuple[int, int]]:
    """
    What is to be seen of a long line for *mark*: its beginning, its end, and a little
    on both sides.
    """
    around = width // 5
    last = min(mark.end, end)
    first = _back(text, mark.start, start, around)
    head = _reach(text, mark.start, last, width // 3)
    if head == last:
        yield first, _reach(text, last, end, around)
    else:
        yield first, head
        yield _back(text, last, head, width // 4), _reach(text, last, end, around // 2)


def _merged(pieces: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(pieces):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _reach(text: str, start: int, end: int, room: int) -> int:
    """
    How far from *start*, and not past *end*, the text fits into *room* columns.
    """
    place = start
    while place < end and (room := room - columns(_cell(text[place]))) >= 0:
        place += 1
    return place


def _back(text: str, start: int, end: int, room: int) -> int:
    place = start
    while place > end and (room := room - columns(_cell(text[place - 1]))) >= 0:
        place -= 1
    return place


def _cell(char: str) -> str:
    if char == "\t":
        return _TAB
    if char.isprintable() and char not in _INVISIBLE:
        return char
    return ascii(char)[1:-1]


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
