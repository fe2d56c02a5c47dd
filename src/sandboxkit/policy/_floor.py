"""
The floor: what is denied whatever the rules say.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from sandboxkit.model import EvaluationContext
from sandboxkit.policy._arguments import ArgumentSet, is_option
from sandboxkit.policy._glob import Later, any_glob, any_of
from sandboxkit.policy._languages import LanguageRow, Languages
from sandboxkit.policy._mentions import MentionRow, Mentions
from sandboxkit.policy._paths import path_candidates
from sandboxkit.policy._places import PlaceRow, Places
from sandboxkit.policy._triggers import trigger_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sandboxkit.model import SimpleCommand
    from sandboxkit.policy._subject import Subject

__all__ = ["Floor", "FloorRow", "FloorRule", "FloorTable", "Programs"]


_NOWHERE = EvaluationContext()
_CARELESS = frozenset(("darwin",))
"""
Platforms whose file systems mostly find a name in other letters too: `~/.SSH` is `~/.ssh`.
"""
_QUOTED = re.compile(r"[\"'`]([^\"'`\s]+)[\"'`]")
_GLOB = re.compile(r"[*?\[]")
_WRITING = frozenset(
    (
        "-o",
        "-O",
        "-t",
        "--output",
        "--output-document",
        "--target-directory",
        "--out",
        "-so",
        "-Lo",
        "-sLo",
        "-sSLo",
        "-fsSLo",
        "-qO",
        "-out",
        "-fls",
        "-fprint",
        "-fprint0",
        "-fprintf",
    )
)
_WRITING_ATTACHED = re.compile(r"of=|-[a-zA-Z]*[oOt](?=[/~.])|--(?:output|output-document|target-directory|out)=")


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorRow:
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
    destination: str = ""
    """The last operand, or the value of an option that names a file to write, is a path of this class."""
    output: str = ""
    """The value of an option that names a file to write is a path of this class."""
    origin: str = ""
    """Some operand that is not where the rest goes is a path of this class."""
    writes: str = ""
    """Some output redirection goes to a path of this class."""
    reads: str = ""
    """Some input redirection comes from a path of this class."""
    sources: Literal["", "downloaders", "decoders", "tellers", "shells", "searchers"] = ""
    """
    For `downloaders` and `decoders`: what it executes comes from a program of this
    group, through a pipe, a substitution or a file. For the others: what it receives.
    """
    unmoved: bool = False
    """Only where the directory has not changed since the text began."""
    carries_output: bool = False
    """A command's output is a part of a name among its arguments."""
    structure: Literal["", "recursion", "endless"] = ""
    """How the command stands in its text: a function that starts itself, a loop without end."""
    code: tuple[str, ...] = ()
    """Some argument, code of another language than the shell's, holds one of these patterns."""
    match: tuple[str | tuple[str, ...], ...] = ()
    """Commands the row denies."""
    not_match: tuple[str | tuple[str, ...], ...] = ()
    """Commands it does not."""

    def __post_init__(self) -> None:
        """
        Raises:
            ValueError: It has no condition.
        """
        if not (
            self.programs
            or self.options
            or self.arguments
            or self.operands
            or self.destination
            or self.output
            or self.origin
            or self.writes
            or self.reads
            or self.sources
            or self.structure
            or self.code
        ):
            raise ValueError("a row of the floor has at least one condition")

    def to_dict(self) -> dict[str, object]:
        """
        A JSON-ready form without what is left at its default.
        """
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: _list(value) for name, (value, default) in values.items() if value != default}

    @property
    def place(self) -> str:
        """
        The class of paths that its arguments are compared with, or nothing.
        """
        return self.operands or self.destination or self.output or self.origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """
    Groups of programs the floor's reading depends on.
    """

    shells: frozenset[str]
    """They execute text: an argument, a file or standard input."""
    evaluators: frozenset[str]
    """Builtins that execute their arguments as text."""
    downloaders: frozenset[str]
    """They write what they fetched."""
    decoders: frozenset[str]
    """They turn unreadable text into readable text."""
    searchers: frozenset[str]
    """They print the names of the files they find."""
    tellers: frozenset[str]
    """They print what only the user's session knows."""
    copiers: frozenset[str]
    """They write into files that they name what they read, or what is in other files that they name."""
    printers: frozenset[str]
    """They print what is in the files that they name; the empty name is a redirection alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorTable:
    """
    The floor as it stands in its file.
    """

    programs: Programs
    languages: tuple[LanguageRow, ...]
    mentions: tuple[MentionRow, ...]
    places: tuple[PlaceRow, ...]
    floor: tuple[FloorRow, ...]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> FloorTable:
        """
        *table* as JSON gives it. The types of its values are checked where it is baked,
        once, and not by every process.

        Raises:
            TypeError: A row has a key that is unknown, or lacks one.
            ValueError: A row of the floor has no condition.
        """
        return cls(
            programs=Programs(**{name: frozenset(programs) for name, programs in table["programs"].items()}),
            languages=tuple(LanguageRow(**_frozen(row)) for row in table["languages"]),
            mentions=tuple(MentionRow(**_frozen(row)) for row in table["mentions"]),
            places=tuple(PlaceRow(**_frozen(row)) for row in table["places"]),
            floor=tuple(FloorRow(**_frozen(row)) for row in table["floor"]),
        )


def _frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def _list(value: object) -> object:
    return [_list(each) for each in value] if isinstance(value, tuple) else value


def _tuple(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_tuple(value) if isinstance(value, list) else value for value in values)


@dataclass(frozen=True, slots=True)
class FloorRule:
    """
    A row of the floor, ready to be asked.

    Attributes:
        row: The row.
        options, code: Its conditions, compiled.
        arguments: All its globs for arguments in one, or None.
        trigger: Found in the arguments, or in the working directory, of every command
            the row denies, unless a pattern is among them; None where nothing is.
    """

    row: FloorRow
    options: tuple[ArgumentSet, ...]
    arguments: Later | None
    code: tuple[Later, ...]
    trigger: Later | None

    @classmethod
    def of(cls, row: FloorRow, places: Mapping[str, Places]) -> FloorRule:
        """
        *row* compiled.
        """
        trigger = trigger_of(row.arguments) if row.arguments else None
        if trigger is None and row.place:
            trigger = places[row.place].trigger
        return cls(
            row=row,
            options=tuple(ArgumentSet.of(group) for group in row.options),
            arguments=any_glob(row.arguments) if row.arguments else None,
            code=tuple(Later(pattern) for pattern in row.code),
            trigger=trigger,
        )

    @property
    def is_about_argv(self) -> bool:
        """
        Whether the row can be answered from the words of one command.
        """
        row = self.row
        return not (row.sources or row.carries_output or row.structure or row.writes or row.reads)


@dataclass(frozen=True, slots=True)
class Floor:
    """
    The whole floor.

    Attributes:
        rows: Every row.
        by_program: The rows about argv, under each of their programs.
        general: The rows about argv that take any program.
        alarm: Found where any of their triggers or a wildcard is, or None where one of them
            has no trigger.
        writes, reads: The rows about redirections.
        flows: The rows about what a part receives, under each of their programs; and the
            other programs that take part in what is executed, without a row.
        executed: The rows about what is executed.
        structures: The rows about how a part stands in its text.
        places: The classes of paths.
        programs: The groups of programs.
        hiding: The programs whose output nobody has seen.
        writers: The programs that write a file without a redirection.
        languages: How programs are handed the code they execute.
        mentions: Which words name a file that is not opened.
        digest: Names the content (sha256, hex).
    """

    rows: tuple[FloorRule, ...]
    by_program: Mapping[str, tuple[FloorRule, ...]]
    general: tuple[FloorRule, ...]
    alarm: Later | None
    writes: tuple[FloorRule, ...]
    reads: tuple[FloorRule, ...]
    flows: Mapping[str, tuple[FloorRule, ...]]
    executed: tuple[FloorRule, ...]
    structures: tuple[FloorRule, ...]
    places: Mapping[str, Places]
    programs: Programs
    hiding: frozenset[str]
    writers: frozenset[str]
    languages: Languages
    mentions: Mentions
    digest: str

    @classmethod
    def of(cls, table: FloorTable, digest: str) -> Floor:
        """
        *table*, indexed.

        Args:
            table: The rows.
            digest: Names their content.
        """
        places = {row.name: Places.of(row) for row in table.places}
        rows = tuple(FloorRule.of(row, places) for row in table.floor)
        own = [rule for rule in rows if rule.is_about_argv]
        general = tuple(rule for rule in own if not rule.row.programs)
        executed = tuple(rule for rule in rows if rule.row.sources in ("downloaders", "decoders"))
        received = [rule for rule in rows if rule.row.programs and (rule.row.sources or rule.row.carries_output)]
        languages = Languages.of(table.languages)
        hiding = table.programs.downloaders | table.programs.decoders
        others = dict.fromkeys((*languages.always, *hiding), ())
        return cls(
            rows=rows,
            by_program=_indexed((name, rule) for rule in own for name in rule.row.programs),
            general=general,
            alarm=any_of([_GLOB, *(rule.trigger for rule in general)]),
            writes=tuple(rule for rule in rows if rule.row.writes),
            reads=tuple(rule for rule in rows if rule.row.reads),
            flows=others | _indexed((name, rule) for rule in received for name in rule.row.programs),
            executed=executed,
            structures=tuple(rule for rule in rows if rule.row.structure),
            places=places,
            programs=table.programs,
            hiding=hiding,
            writers=table.programs.downloaders | table.programs.copiers,
            languages=languages,
            mentions=Mentions.of(table.mentions),
            digest=digest,
        )

    def denials(self, subject: Subject, *, moved: bool = False) -> Sequence[FloorRow]:
        """
        The rows that deny *subject* for its own words.

        Args:
            subject: The command.
            moved: Whether the directory has changed since the text began.
        """
        own, general = self.by_program.get(subject.name, ()), self.general
        near, start = f"{subject.line} {subject.context.cwd}", len(subject.name)
        if subject.context.platform in _CARELESS:
            near += f" {near.lower()}"
        is_quiet = self.alarm is not None and not self.alarm.search(near, start)
        if is_quiet:
            if not own and subject.begins:
                return ()
            general = ()
        arguments = subject.argv[1:]
        is_literal = is_quiet or not _GLOB.search(near, start)
        found: list[FloorRow] = []
        for name in (subject.name,) if own else self._candidates(subject):
            for rule in (own or self.by_program.get(name, ())) + general:
                if rule.row.unmoved and moved:
                    continue
                if is_literal and rule.trigger is not None and not rule.trigger.search(near):
                    continue
                if self._denies(rule, name, arguments, subject.context, moved=moved):
                    found.append(rule.row)
        return found

    def _denies(
        self, rule: FloorRule, name: str, arguments: tuple[str, ...], context: EvaluationContext, *, moved: bool
    ) -> bool:
        row = rule.row
        if name in row.except_programs or not _applies(rule, name, arguments):
            return False
        if not row.place:
            return True
        named = self.mentions.without(name, arguments)
        named = tuple(_destinations(named)) if row.destination else named
        named = tuple(_outputs(named)) if row.output else named
        named = _origins(named) if row.origin else named
        if context.platform in _CARELESS:
            named += tuple(word.lower() for word in named)
        return self._names_place(self.places[row.place], named, context, moved=moved)

    def _candidates(self, subject: Subject) -> Sequence[str]:
        """
        The programs the first word may stand for: more than one where it is a pattern.
        """
        name = subject.name
        if not _GLOB.search(name) or name in ("[", "[["):
            return (name,)
        return [program for program in self.by_program if fnmatch.fnmatchcase(program, name)]

    def writes_to(self, target: str, context: EvaluationContext) -> Iterator[FloorRow]:
        """
        The rows that deny an output redirection to *target*.
        """
        targets = (target, target.lower()) if context.platform in _CARELESS else (target,)
        for rule in self.writes:
            place = self.places[rule.row.writes]
            if any(place.holds(each, context) for each in targets):
                yield rule.row

    def reads_from(self, subject: Subject, target: str) -> Iterator[FloorRow]:
        """
        The rows that deny *subject* an input redirection from *target*.
        """
        for rule in self.reads:
            row = rule.row
            applies = subject.name in row.programs and _applies(rule, subject.name, subject.argv[1:])
            targets = (target, target.lower()) if subject.context.platform in _CARELESS else (target,)
            if applies and any(self.places[row.reads].holds(each, subject.context) for each in targets):
                yield row

    def executes(self, subject: Subject, text: str) -> Iterator[FloorRow]:
        """
        The rows that deny *subject* for *text*, which it reads as standard input, where it
        executes that as code.
        """
        rules = [rule for rule in self.by_program.get(subject.name, ()) if rule.code]
        if rules and any(each.place is None for each in self.languages.handed(subject.name, subject.argv)):
            for rule in rules:
                if any(pattern.search(text) for pattern in rule.code):
                    yield rule.row

    def tells(self, part: SimpleCommand) -> bool:
        """
        Whether *part* names a file that often holds secrets, among its words or in code.
        """
        named = [word for word in path_candidates(part.argv[1:]) if _is_path(word)]
        if self.languages.row(part.program):
            named += (name for word in part.argv[1:] for name in _QUOTED.findall(word))
        named += (redirect.target for redirect in part.redirects if not redirect.is_text)
        places = self.places["secrets"], self.places["credentials"]
        return any(_may_be_dotenv(path) or any(place.holds(path, _NOWHERE) for place in places) for path in named)

    def _names_place(
        self, places: Places, arguments: tuple[str, ...], context: EvaluationContext, *, moved: bool
    ) -> bool:
        trigger = places.trigger
        if trigger is not None and context.cwd and trigger.search(context.cwd):
            trigger = None
        for path in _paths(arguments):
            if trigger is not None and not trigger.search(path) and not _GLOB.search(path):
                continue
            if places.holds(path, context, moved=moved):
                return True
        return False


def _applies(rule: FloorRule, name: str, arguments: tuple[str, ...]) -> bool:
    for group in rule.options:
        if not group.touches(arguments):
            return False
    if rule.code:
        text = " ".join((name, *arguments))
        if not any(pattern.search(text) for pattern in rule.code):
            return False
    if rule.arguments is None:
        return True
    for argument in arguments:  # noqa: SIM110 - a generator takes twice the time
        if rule.arguments.fullmatch(argument):
            return True
    return False


@lru_cache(maxsize=256)
def _paths(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """
    What *arguments* name that may be paths; every row about paths asks this anew.
    """
    return tuple(filter(_is_path, path_candidates(arguments)))


def _destinations(arguments: tuple[str, ...]) -> Iterator[str]:
    """
    What the words may name as the file or directory to write: the last operand and the
    values of the options for that.
    """
    if arguments and "://" not in arguments[-1]:
        yield arguments[-1]
    yield from _outputs(arguments)


def _outputs(arguments: tuple[str, ...]) -> Iterator[str]:
    """
    The values of the options that name a file or directory to write.
    """
    for place, argument in enumerate(arguments):
        if argument in _WRITING and place + 1 < len(arguments):
            yield arguments[place + 1]
        elif found := _WRITING_ATTACHED.match(argument):
            yield argument[found.end() :]


def _may_be_dotenv(path: str) -> bool:
    """
    Whether *path* is a glob for files with a dot in front, .env among them.
    """
    name = path.rpartition("/")[2]
    if name[:1] != "." or not _GLOB.search(name):
        return False
    return any(fnmatch.fnmatchcase(one, name) for one in (".env", ".env.local"))


def _origins(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """
    *arguments* without the destination: the value of -t, or else the last of them.
    """
    for place, argument in enumerate(arguments):
        if argument.startswith("--t"):
            return arguments[:place] + arguments[place + (1 if "=" in argument else 2) :]
        if argument[:1] == "-" and argument[:2] != "--" and "t" in argument:
            return arguments[:place] + arguments[place + (2 if argument.endswith("t") else 1) :]
    return arguments[:-1]


def _indexed(pairs: Iterable[tuple[str, FloorRule]]) -> dict[str, tuple[FloorRule, ...]]:
    index: dict[str, tuple[FloorRule, ...]] = {}
    for name, rule in pairs:
        index[name] = (*index.get(name, ()), rule)
    return index


def _is_path(candidate: str) -> bool:
    # "see ~/.ssh/config" is a sentence; "/my files/x" and "my files" are paths.
    return bool(candidate) and not is_option(candidate) and " " not in candidate.partition("/")[0]
