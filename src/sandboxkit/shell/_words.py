"""
Plain words: the part of bash's grammar whose meaning is certain without running it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sandboxkit.shell._tables import BUILTINS, RESERVED

__all__ = ["words"]

_EASY = re.compile(r"[A-Za-z0-9_./,@+-][A-Za-z0-9_./:,@%+=-]*(?: [A-Za-z0-9_./:,@%+=-]+)*")
"""
Text that needs no character by character reading: most commands look like this.
"""

_RUN = re.compile(r"[A-Za-z0-9_./:,@%+=-]+")
"""
Characters that mean themselves wherever they stand.
"""

_OUTSIDE = re.compile(r"[A-Za-z0-9_./:,@%+= -]*")
_EXPANDS = re.compile(r"[$`\\]")
_COMPOUND = re.compile(r"[;|&<>$`()*?\n]")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\$`]|\\.)*\"|\\.", re.DOTALL)
_META = frozenset("\n|&;()<>$`*?")


class _NotPlainError(Exception):
    """
    The text is more than plain words.
    """


@dataclass(slots=True)
class _Word:
    """
    A word while it is read. `raw` holds only what stood outside quotes.
    """

    letters: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    is_quoted: bool = False
    may_assign: bool = False

    def add(self, text: str) -> None:
        self.letters.append(text)
        self.raw.append(text)
        self.may_assign = self.may_assign or "=" in text or ":" in text

    def add_quoted(self, text: str) -> None:
        self.letters.append(text)
        self.is_quoted = True

    @property
    def is_empty(self) -> bool:
        return not self.letters and not self.is_quoted


def words(text: str) -> tuple[str, ...] | None:
    """
    The words of *text*, exactly as bash would hand them to the program, or None where
    that needs more than taking quotes and backslashes away.

    Source: bash(1), "QUOTING" and "SHELL GRAMMAR".
    """
    if _EASY.fullmatch(text):
        found = tuple(text.split(" "))
    elif ("'" in text or '"' in text) and (quoted := _between_quotes(text)) is not None:
        found = quoted
    elif _COMPOUND.search(_QUOTED.sub("", text)):
        return None
    else:
        try:
            found = _read(text)
        except _NotPlainError:
            return None
    return found if found and _may_begin(found[0]) else None


def _between_quotes(text: str) -> tuple[str, ...] | None:
    """
    The words of a text with quotes of one kind and no backslash, or None for any other.
    """
    quote = "'" if '"' not in text else '"'
    pieces = text.split(quote)
    inside = "".join(pieces[1::2])
    is_plain = len(pieces) % 2 == 1 and inside.isprintable() and _OUTSIDE.fullmatch("".join(pieces[::2]))
    if len(pieces) < 3 or not is_plain or (quote == '"' and _EXPANDS.search(inside)):
        return None
    found: list[str] = []
    word: str | None = None
    for number, piece in enumerate(pieces):
        first, *rest = (piece,) if number % 2 else piece.split(" ")
        if first or number % 2:
            word = first if word is None else word + first
        for following in rest:
            if word is not None:
                found.append(word)
            word = following or None
    return tuple(found) if word is None else (*found, word)


def _may_begin(word: str) -> bool:
    is_the_shells = word in RESERVED or word in BUILTINS
    return not is_the_shells and "=" not in word and not word.startswith("%") and word.isascii()


def _read(text: str) -> tuple[str, ...]:
    found: list[str] = []
    word = _Word()
    position = 0
    while position < len(text):
        char = text[position]
        if char in " \t":
            _finish(word, found)
            word = _Word()
            position += 1
        else:
            position = _step(text, position, word)
    _finish(word, found)
    return tuple(found)


def _finish(word: _Word, found: list[str]) -> None:
    if word.is_empty:
        return
    raw = "".join(word.raw)
    bare = not word.is_quoted
    if ("{" in raw or "}" in raw) and not (bare and raw == "{}" and found):
        raise _NotPlainError
    if "[" in raw and not (bare and raw == "["):
        raise _NotPlainError
    found.append("".join(word.letters))


def _step(text: str, position: int, word: _Word) -> int:
    run = _RUN.match(text, position)
    if run:
        word.add(run[0])
        return run.end()
    char = text[position]
    if char == "'":
        return _single(text, position + 1, word)
    if char == '"':
        return _double(text, position + 1, word)
    if char == "\\":
        return _escape(text, position + 1, word)
    if char in _META:
        raise _NotPlainError
    if char == "#" and word.is_empty:
        raise _NotPlainError
    if char == "~" and _may_be_home(word):
        raise _NotPlainError
    if not char.isprintable():
        raise _NotPlainError
    word.add(char)
    return position + 1


def _may_be_home(word: _Word) -> bool:
    # Within a word bash expands ~ only behind the = of what looks like an
    # assignment, and behind a : there; HEAD~1 stays as it is.
    return word.is_empty or word.may_assign


def _literal(text: str) -> str:
    if not all(char.isprintable() or char in "\t\n" for char in text):
        raise _NotPlainError
    return text


def _single(text: str, start: int, word: _Word) -> int:
    end = text.find("'", start)
    if end < 0:
        raise _NotPlainError
    word.add_quoted(_literal(text[start:end]))
    return end + 1


def _double(text: str, start: int, word: _Word) -> int:
    position = start
    word.is_quoted = True
    while position < len(text):
        char = text[position]
        if char == '"':
            return position + 1
        if char in "$`":
            raise _NotPlainError
        if char == "\\":
            position += 1
            char = _in_double(text[position : position + 1])
        word.add_quoted(_literal(char))
        position += 1
    raise _NotPlainError


def _in_double(char: str) -> str:
    if char == "\n":
        raise _NotPlainError
    return char if char in '$`"\\' else "\\" + char


def _escape(text: str, position: int, word: _Word) -> int:
    char = text[position : position + 1]
    if not char:
        raise _NotPlainError
    if char == "\n":
        raise _NotPlainError
    word.add_quoted(_literal(char))
    return position + 1
