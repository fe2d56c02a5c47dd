"""
Which arguments a rule speaks about: options by name, operands by glob.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING

from sandboxkit.model import Doubt
from sandboxkit.model._command import UNKNOWN
from sandboxkit.policy._glob import any_glob

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandboxkit.model import Unknown

__all__ = ["ArgumentSet", "is_option"]

_DIGITS = tuple(f"-{digit}" for digit in "0123456789")
_REST = " **"
_BETWEEN = re.compile(r"\* (\S+) \*")
# Looked up on its class, a member takes ten times as long.
_VALUE, _WORDS, _PATTERN = Doubt.VALUE, Doubt.WORDS, Doubt.PATTERN
_WILDCARDS = re.compile(r"[*?]")
_SIMPLE = re.compile(r"(\*?)([^*?]+)(\*?)")
_HOLES = re.compile(rf"[*?\[\]{UNKNOWN}]+")


def is_option(argument: str) -> bool:
    """
    Whether *argument* is written as an option. A lone ``-`` is an operand.
    """
    return len(argument) > 1 and argument[0] == "-"


class _Value(Enum):
    """
    Whether an option takes a value.
    """

    NONE = auto()
    NEEDED = auto()
    """Attached, or the next argument."""
    ATTACHED = auto()
    """Attached or not at all."""


_NONE, _ATTACHED, _NEEDED = _Value.NONE, _Value.ATTACHED, _Value.NEEDED


class _Globs:
    """
    Globs of words. Most need no pattern: they say how a word begins or ends, or what is
    in it.
    """

    __slots__ = ("_begins", "_ends", "_holds", "_others", "_words")

    def __init__(self, globs: tuple[str, ...]) -> None:
        simple = {glob: found for glob in globs if (found := _SIMPLE.fullmatch(glob))}
        kinds = [(found[1], found[2], found[3]) for found in simple.values()]
        self._words = frozenset(text for before, text, behind in kinds if not before and not behind)
        self._begins = tuple(text for before, text, behind in kinds if not before and behind)
        self._ends = tuple(text for before, text, behind in kinds if before and not behind)
        self._holds = tuple(text for before, text, behind in kinds if before and behind)
        # In every text that another one takes there is what makes it tell most, and that is
        # found faster than a pattern fails.
        others = [glob for glob in globs if glob not in simple]
        self._others = tuple((max(_WILDCARDS.split(glob), key=len), any_glob([glob])) for glob in others)

    @classmethod
    def of(cls, globs: Iterable[str]) -> _Globs | None:
        """
        *globs*, or None where there are none.
        """
        listed = tuple(globs)
        return cls(listed) if listed else None

    def has(self, text: str) -> bool:
        """
        Whether one of them matches the whole of *text*.
        """
        if text.startswith(self._begins) or text.endswith(self._ends) or text in self._words:
            return True
        for piece in self._holds:
            if piece in text:
                return True
        for piece, pattern in self._others:  # noqa: SIM110 - a generator takes twice the time
            if piece in text and pattern.fullmatch(text):
                return True
        return False


@dataclass(frozen=True, slots=True)
class ArgumentSet:
    """
    A list of argument patterns, ready to be asked. `RuleConstraints` has the grammar.

    Attributes:
        options: How many further arguments each option takes that stands alone.
        attached: The options that may have a value behind ``=``.
        letters: The short options.
        flags: Those of them that take no value.
        names: The long options.
        words: The options like those of find, and the operands without wildcards.
        option_globs, operand_globs: The globs of a kind.
        globs: The texts of the patterns for operands.
        rest: The globs for operands behind which anything may follow.
        between: The words that make one expression of what stands around them.
        takes_any_operand: Whether ``*`` is in the list.
        takes_any_rest: Whether anything may follow any operand.
        takes_anything: Whether ``**`` is in the list.
        is_getopt: Whether letters stand in clusters and ``--`` ends the options. Tools
            with options like those of find look at every argument as a whole.
        names_options: Whether there is any option in the list.
        only_options: Whether nothing but options is in it.
        takes_unknown: Whether words that only the shell will know may be anything.
    """

    options: Mapping[str, int]
    attached: frozenset[str]
    letters: Mapping[str, _Value]
    flags: frozenset[str]
    names: tuple[str, ...]
    words: frozenset[str]
    option_globs: _Globs | None
    operand_globs: _Globs | None
    globs: tuple[str, ...]
    rest: _Globs | None
    between: frozenset[str]
    takes_any_operand: bool
    takes_any_rest: bool
    takes_anything: bool
    is_getopt: bool
    names_options: bool
    only_options: bool
    takes_unknown: bool

    @classmethod
    def of(cls, patterns: Iterable[str], *, takes_unknown: bool = False) -> ArgumentSet:
        """
        The set described by *patterns*.
        """
        listed = tuple(digit for pattern in patterns for digit in (_DIGITS if pattern == "-#" else (pattern,)))
        named = [_named(pattern) for pattern in listed if is_option(pattern) and not _is_glob(pattern)]
        words = [name for name, _ in named if len(name) > 2 and not name.startswith("--")]
        letters = {name[1]: value for name, value in named if len(name) == 2 and name != "--"}
        rest = [pattern.removesuffix(_REST) for pattern in listed if pattern.endswith(_REST)]
        between = frozenset(found[1] for pattern in listed if (found := _BETWEEN.fullmatch(pattern)))
        globs = [
            text
            for text in listed
            if not is_option(text) and text != "**" and not _BETWEEN.fullmatch(text) and not text.endswith(_REST)
        ]
        return cls(
            options={name: int(value is _NEEDED) for name, value in named},
            attached=frozenset(name for name, value in named if len(name) > 2 and value is not _NONE),
            letters=letters,
            flags=frozenset(letter for letter, value in letters.items() if value is _NONE),
            names=tuple(name for name, _ in named if name.startswith("--") and len(name) > 2),
            words=frozenset(words) | frozenset(text for text in globs if not _is_glob(text)),
            option_globs=_Globs.of(text for text in listed if is_option(text) and _is_glob(text)),
            operand_globs=_Globs.of(text for text in globs if _is_glob(text)),
            globs=tuple(globs),
            rest=_Globs.of(rest),
            between=between,
            takes_any_operand="*" in globs,
            takes_any_rest="*" in rest,
            takes_anything="**" in listed,
            is_getopt=not words and not between,
            names_options=any(map(is_option, listed)),
            only_options=all(text[:1] == "-" for text in listed),
            takes_unknown=takes_unknown,
        )

    def admits(
        self,
        arguments: Sequence[str],
        max_operands: int | None = None,
        unknown: Iterable[tuple[int, Unknown]] = (),
        *,
        in_doubt: bool = False,
    ) -> bool:
        """
        Whether every one of *arguments* is in the set, with at most *max_operands*
        that are neither options nor values of options.

        Args:
            arguments: The arguments.
            max_operands: None for any number.
            unknown: The arguments whose value only the shell will know, by index.
            in_doubt: The answer for those of them that may or may not be in the set.
        """
        if self.takes_anything:
            return True
        doubts = dict(unknown)
        end = len(arguments)
        position = operands = 0
        options_end = False
        while position < end:
            argument = arguments[position]
            if self.between and self._joins(arguments, position, doubts):
                position += 3
                operands += 2
                continue
            position += 1
            if doubts and position - 1 in doubts:
                taken = self._operands(doubts[position - 1], max_operands, options_end=options_end, in_doubt=in_doubt)
                if taken is None:
                    return False
                if self.rest and (in_doubt or (taken and self.takes_any_rest)):
                    # With a list for operands behind which anything may follow, it may be one.
                    return in_doubt or max_operands is None
                operands += taken
            elif options_end or argument[:1] != "-" or argument == "-":
                operands += 1
                if self.rest and self.rest.has(argument):
                    return max_operands is None or operands + end - position <= max_operands
                if not self.takes_any_operand and not self._has_operand(argument):
                    return False
            elif argument == "--" and self.is_getopt:
                options_end = True
            else:
                taken = self._taken(argument)
                if taken is None:
                    return False
                if taken and not in_doubt and position in doubts and not self._is_value(doubts[position], max_operands):
                    return False
                position += taken
        return position <= end and (max_operands is None or operands <= max_operands)

    def _operands(self, unknown: Unknown, max_operands: int | None, *, options_end: bool, in_doubt: bool) -> int | None:
        """
        How many operands *unknown* counts for; None where it is not in the set.
        """
        if in_doubt:
            return 0 if self._may_take(unknown) else None
        if not options_end and self._has_begun(unknown):
            return 0
        return 1 if self._takes(unknown, max_operands, options_end=options_end) else None

    def touches(
        self, arguments: Iterable[str], unknown: Iterable[tuple[int, Unknown]] = (), *, in_doubt: bool = False
    ) -> bool:
        """
        Whether any of *arguments* is, or may be, in the set: abbreviations of long
        options, letters within a cluster and attached values count.

        Args:
            arguments: The arguments.
            unknown: Those whose value only the shell will know, by index.
            in_doubt: Whether those of them count that may be an option, that hide
                behind a command's output, or that begin or end like a glob of the set.
        """
        if self.takes_anything:
            return True
        doubts = dict(unknown)
        if not doubts:
            if self.only_options:
                arguments = [argument for argument in arguments if argument[:1] == "-"]
            return any(map(self._touched, arguments))
        for position, argument in enumerate(arguments):
            if position in doubts:
                if in_doubt and self._may_touch(argument, doubts[position]):
                    return True
            elif self._touched(argument):
                return True
        return False

    def _joins(self, arguments: Sequence[str], position: int, doubts: Mapping[int, Unknown]) -> bool:
        """
        Whether the argument and the two behind it are one expression. What stands around
        the word may be anything then, but each only one argument.
        """
        if position + 2 >= len(arguments) or arguments[position + 1] not in self.between or position + 1 in doubts:
            return False
        around = (doubts.get(position), doubts.get(position + 2))
        return all(unknown is None or unknown.doubt is _VALUE for unknown in around)

    def _taken(self, argument: str) -> int | None:
        """
        How many further arguments the option takes; None where it is not in the set.
        """
        taken = self.options.get(argument)
        if taken is not None:
            return taken
        if self.is_getopt and self.flags.issuperset(argument[1:]):
            return 0
        name, equals, _ = argument.partition("=")
        if equals and name in self.attached:
            return 0
        if self.is_getopt and argument[1] != "-" and (taken := self._taken_by_letters(argument)) is not None:
            return taken
        return 0 if self.option_globs and self.option_globs.has(argument) else None

    def _taken_by_letters(self, argument: str) -> int | None:
        for place, letter in enumerate(argument[1:], 2):
            value = self.letters.get(letter)
            if value is None:
                return None
            if value is not _NONE:
                return int(place == len(argument) and value is _NEEDED)
        return 0

    def _has_operand(self, argument: str) -> bool:
        return argument in self.words or bool(self.operand_globs and self.operand_globs.has(argument))

    def _takes(self, unknown: Unknown, max_operands: int | None, *, options_end: bool) -> bool:
        """
        Whether the words *unknown* stands for are operands of the set, or may be
        anything.
        """
        if max_operands is not None and unknown.doubt is not _VALUE:
            return False
        # Where a value is split into words, nothing is known about the second.
        known = "" if unknown.doubt is _WORDS else unknown.known
        if not options_end and (not known or known[0] == "-"):
            return self.takes_unknown and self.takes_any_operand
        return self.takes_any_operand or self.takes_any_rest or any(_begins_all(glob, known) for glob in self.globs)

    def _may_take(self, unknown: Unknown) -> bool:
        """
        Whether any of the words *unknown* stands for may be in the set, or it stands
        for none.
        """
        known = unknown.known
        if unknown.doubt is _WORDS or known[:1] in ("", "-") or self.takes_any_operand or self.rest:
            return True
        return any(_may_begin_alike(known, _WILDCARDS.split(glob, maxsplit=1)[0]) for glob in self.globs)

    def _has_begun(self, unknown: Unknown) -> bool:
        """
        Whether *unknown* is certainly an option of the set with a value, or several.
        """
        known = unknown.known
        if unknown.doubt is _WORDS or not known.startswith("-"):
            return False
        name, equals, _ = known.partition("=")
        if equals and name in self.attached:
            return True
        if not self.is_getopt or known.startswith("--"):
            return False
        values = [self.letters.get(letter) for letter in known[1:]]
        first = next((value for value in values if value is not _NONE), None)
        return first is not None

    def _is_value(self, unknown: Unknown, max_operands: int | None) -> bool:
        """
        Whether *unknown*, in the place of an option's value, can be taken for one, and
        further words it may stand for are in the set too.
        """
        if unknown.doubt is _VALUE:
            return True
        return self._takes(unknown, max_operands, options_end=False)

    def _touched(self, argument: str) -> bool:
        if argument in self.words or (self.operand_globs is not None and self.operand_globs.has(argument)):
            return True
        if not self.names_options or argument[:1] != "-" or argument == "-":
            return False
        name = argument.partition("=")[0]
        if argument.startswith("--"):
            return len(name) > 2 and any(known.startswith(name) for known in self.names)
        if name in self.words or not self.letters.keys().isdisjoint(argument[1:]):
            return True
        return bool(self.option_globs and self.option_globs.has(argument))

    def _may_touch(self, argument: str, unknown: Unknown) -> bool:
        if unknown.is_output and _hides_name(argument) and (self.globs or self.names_options):
            return True
        may_be_option = unknown.doubt is _WORDS or unknown.known[:1] in ("", "-")
        if may_be_option and self.names_options:
            return True
        return self._touched(argument) or _is_alike(argument, self.globs, unknown)


def _is_glob(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern


def _begins_all(glob: str, known: str) -> bool:
    """
    Whether *glob* takes every text that begins with *known*.
    """
    return glob[-1:] == "*" and not _is_glob(glob[:-1]) and known.startswith(glob[:-1])


def _named(pattern: str) -> tuple[str, _Value]:
    if pattern.endswith("[=]"):
        return pattern[:-3], _ATTACHED
    return (pattern[:-1], _NEEDED) if pattern.endswith("=") else (pattern, _NONE)


def _hides_name(argument: str) -> bool:
    """
    Whether the last component of *argument* is not known.
    """
    name = argument.rpartition("/")[2]
    return not name or _HOLES.search(name) is not None


def _is_alike(argument: str, globs: Iterable[str], unknown: Unknown) -> bool:
    """
    Whether what is known of *argument* points at names that one of *globs* takes: the
    beginning of its last component, or the end of it. A file-name pattern that begins
    with a wildcard takes no name that begins with a dot.
    """
    before = _HOLES.split(argument, maxsplit=1)[0]
    begun, *rest = _HOLES.split(argument.rpartition("/")[2])
    end = rest[-1] if rest else ""
    if not begun and not end:
        return False
    for glob in globs:
        first, literal = _literal_pieces(glob)
        if not _may_begin_alike(before, first):
            continue
        if begun:
            found = literal[0] and _may_begin_alike(begun, literal[0]) and _may_end_alike(end, literal)
        else:
            is_skipped = unknown.doubt is _PATTERN and literal[0].startswith(".")
            found = end and len(literal) == 1 and literal[0].endswith(end) and not is_skipped
        if found:
            return True
    return False


@lru_cache(maxsize=4096)
def _literal_pieces(glob: str) -> tuple[str, tuple[str, ...]]:
    """
    What stands before the first wildcard of *glob*, and the pieces of its last component.
    """
    return _WILDCARDS.split(glob, maxsplit=1)[0], tuple(_WILDCARDS.split(glob.rpartition("/")[2]))


def _may_begin_alike(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _may_end_alike(end: str, literal: Sequence[str]) -> bool:
    return literal[-1].endswith(end) or (len(literal) > 1 and end.endswith(literal[-1]))
