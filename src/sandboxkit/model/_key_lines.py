"""
On which line of a TOML or JSON text each key stands.

The parsers of the standard library forget it. This reads only text that such a parser
has accepted, so it knows where things are without judging them.
"""

from __future__ import annotations

import bisect
import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["KeyLines"]

Key = tuple[str | int, ...]

_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\]|\\.)*"'
    r"|'[^']*'",
    re.DOTALL,
)


class KeyLines:
    """
    The lines of *text*, which is valid.

    Args:
        text: The whole file.
        is_json: Whether it is JSON rather than TOML.

    Attributes:
        repeated: Keys that one JSON object holds twice, of which the parser drops one.
    """

    def __init__(self, text: str, *, is_json: bool) -> None:
        self.repeated: list[Key] = []
        self._text = text
        self._at = 0
        self._separator = ":" if is_json else "="
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._lines: dict[Key, int] = {}
        try:
            if is_json:
                self._value(())
            else:
                self._document()
        except (IndexError, RecursionError):
            return  # what follows has no line of its own

    def line(self, key: Key) -> int | None:
        """
        The line of *key*, or of the innermost part around it that has one.
        """
        while key not in self._lines:
            if not key:
                return None
            key = key[:-1]
        return self._lines[key]

    def _document(self) -> None:
        table: Key = ()
        latest: dict[Key, int] = {}
        while self._peek():
            if not self._take("["):
                self._pair(table)
                continue
            is_listed = self._take("[")
            *around, name = self._dotted(())
            if is_listed:
                listed = (*_numbered(around, latest), name)
                latest[listed] = latest.get(listed, -1) + 1
                self._note(listed)
            table = _numbered((*around, name), latest)
            self._note(table)
            while self._take("]"):
                pass

    def _pair(self, around: Key) -> None:
        key = self._dotted(around)
        if not self._take(self._separator):
            raise IndexError
        self._value(key)

    def _dotted(self, around: Key) -> Key:
        key = around
        while True:
            self._peek()
            found = _STRING.match(self._text, self._at) or _BARE_KEY.match(self._text, self._at)
            if not found:
                raise IndexError
            key = (*key, _name(found.group()))
            self._note(key)
            self._at = found.end()
            if not self._take("."):
                return key

    def _value(self, key: Key) -> None:
        if self._take("["):
            count = 0
            while not self._take("]"):
                self._note((*key, count))
                self._value((*key, count))
                self._take(",")
                count += 1
        elif self._take("{"):
            names: set[Key] = set()
            while not self._take("}"):
                self._member(key, names)
        else:
            found = _STRING.match(self._text, self._at) or _BARE_VALUE.match(self._text, self._at)
            if not found or found.end() == self._at:
                raise IndexError
            self._at = found.end()

    def _member(self, table: Key, names: set[Key]) -> None:
        start = self._at
        member = self._dotted(table)
        if member in names:
            self.repeated.append(member)
        names.add(member)
        self._at = start
        self._pair(table)
        self._take(",")

    def _note(self, key: Key) -> None:
        self._lines.setdefault(key, bisect.bisect_right(self._starts, self._at))

    def _peek(self) -> str:
        found = _BLANK.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, wanted: str) -> bool:
        found = self._peek()
        if not found and wanted in "]}":
            raise IndexError
        if found != wanted:
            return False
        self._at += 1
        return True


def _numbered(written: Iterable[str | int], latest: Mapping[Key, int]) -> Key:
    """
    *written* with the number of the latest table after each name of a list of them.
    """
    key: Key = ()
    for name in written:
        key = (*key, name)
        if key in latest:
            key = (*key, latest[key])
    return key


def _name(written: str) -> str:
    if written.startswith("'"):
        return written.strip("'")
    try:
        return str(json.loads(written)) if written.startswith('"') else written
    except ValueError:  # an escape that only TOML has
        return written.strip('"')
