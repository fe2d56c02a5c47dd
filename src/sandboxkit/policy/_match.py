"""
A rule made ready, and the question whether it applies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.model import Doubt, Level, PolicyAction, is_inside
from sandboxkit.policy._arguments import ArgumentSet
from sandboxkit.policy._facts import Facts
from sandboxkit.policy._glob import Later, any_glob
from sandboxkit.policy._numbers import exceeds
from sandboxkit.policy._paths import located, normal, path_candidates
from sandboxkit.policy._regex import linear_regex
from sandboxkit.policy._rule import PolicyRule
from sandboxkit.policy._subject import Place

if TYPE_CHECKING:
    from sandboxkit.model import EvaluationContext, Unknown
    from sandboxkit.policy._rule import RuleConstraints
    from sandboxkit.policy._subject import Subject

__all__ = ["CompiledRule", "Constraints"]


# Looked up on its class, a member takes ten times as long.
_ALLOW, _ASK = PolicyAction.ALLOW, PolicyAction.ASK
_ELSEWHERE = Place.ELSEWHERE
_BUILTIN = Level.BUILTIN
_MAX_NAMED = 12
_NOTHING = Facts(None, (), is_usual=True, begins=None, needs=None)


@dataclass(frozen=True, slots=True)
class Constraints:
    """
    The constraints of a rule, ready to be asked.
    """

    allowed: ArgumentSet | None
    denied: ArgumentSet | None
    max_operands: int | None
    allowed_directories: tuple[str, ...]
    denied_directories: tuple[str, ...]
    more_than: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, given: RuleConstraints) -> Constraints | None:
        """
        *given* compiled, or None where it never keeps a rule from applying.
        """
        compiled = cls(
            allowed=None
            if given.allowed_arguments is None
            else ArgumentSet.of(given.allowed_arguments, takes_unknown=given.unknown_arguments),
            denied=ArgumentSet.of(given.denied_arguments) if given.denied_arguments else None,
            max_operands=given.max_operands,
            allowed_directories=given.allowed_directories,
            denied_directories=given.denied_directories,
            more_than=tuple(given.more_than.items()),
        )
        return None if compiled == cls(None, None, None, (), ()) else compiled

    def hold(
        self,
        arguments: tuple[str, ...],
        context: EvaluationContext,
        *,
        is_strict: bool,
        unknown: tuple[tuple[int, Unknown], ...] = (),
    ) -> bool:
        """
        Whether the rule applies to *arguments*. What cannot be known is answered
        with *is_strict*: a strict rule then applies, a loose one does not.
        """
        if self.allowed is not None and not self.allowed.admits(
            arguments, self.max_operands, unknown, in_doubt=is_strict
        ):
            return False
        if self.denied is not None and self.denied.touches(arguments, unknown, in_doubt=not is_strict):
            return False
        for name, bound in self.more_than:
            exceeded = exceeds(name, bound, arguments, context)
            if not (is_strict if exceeded is None else exceeded):
                return False
        if not self.allowed_directories and not self.denied_directories:
            return True
        return self._directories_hold(arguments, context, is_strict=is_strict)

    def _directories_hold(self, arguments: tuple[str, ...], context: EvaluationContext, *, is_strict: bool) -> bool:
        allowed = [located(root, context) for root in self.allowed_directories]
        denied = [located(root, context) for root in self.denied_directories]
        named = [located(candidate, context) for candidate in path_candidates(arguments)]
        cwd = normal(context.cwd) if context.cwd else None
        everything = [cwd, *named]
        if None in allowed or None in denied or None in everything:
            return is_strict
        if allowed and not all(any(is_inside(str(path), str(root)) for root in allowed) for path in everything):
            return False
        if any(is_inside(str(path), str(root)) for path in everything for root in denied):
            return False
        return not any(is_inside(str(root), str(path)) for path in named for root in denied)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """
    A rule, its level and its matcher in the form that answers fastest.

    Attributes:
        rule, level: The rule, and who wrote it.
        rank: The priority that counts.
        prefix: The words it takes at the beginning.
        pattern: The glob or regex.
        constraints: Where it applies beyond that.
        action: What it says.
        is_strict: Whether it asks or denies, so that doubt must not keep it from applying.
        bounds: Whether it says something about the box or the time.
        programs: The only programs it can match, or None where that is not plain to see.
        seconds: The only second words it can match, or none where that is not plain to see.
        is_usual: Whether the second word may be one of ASCII letters and digits.
        begins: The ASCII characters that a text the regex takes can begin with, or None.
        needs: Found in the `line` of every subject of known words that matches, or None.
        id, reason, direct: As the rule has them.
        source: Which rule it is, for people.
    """

    rule: PolicyRule
    level: Level
    rank: int
    prefix: tuple[frozenset[str], ...]
    pattern: Later | None
    constraints: Constraints | None
    action: PolicyAction
    is_strict: bool
    bounds: bool
    programs: frozenset[str] | None
    seconds: frozenset[str]
    is_usual: bool
    begins: frozenset[str] | None
    needs: Later | None
    id: str
    reason: str
    direct: bool
    source: str

    @classmethod
    def of(cls, rule: PolicyRule, level: Level, facts: Facts | None = None) -> CompiledRule:
        """
        *rule* at *level*, ready.

        Args:
            rule, level: The rule, and who wrote it.
            facts: Those of its pattern, where they are known.
        """
        pattern = (
            Later(rule.regex, linear_regex)
            if rule.regex is not None
            else any_glob((rule.glob,))
            if rule.glob is not None
            else None
        )
        prefix = tuple(frozenset((words,) if isinstance(words, str) else words) for words in rule.prefix or ())
        if prefix and rule.action >= _ASK:
            prefix = (prefix[0] | {word.lower() for word in prefix[0]}, *prefix[1:])
        is_strict = rule.action >= _ASK
        if facts is None:
            facts = Facts.of(rule) if pattern is not None else _NOTHING
        return cls(
            rule,
            level,
            rule.rank,
            prefix,
            pattern,
            Constraints.of(rule.constraints),
            rule.action,
            is_strict,
            bounds=rule.spec is not None or rule.constraints.max_timeout is not None,
            programs=prefix[0] if prefix else None if facts.programs is None else frozenset(facts.programs),
            seconds=prefix[1] if len(prefix) > 1 else frozenset(facts.seconds),
            is_usual=facts.is_usual,
            begins=None if facts.begins is None else frozenset(facts.begins),
            needs=None if facts.needs is None else Later(facts.needs),
            id=rule.id,
            reason=rule.reason or rule.name,
            direct=rule.direct,
            source=f"{level} rule {rule.id}",
        )

    def action_on(self, subject: Subject, begins: int = 0) -> PolicyAction | None:
        """
        What the rule says about *subject*, or None where it says nothing.

        A built-in rule that allows a tool asks about another program of that name.

        Args:
            subject: The command.
            begins: How many of its words are known to be the prefix's.
        """
        if self.pattern is not None:
            if not self._fits(subject, self.pattern):
                return None
        elif begins < len(self.prefix) and not self._has_prefix(subject):
            return None
        if subject.place is _ELSEWHERE and self._is_impostor(subject):
            return _ASK if self.level is _BUILTIN and self.action is _ALLOW else None
        constraints = self.constraints
        if constraints is not None and not self._holds(subject, constraints):
            return None
        if subject.unknown and self.prefix and not subject.knows(len(self.prefix)):
            # It only may be the command the rule denies.
            return min(self.action, _ASK)
        return self.action

    def objection(self, subject: Subject) -> str | None:
        """
        The argument at which the rule's constraints keep it from applying to *subject*,
        or None where they do not, or something else does.
        """
        constraints = self.constraints
        if constraints is None or self._is_impostor(subject) or self._holds(subject, constraints):
            return None
        if not (self._has_prefix(subject) if self.pattern is None else self._fits(subject, self.pattern)):
            return None
        start = len(self.prefix) or 1
        for end in range(start + 1, min(subject.own, start + _MAX_NAMED) + 1):
            arguments = subject.argv[start:end]
            if not constraints.hold(arguments, subject.context, is_strict=self.is_strict):
                return arguments[-1]
        return " ".join(subject.argv[start : subject.own]) or subject.name

    def _holds(self, subject: Subject, constraints: Constraints) -> bool:
        start = len(self.prefix) or 1
        arguments = subject.argv[start : subject.own]
        unknown: tuple[tuple[int, Unknown], ...] = ()
        if subject.unknown:
            unknown = tuple((index - start, doubt) for index, doubt in subject.unknown if start <= index < subject.own)
        return constraints.hold(arguments, subject.context, is_strict=self.is_strict, unknown=unknown)

    def _fits(self, subject: Subject, pattern: Later) -> bool:
        if self.needs is not None and not subject.unknown and not self.needs.search(subject.line):
            return False
        texts = subject.texts if self.is_strict else subject.certain_texts
        if not self.is_strict and subject.place is _ELSEWHERE:
            texts = texts[:1]
        for text in texts:  # noqa: SIM110 - a generator takes twice the time
            if pattern.fullmatch(text):
                return True
        return False

    def _has_prefix(self, subject: Subject) -> bool:
        argv, prefix = subject.argv, self.prefix
        if subject.name not in prefix[0] and argv[0] not in prefix[0]:
            return False
        length = len(prefix)
        if subject.unknown and not subject.knows(length):
            return self.is_strict and self._may_have_prefix(subject)
        if length == 1:
            return True
        if len(argv) < length:
            return False
        return all(argv[place] in prefix[place] for place in range(1, length))

    def _may_have_prefix(self, subject: Subject) -> bool:
        """
        Whether the words that are not known may make up the prefix.
        """
        doubts = dict(subject.unknown)
        for place, words in enumerate(self.prefix):
            if place not in doubts:
                if place >= len(subject.argv) or (place and subject.argv[place] not in words):
                    return False
            elif doubts[place].doubt is Doubt.WORDS:
                return True  # what follows may be anything
        return True

    def _is_impostor(self, subject: Subject) -> bool:
        return (
            subject.place is _ELSEWHERE
            and not self.is_strict
            and self.pattern is None
            and subject.argv[0] not in self.prefix[0]
        )
