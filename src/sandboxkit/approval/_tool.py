"""
The door for what is no command.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sandboxkit.approval._decide import decide
from sandboxkit.errors import CommandDeniedError
from sandboxkit.model import ApprovalRequest, EvaluationContext, PolicyAction

if TYPE_CHECKING:
    from sandboxkit.model import Approver, PolicyEvaluation, ToolAction
    from sandboxkit.policy import ExecPolicy

__all__ = ["permit"]


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
