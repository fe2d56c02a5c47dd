"""
The decisions of an audit log, made again by other rules.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandboxkit.audit._failures import LOG
from sandboxkit.audit._files import absolute
from sandboxkit.cli._log import records_of
from sandboxkit.errors import AuditError, CommandError
from sandboxkit.model import EvaluationContext, PolicyAction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.audit import AuditRecord
    from sandboxkit.policy import ExecPolicy

__all__ = ["Change", "Replayed", "replayed", "said"]


@dataclass(frozen=True, slots=True)
class Change:
    """
    A command that other rules decide otherwise.

    Attributes:
        command: The command.
        cwd: The working directory it was judged for.
        before: The action in the record.
        after: The action by the rules given.
        reason: Why, by those.
        times: How many decisions there were about it.
    """

    command: str | tuple[str, ...]
    cwd: str | None
    before: PolicyAction
    after: PolicyAction
    reason: str
    times: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """
    What came of a log.

    Attributes:
        decisions: How many were made again.
        changes: Those that come out otherwise, most frequent first.
        left_out: How many could not be made again, by why.
    """

    decisions: int
    changes: tuple[Change, ...]
    left_out: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form.
        """
        return {
            "decisions": self.decisions,
            "changed": sum(change.times for change in self.changes),
            "left_out": dict(self.left_out),
            "changes": [
                {
                    "command": change.command,
                    "cwd": change.cwd,
                    "before": str(change.before),
                    "after": str(change.after),
                    "reason": change.reason,
                    "times": change.times,
                }
                for change in self.changes
            ],
        }


@dataclass(frozen=True, slots=True)
class _Case:
    command: str | tuple[str, ...]
    cwd: str | None
    home: str | None
    workspace_roots: tuple[str, ...]
    user: str | None
    numbers: tuple[tuple[str, float], ...]
    before: PolicyAction


def replayed(policy: ExecPolicy, log: str) -> Replayed:
    """
    Every decision in *log* made again by *policy*, for the place it was made for.

    Raises:
        AuditError: The log cannot be read, or holds no decision that can be made again:
            to pass it would look as if nothing changed.
    """
    left_out: Counter[str] = Counter()
    cases: Counter[_Case] = Counter()
    records = 0
    for record in records_of(log):
        records += 1
        case = _case(record)
        if isinstance(case, _Case):
            cases[case] += 1
        elif case:
            left_out[case] += 1
    changes, refused = [], 0
    for case, times in cases.items():
        try:
            change = _change(policy, case, times)
        except CommandError:
            refused += times
            continue
        if change:
            changes.append(change)
    if refused:
        left_out["no command any more"] = refused
    if sum(cases.values()) == refused:
        raise _nothing_judged(log, records, left_out)
    changes.sort(key=lambda change: (-change.times, change.before, change.after, str(change.command)))
    return Replayed(sum(cases.values()) - refused, tuple(changes), left_out)


def _nothing_judged(log: str, records: int, left_out: Mapping[str, int]) -> AuditError:
    if left_out:
        problem = f"none of its decisions can be judged again ({said(left_out)})"
    elif records:
        problem = f"it holds {records} {'record' if records == 1 else 'records'} and no decision, so there is nothing to judge again"
    else:
        problem = "it holds no record yet, so there is nothing to judge again"
    return AuditError(absolute(log), problem, remedy="name a log in which commands were decided", role=LOG)


def said(left_out: Mapping[str, int]) -> str:
    """
    How many decisions were left out, and why.
    """
    return ", ".join(f"{count} {why}" for why, count in sorted(left_out.items()))


def _case(record: AuditRecord) -> _Case | str | None:
    """
    What was decided; why it cannot be decided again; or None for a record that is about
    something else.
    """
    if record.kind != "decided" or record.action is None:
        return None
    try:
        before = PolicyAction.from_name(record.action)
    except ValueError:
        return "with an unknown action"
    if record.command is None or not record.is_exact:
        return "masked, cut or without their place"
    numbers = tuple(sorted(record.numbers.items()))
    return _Case(record.command, record.cwd, record.home, record.workspace_roots, record.user, numbers, before)


def _change(policy: ExecPolicy, case: _Case, times: int) -> Change | None:
    context = EvaluationContext(
        cwd=case.cwd,
        home=case.home,
        workspace_roots=case.workspace_roots,
        user=case.user,
        numbers=dict(case.numbers),
    )
    evaluation = policy.evaluate(case.command, context=context)
    if evaluation.action is case.before:
        return None
    return Change(case.command, case.cwd, case.before, evaluation.action, evaluation.reason, times)
