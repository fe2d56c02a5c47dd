"""
Words that name a file without opening it: what is looked for, left out or said, and the key
that somebody logs in with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.policy._arguments import ArgumentSet, is_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["MentionRow", "Mentions"]

_NAMES_OTHERS = ArgumentSet.of(
    "-e -f --regexp --file --expression --files --files-from --exclude-from --ignore-file --path-to-ignore".split()
)
"""
With these the first word that is no option may be another than the pattern: a file, or their value.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionRow:
    """
    Options of some programs whose value is not opened, or only to log in.
    """

    programs: tuple[str, ...]
    """Their names."""
    verbs: tuple[str, ...] = ()
    """The first argument is one of these. Empty: any."""
    options: tuple[str, ...] = ()
    """The options. A value may be attached, or be the next word."""
    flags: str = ""
    """Letters of options without a value: behind any other option a word may be its value."""
    attached: bool = False
    """Whether only a value counts that is attached: where words stand for options of their own."""
    pattern: bool = False
    """Whether the first operand is a pattern, where no option gives one."""


@dataclass(frozen=True, slots=True)
class Mentions:
    """
    All rows, by program.
    """

    rows: Mapping[str, tuple[MentionRow, ...]]

    @classmethod
    def of(cls, rows: Iterable[MentionRow]) -> Mentions:
        """
        *rows*, indexed.
        """
        found: dict[str, tuple[MentionRow, ...]] = {}
        for row in rows:
            for program in row.programs:
                found[program] = (*found.get(program, ()), row)
        return cls(found)

    def without(self, name: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """
        *arguments* of the program *name* without such words. What may be the value of an
        option that is not known stays.
        """
        for row in self.rows.get(name, ()):
            if row.verbs and not (arguments and arguments[0] in row.verbs):
                continue
            if row.pattern:
                arguments = _without_pattern(arguments[1:] if row.verbs else arguments)
            arguments = _without(row, arguments)
        return arguments


def _without_pattern(arguments: tuple[str, ...]) -> tuple[str, ...]:
    if _NAMES_OTHERS.touches(arguments):
        return arguments
    first = next((place for place, argument in enumerate(arguments) if not is_option(argument)), len(arguments))
    return arguments[:first] + arguments[first + 1 :]


def _without(row: MentionRow, arguments: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    at, is_certain = 0, True
    while at < len(arguments) and arguments[at] != "--":
        word = arguments[at]
        at += 1
        if _is_attached(row, word):
            is_certain = True
        elif not is_certain or word[:1] != "-" or word == "-":
            kept.append(word)
            is_certain = True
        elif _names(row, word):
            at += 1
        else:
            kept.append(word)
            is_certain = "=" in word if word[:2] == "--" else all(letter in row.flags for letter in word[1:])
    return (*kept, *arguments[at:])


def _names(row: MentionRow, word: str) -> bool:
    """
    Whether the value of *word* is the next one: it is an option of *row*, alone or behind
    others without a value.
    """
    if row.attached:
        return False
    is_cluster = word[:2] != "--" and all(letter in row.flags for letter in word[1:-1])
    return word in row.options or (is_cluster and f"-{word[-1]}" in row.options)


def _is_attached(row: MentionRow, word: str) -> bool:
    """
    Whether *word* is an option of *row* with its value.
    """
    name, equals, _ = word.partition("=")
    if word[:2] == "--":
        return bool(equals) and name in row.options
    return word[:2] in row.options and len(word) > 2
