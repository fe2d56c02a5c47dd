"""
Which arguments a rule speaks about: options by name, operands by glob.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.policy._glob import glob_pattern

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Sequence

__all__ = ["ArgumentSet", "is_option"]


def is_option(argument: str) -> bool:
    """
    Whether *argument* is written as an option. A lone ``-`` is an operand.
    """
    return len(argument) > 1 and argument[0] == "-"


@dataclass(frozen=True, slots=True)
class ArgumentSet:
    """
    A list of argument patterns, ready to be asked.

    A pattern is ``-x`` (a short option, alone or in a cluster), ``-x=`` (one that
    takes a value), ``--name``, ``--name=`` (one that takes a value, attached or as
    the next argument), ``-word`` (exactly this, as with ``find -exec``), a glob for
    operands, or ``**`` for any argument at all.
    """

    letters: frozenset[str]
    valued_letters: frozenset[str]
    names: frozenset[str]
    valued_names: frozenset[str]
    words: frozenset[str]
    globs: tuple[re.Pattern[str], ...]
    takes_anything: bool

    @classmethod
    def of(cls, patterns: Iterable[str]) -> ArgumentSet:
        """
        The set described by *patterns*.
        """
        kinds: dict[str, list[str]] = {
            kind: [] for kind in ("letter", "letter=", "name", "name=", "word", "glob", "any")
        }
        for pattern in patterns:
            kind, text = _kind(pattern)
            kinds[kind].append(text)
        return cls(
            letters=frozenset(kinds["letter"] + kinds["letter="]),
            valued_letters=frozenset(kinds["letter="]),
            names=frozenset(kinds["name"] + kinds["name="]),
            valued_names=frozenset(kinds["name="]),
            words=frozenset(kinds["word"]),
            globs=tuple(glob_pattern(text) for text in kinds["glob"]),
            takes_anything=bool(kinds["any"]),
        )

    def admits(self, arguments: Sequence[str], max_operands: int | None = None) -> bool:
        """
        Whether every one of *arguments* is in the set, with at most *max_operands*
        that are neither options nor values of options.
        """
        if self.takes_anything:
            return True
        position = operands = 0
        options_end = False
        while position < len(arguments):
            argument = arguments[position]
            position += 1
            if options_end or not is_option(argument):
                operands += 1
                if not self._globbed(argument):
                    return False
            elif argument == "--":
                options_end = True
            else:
                taken = self._option(argument)
                if taken is None:
                    return False
                position += taken
        return position == len(arguments) and (max_operands is None or operands <= max_operands)

    def touches(self, arguments: Iterable[str]) -> bool:
        """
        Whether any of *arguments* is, or may be, in the set: abbreviations of long
        options, letters within a cluster and attached values count.
        """
        return self.takes_anything or any(self._touched(argument) for argument in arguments)

    def _option(self, argument: str) -> int | None:
        """
        How many further arguments the option takes; None where it is not in the set.
        """
        if argument in self.words or self._globbed(argument, options=True):
            return 0
        if argument.startswith("--"):
            name, attached, _ = argument.partition("=")
            if name not in self.names:
                return None
            return int(name in self.valued_names and not attached)
        for place, letter in enumerate(argument[1:], 2):
            if letter not in self.letters:
                return None
            if letter in self.valued_letters:
                return int(place == len(argument))
        return 0

    def _globbed(self, argument: str, *, options: bool = False) -> bool:
        # A bare star is for operands; an option must be named.
        return any(glob.fullmatch(argument) and (not options or glob.pattern.startswith("\\-")) for glob in self.globs)

    def _touched(self, argument: str) -> bool:
        if argument in self.words or argument.partition("=")[0] in self.words or self._globbed(argument):
            return True
        if argument.startswith("--"):
            name = argument.partition("=")[0]
            return len(name) > 2 and any(known.startswith(name) for known in self.names)
        return is_option(argument) and not self.letters.isdisjoint(argument[1:])


def _kind(pattern: str) -> tuple[str, str]:
    if pattern == "**":
        return "any", pattern
    if "*" in pattern or "?" in pattern or not is_option(pattern):
        return "glob", pattern
    if pattern.startswith("--"):
        return ("name=", pattern[:-1]) if pattern.endswith("=") else ("name", pattern)
    if len(pattern) == 2:
        return "letter", pattern[1]
    if len(pattern) == 3 and pattern[2] == "=":
        return "letter=", pattern[1]
    return "word", pattern
