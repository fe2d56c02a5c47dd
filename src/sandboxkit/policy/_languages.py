"""
`Languages`: where programs that execute code are handed it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Handed", "LanguageRow", "Languages"]

_VERSION = re.compile(r"[-.0-9]+$")
_STDIN = frozenset(("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageRow:
    """
    How some programs are handed the code they execute.
    """

    programs: tuple[str, ...]
    """Their names, without a version at the end."""
    code: tuple[str, ...] = ()
    """Options whose value is code, or names the file with it."""
    values: tuple[str, ...] = ()
    """Other options that take the next word."""
    attached: str = ""
    """Letters of options that take what stands right behind them, and never the next word."""
    stdin_options: tuple[str, ...] = ()
    """Options with which they read code from standard input, whatever follows."""
    verbs: tuple[str, ...] = ()
    """Subcommands before the operand that is code."""
    clusters: bool = True
    """Whether letters of several options may stand in one word."""
    operand: bool = False
    """Whether the first operand is code where no option is."""
    files: tuple[str, ...] = ()
    """Files they take code from where nothing else is code."""
    stdin: bool = False
    """Whether they read code from standard input where nothing else is code."""


class Handed(NamedTuple):
    """
    Code that a program is handed.

    Attributes:
        place: The index of the word that is it, or names the file with it; None where the
            program reads it from standard input.
        text: The code, or the name of the file.
    """

    place: int | None
    text: str = ""


_FROM_STDIN = Handed(None)


@dataclass(frozen=True, slots=True)
class Languages:
    """
    All rows, by program.
    """

    rows: Mapping[str, LanguageRow]

    @classmethod
    def of(cls, rows: Iterable[LanguageRow]) -> Languages:
        """
        *rows*, indexed.
        """
        return cls({program: row for row in rows for program in row.programs})

    @property
    def always(self) -> list[str]:
        """
        The programs that execute code without an option for it.
        """
        return [program for program, row in self.rows.items() if row.operand or row.stdin]

    def row(self, name: str) -> LanguageRow | None:
        """
        The row of the program *name*, which may end in a version.
        """
        return self.rows.get(name) or (None if name.isalpha() else self.rows.get(_VERSION.sub("", name)))

    def handed(self, name: str, argv: tuple[str, ...]) -> list[Handed]:
        """
        The code that *argv*, a call of the program *name*, has executed.
        """
        row = self.row(name)
        return _handed(row, argv) if row else []


def _handed(row: LanguageRow, argv: tuple[str, ...]) -> list[Handed]:
    found: list[Handed] = []
    operand: Handed | None = None
    at = 1
    while at < len(argv) and operand is None:
        word, taken = argv[at], 1
        if _is_option(word) or word in row.code:
            option, start = _option(row, word)
            if option in row.stdin_options:
                return [_FROM_STDIN]
            if option in row.code:
                found += _value(argv, at, start)
            taken = 2 if start == 0 and (option in row.code or option in row.values) else 1
        elif row.operand and word not in row.verbs:
            operand = _at(at, word)
        at += taken
    if found:
        return found
    if operand is not None:
        return [operand]
    return [_FROM_STDIN] if row.stdin else [Handed(0, file) for file in row.files]


def _value(argv: tuple[str, ...], at: int, start: int) -> list[Handed]:
    """
    The value of the option at *at*, which begins at *start* in that word, or is the next
    word where that is 0.
    """
    if start:
        return [_at(at, argv[at][start:])]
    return [_at(at + 1, argv[at + 1])] if at + 1 < len(argv) else []


def _at(place: int, text: str) -> Handed:
    return _FROM_STDIN if text in _STDIN else Handed(place, text)


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] in "-+" and word not in _STDIN


def _option(row: LanguageRow, word: str) -> tuple[str, int]:
    """
    The option of *row* that is in *word*, or the word; and where its value begins in it,
    0 where it does not.
    """
    if word.startswith("--") and word != "--":
        given, equals, _ = word.partition("=")
        known = (*row.code, *row.values)
        option = given if given in known else next((each for each in known if each.startswith(given)), given)
        return option, len(given) + 1 if equals else 0
    if not row.clusters or word in row.code or word in row.values:
        return word, 0
    for place, letter in enumerate(word[1:], 1):
        option = f"-{letter}"
        if option in row.code or option in row.values or option in row.stdin_options:
            return option, 0 if place + 1 == len(word) else place + 1
        if letter in row.attached:
            break
    return word, 0
