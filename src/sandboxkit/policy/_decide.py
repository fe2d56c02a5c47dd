"""
Deciding: a command, a rule set and a context in, a `PolicyEvaluation` out. Pure.
"""

from __future__ import annotations

import posixpath
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import reduce
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
    from collections.abc import Iterable

    from sandboxkit.model import Command, SandboxSpec, SimpleCommand
    from sandboxkit.policy._floor import FloorRow
    from sandboxkit.policy._layer import Layer, RuleSet
    from sandboxkit.policy._match import CompiledRule
    from sandboxkit.policy._rule import PolicyRule

__all__ = ["Judgement", "Judgements", "decide"]

# Looked up on its class, a member takes ten times as long.
_ALLOW, _SANDBOX, _ASK, _DENY = PolicyAction
_REMOTE, _SUSPECT, _FOREIGN = Setting.REMOTE, Setting.SUSPECT, Setting.FOREIGN
_FLOOR = Level.FLOOR
_NOWHERE = EvaluationContext()
_SOME_FILE = Unknown(Doubt.VALUE)
_UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
_COMPARES = frozenset(("test", "[", "[[", ":"))
_DECIDING = _SUSPECT | _FOREIGN | _REMOTE
_MAX_JUDGEMENTS = 2048
_NOT_FILES = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/full", "/dev/tty"))


