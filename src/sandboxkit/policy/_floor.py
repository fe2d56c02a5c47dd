"""
The floor: what is denied whatever the rules say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from sandboxkit.policy._arguments import ArgumentSet, is_option
from sandboxkit.policy._digest import digest_of
from sandboxkit.policy._glob import glob_pattern
from sandboxkit.policy._paths import path_candidates
from sandboxkit.policy._places import PlaceRow, Places
from sandboxkit.policy._subject import program_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sandboxkit.model import EvaluationContext

__all__ = ["Floor", "FloorRow", "FloorRule", "FloorTable", "Programs"]


_GIVEN_PATTERN = ArgumentSet.of(["-e", "-f", "--regexp", "--file", "--expression", "--files"])


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class FloorRow(_Row):
    """
    One denial. All conditions that are given must hold, each for the same command.
    """

    id: str
    """Names the row; begins with `floor.` and the category."""
    reason: str
    """What is wrong with such a command."""
    programs: tuple[str, ...] = ()
    """The program is one of these. Empty: any but those in `except_programs`."""
    except_programs: tuple[str, ...] = ()
    """Programs that only print or compare their arguments."""
    options: tuple[tuple[str, ...], ...] = ()
    """Of every group at least one option is present."""
    arguments: tuple[str, ...] = ()
    """Some argument matches one of these globs."""
    operands: str = ""
    """Some argument names a path of this class."""
    writes: str = ""
    """Some output redirection goes to a path of this class."""
    sources: Literal["", "downloaders", "decoders"] = ""
    """What it executes comes from a program of this group, through a pipe, a substitution or a file."""
    limit: bool = False
    """It carries more commands, or more text within text, than are read."""
    text: tuple[str, ...] = ()
    """Some of these patterns is in the text that a shell would read."""
    match: tuple[str | tuple[str, ...], ...] = ()
    """Commands the row denies."""
    not_match: tuple[str | tuple[str, ...], ...] = ()
    """Commands it does not."""

    @model_validator(mode="after")
    def _has_condition(self) -> Self:
        if not (
            self.programs
            or self.options
            or self.arguments
            or self.operands
            or self.writes
            or self.sources
            or self.limit
            or self.text
        ):
            raise ValueError("a row of the floor has at least one condition")
        return self


class Programs(_Row):
    """
    Groups of programs the floor's reading depends on.
    """

    shells: frozenset[str]
    """They execute text: an argument, a file or standard input."""
    evaluators: frozenset[str]
    """Builtins that execute their arguments as text."""
    interpreters: frozenset[str]
    """They execute a language of their own."""
    wrappers: frozenset[str]
    """They execute another program named in their arguments."""
    downloaders: frozenset[str]
    """They write what they fetched."""
    decoders: frozenset[str]
    """They turn unreadable text into readable text."""
    subscripts: frozenset[str]
    """Builtins that execute substitutions in the subscript of a quoted array name."""
    pattern_first: frozenset[str]
    """Their first operand is a pattern, not a path."""

    @property
    def executors(self) -> frozenset[str]:
        """
        Everything that executes what it reads.
        """
        return self.shells | self.evaluators | self.interpreters

    @property
    def carriers(self) -> frozenset[str]:
        """
        Everything whose arguments may hold another command.
        """
        return self.executors | self.wrappers | self.subscripts


class FloorTable(_Row):
    """
    The floor as it stands in its file.
    """

    programs: Programs
    places: tuple[PlaceRow, ...]
    floor: tuple[FloorRow, ...]


@dataclass(frozen=True, slots=True)
class FloorRule:
    """
    A row of the floor, ready to be asked.
    """

    row: FloorRow
    options: tuple[ArgumentSet, ...]
    arguments: tuple[re.Pattern[str], ...]
    text: tuple[re.Pattern[str], ...]

    @classmethod
    def of(cls, row: FloorRow) -> FloorRule:
        """
        *row* compiled.
        """
        return cls(
            row=row,
            options=tuple(ArgumentSet.of(group) for group in row.options),
            arguments=tuple(glob_pattern(glob) for glob in row.arguments),
            text=tuple(re.compile(pattern) for pattern in row.text),
        )

    @property
    def is_about_argv(self) -> bool:
        """
        Whether the row can be answered from the words of one command.
        """
        return bool(self.row.programs or self.row.operands or self.row.arguments) and not self.row.sources


@dataclass(frozen=True, slots=True)
class Floor:
    """
    The whole floor.

    Attributes:
        rows: Every row.
        by_program: The rows about argv, under each of their programs.
        general: The rows about argv that take any program.
        places: The classes of paths.
        programs: The groups of programs.
        carriers: The programs whose arguments may hold another command.
        digest: Names the content (sha256, hex).
    """

    rows: tuple[FloorRule, ...]
    by_program: Mapping[str, tuple[FloorRule, ...]]
    general: tuple[FloorRule, ...]
    places: Mapping[str, Places]
    programs: Programs
    carriers: frozenset[str]
    digest: str

    @classmethod
    def of(cls, table: FloorTable) -> Floor:
        """
        *table*, indexed.
        """
        rows = tuple(FloorRule.of(row) for row in table.floor)
        index: dict[str, list[FloorRule]] = {}
        for rule in rows:
            for program in rule.row.programs if rule.is_about_argv else ():
                index.setdefault(program, []).append(rule)
        return cls(
            rows=rows,
            by_program={program: tuple(found) for program, found in index.items()},
            general=tuple(rule for rule in rows if rule.is_about_argv and not rule.row.programs),
            places={row.name: Places.of(row) for row in table.places},
            programs=table.programs,
            carriers=table.programs.carriers,
            digest=digest_of(_sorted(table.model_dump(mode="json"))),
        )

    def is_carrier(self, word: str) -> bool:
        """
        Whether the program *word* names may execute a command in its arguments; a
        version at the end of its name does not matter.
        """
        name = program_name(word)[1]
        return name in self.carriers or name.rstrip("0123456789.") in self.carriers

    def denials(self, argv: tuple[str, ...], context: EvaluationContext, *, moved: bool = False) -> Iterator[FloorRow]:
        """
        The rows that deny *argv* for its own words, not for commands within them.
        """
        name = program_name(argv[0])[1]
        arguments = argv[1:]
        for rule in (*self.by_program.get(name, ()), *self.general):
            if name not in rule.row.except_programs and _applies(rule, arguments):
                named = _without_pattern(arguments) if name in self.programs.pattern_first else arguments
                if self._names_place(rule, named, context, moved=moved):
                    yield rule.row

    def in_text(self, text: str) -> Iterator[FloorRow]:
        """
        The rows with a pattern that is in *text*.
        """
        for rule in self.rows:
            if any(pattern.search(text) for pattern in rule.text):
                yield rule.row

    def writes_to(self, target: str, context: EvaluationContext) -> Iterator[FloorRow]:
        """
        The rows that deny an output redirection to *target*.
        """
        for rule in self.rows:
            if rule.row.writes and self.places[rule.row.writes].holds(target, context):
                yield rule.row

    def _names_place(
        self, rule: FloorRule, arguments: tuple[str, ...], context: EvaluationContext, *, moved: bool
    ) -> bool:
        if not rule.row.operands:
            return True
        places = self.places[rule.row.operands]
        return any(places.holds(path, context, moved=moved) for path in path_candidates(arguments) if _is_path(path))


def _applies(rule: FloorRule, arguments: tuple[str, ...]) -> bool:
    if not all(group.touches(arguments) for group in rule.options):
        return False
    return not rule.arguments or any(glob.fullmatch(argument) for glob in rule.arguments for argument in arguments)


def _is_path(candidate: str) -> bool:
    # "see ~/.ssh/config" is a sentence; "/my files/x" and "my files" are paths.
    return bool(candidate) and not is_option(candidate) and " " not in candidate.partition("/")[0]


def _without_pattern(arguments: tuple[str, ...]) -> tuple[str, ...]:
    if _GIVEN_PATTERN.touches(arguments):
        return arguments
    first = next((place for place, argument in enumerate(arguments) if not is_option(argument)), len(arguments))
    return arguments[:first] + arguments[first + 1 :]


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list):
        # Sets have no order of their own; lists of rows keep theirs.
        return sorted(value) if all(isinstance(item, str) for item in value) else [_sorted(item) for item in value]
    return value
