"""
The rules of one level, and a whole rule set: immutable, indexed by program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.model import Level, PolicyAction
from sandboxkit.policy._digest import digest_of
from sandboxkit.policy._match import CompiledRule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandboxkit.policy._floor import Floor
    from sandboxkit.policy._rule import PolicyRule
    from sandboxkit.policy._subject import Subject

__all__ = ["Layer", "RuleSet"]


@dataclass(frozen=True, slots=True)
class Layer:
    """
    The rules of one level.

    Attributes:
        level: Who wrote them.
        rules: All of them, also the disabled.
        by_program: The enabled rules under each program they can match.
        general: The enabled globs and regexes that may match any program.
        digest: Names the content (sha256, hex).
    """

    level: Level
    rules: tuple[PolicyRule, ...]
    by_program: Mapping[str, tuple[CompiledRule, ...]]
    general: tuple[CompiledRule, ...]
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
        frozen = {program: tuple(found) for program, found in index.items()}
        return cls(level, tuple(rules), frozen, tuple(general), digest_of([rule.to_dict() for rule in rules]))

    def candidates(self, subject: Subject) -> tuple[CompiledRule, ...]:
        """
        The rules that may match *subject*.
        """
        found = self.by_program.get(subject.name, ())
        written = subject.argv[0]
        if written != subject.name:
            more = self.by_program.get(written, ())
            found += tuple(rule for rule in more if not any(rule is other for other in found)) if found else more
        return found + self.general


@dataclass(frozen=True, slots=True)
class RuleSet:
    """
    Everything a decision depends on besides the command. Replaced, never changed.

    Attributes:
        floor: The denials nothing can lift.
        builtin, user, organisation, project: The levels.
        default: What is done with a command no rule matches.
        digest: Names the whole set (sha256, hex).
    """

    floor: Floor
    builtin: Layer
    user: Layer
    organisation: Layer
    project: Layer
    default: PolicyAction
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
        return cls(floor, builtin, user, organisation, project, default, digest)

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
