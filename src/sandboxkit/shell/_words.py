"""
Plain words: the part of bash's grammar whose meaning is certain without running it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sandboxkit.shell._tables import BUILTINS, RESERVED

__all__ = ["NotPlainError", "words"]

_EASY = re.compile(r"[A-Za-z0-9_./,@+-][A-Za-z0-9_./:,@%+=-]*(?: [A-Za-z0-9_./:,@%+=-]+)*")
"""
Text that needs no character by character reading: most commands look like this.
"""

_META = {
    "\n": "it has several lines",
    "|": "it has the operator '|'",
    "&": "it has the operator '&'",
    ";": "it has the operator ';'",
    "(": "it has a subshell or function",
    ")": "it has a subshell or function",
    "<": "it has a redirection",
    ">": "it has a redirection",
    "$": "it has an expansion ('$')",
    "`": "it has a command substitution",
    "*": "it has a file name pattern ('*')",
    "?": "it has a file name pattern ('?')",
}
_OPEN_QUOTE = "a quote is not closed"
_INVISIBLE = "it has a control or invisible character"


class NotPlainError(Exception):
    """
    The text is more than plain words; the message says why. Never leaves the room.
    """


@dataclass(slots=True)
class _Word:
    """
    A word while it is read. `raw` holds only what stood outside quotes.
    """

    letters: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    is_quoted: bool = False

    def add(self, char: str) -> None:
        self.letters.append(char)
        self.raw.append(char)

    def add_quoted(self, text: str) -> None:
        self.letters.append(text)
        self.is_quoted = True

    @property
    def is_empty(self) -> bool:
        return not self.letters and not self.is_quoted


def words(text: str) -> tuple[str, ...]:
    """
    The words of *text*, exactly as bash would hand them to the program.

    Only blanks, quotes and backslashes are read; everything else that bash gives a
    meaning to is refused, as are commands only bash itself can run. An empty tuple
    is an empty command.

    Raises:
        NotPlainError: The text is more than plain words.

    Source: bash(1), "QUOTING" and "SHELL GRAMMAR".
    """
    found = tuple(text.split(" ")) if _EASY.fullmatch(text) else _read(text)
    if found:
        _check_first(found[0])
    return found


def _check_first(word: str) -> None:
    if word in RESERVED:
        raise NotPlainError(f"{word!r} is a reserved word of the shell")
    if word in BUILTINS:
        raise NotPlainError(f"{word!r} is a builtin of the shell")
    if "=" in word:
        raise NotPlainError("it begins with an assignment")
    if word.startswith("%"):
        raise NotPlainError("it begins with a job number")
    if not word.isascii():
        raise NotPlainError("its program name is not ASCII")


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
        raise NotPlainError("it has braces")
    if "[" in raw and not (bare and raw == "["):
        raise NotPlainError("it has a file name pattern ('[')")
    found.append("".join(word.letters))


def _step(text: str, position: int, word: _Word) -> int:
    char = text[position]
    if char == "'":
        return _single(text, position + 1, word)
    if char == '"':
        return _double(text, position + 1, word)
    if char == "\\":
        return _escape(text, position + 1, word)
    if char in _META:
        raise NotPlainError(_META[char])
    if char == "#" and word.is_empty:
        raise NotPlainError("it has a comment")
    if char == "~" and _may_be_home(word):
        raise NotPlainError("it has a home directory ('~')")
    if not char.isprintable():
        raise NotPlainError(_INVISIBLE)
    word.add(char)
    return position + 1


def _may_be_home(word: _Word) -> bool:
    # Within a word bash expands ~ only behind the = of what looks like an
    # assignment, and behind a : there; HEAD~1 stays as it is.
    return word.is_empty or bool({"=", ":"} & set(word.raw))


def _literal(text: str) -> str:
    if not all(char.isprintable() or char in "\t\n" for char in text):
        raise NotPlainError(_INVISIBLE)
    return text


def _single(text: str, start: int, word: _Word) -> int:
    end = text.find("'", start)
    if end < 0:
        raise NotPlainError(_OPEN_QUOTE)
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
            raise NotPlainError(_META[char])
        if char == "\\":
            position += 1
            char = _in_double(text[position : position + 1])
        word.add_quoted(_literal(char))
        position += 1
    raise NotPlainError(_OPEN_QUOTE)


def _in_double(char: str) -> str:
    if char == "\n":
        raise NotPlainError("it has a line continuation")
    return char if char in '$`"\\' else "\\" + char


def _escape(text: str, position: int, word: _Word) -> int:
    char = text[position : position + 1]
    if not char:
        raise NotPlainError("it ends in a backslash")
    if char == "\n":
        raise NotPlainError("it has a line continuation")
    word.add_quoted(_literal(char))
    return position + 1
