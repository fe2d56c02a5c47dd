"""
The rules of one level, and a whole rule set: immutable, indexed by program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandboxkit.model import Level, PolicyAction
from sandboxkit.policy._digest import digest_of
from sandboxkit.policy._facts import Facts
from sandboxkit.policy._floor import Floor
from sandboxkit.policy._glob import Later, any_of
from sandboxkit.policy._match import CompiledRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandboxkit.policy._rule import PolicyRule
    from sandboxkit.policy._subject import Subject

__all__ = ["Layer", "RuleIndex", "RuleSet"]


@dataclass(frozen=True, slots=True)
class _Guarded:
    """
    Rules of which some are looked at only where a text is found that they need.

    Attributes:
        rules: The rules that are looked at in any case.
        guard: Found in the `line` of every subject of known words that one of the others
            matches, or None.
        all: These and the others.
    """

    rules: tuple[CompiledRule, ...]
    guard: Later | None
    all: tuple[CompiledRule, ...]

    @classmethod
    def of(cls, rules: Iterable[CompiledRule]) -> _Guarded:
        listed = tuple(rules)
        behind = tuple(rule for rule in listed if rule.needs is not None)
        guard = any_of([rule.needs for rule in behind])
        rules = tuple(rule for rule in listed if rule.needs is None)
        return cls(rules, guard, rules + behind)

    def candidates(self, subject: Subject) -> tuple[CompiledRule, ...]:
        # What is not known of the words is not in the line.
        if self.guard is not None and (subject.unknown or self.guard.search(subject.line)):
            return self.all
        return self.rules


@dataclass(frozen=True, slots=True)
class _Shelf:
    """
    The rules that can match one program.

    Attributes:
        by_second: Those that want a certain second word, under each such word.
        rest: All others.
        usual: Those of the others that take a second word of ASCII letters and digits.
        all: All of them.
    """

    by_second: Mapping[str, tuple[CompiledRule, ...]]
    rest: _Guarded
    usual: _Guarded
    all: tuple[CompiledRule, ...]

    @classmethod
    def of(cls, rules: Sequence[CompiledRule]) -> _Shelf:
        index: dict[str, tuple[CompiledRule, ...]] = {}
        for rule in rules:
            for word in rule.seconds:
                index[word] = (*index.get(word, ()), rule)
        rest = tuple(rule for rule in rules if not rule.seconds)
        usual = (rule for rule in rest if rule.is_usual)
        return cls(index, _Guarded.of(rest), _Guarded.of(usual), tuple(rules))

    def candidates(self, subject: Subject) -> tuple[CompiledRule, ...]:
        argv = subject.argv
        if subject.unknown and not subject.knows(2):
            return self.all
        if len(argv) < 2:
            return self.rest.candidates(subject)
        second = argv[1]
        rest = self.usual if second.isalnum() and second.isascii() else self.rest
        found = self.by_second.get(second)
        if rest.guard is not None and (subject.unknown or rest.guard.search(subject.line)):
            return rest.all if found is None else found + rest.all
        return rest.rules if found is None else found + rest.rules


@dataclass(frozen=True, slots=True)
class RuleIndex:
    """
    Where the rules of a level are found, by their places in it.

    Attributes:
        programs: The enabled rules that can match only certain programs, under each.
        general: The other enabled ones: globs and regexes that may match any program.
        digest: Names the content (sha256, hex).
        counts: Whether any rule bounds the number of parts.
        facts: What is known of the patterns of rules, as far as it is, by `str(place)`.
    """

    programs: Mapping[str, Sequence[int]]
    general: Sequence[int]
    digest: str
    counts: bool
    facts: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: Sequence[PolicyRule], compiled: _Compiled | Sequence[CompiledRule]) -> RuleIndex:
        """
        The index of *rules*.
        """
        programs: dict[str, list[int]] = {}
        general: list[int] = []
        for place in (place for place, rule in enumerate(rules) if rule.enabled):
            only = compiled[place].programs
            if only is None:
                general.append(place)
            for program in sorted(only or ()):
                programs.setdefault(program, []).append(place)
        counts = any("parts" in rule.constraints.more_than for rule in rules)
        return cls(programs, general, digest_of([rule.to_dict() for rule in rules]), counts)


class _Compiled:
    """
    The rules of a level, each compiled when it is asked for: of the built-in table most
    processes need few. Threads may compile one twice; the first stays.
    """

    def __init__(self, rules: Sequence[PolicyRule], level: Level, index: RuleIndex | None) -> None:
        self._rules = rules
        self._level = level
        self._facts = index.facts if index else {}
        self._known: dict[int, CompiledRule] = {}

    def __getitem__(self, place: int) -> CompiledRule:
        found = self._known.get(place)
        if found is None:
            facts = self._facts.get(str(place))
            found = CompiledRule.of(self._rules[place], self._level, Facts(*facts) if facts else None)
            found = self._known.setdefault(place, found)
        return found


class _Closed:
    """
    The shelf of a program that nobody has asked about yet; the first who does opens it.
    """

    __slots__ = ("_compiled", "_places", "_program", "_shelves")

    def __init__(self, program: str, places: Sequence[int], compiled: _Compiled, shelves: _Shelves) -> None:
        self._program = program
        self._places = places
        self._compiled = compiled
        self._shelves = shelves

    def candidates(self, subject: Subject) -> tuple[CompiledRule, ...]:
        shelf = self._shelves[self._program] = _Shelf.of([self._compiled[place] for place in self._places])
        return shelf.candidates(subject)


_Shelves = dict[str, _Shelf | _Closed]


class _General(dict[str, _Guarded]):
    """
    The general rules, for each character those that can match a text that begins with
    it; `""` stands for any.
    """

    def __init__(self, rules: tuple[CompiledRule, ...]) -> None:
        super().__init__()
        self.rules = rules

    def __missing__(self, char: str) -> _Guarded:
        fitting = (rule for rule in self.rules if not char or rule.begins is None or char in rule.begins)
        found = self[char] = _Guarded.of(fitting)
        return found


@dataclass(frozen=True, slots=True)
class Layer:
    """
    The rules of one level.

    Attributes:
        level: Who wrote them.
        rules: All of them, also the disabled.
        shelves: The enabled rules under each program they can match.
        general: The enabled globs and regexes that may match any program.
        digest: Names the content (sha256, hex).
        counts: Whether any rule bounds the number of parts.
    """

    level: Level
    rules: Sequence[PolicyRule]
    shelves: _Shelves
    general: _General
    digest: str
    counts: bool

    @classmethod
    def of(cls, level: Level, rules: Sequence[PolicyRule], index: RuleIndex | None = None) -> Layer:
        """
        *rules*, indexed.

        Args:
            level: Who wrote them.
            rules: The rules; with an index they are not touched before they are asked for.
            index: Their index, where it is known.
        """
        rules = tuple(rules) if index is None else rules
        compiled = _Compiled(rules, level, index)
        index = index or RuleIndex.of(rules, compiled)
        shelves: _Shelves = {}
        for program, places in index.programs.items():
            shelves[program] = _Closed(program, places, compiled, shelves)
        general = _General(tuple(compiled[place] for place in index.general))
        return cls(level, rules, shelves, general, index.digest, index.counts)

    def candidates(self, subject: Subject) -> tuple[CompiledRule, ...]:
        """
        The rules that may match *subject*: where its first two words are known, those
        with a prefix begin with them.
        """
        shelf = self.shelves.get(subject.name)
        found = shelf.candidates(subject) if shelf else ()
        program = subject.argv[0]
        if program != subject.name and (shelf := self.shelves.get(program)):
            others = shelf.candidates(subject)
            found += tuple(rule for rule in others if not any(rule is other for other in found))
        if self.general.rules:
            is_known = not subject.unknown or subject.knows(1)
            found += self.general[subject.begins if is_known else ""].candidates(subject)
        return found


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
        counts = any(layer.counts for layer in layers)
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
