"""
What goes from one command of a text to another: who executes, or sends, whose output.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from sandboxkit.model import PIPES, UNKNOWN, EvaluationContext, Setting
from sandboxkit.policy._subject import program_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandboxkit.model import Command, SimpleCommand, Unknown
    from sandboxkit.policy._floor import Floor, FloorRow

__all__ = ["flow_findings"]

# Looked up on its class, a member takes ten times as long.
_BACKGROUND, _ENDLESS, _PIPELINE, _FUNCTION, _TEXT = (
    Setting.BACKGROUND,
    Setting.ENDLESS,
    Setting.PIPELINE,
    Setting.FUNCTION,
    Setting.TEXT,
)
_MAX_PIPE = 12
_NOWHERE = EvaluationContext()
_REPEATS = _BACKGROUND | _ENDLESS
_SHAPES = _BACKGROUND | _ENDLESS | _FUNCTION
_READ_NOTHING = frozenset(
    """
    basename command date dirname echo find git hostname id ls mktemp nproc printf pwd readlink realpath seq stat type uname which
    whoami
    """.split()
)
"""
What they print depends on no input of theirs.
"""
_READ_VARIABLES = frozenset(("read", "mapfile", "readarray"))
_HEADER = re.compile(
    r"-[a-zA-Z]*[Hub]|--(?:header|user|cookie|oauth2-bearer|auth\w*|http-user|http-password)=?.*", re.DOTALL
)
"""
Options of those that send whose value says who asks.
"""
_PACKED = re.compile(r"\.(?:gz|bz2|xz|zst|zip|lz4|gpg|enc|b64)$")
_VARIABLE = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")
_VERSION = re.compile(r"[-.0-9]+$")


def flow_findings(floor: Floor, command: Command) -> list[tuple[FloorRow, int]]:
    """
    The rows of the floor about flows and structure that *command* falls under, each
    with the index of the part.
    """
    if len(command.parts) < 2 or all(_is_simple(floor, part) for part in command.parts):
        return []
    return list(_Flows(floor, command).findings())


def _is_simple(floor: Floor, part: SimpleCommand) -> bool:
    """
    Whether nothing can be said about how *part* stands to others.
    """
    argv = part.argv
    if not argv:
        return True
    name = program_name(argv[0])
    return (
        name not in floor.flows
        and name.isalpha()
        and "/" not in argv[0]
        and int.__and__(part.setting, _SHAPES) == 0
        and not (part.unknown and part.is_dynamic)
    )


class _Flows:
    """
    Where the output of each part of a command goes.

    `_has_hidden` says whether a part downloads or decodes: without one, nothing that is
    executed was unseen. `_written` holds the parts that write a file, by its name.
    """

    def __init__(self, floor: Floor, command: Command) -> None:
        self._floor = floor
        self._parts = command.parts
        self._functions = command.functions
        self._source = command.source
        self._names = [_name(part) for part in command.parts]
        self._has_hidden = not floor.hiding.isdisjoint(self._names)
        self._started: dict[int, list[int]] = {}
        self._inside: dict[int, list[int]] = {}
        self._written: dict[str, list[int]] = {}
        writers = floor.writers
        for index, part in enumerate(self._parts):
            if part.outer is not None:
                self._started.setdefault(part.outer, []).append(index)
            if part.inside is not None:
                self._inside.setdefault(part.inside, []).append(index)
            if part.redirects or self._names[index] in writers:
                self._note_written(index, part)

    def findings(self) -> Iterator[tuple[FloorRow, int]]:
        flows = self._floor.flows
        for index, part in enumerate(self._parts):
            name = self._names[index]
            rules = flows.get(name)
            if rules is None and not name.isalpha():
                rules = flows.get(_VERSION.sub("", name))
            for rule in rules or ():
                if (rule.arguments is None or any(map(rule.arguments.fullmatch, part.argv))) and self._applies(
                    rule.row, index
                ):
                    yield rule.row, index
            if part.function is not None or int.__and__(part.setting, _REPEATS) != 0:
                for rule in self._floor.structures:
                    if self._is_shaped(rule.row.structure, index, part):
                        yield rule.row, index
            if self._has_hidden and (sources := [*self._programs(index, part), *self._executed(index)]):
                sources = self._with_stored(sources)
                for rule in self._floor.executed:
                    if any(self._belongs(source, rule.row.sources) for source in sources):
                        yield rule.row, index

    def _programs(self, index: int, part: SimpleCommand) -> Iterator[int]:
        """
        The parts that say which program the part is: it was in a file they wrote, or is
        what they print.
        """
        if "/" in part.program:
            yield from self._stored(part.program, index)
        if part.is_dynamic:
            yield from self._inside_of(index) if part.unknown[0][1].is_output else self._assigned(index, 0)

    def _applies(self, row: FloorRow, index: int) -> bool:
        """
        Whether *row* is about what flows into the part.
        """
        if row.carries_output:
            return any(
                unknown.is_output and "." in self._parts[index].argv[place].rpartition(UNKNOWN)[2]
                for place, unknown in self._parts[index].unknown
            )
        if row.sources == "tellers":
            return any(self._belongs(source, "tellers") for source in self._with_stored([*self._sent(index)]))
        return any(self._belongs(source, row.sources) for source in self._received(index))

    def _belongs(self, index: int, group: str) -> bool:
        programs, part, name = self._floor.programs, self._parts[index], self._names[index]
        if group == "tellers":
            return name in programs.tellers or self._floor.tells(part)
        if group == "searchers":
            places = self._floor.places["system-root"]
            return name in programs.searchers and any(places.holds(word, _NOWHERE) for word in part.argv[1:])
        if name == "tr":
            # It hides nothing where it only leaves characters out.
            return name in getattr(programs, group) and not any(word[:1] == "-" for word in part.argv[1:])
        if group == "shells":
            return name in programs.shells and any(
                word.startswith("-") and "i" in word and not word.startswith("--") for word in part.argv[1:]
            )
        return name in getattr(programs, group)

    # What is sent

    def _sent(self, index: int) -> Iterator[int]:
        """
        What the part sends: what it receives, what is in the variables among its words,
        and in the files that they name. A header is none of that: a token that logs in is
        mostly read from where the other secrets are.
        """
        yield from self._received(index)
        part = self._parts[index]
        for place, unknown in part.unknown:
            if not (_is_output(unknown) or _HEADER.match(part.argv[place]) or _HEADER.fullmatch(part.argv[place - 1])):
                yield from self._of_variables(index)
                break
        for word in part.argv[1:]:
            name = word.rpartition("@")[2].removeprefix("-T")
            yield from self._stored(name, index)
            yield from self._stored(_PACKED.sub("", name), index)

    def _of_variables(self, index: int) -> Iterator[int]:
        """
        What the variables that the part's text names were set to, also by way of others. All
        that are set before, where there is no text to look at, as of a list of arguments.
        """
        source, waiting, seen = self._source, [index], set[int]()
        while waiting:
            user = waiting.pop()
            start, end = self._parts[user].span or (0, 0)
            named = None if source is None else set(_VARIABLE.findall(source, start, end))
            for before in range(user):
                setters = self._parts[before].assignments
                is_named = any(not each.is_known and (named is None or each.name in named) for each in setters)
                if is_named and before not in seen:
                    seen.add(before)
                    waiting.append(before)
                    yield from self._inside_of(before)
                    if self._names[before] in _READ_VARIABLES:
                        yield before  # it may read a file by its own redirection
                        yield from self._received(before)

    # Structure

    def _is_shaped(self, structure: str, index: int, part: SimpleCommand) -> bool:
        if structure == "endless":
            return part.stands(_ENDLESS) and part.stands(_BACKGROUND)
        is_doubled = part.stands(_PIPELINE) or part.stands(_BACKGROUND)
        if part.function is not None and part.program in self._functions:
            return is_doubled and self._calls(part.program, part.function)
        # $0 in the background of the text a shell was handed is that text once more.
        return (
            part.stands(_BACKGROUND)
            and part.stands(_TEXT)
            and part.is_dynamic
            and self._names[index] in self._floor.programs.shells
        )

    def _calls(self, caller: str, function: str) -> bool:
        """
        Whether *caller* is *function*, or calls it in the end.
        """
        seen, waiting = set[str](), [caller]
        while waiting:
            name = waiting.pop()
            if name == function:
                return True
            if name not in seen:
                seen.add(name)
                waiting += (
                    part.program for part in self._parts if part.function == name and part.program in self._functions
                )
        return False

    # What is executed

    def _executed(self, index: int) -> Iterator[int]:
        """
        The parts whose output the part executes.
        """
        part, name = self._parts[index], self._names[index]
        for place, text in self._floor.languages.handed(name, part.argv):
            if place is None:
                yield from self._received(index)
                for redirect in part.redirects:
                    if redirect.operator == "<":
                        yield from self._stored(redirect.target, index)
            else:
                yield from self._named(index, place)
                yield from self._stored(text, index)

    def _named(self, index: int, place: int) -> Iterator[int]:
        """
        The parts whose output is, or is in the file that is named by, the word at *place*.
        """
        part, name = self._parts[index], self._names[index]
        is_evaluator = name in self._floor.programs.evaluators
        for unknown in (each for at, each in part.unknown if at == place):
            yield from self._substituted(index) if _is_output(unknown) else self._assigned(index, place)
        if is_evaluator:
            yield from self._substituted(index)
        if part.unknown and part.outer is not None and self._names[part.outer] in ("xargs", "parallel"):
            yield from self._received(index)

    def _received(self, index: int) -> Iterator[int]:
        """
        Everything upstream of the part in its pipeline, and what is substituted there.
        """
        yield from self._substituted(index)
        for source in self._upstream(index):
            yield from self._family(source)
            yield from self._substituted(source)

    def _upstream(self, index: int) -> Iterator[int]:
        waiting, seen = [*self._parts[index].reads_from], set[int]()
        while waiting and len(seen) < _MAX_PIPE:
            source = waiting.pop()
            if source not in seen:
                seen.add(source)
                yield source
                waiting += self._parts[source].reads_from

    def _family(self, index: int) -> Iterator[int]:
        yield index
        for started in self._started.get(index, ()):
            yield from self._family(started)

    def _assigned(self, index: int, place: int) -> Iterator[int]:
        """
        What is substituted in the assignments before the part, or read into variables
        there, where its word at *place* is a variable whose value is not known.
        """
        part = self._parts[index]
        if UNKNOWN not in part.argv[place]:
            return
        is_whole = part.argv[place] == UNKNOWN
        is_code = not place or self._names[index] in self._floor.programs.evaluators or part.argv[place - 1][:1] == "-"
        for before in range(index):
            if any(not assignment.is_known for assignment in self._parts[before].assignments):
                if is_whole:
                    yield from self._inside_of(before)
                if is_code and self._names[before] in _READ_VARIABLES:
                    yield from self._received(before)

    def _inside_of(self, index: int) -> Iterator[int]:
        for child in self._inside.get(index, ()):
            yield from self._family(child)
            yield from self._received(child)

    def _substituted(self, index: int) -> Iterator[int]:
        """
        The parts in substitutions in the words of the part, or of what started it, and
        what those print again.
        """
        while True:
            for child in self._inside.get(index, ()):
                yield from self._family(child)
                yield from self._substituted(child)
                if self._names[child] not in _READ_NOTHING:
                    for source in self._upstream(child):
                        yield from self._family(source)
            outer = self._parts[index].outer
            if outer is None or self._parts[index].stands(_TEXT):
                return
            index = outer

    # Files that parts have written

    def _note_written(self, index: int, part: SimpleCommand) -> None:
        """
        Keeps which files the part writes.
        """
        name = self._names[index]
        words = [redirect.target for redirect in part.redirects if redirect.writes]
        if name in self._floor.programs.copiers:
            words += [word.removeprefix("of=") for word in part.argv[1:]]
        elif name in self._floor.programs.downloaders and name != "ssh":
            words += _fetched(part.argv[1:])
        for word in words:
            if word:
                self._written.setdefault(_here(word), []).append(index)

    def _stored(self, name: str, index: int) -> Iterator[int]:
        """
        The parts before *index* that write the file *name*, and what they received.
        """
        for writer in self._written.get(_here(name), ()) if name else ():
            if writer < index:
                yield writer
                yield from self._received(writer)
                for place, unknown in self._parts[writer].unknown:
                    if not _is_output(unknown):
                        yield from self._assigned(writer, place)

    def _with_stored(self, sources: list[int]) -> list[int]:
        """
        *sources*, and those of the files whose content they pass on.
        """
        if not self._written:
            return sources
        found, waiting, programs = dict[int, None](), [*sources], self._floor.programs
        while waiting:
            source = waiting.pop()
            if source in found:
                continue
            found[source] = None
            if self._names[source] in programs.printers or self._names[source] in programs.copiers:
                part = self._parts[source]
                for word in (*part.argv[1:], *(redirect.target for redirect in part.redirects if not redirect.writes)):
                    waiting += self._stored(word.removeprefix("if="), source)
        return list(found)


def _fetched(words: Iterable[str]) -> Iterator[str]:
    """
    What the words of a download may name as the file it writes: it may be attached to
    its option, as in -o/tmp/x, or be the last part of the address.
    """
    for word in words:
        base = posixpath.basename(word)
        yield from (base,) if "://" in word else (word, word.lstrip("-sSoO"), word.partition("=")[2], base)


def _is_output(unknown: Unknown) -> bool:
    return unknown.is_output or unknown.known.startswith(PIPES)


def _here(name: str) -> str:
    return name.removeprefix("./")


def _name(part: SimpleCommand) -> str:
    return program_name(part.argv[0]) if part.argv else ""
