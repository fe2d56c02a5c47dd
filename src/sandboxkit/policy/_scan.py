"""
Looking for what the floor denies in commands that carry other commands.

Every finding only ever makes a decision stricter, so the reading may be rough.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sandboxkit.policy._flows import Flows
from sandboxkit.policy._paths import located
from sandboxkit.shell import MAX_TEXT, Fragment, fragments, unescape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandboxkit.model import EvaluationContext
    from sandboxkit.policy._floor import Floor, FloorRow
    from sandboxkit.policy._subject import Subject

__all__ = ["MAX_COMMANDS", "Finding", "findings_in_argv", "findings_in_text"]

MAX_COMMANDS = 400
"""
Commands of one text that are looked at; a text that holds more is denied.
"""
_MAX_DEPTH = 6
_MAX_TAILS = 20
_MAX_READ = 10 * MAX_TEXT
_CARRIES_TEXT = re.compile(r"[\s;&|<>()`$]")
_GLOB = re.compile(r"[*?\[]")
_NAMED_VALUE = re.compile(r"-{0,2}[A-Za-z_][\w-]*=")


@dataclass(frozen=True, slots=True)
class Finding:
    """
    A row of the floor, and where its cause stands in the source text.
    """

    row: FloorRow
    span: tuple[int, int] | None = None


def findings_in_argv(floor: Floor, subject: Subject) -> tuple[Finding, ...]:
    """
    What the floor denies in the command itself and in those it carries.
    """
    word = subject.argv[0]
    if floor.is_carrier(word) or _CARRIES_TEXT.search(word) or _GLOB.search(word):
        return _unique(_Scan(floor, subject.context).words(subject.argv))
    return tuple(Finding(row) for row in floor.denials(subject.argv, subject.context))


def findings_in_text(floor: Floor, text: str, context: EvaluationContext) -> tuple[Finding, ...]:
    """
    What the floor denies in *text*, read roughly as shell.
    """
    return _unique(_Scan(floor, context).text(text))


def _unique(found: Iterator[Finding]) -> tuple[Finding, ...]:
    first: dict[str, Finding] = {}
    for finding in found:
        first.setdefault(finding.row.id, finding)
    return tuple(first.values())


@dataclass(slots=True)
class _Budget:
    """
    How many characters one look may still read, text within text counted again.
    """

    left: int = _MAX_READ


@dataclass(frozen=True, slots=True)
class _Scan:
    """
    One look, in one directory, at one depth.
    """

    floor: Floor
    context: EvaluationContext
    moved: bool = False
    depth: int = 0
    budget: _Budget = field(default_factory=_Budget)

    def words(self, argv: tuple[str, ...]) -> Iterator[Finding]:
        """
        Findings in one command.
        """
        for name in self._names(argv[0]):
            yield from self._denials((name, *argv[1:]))
        if self.floor.is_carrier(argv[0]):
            yield from self._carried(argv)
        if _CARRIES_TEXT.search(argv[0]):
            yield from self._deeper().text(argv[0])

    def text(self, text: str) -> Iterator[Finding]:
        """
        Findings in shell text.
        """
        self.budget.left -= len(text)
        found = fragments(text) if self.depth <= _MAX_DEPTH and self.budget.left >= 0 else None
        if found is None or len(found) > MAX_COMMANDS:
            yield from (Finding(rule.row) for rule in self.floor.rows if rule.row.limit)
            return
        yield from (Finding(row) for row in self.floor.in_text(text))
        scan = self
        for fragment in found:
            yield from scan._fragment(fragment)
            scan = scan._after(fragment)
        yield from self._flows(found)

    def _fragment(self, fragment: Fragment) -> Iterator[Finding]:
        if fragment.words:
            yield from (Finding(finding.row, fragment.span) for finding in self.words(fragment.words))
        for target in fragment.writes:
            yield from (Finding(row, fragment.span) for row in self.floor.writes_to(target, self.context))

    def _denials(self, argv: tuple[str, ...]) -> Iterator[Finding]:
        yield from (Finding(row) for row in self.floor.denials(argv, self.context, moved=self.moved))

    def _deeper(self) -> _Scan:
        return replace(self, depth=self.depth + 1)

    def _names(self, word: str) -> Sequence[str]:
        """
        The programs *word* may stand for: more than one where it is a glob.
        """
        base = _name(word)
        if base == "[" or not _GLOB.search(base):
            return (word,)
        return [program for program in self.floor.by_program if fnmatch.fnmatchcase(program, base)]

    def _carried(self, argv: tuple[str, ...]) -> Iterator[Finding]:
        """
        Findings in the commands *argv* would execute: what stands behind a wrapper,
        and every word that is text of its own.
        """
        scan = self._deeper()
        directory = _directory_option(argv)
        if directory is not None:
            scan = scan._in(directory)
        tails = [place for place, word in enumerate(argv) if place and _name(word) in self.floor.by_program]
        for place in tails[:_MAX_TAILS]:
            yield from scan._denials(argv[place:])
        for word in argv[1:]:
            named = _NAMED_VALUE.match(word)
            text = word[named.end() :] if named else word
            if _CARRIES_TEXT.search(text):
                yield from scan.text(text)

    def _after(self, fragment: Fragment) -> _Scan:
        """
        The look at what follows *fragment*, in another directory after a `cd`.
        """
        if fragment.words[:1] not in (("cd",), ("pushd",)):
            return self
        operands = [word for word in fragment.words[1:] if not word.startswith("-")]
        return self._in(operands[0] if operands else "~")

    def _in(self, directory: str) -> _Scan:
        path = located(directory, self.context)
        moved = path != self.context.cwd if path else directory not in (".", "./")
        return replace(self, context=replace(self.context, cwd=path), moved=moved or self.moved)

    def _flows(self, found: tuple[Fragment, ...]) -> Iterator[Finding]:
        """
        Findings in what is executed out of a pipe, a substitution or a new file.
        """
        flows = Flows(found, self.floor.programs)
        for index, fragment in enumerate(found):
            sources = flows.sources(index)
            for group in {group for source in sources for group in flows.groups(source)}:
                yield from (Finding(rule.row, fragment.span) for rule in self.floor.rows if rule.row.sources == group)
            if flows.is_shell(index):
                yield from self._printed(fragment, [found[source] for source in sources])

    def _printed(self, fragment: Fragment, sources: list[Fragment]) -> Iterator[Finding]:
        # What echo prints into a shell is text the shell executes.
        texts = [fragment.stdin, *(source.stdin for source in sources)]
        texts += [unescape(word) for source in sources for word in source.words[1:]]
        for text in texts:
            if _CARRIES_TEXT.search(text):
                yield from (Finding(finding.row, fragment.span) for finding in self._deeper().text(text))


def _name(word: str) -> str:
    return posixpath.basename(word).lower()


def _directory_option(argv: tuple[str, ...]) -> str | None:
    if _name(argv[0]) != "env":
        return None
    for option, value in zip(argv[1:], (*argv[2:], ""), strict=False):
        if option in ("-C", "--chdir"):
            return value
    return None
