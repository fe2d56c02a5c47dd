"""
Deciding: a command, a rule set and a context in, a `PolicyEvaluation` out. Pure.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from sandboxkit.model import (
    UNKNOWN,
    Doubt,
    EvaluationContext,
    Level,
    PartDecision,
    PolicyAction,
    PolicyEvaluation,
    RuleMatch,
    Setting,
    Unknown,
    is_inside,
)
from sandboxkit.policy._flows import flow_findings
from sandboxkit.policy._numbers import with_parts
from sandboxkit.policy._paths import located
from sandboxkit.policy._subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sandboxkit.model import Command, Redirect, SandboxSpec, SimpleCommand
    from sandboxkit.policy._floor import FloorRow
    from sandboxkit.policy._layer import Layer, RuleSet
    from sandboxkit.policy._match import CompiledRule
    from sandboxkit.policy._rule import PolicyRule

__all__ = ["Judgement", "Judgements", "decide"]

_NOWHERE = EvaluationContext()
_SOME_FILE = Unknown(Doubt.VALUE)
_UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
_COMPARES = frozenset(("test", "[", "[[", ":"))
_DECIDING = Setting.SUSPECT | Setting.FOREIGN | Setting.REMOTE
_MAX_JUDGEMENTS = 2048
_NOT_FILES = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/full", "/dev/tty"))


class _Hit(NamedTuple):
    """
    A rule that matched, with what it says about this command.
    """

    rule: CompiledRule
    action: PolicyAction


class _Verdict(NamedTuple):
    """
    What the rules say about one act, the floor left out.

    Attributes:
        subject: The act: a command, or what stands for an assignment or a redirection.
        action: The action.
        hits: Every rule that matched.
        winners: The rules of the deciding level and priority, and all of the project's.
        is_direct: Whether the built-in table lets the tool run outside a box.
        otherwise: Why, where no rule decided.
    """

    subject: Subject
    action: PolicyAction
    hits: tuple[_Hit, ...]
    winners: tuple[_Hit, ...]
    is_direct: bool
    otherwise: str

    def matches(self, action: PolicyAction, part: int, span: tuple[int, int] | None) -> list[RuleMatch]:
        """
        The hits as the evaluation reports them, for a part that came out as *action*.
        """
        winners = {id(hit) for hit in self.winners}
        return [
            RuleMatch(
                hit.rule.id,
                hit.rule.level,
                hit.action,
                _reason(hit),
                hit.action is action and id(hit) in winners,
                part,
                span,
                self.subject.argv,
            )
            for hit in self.hits
        ]


class Judgement(NamedTuple):
    """
    What is said about a part wherever it stands.

    Attributes:
        action: The action.
        reason: Why, in one sentence.
        verdicts: What the rules say about what it does.
        rows: The rows of the floor it falls under.
        notes: Which rules nearly matched.
    """

    action: PolicyAction
    reason: str
    verdicts: tuple[_Verdict, ...]
    rows: tuple[FloorRow, ...]
    notes: tuple[str, ...]


Judgements = dict[object, Judgement]
"""
Judgements of one rule set in one context, by everything they depend on.
"""


def decide(
    rules: RuleSet, command: Command, context: EvaluationContext | None, judgements: Judgements | None = None
) -> PolicyEvaluation:
    """
    What *rules* say about *command*.

    Each part is decided by the highest level with a match, within it by the highest
    priority, among equals by the strictest; the project's rules and the floor can
    then only make it stricter. Parts combine by `max`. An opaque command is at least
    `ask`; what can be seen in it can only make that stricter.

    Args:
        rules: The rules.
        command: The command.
        context: Where it would run.
        judgements: Where judgements of parts are remembered, for these rules and this
            context alone; None where they may change.
    """
    if command.unread:
        reason = f"denied: {command.opaque}, so it was not read; put it into a file and run that"
        return PolicyEvaluation(PolicyAction.DENY, reason, command, rules_digest=rules.digest)
    context = context or _NOWHERE
    if rules.counts:
        context, judgements = with_parts(context, command), None
    return _Decision(rules, command, context, judgements).evaluation()


_action = attrgetter("action")


class _Decision:
    """
    One command while it is decided.
    """

    def __init__(
        self, rules: RuleSet, command: Command, context: EvaluationContext, judgements: Judgements | None
    ) -> None:
        self._rules = rules
        self._command = command
        self._context = context
        self._judgements = judgements
        self._verdicts: list[_Verdict] = []
        self._flows: dict[int, list[FloorRow]] = {}
        for row, index in flow_findings(rules.floor, command):
            self._flows.setdefault(index, []).append(row)

    def evaluation(self) -> PolicyEvaluation:
        command = self._command
        parts = tuple([self._part(index, part) for index, part in enumerate(command.parts)])
        strictest = max(parts, key=_action) if parts else None
        action, reason = (strictest.action, strictest.reason) if strictest else (PolicyAction.ALLOW, "")
        if command.opaque is not None and action < PolicyAction.DENY:
            action = PolicyAction.ASK
            reason = f"needs approval: {command.opaque}"
        is_direct = action is PolicyAction.ALLOW and command.argv is not None and len(parts) == 1
        bounding = [hit.rule.rule for verdict in self._verdicts for hit in verdict.winners if hit.rule.bounds]
        return PolicyEvaluation(
            action=action,
            reason=reason or f"{_VERBS[action]}: it starts no program",
            command=command,
            parts=parts,
            matches=parts[0].matches if len(parts) == 1 else tuple([match for part in parts for match in part.matches]),
            is_direct=is_direct and self._verdicts[0].is_direct,
            max_timeout=_max_timeout(bounding) if bounding else None,
            spec=_spec(bounding) if bounding else None,
            rules_digest=self._rules.digest,
        )

    def _part(self, index: int, part: SimpleCommand) -> PartDecision:
        rows = self._flows.get(index, []) if self._flows else []
        judged = self._judged(part, rows)
        self._verdicts += judged.verdicts
        matches = _floor_matches(judged.rows, index, part) if judged.rows else []
        for verdict in judged.verdicts:
            matches += verdict.matches(judged.action, index, part.span)
        return PartDecision(index, judged.action, judged.reason, tuple(matches), judged.notes)

    def _judged(self, part: SimpleCommand, rows: list[FloorRow]) -> Judgement:
        """
        What is said about *part*; remembered where nothing but itself decides.
        """
        if rows or self._command.functions or self._judgements is None:
            return self._judge(part, rows)
        key = (
            part.argv,
            part.unknown,
            part.own,
            part.assignments,
            part.redirects,
            part.cwd,
            int.__and__(part.setting, _DECIDING),
            part.span is None,
        )
        judged = self._judgements.get(key)
        if judged is None:
            if len(self._judgements) >= _MAX_JUDGEMENTS:
                self._judgements.clear()
            judged = self._judgements[key] = self._judge(part, rows)
        return judged

    def _judge(self, part: SimpleCommand, flows: list[FloorRow]) -> Judgement:
        context, moved = self._place(part)
        verdicts = [self._verdict(part, act, context) for act in _acts(part)]
        rows = [*self._floor(part, verdicts, context, moved=moved), *flows]
        action, why = _adjusted(part, verdicts)
        if moved and action is PolicyAction.ALLOW and part.program == "git" and _is_outside(context):
            action = PolicyAction.ASK
            why = "it reads a repository outside of the workspace, whose settings can run programs"
        if rows:
            action, why = PolicyAction.DENY, ""
        elif part.stands(Setting.SUSPECT):
            # It may be no command at all, so only a denial counts.
            verdicts = [verdict for verdict in verdicts if verdict.action is PolicyAction.DENY]
            action = PolicyAction.DENY if verdicts else PolicyAction.ALLOW
        notes = self._notes(verdicts[0].subject) if action is PolicyAction.SANDBOX and part.argv and verdicts else ()
        return Judgement(action, _sentence(action, rows, why, verdicts), tuple(verdicts), tuple(rows), notes)

    def _place(self, part: SimpleCommand) -> tuple[EvaluationContext, bool]:
        """
        Where the part starts, and whether that is another directory than the text's.
        """
        context = self._context
        if part.stands(Setting.REMOTE):
            context = replace(context, cwd=None, workspace_roots=())
        if part.cwd is None:
            return context, False
        path = None if UNKNOWN in part.cwd else located(part.cwd, context)
        return replace(context, cwd=path), path != context.cwd

    def _verdict(self, part: SimpleCommand, act: _Act, context: EvaluationContext) -> _Verdict:
        subject = Subject(act.argv, context, unknown=act.unknown, own=act.own)
        rules = self._rules
        # What the built-in table says about a name is not about one that nobody knows.
        is_hidden = act.is_main and act.is_dynamic and UNKNOWN in part.argv[0]
        builtin = () if is_hidden else _hits(rules.builtin, subject)
        user = _hits(rules.user, subject) if rules.user.rules else ()
        organisation = _hits(rules.organisation, subject) if rules.organisation.rules else ()
        project = _hits(rules.project, subject) if rules.project.rules else ()
        deciding = _deciding(organisation or user or builtin)
        otherwise = ""
        if deciding:
            action = deciding[0].action
        else:
            action, otherwise = act.otherwise(rules.default)
        if act.is_main and builtin and part.argv[0] in self._command.functions:
            action, otherwise = max(action, PolicyAction.ASK), "a function takes the place of the program"
            deciding = ()
        for hit in project:
            action = max(action, hit.action)
        is_direct = False
        for hit in builtin:
            is_direct |= hit.rule.direct and hit.action is PolicyAction.ALLOW
        hits = builtin if not (user or organisation or project) else (*builtin, *user, *organisation, *project)
        return _Verdict(subject, action, hits, (*deciding, *project) if project else deciding, is_direct, otherwise)

    def _floor(
        self, part: SimpleCommand, verdicts: Sequence[_Verdict], context: EvaluationContext, *, moved: bool
    ) -> Iterator[FloorRow]:
        floor = self._rules.floor
        for verdict in verdicts:
            if verdict.subject.argv[0] != "env" or part.program == "env":
                yield from floor.denials(verdict.subject, moved=moved)
        for redirect in part.redirects:
            if redirect.writes:
                yield from floor.writes_to(redirect.target, context)

    def _notes(self, subject: Subject) -> tuple[str, ...]:
        """
        Which built-in rules would have allowed *subject*, but for an argument.
        """
        notes = []
        for rule in self._rules.builtin.candidates(subject):
            if rule.rule.action is PolicyAction.ALLOW:
                argument = rule.objection(subject)
                if argument is not None:
                    notes.append(f"{argument!r} is not among the arguments that {rule.id} takes ({rule.reason})")
        return tuple(notes)


class _Act(NamedTuple):
    """
    What a part does, as words that rules know: the command itself, `env NAME=value` for
    an assignment, `tee FILE` and `cat FILE` for redirections.
    """

    argv: tuple[str, ...]
    unknown: tuple[tuple[int, Unknown], ...] = ()
    own: int | None = None
    is_main: bool = False
    is_harmless: bool = False
    is_dynamic: bool = False

    def otherwise(self, default: PolicyAction) -> tuple[PolicyAction, str]:
        """
        The action, and why, where no rule matches.
        """
        if self.is_harmless:
            return PolicyAction.ALLOW, "it only sets a variable of the shell"
        if self.is_dynamic:
            what = "program it starts" if self.is_main else "file it writes to"
            return max(default, PolicyAction.ASK), f"only the shell will know which {what}"
        return default, "no rule matches it"


def _acts(part: SimpleCommand) -> Iterator[_Act]:
    if part.argv:
        yield _Act(part.argv, part.unknown, part.own, is_main=True, is_dynamic=part.is_dynamic)
    for assignment in part.assignments:
        # A shell variable that no program sees is harmless unless a rule knows its name.
        is_harmless = not assignment.is_exported
        yield _Act(("env", f"{assignment.name}={assignment.value}"), is_harmless=is_harmless)
    for redirect in part.redirects:
        act = _redirected(redirect)
        if act is not None:
            yield act


def _redirected(redirect: Redirect) -> _Act | None:
    if redirect.is_text or redirect.target in _NOT_FILES:
        return None
    unknown = () if redirect.is_known else ((1, _SOME_FILE),)
    if redirect.writes:
        return _Act(("tee", redirect.target), unknown, is_dynamic=not redirect.is_known)
    return _Act(("cat", redirect.target), unknown)


def _adjusted(part: SimpleCommand, verdicts: Sequence[_Verdict]) -> tuple[PolicyAction, str]:
    """
    The strictest of *verdicts*, as the part's surroundings make it stricter, and why.
    """
    action = PolicyAction.ALLOW
    for verdict in verdicts:
        if verdict.action > action:
            action = verdict.action
    if part.unknown and action < PolicyAction.ASK:
        if part.is_dynamic:
            return PolicyAction.ASK, "only the shell will know which program it starts"
        if part.program not in _COMPARES and any(doubt.is_secret for _, doubt in part.unknown):
            return PolicyAction.ASK, "it is handed a variable that holds a secret"
    if part.span is None and action < PolicyAction.ASK and any(_UNSEEN.search(word) for word in part.argv):
        return PolicyAction.ASK, "it has an invisible character"
    if part.stands(Setting.FOREIGN) and action < PolicyAction.SANDBOX:
        return PolicyAction.SANDBOX, "another shell than bash reads it, perhaps differently"
    return action, ""


def _is_outside(context: EvaluationContext) -> bool:
    roots = context.workspace_roots
    return bool(roots and context.cwd) and not any(is_inside(str(context.cwd), str(root)) for root in roots)


def _hits(layer: Layer, subject: Subject) -> tuple[_Hit, ...]:
    hits = []
    for rule in layer.candidates(subject):
        action = rule.action_on(subject)
        if action is not None:
            hits.append(_Hit(rule, action))
    return tuple(hits)


def _deciding(hits: Sequence[_Hit]) -> tuple[_Hit, ...]:
    """
    The hits of the highest priority that say the strictest.
    """
    if len(hits) < 2:
        return tuple(hits)
    rank = max(hit.rule.rank for hit in hits)
    action = max(hit.action for hit in hits if hit.rule.rank == rank)
    return tuple(hit for hit in hits if hit.rule.rank == rank and hit.action is action)


def _max_timeout(rules: Iterable[PolicyRule]) -> float | None:
    bounds = (rule.constraints.max_timeout for rule in rules)
    return min((bound for bound in bounds if bound is not None), default=None)


def _spec(rules: Iterable[PolicyRule]) -> SandboxSpec | None:
    named = [rule.spec for rule in rules if rule.spec is not None]
    return reduce(lambda one, other: one.tighten(other), named) if named else None


def _floor_matches(rows: Iterable[FloorRow], index: int, part: SimpleCommand) -> list[RuleMatch]:
    return [
        RuleMatch(
            rule_id=row.id,
            level=Level.FLOOR,
            action=PolicyAction.DENY,
            reason=row.reason,
            decided=True,
            part=index,
            span=part.span,
            words=part.argv,
        )
        for row in {row.id: row for row in rows}.values()
    ]


def _reason(hit: _Hit) -> str:
    if hit.action is hit.rule.rule.action:
        return hit.rule.reason
    return f"it bears the name of a listed tool, but is not the one in the trusted directories ({hit.rule.id} allows that one)"


_VERBS = {
    PolicyAction.ALLOW: "allowed",
    PolicyAction.SANDBOX: "runs in a sandbox",
    PolicyAction.ASK: "needs approval",
    PolicyAction.DENY: "denied",
}


def _sentence(action: PolicyAction, rows: Sequence[FloorRow], why: str, verdicts: Iterable[_Verdict]) -> str:
    if rows:
        return f"{_VERBS[action]}: {rows[0].reason} ({Level.FLOOR} rule {rows[0].id})"
    for verdict in verdicts:
        for hit in verdict.winners if verdict.action is action else ():
            if hit.action is action:
                return f"{_VERBS[action]}: {_reason(hit) or 'a rule says so'} ({hit.rule.level} rule {hit.rule.id})"
    if not why:
        reasons = [verdict.otherwise for verdict in verdicts if verdict.action is action and verdict.otherwise]
        why = reasons[0] if reasons else "it starts nothing that needs a rule"
    return f"{_VERBS[action]}: {why}"
