"""
The rules of one level, and a whole rule set: immutable, indexed by program.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_letters, digits
from typing import TYPE_CHECKING

from sandboxkit.model import Level, PolicyAction
from sandboxkit.policy._digest import digest_of
from sandboxkit.policy._glob import any_of
from sandboxkit.policy._match import CompiledRule

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping, Sequence

    from sandboxkit.policy._floor import Floor
    from sandboxkit.policy._rule import PolicyRule
    from sandboxkit.policy._subject import Subject

__all__ = ["Layer", "RuleSet"]


@dataclass(frozen=True, slots=True)
class _Shelf:
    """
    The rules that can match one program.

    Attributes:
        by_second: Those that want a certain second word, under each such word.
        rest: All others.
        usual: Those of the others that take a second word of ASCII letters and digits.
        all: Both.
    """

    by_second: Mapping[str, tuple[CompiledRule, ...]]
    rest: tuple[CompiledRule, ...]
    usual: tuple[CompiledRule, ...]
    all: tuple[CompiledRule, ...]

    @classmethod
    def of(cls, rules: Sequence[CompiledRule]) -> _Shelf:
        index: dict[str, tuple[CompiledRule, ...]] = {}
        for rule in rules:
            for word in rule.seconds:
                index[word] = (*index.get(word, ()), rule)
        rest = tuple(rule for rule in rules if not rule.seconds)
        return cls(index, rest, tuple(rule for rule in rest if rule.takes_usual_second()), tuple(rules))

    def candidates(self, argv: tuple[str, ...], *, is_known: bool) -> tuple[CompiledRule, ...]:
        if not is_known:
            return self.all
        if len(argv) < 2:
            return self.rest
        second = argv[1]
        rest = self.usual if second.isalnum() and second.isascii() else self.rest
        found = self.by_second.get(second) if self.by_second else None
        return found + rest if found else rest


@dataclass(frozen=True, slots=True)
class Layer:
    """
    The rules of one level.

    Attributes:
        level: Who wrote them.
        rules: All of them, also the disabled.
        shelves: The enabled rules under each program they can match.
        general: The enabled globs and regexes that may match any program.
        general_for: Those of them that can match a text that begins with the character.
        needed: Found in the `line` of every subject of known words that one of these matches,
            or None where there is nothing of the kind.
        digest: Names the content (sha256, hex).
    """

    level: Level
    rules: tuple[PolicyRule, ...]
    shelves: Mapping[str, _Shelf]
    general: tuple[CompiledRule, ...]
    general_for: Mapping[str, tuple[CompiledRule, ...]]
    needed: re.Pattern[str] | None
    digest: str

    @classmethod
    def of(cls, level: Level, rules: Sequence[PolicyRule]) -> Layer:
        """
        *rules*, indexed.
        """
        index: dict[str, list[CompiledRule]] = {}
        general: list[CompiledRule] = []
        for compiled in (CompiledRule.of(rule, level) for rule in rules if rule.enabled):
            programs = compiled.programs
            if programs is None:
                general.append(compiled)
            for program in programs or ():
                index.setdefault(program, []).append(compiled)
        shelves = {program: _Shelf.of(found) for program, found in index.items()}
        general_for = {
            char: tuple(rule for rule in general if rule.begins is None or char in rule.begins)
            for char in (*ascii_letters, *digits)
        }
        needs = [rule.needs for found in general_for.values() for rule in found]
        needed = any_of(needs) if needs else None
        digest = digest_of([rule.to_dict() for rule in rules])
        return cls(level, tuple(rules), shelves, tuple(general), general_for, needed, digest)

    def candidates(self, subject: Subject) -> tuple[CompiledRule, ...]:
        """
        The rules that may match *subject*: where its first two words are known, those
        with a prefix begin with them.
        """
        argv = subject.argv
        is_known = not subject.unknown or subject.knows(2)
        shelf = self.shelves.get(subject.name)
        found = shelf.candidates(argv, is_known=is_known) if shelf else ()
        if argv[0] != subject.name and (shelf := self.shelves.get(argv[0])):
            found += tuple(
                rule for rule in shelf.candidates(argv, is_known=is_known) if not any(rule is other for other in found)
            )
        if not self.general:
            return found
        if not subject.begins:
            return found + self.general
        if self.needed is not None and not subject.unknown and not self.needed.search(subject.line):
            return found
        return found + self.general_for[subject.begins]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """
    Everything a decision depends on besides the command. Replaced, never changed.

    Attributes:
        floor: The denials nothing can lift.
        builtin, user, organisation, project: The levels.
        default: What is done with a command no rule matches.
        counts: Whether any rule bounds the number of parts.
        is_extended: Whether there are rules beside the built-in ones.
        digest: Names the whole set (sha256, hex).
    """

    floor: Floor
    builtin: Layer
    user: Layer
    organisation: Layer
    project: Layer
    default: PolicyAction
    counts: bool
    is_extended: bool
    digest: str

    @classmethod
    def of(
        cls, *, floor: Floor, builtin: Layer, user: Layer, organisation: Layer, project: Layer, default: PolicyAction
    ) -> RuleSet:
        """
        The set of these levels.
        """
        layers = (builtin, user, organisation, project)
        digest = digest_of([floor.digest, str(default), *(layer.digest for layer in layers)])
        counts = any("parts" in rule.constraints.more_than for layer in layers for rule in layer.rules)
        is_extended = any(layer.rules for layer in layers[1:])
        return cls(floor, builtin, user, organisation, project, default, counts, is_extended, digest)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """
        The levels, the weakest first.
        """
        return self.builtin, self.user, self.organisation, self.project

    def with_user(self, rules: Sequence[PolicyRule]) -> RuleSet:
        """
        The same set with other rules at the user level.
        """
        return RuleSet.of(
            floor=self.floor,
            builtin=self.builtin,
            user=Layer.of(Level.USER, rules),
            organisation=self.organisation,
            project=self.project,
            default=self.default,
        )