_Hit = tuple["CompiledRule", PolicyAction, str]
"""
A rule that matched, with what it says about this command, and why.
"""


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
        nearly: The built-in rules that would have allowed it, but for an argument.
    """

    subject: Subject
    action: PolicyAction
    hits: Sequence[_Hit]
    winners: Sequence[_Hit]
    is_direct: bool
    otherwise: str
    nearly: Sequence[CompiledRule]

    def matches(self, action: PolicyAction, part: int, span: tuple[int, int] | None) -> list[RuleMatch]:
        """
        The hits as the evaluation reports them, for a part that came out as *action*.
        """
        words, winners = self.subject.argv, self.winners
        found = []
        for hit in self.hits:
            rule, said, reason = hit
            decided = said is action and hit in winners
            found.append(RuleMatch(rule.id, rule.level, said, reason, decided, part, span, words))
        return found

    def notes(self) -> tuple[str, ...]:
        """
        Which argument it was that kept each rule from allowing it.
        """
        objections = ((rule, rule.objection(self.subject)) for rule in self.nearly)
        return tuple(
            f"{argument!r} is not among the arguments that {rule.id} takes ({rule.reason})"
            for rule, argument in objections
            if argument is not None
        )


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


Judgements = OrderedDict[object, Judgement]
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
        return PolicyEvaluation(_DENY, reason, command, rules_digest=rules.digest)
    context = context or _NOWHERE
    if rules.counts:
        context, judgements = with_parts(context, command), None
    return _Decision(rules, command, context, judgements).evaluation()


class _Decision:
    """
    One command while it is decided.
    """

    __slots__ = ("_bounding", "_command", "_context", "_flows", "_is_direct", "_judgements", "_rules")

    def __init__(
        self, rules: RuleSet, command: Command, context: EvaluationContext, judgements: Judgements | None
    ) -> None:
        self._rules = rules
        self._command = command
        self._context = context
        # A part on its own is remembered with its text.
        self._judgements = judgements if len(command.parts) > 1 and not command.functions else None
        self._bounding: list[PolicyRule] = []
        self._is_direct = False
        self._flows: dict[int, list[FloorRow]] = {}
        if len(command.parts) > 1:
            for row, index in flow_findings(rules.floor, command):
                self._flows.setdefault(index, []).append(row)

    def evaluation(self) -> PolicyEvaluation:
        command = self._command
        parts = tuple([self._part(index, part) for index, part in enumerate(command.parts)])
        action, reason = _ALLOW, ""
        for part in parts:
            if part.action > action or not reason:
                action, reason = part.action, part.reason
        if command.opaque is not None and action < _DENY:
            action = _ASK
            reason = f"needs approval: {command.opaque}"
        bounding = self._bounding
        return PolicyEvaluation(
            action,
            reason or f"{_VERBS[action]}: it starts no program",
            command,
            parts,
            parts[0].matches if len(parts) == 1 else tuple([match for part in parts for match in part.matches]),
            self._is_direct and action is _ALLOW and command.argv is not None and len(parts) == 1,
            _max_timeout(bounding) if bounding else None,
            _spec(bounding) if bounding else None,
            self._rules.digest,
        )

    def _part(self, index: int, part: SimpleCommand) -> PartDecision:
        flows = self._flows.get(index, ()) if self._flows else ()
        judged = self._judge(part, flows) if flows or self._judgements is None else self._judged(part, self._judgements)
        action = judged.action
        matches = _floor_matches(judged.rows, index, part) if judged.rows else []
        for verdict in judged.verdicts:
            if verdict.hits:
                matches += verdict.matches(action, index, part.span)
                for rule, _, _ in verdict.winners:
                    if rule.bounds:
                        self._bounding.append(rule.rule)
        if not index:
            self._is_direct = bool(judged.verdicts) and judged.verdicts[0].is_direct
        return PartDecision(index, action, judged.reason, tuple(matches), judged.notes)

    def _judged(self, part: SimpleCommand, judgements: Judgements) -> Judgement:
        """
        What is said about *part*, where nothing but itself decides.
        """
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
        judged = judgements.get(key)
        if judged is None:
            if len(judgements) >= _MAX_JUDGEMENTS:
                judgements.popitem(last=False)
            judged = judgements[key] = self._judge(part, ())
        return judged

    def _judge(self, part: SimpleCommand, flows: Sequence[FloorRow]) -> Judgement:
        context, moved, setting = self._context, False, part.setting
        if part.cwd is not None or (setting != 0 and part.stands(_REMOTE)):
            context, moved = self._place(part)
        verdicts = [self._verdict(part, act, subject) for act, subject in _acts(part, context)]
        rows = self._floor(part, verdicts, context, moved=moved)
        rows = [*rows, *flows] if flows else rows
        if rows:
            action = _DENY
            return Judgement(action, _sentence_of(rows[0]), tuple(verdicts), tuple(rows), ())
        action, why = _adjusted(part, verdicts)
        if part.cwd is not None and action is _ALLOW and part.program == "git" and self._is_outside(part, context):
            action = _ASK
            why = "it reads a repository outside of the workspace, whose settings can run programs"
        if setting != 0 and part.stands(_SUSPECT):
            # It may be no command at all, so only a denial counts.
            verdicts = [verdict for verdict in verdicts if verdict.action is _DENY]
            action = _DENY if verdicts else _ALLOW
        is_short = action is _SANDBOX and part.argv and verdicts and verdicts[0].nearly
        notes = verdicts[0].notes() if is_short else ()
        return Judgement(action, _sentence(action, why, verdicts), tuple(verdicts), (), notes)

    def _place(self, part: SimpleCommand) -> tuple[EvaluationContext, bool]:
        """
        Where the part starts, and whether that is another directory than the text's.
        """
        context = self._context
        if part.stands(_REMOTE):
            context = replace(context, cwd=None, workspace_roots=())
        if part.cwd is None:
            return context, False
        path = None if UNKNOWN in part.cwd else located(part.cwd, context)
        return (context, False) if path == context.cwd else (replace(context, cwd=path), True)

    def _is_outside(self, part: SimpleCommand, context: EvaluationContext) -> bool:
        """
        Whether the directory that *part* changed to may be none of the workspace's: the
        roots, or where the text begins. *context* is where the part starts.
        """
        own, to = self._context, context.cwd
        if to is None:
            # Nobody knows where it leads to; below where the text begins is inside.
            written = part.cwd or ""
            return UNKNOWN in written or written[:1] in ("~", "-") or posixpath.normpath(written)[:2] == ".."
        roots = own.workspace_roots or ((own.cwd,) if own.cwd else ())
        return to != own.cwd and not any(is_inside(to, str(root)) for root in roots)

    def _verdict(self, part: SimpleCommand, act: _Act, subject: Subject) -> _Verdict:
        rules, functions = self._rules, self._command.functions
        nearly: list[CompiledRule] = []
        # What the built-in table says about a name is not about one that nobody knows.
        is_hidden = act is _UNKNOWN_COMMAND and UNKNOWN in part.argv[0]
        hits = deciding = () if is_hidden else _hits(rules.builtin, subject, nearly)
        is_known, is_direct = bool(hits), False
        for rule, said, _ in hits:
            is_direct |= rule.direct and said is _ALLOW
        project: Sequence[_Hit] = ()
        if rules.is_extended:
            user, organisation = _hits(rules.user, subject), _hits(rules.organisation, subject)
            project = _hits(rules.project, subject)
            deciding = organisation or user or hits
            hits = (*hits, *user, *organisation, *project)
        deciding = _deciding(deciding) if len(deciding) > 1 else deciding
        action, otherwise = (deciding[0][1], "") if deciding else _otherwise(act, rules.default)
        if functions and is_known and subject.argv is part.argv and part.argv[0] in functions:
            action, otherwise = max(action, _ASK), "a function takes the place of the program"
            deciding = ()
        for _, said, _ in project:
            action = max(action, said)
        return _Verdict(
            subject, action, hits, (*deciding, *project) if project else deciding, is_direct, otherwise, nearly
        )

    def _floor(
        self, part: SimpleCommand, verdicts: Sequence[_Verdict], context: EvaluationContext, *, moved: bool
    ) -> list[FloorRow]:
        floor = self._rules.floor
        rows: list[FloorRow] = []
        for verdict in verdicts:
            if verdict.subject.argv[0] != "env" or part.argv[:1] == ("env",):
                rows += floor.denials(verdict.subject, moved=moved)
        for redirect in part.redirects:
            if redirect.writes:
                rows += floor.writes_to(redirect.target, context)
            elif part.argv and redirect.is_text:
                rows += floor.executes(verdicts[0].subject, redirect.target)
            elif part.argv and redirect.operator.endswith("<"):
                rows += floor.reads_from(verdicts[0].subject, redirect.target)
        return rows


class _Act(Enum):
    """
    What is asked of the rules about a part: the command itself, `env NAME=value` for an
    assignment, `tee FILE` and `cat FILE` for redirections.
    """

    COMMAND = auto()
    UNKNOWN_COMMAND = auto()
    VARIABLE = auto()
    SHELL_VARIABLE = auto()
    FILE = auto()
    UNKNOWN_FILE = auto()


_COMMAND, _UNKNOWN_COMMAND, _VARIABLE, _SHELL_VARIABLE, _FILE, _UNKNOWN_FILE = _Act


def _acts(part: SimpleCommand, context: EvaluationContext) -> list[tuple[_Act, Subject]]:
    """
    What *part* does, each as the words that rules know.
    """
    acts: list[tuple[_Act, Subject]] = []
    if part.argv:
        act = _UNKNOWN_COMMAND if part.unknown and part.is_dynamic else _COMMAND
        acts.append((act, Subject(part.argv, context, part.unknown, part.own)))
    for assignment in part.assignments:
        act = _VARIABLE if assignment.is_exported else _SHELL_VARIABLE
        acts.append((act, Subject(("env", f"{assignment.name}={assignment.value}"), context)))
    for redirect in part.redirects:
        if not redirect.is_text and redirect.target not in _NOT_FILES:
            unknown = () if redirect.is_known else ((1, _SOME_FILE),)
            act = _UNKNOWN_FILE if unknown and redirect.writes else _FILE
            acts.append((act, Subject(("tee" if redirect.writes else "cat", redirect.target), context, unknown)))
    return acts


def _otherwise(act: _Act, default: PolicyAction) -> tuple[PolicyAction, str]:
    """
    The action, and why, where no rule matches.
    """
    if act is _SHELL_VARIABLE:
        # No program sees it; a rule that knows its name has been asked.
        return _ALLOW, "it only sets a variable of the shell"
    if act is _UNKNOWN_COMMAND:
        return max(default, _ASK), "only the shell will know which program it starts"
    if act is _UNKNOWN_FILE:
        return max(default, _ASK), "only the shell will know which file it writes to"
    return default, "no rule matches it"


def _adjusted(part: SimpleCommand, verdicts: Sequence[_Verdict]) -> tuple[PolicyAction, str]:
    """
    The strictest of *verdicts*, as the part's surroundings make it stricter, and why.
    """
    action = _ALLOW
    for verdict in verdicts:
        if verdict.action > action:
            action = verdict.action
    if part.unknown and action < _ASK:
        if part.is_dynamic:
            return _ASK, "only the shell will know which program it starts"
        if part.program not in _COMPARES and any(doubt.is_secret for _, doubt in part.unknown):
            return _ASK, "it is handed a variable that holds a secret"
    if part.span is None and action < _ASK and any(_UNSEEN.search(word) for word in part.argv):
        return _ASK, "it has an invisible character"
    if action < _SANDBOX and part.setting != 0 and part.stands(_FOREIGN):
        return _SANDBOX, "another shell than bash reads it, perhaps differently"
    return action, ""


def _hits(layer: Layer, subject: Subject, nearly: list[CompiledRule] | None = None) -> Sequence[_Hit]:
    """
    The rules of *layer* that say something about *subject*; *nearly* gets those that
    would have allowed it, but for their constraints.
    """
    hits = []
    begins = 0 if subject.unknown else 2
    for rule in layer.candidates(subject):
        action = rule.action_on(subject, begins)
        if action is not None:
            hits.append((rule, action, rule.reason if action is rule.action else _other_reason(rule)))
        elif nearly is not None and rule.constraints is not None and rule.action is _ALLOW:
            nearly.append(rule)
    return hits


def _deciding(hits: Sequence[_Hit]) -> Sequence[_Hit]:
    """
    The hits of the highest priority that say the strictest.
    """
    rank = max([rule.rank for rule, _, _ in hits])
    action = max([said for rule, said, _ in hits if rule.rank == rank])
    return [hit for hit in hits if hit[0].rank == rank and hit[1] is action]


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
            level=_FLOOR,
            action=_DENY,
            reason=row.reason,
            decided=True,
            part=index,
            span=part.span,
            words=part.argv,
        )
        for row in {row.id: row for row in rows}.values()
    ]


def _other_reason(rule: CompiledRule) -> str:
    """
    Why *rule* says something else than it does about the tool it means.
    """
    return (
        f"it bears the name of a listed tool, but is not the one in the trusted directories ({rule.id} allows that one)"
    )


_VERBS = ("allowed", "runs in a sandbox", "needs approval", "denied")
"""
By the action. The number is the index: to look a member up in a dictionary calls Python.
"""


def _sentence_of(row: FloorRow) -> str:
    return f"denied: {row.reason} (floor rule {row.id})"


def _sentence(action: PolicyAction, why: str, verdicts: Iterable[_Verdict]) -> str:
    for verdict in verdicts:
        if verdict.action is action:
            for rule, said, reason in verdict.winners:
                if said is action:
                    return f"{_VERBS[action]}: {reason or 'a rule says so'} ({rule.source})"
    if not why:
        reasons = [verdict.otherwise for verdict in verdicts if verdict.action is action and verdict.otherwise]
        why = reasons[0] if reasons else "it starts nothing that needs a rule"
    return f"{_VERBS[action]}: {why}"
