"""
Foreign text for a terminal: exactly what is there, and nothing that acts. Pure.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["foreign_letters", "marked", "needs_escape", "visible", "width_of"]

_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Printable by their category, and yet nothing is seen. Source: Unicode, Default_Ignorable_Code_Point; U+2800 is an empty pattern."""

_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})
"""Letters that turn the order of what stands around them. Source: UAX #9, table 4."""


def needs_escape(char: str) -> bool:
    """
    Whether *char* is shown by its number: control characters, everything without a
    picture of its own (zero-width, tags, private use, blanks other than the space),
    marks that change the character before them, and letters that turn the order of
    the line.
    """
    if " " <= char <= "~":
        return False
    return (
        not char.isprintable()
        or unicodedata.category(char)[0] in "MZC"
        or char in _BLANK_LETTERS
        or unicodedata.bidirectional(char) in _RIGHT_TO_LEFT
    )


def visible(text: str, *, keep: str = "") -> str:
    r"""
    *text* with everything a terminal would obey or hide escaped as in Python (`\x1b`,
    `\u200b`). Where anything is, a backslash of the text itself is doubled, so the
    text can be told from what it stands for.

    Args:
        text: Anything.
        keep: Characters left as they are.
    """
    return "".join(cell for cell, _ in _cells(text, keep))


def _cells(text: str, keep: str = "") -> Iterator[tuple[str, int]]:
    """
    How each character of *text* is shown, and how wide that is.
    """
    is_escaped = any(needs_escape(char) for char in text if char not in keep)
    for char in text:
        if char in keep:
            yield char, 0
        elif needs_escape(char):
            escaped = _escaped(char)
            yield escaped, len(escaped)
        else:
            cell = "\\\\" if char == "\\" and is_escaped else char
            yield cell, width_of(cell)


def _escaped(char: str) -> str:
    number = ord(char)
    if char in "\t\n\r":
        return {"\t": "\\t", "\n": "\\n", "\r": "\\r"}[char]
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def width_of(text: str) -> int:
    """
    How many columns *text* takes, whose characters are all shown as they are.
    """
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def marked(text: str, spans: Sequence[tuple[int, int]], *, columns: int) -> Iterator[str]:
    """
    *text* in lines of at most *columns*, escaped, with carets under *spans*.

    A line that goes on ends in ``↩`` (the text has an end of line here) or in ``…``
    (only the terminal is too narrow), so neither can be taken for the other.

    Args:
        text: Anything.
        spans: Places in it, as (start, end) in characters.
        columns: The longest line, at least 16.
    """
    line, below, used = "", "", 0
    for at, (cell, width) in enumerate(_cells(text, keep="\n")):
        mark = "^" if any(start <= at < end for start, end in spans) else " "
        if cell == "\n":
            yield from _lines(line + "↩", below)
            line, below, used = "", "", 0
            continue
        if used + width > max(columns, 16) - 1:
            yield from _lines(line + "…", below)
            line, below, used = "", "", 0
        line, below, used = line + cell, below + mark * width, used + width
    yield from _lines(line, below)


def _lines(line: str, below: str) -> Iterator[str]:
    yield line
    if "^" in below:
        yield below.rstrip()


def foreign_letters(text: str) -> list[str]:
    """
    The letters and signs of *text* that are shown as they are and are not ASCII, with
    their names: some look like others.
    """
    found = dict.fromkeys(char for char in text if char > "~" and not needs_escape(char))
    return [f"{char} U+{ord(char):04X} {unicodedata.name(char, 'without a name').lower()}" for char in found]
