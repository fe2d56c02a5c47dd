"""
The door for what is no command.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sandboxkit.approval._decide import decide
from sandboxkit.errors import ApprovalError, CommandDeniedError
from sandboxkit.model import ApprovalRequest, EvaluationContext, PolicyAction, ToolAction
from sandboxkit.policy import ExecPolicy

if TYPE_CHECKING:
    from sandboxkit.egress import EgressQuestion
    from sandboxkit.model import Approver, PolicyEvaluation

__all__ = ["permit", "permits"]

_LONGEST = 365 * 86400.0


async def permit(
    action: ToolAction,
    *,
    policy: ExecPolicy,
    approver: Approver | None,
    context: EvaluationContext | None = None,
    timeout: float = 300.0,  # noqa: ASYNC109 - the deadline is a no with its own message
) -> PolicyEvaluation:
    """
    The decision that lets a tool do *action*, after asking where the rules say so.

    The same rules decide as for commands: `prefix = ["scraper.fetch"]` matches, and
    `more_than = { pages = 25 }` compares the action's numbers. What no rule speaks about
    gets the policy's default; only `ask` and `deny` hold a tool back, because it runs in
    no box of ours.

    Args:
        action: What it wants to do.
        policy: The rules.
        approver: Who is asked; None is a no.
        context: Where it would be done; the action's numbers come before its own.
        timeout: Seconds an approver has for its answer.

    Raises:
        CommandDeniedError: The policy denies it.
        ApprovalError: The policy asks, and nobody approved.
    """
    place = context if context is not None else EvaluationContext()
    evaluation = policy.evaluate(action.words, context=replace(place, numbers={**place.numbers, **action.numbers}))
    if evaluation.action is PolicyAction.DENY:
        raise CommandDeniedError(evaluation)
    if evaluation.action is PolicyAction.ASK:
        await decide(approver, ApprovalRequest.for_action(action, evaluation), timeout)
    return evaluation


async def permits(approver: Approver | None, question: EgressQuestion) -> bool:
    """
    Whether *approver* lets a box connect where the rule of a spec asks. Whoever asks keeps
    the deadline; the answer counts for the run alone.

    The rules of commands are not consulted: the spec has decided that this is asked.
    """
    what = question.request or f"{question.host}:{question.port}"
    action = ToolAction("network.connect", (what, f"by {question.identity}"))
    evaluation = replace(ExecPolicy.empty(PolicyAction.ASK).evaluate(action.words), reason=question.reason)
    try:
        await decide(approver, ApprovalRequest.for_action(action, evaluation), _LONGEST)
    except ApprovalError:
        return False
    return True
