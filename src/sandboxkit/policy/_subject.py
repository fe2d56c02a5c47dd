"""
One simple command as the rules look at it.
"""

from __future__ import annotations

import posixpath
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING

from sandboxkit.model import UNKNOWN
from sandboxkit.policy._paths import normal
from sandboxkit.shell import quote

if TYPE_CHECKING:
    from sandboxkit.model import EvaluationContext, Unknown

__all__ = ["Place", "Subject", "program_name"]

_EXTENSIONS = (".exe", ".com", ".bat", ".cmd")


class Place(Enum):
    """
    Where a program's name points.
    """

    TRUSTED = auto()
    """A bare name, or a path right below a trusted directory."""
    ELSEWHERE = auto()
    """Any other path, and a name only a careless file system would find."""


_TRUSTED, _ELSEWHERE = Place


class Subject:
    """
    A simple command with its program told apart.

    Attributes:
        argv: The words, as far as they are known.
        unknown: What is not known about them, by index.
        own: How many of them are the program's own; the rest is another command.
        name: The program's name, as of `program_name`.
        place: Whether that name can be taken at its word.
        begins: The character its canonical texts begin with, where that is plain to see.
        line: The words as they are, joined by blanks, with the bare name where the first
            is something else: text in which what canonical texts hold between quotes is
            found again.
        context: Where the command would run.
    """

    __slots__ = ("_certain", "_texts", "argv", "begins", "context", "line", "name", "own", "place", "unknown")

    def __init__(
        self,
        argv: tuple[str, ...],
        context: EvaluationContext,
        unknown: tuple[tuple[int, Unknown], ...] = (),
        own: int | None = None,
    ) -> None:
        word = argv[0]
        base, name, self.begins = _program(word)
        if name == word:
            self.place = _TRUSTED
            self.line = " ".join(argv)
        else:
            is_trusted = name == base and "/" in word and _is_trusted_path(word, context)
            self.place = _TRUSTED if is_trusted else _ELSEWHERE
            self.line = " ".join((name, *argv))
        self.name = name
        self.argv = argv
        self.unknown = unknown
        self.own = len(argv) if own is None else own
        self.context = context
        self._texts: tuple[str, ...] | None = None
        self._certain: tuple[str, ...] | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """
        The canonical texts: as written, and with the bare name where it was something
        else. Words that are not known stand as they are guessed.
        """
        if self._texts is None:
            self._texts = self._canonical(self.argv)
        return self._texts

    @property
    def certain_texts(self) -> tuple[str, ...]:
        """
        The same, with `UNKNOWN` for what is not known.
        """
        if not self.unknown:
            return self.texts
        if self._certain is None:
            words = list(self.argv)
            for index, unknown in self.unknown:
                words[index] = unknown.known + UNKNOWN
            self._certain = self._canonical(tuple(words))
        return self._certain

    def _canonical(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        if argv[0] == self.name:
            return (quote(argv),)
        return quote(argv), quote((self.name, *argv[1:]))

    def knows(self, words: int) -> bool:
        """
        Whether the first *words* words are known.
        """
        return not self.unknown or self.unknown[0][0] >= words


def program_name(word: str) -> str:
    """
    The last component of the program's path as a careless file system would take it: in
    small letters and without an extension of Windows.
    """
    return _program(word)[1]


@lru_cache(maxsize=1024)
def _program(word: str) -> tuple[str, str, str]:
    """
    The last component of the program's path, as written and as `program_name`; and the
    character that texts begin with where *word* is a bare name of letters and digits.
    """
    base = posixpath.basename(normal(word)) if "/" in word else word
    name = base.lower()
    name = name.rpartition(".")[0] if name.endswith(_EXTENSIONS) else name
    return base, name, word[0] if word == name and word.isalnum() and word.isascii() else ""


def _is_trusted_path(word: str, context: EvaluationContext) -> bool:
    # A path with dots in it may pass through a link that leads elsewhere.
    directory, _, name = word.rpartition("/")
    return bool(name) and directory in context.trusted_directories
