"""
Deciding: a command, a rule set and a context in, a `PolicyEvaluation` out. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from sandboxkit.model import EvaluationContext, Level, PolicyAction, PolicyEvaluation, RuleMatch
from sandboxkit.policy._scan import MAX_COMMANDS, Finding, findings_in_argv, findings_in_text
from sandboxkit.policy._subject import Subject
from sandboxkit.shell import Fragment, fragments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sandboxkit.model import Command, SandboxSpec
    from sandboxkit.policy._layer import Layer, RuleSet
    from sandboxkit.policy._match import CompiledRule

__all__ = ["decide"]

_NOWHERE = EvaluationContext()


@dataclass(frozen=True, slots=True)
class _Hit:
    """
    A rule that matched, with what it says about this command.
    """

    rule: CompiledRule
    action: PolicyAction


@dataclass(frozen=True, slots=True)
class _Verdict:
    """
    What the rules say about one part, the floor left out.

    Attributes:
        action: The action.
        hits: Every rule that matched.
        winners: The rules of the deciding level and priority, and all of the project's.
        is_direct: Whether the built-in table lets the tool run outside a box.
    """

    action: PolicyAction
    hits: tuple[_Hit, ...]
    winners: tuple[_Hit, ...]
    is_direct: bool

    def matches(self, action: PolicyAction, part: int | None, span: tuple[int, int] | None) -> list[RuleMatch]:
        """
        The hits as the evaluation reports them, for a part that came out as *action*.
        """
        return [
            RuleMatch(
                rule_id=hit.rule.rule.id,
                level=hit.rule.level,
                action=hit.action,
                reason=_reason(hit),
                decided=hit.action is action and any(hit is winner for winner in self.winners),
                part=part,
                span=span,
            )
            for hit in self.hits
        ]


def decide(rules: RuleSet, command: Command, context: EvaluationContext | None) -> PolicyEvaluation:
    """
    What *rules* say about *command*.

    Each part is decided by the highest level with a match, within it by the highest
    priority, among equals by the strictest; the project's rules and the floor can
    then only make it stricter. Parts combine by `max`. An opaque command is at least
    `sandbox`; the commands that can be seen in it may make it stricter.
    """
    context = context or _NOWHERE
    if command.unread:
        reason = f"{command.opaque}, so it was not read and is denied; put it into a file and run that"
        return PolicyEvaluation(PolicyAction.DENY, reason, command, rules_digest=rules.digest)
    if not command.is_plain:
        return _opaque(rules, command, context)
    return _plain(rules, command, context)


def _plain(rules: RuleSet, command: Command, context: EvaluationContext) -> PolicyEvaluation:
    action = PolicyAction.ALLOW
    matches: list[RuleMatch] = []
    verdicts: list[_Verdict] = []
    for index, part in enumerate(command.parts[:1]):
        subject = Subject.of(part.argv, context)
        verdict = _verdict(rules, subject)
        findings = findings_in_argv(rules.floor, subject)
        decided = PolicyAction.DENY if findings else verdict.action
        matches += _floor_matches(findings, index, part.span)
        matches += verdict.matches(decided, index, part.span)
        verdicts.append(verdict)
        action = max(action, decided)
    return PolicyEvaluation(
        action=action,
        reason=_sentence(action, matches, "no rule matches it"),
        command=command,
        matches=tuple(matches),
        is_direct=action is PolicyAction.ALLOW and command.is_plain and verdicts[0].is_direct,
        max_timeout=_max_timeout(verdicts),
        spec=_spec(verdicts),
        rules_digest=rules.digest,
    )


def _opaque(rules: RuleSet, command: Command, context: EvaluationContext) -> PolicyEvaluation:
    text = command.source or ""
    whole = _verdict(rules, Subject.of(("bash", "-c", text), context))
    action = max(PolicyAction.SANDBOX, whole.action)
    seen: list[tuple[Fragment, _Verdict]] = []
    for fragment in fragments(text)[:MAX_COMMANDS]:
        for argv in _as_argvs(fragment):
            verdict = _verdict(rules, Subject.of(argv, context))
            # What is seen here may be no command at all, so it can only add strictness.
            if verdict.action > PolicyAction.SANDBOX:
                seen.append((fragment, verdict))
                action = max(action, verdict.action)
    findings = findings_in_text(rules.floor, text, context)
    action = PolicyAction.DENY if findings else action
    matches = _floor_matches(findings, None, None)
    matches += whole.matches(action, None, (0, len(text)))
    for fragment, verdict in seen:
        matches += verdict.matches(action, None, fragment.span)
    verdicts = [whole, *(verdict for _, verdict in seen)]
    boxed = f"{command.opaque or 'it is for bash'}, so it can only run boxed through bash"
    return PolicyEvaluation(
        action=action,
        reason=_sentence(action, matches if action > PolicyAction.SANDBOX else (), boxed),
        command=command,
        matches=tuple(matches),
        max_timeout=_max_timeout(verdicts),
        spec=_spec(verdicts),
        rules_digest=rules.digest,
    )


def _as_argvs(fragment: Fragment) -> Iterator[tuple[str, ...]]:
    """
    The commands that do what *fragment* does: assignments in front of a command are
    the work of env, and redirections that of tee.
    """
    if fragment.assignments:
        yield ("env", *fragment.assignments, *fragment.words)
    if fragment.words:
        yield fragment.words
    if fragment.writes:
        yield ("tee", *fragment.writes)


def _verdict(rules: RuleSet, subject: Subject) -> _Verdict:
    builtin = _hits(rules.builtin, subject)
    user = _hits(rules.user, subject)
    organisation = _hits(rules.organisation, subject)
    project = _hits(rules.project, subject)
    deciding = _deciding(organisation or user or builtin)
    action = max((hit.action for hit in deciding), default=rules.default)
    action = max((action, *(hit.action for hit in project)))
    is_direct = any(hit.rule.rule.direct and hit.action is PolicyAction.ALLOW for hit in builtin)
    return _Verdict(action, (*builtin, *user, *organisation, *project), (*deciding, *project), is_direct)


def _hits(layer: Layer, subject: Subject) -> tuple[_Hit, ...]:
    return tuple(
        _Hit(rule, action) for rule in layer.candidates(subject) if (action := rule.action_on(subject)) is not None
    )


def _deciding(hits: Sequence[_Hit]) -> tuple[_Hit, ...]:
    """
    The hits of the highest priority that say the strictest.
    """
    if len(hits) < 2:
        return tuple(hits)
    rank = max(hit.rule.rank for hit in hits)
    action = max(hit.action for hit in hits if hit.rule.rank == rank)
    return tuple(hit for hit in hits if hit.rule.rank == rank and hit.action is action)


def _max_timeout(verdicts: Iterable[_Verdict]) -> float | None:
    bounds = (hit.rule.rule.constraints.max_timeout for verdict in verdicts for hit in verdict.winners)
    return min((bound for bound in bounds if bound is not None), default=None)


def _spec(verdicts: Iterable[_Verdict]) -> SandboxSpec | None:
    specs = [hit.rule.rule.spec for verdict in verdicts for hit in verdict.winners]
    named = [spec for spec in specs if spec is not None]
    return reduce(lambda one, other: one.tighten(other), named) if named else None


def _floor_matches(findings: Iterable[Finding], part: int | None, span: tuple[int, int] | None) -> list[RuleMatch]:
    return [
        RuleMatch(
            rule_id=finding.row.id,
            level=Level.FLOOR,
            action=PolicyAction.DENY,
            reason=finding.row.reason,
            decided=True,
            part=part,
            span=span or finding.span,
        )
        for finding in findings
    ]


def _reason(hit: _Hit) -> str:
    rule = hit.rule.rule
    if hit.action is not rule.action:
        return f"it bears the name of a listed tool, but is not the one in the trusted directories ({rule.id} allows that one)"
    return rule.reason or rule.name


_VERBS = {
    PolicyAction.ALLOW: "allowed",
    PolicyAction.SANDBOX: "runs in a sandbox",
    PolicyAction.ASK: "needs approval",
    PolicyAction.DENY: "denied",
}


def _sentence(action: PolicyAction, matches: Iterable[RuleMatch], otherwise: str) -> str:
    decided = next((match for match in matches if match.decided and match.action is action), None)
    if decided is None:
        return f"{_VERBS[action]}: {otherwise}"
    return f"{_VERBS[action]}: {decided.reason or 'a rule says so'} ({decided.level} rule {decided.rule_id})"
