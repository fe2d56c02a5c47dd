"""
What is decided where nothing could be.
"""

from __future__ import annotations

from sandboxkit.model import Command, PolicyAction, PolicyEvaluation, SimpleCommand

__all__ = ["failed", "undecided"]


def failed(exc: Exception) -> str:
    """
    Says that a policy raised *exc*.
    """
    return f"the policy failed ({type(exc).__name__}: {exc})"


def undecided(command: str | tuple[str, ...], why: str) -> PolicyEvaluation:
    """
    A denial of *command*, since the policy gave no answer about it.

    Args:
        command: The command, which may be of any kind.
        why: What is wrong with the policy.
    """
    reason = f"denied: {why}, so nothing is allowed"
    if isinstance(command, str):
        return PolicyEvaluation(PolicyAction.DENY, reason, Command(command, (), opaque=why))
    return PolicyEvaluation(
        PolicyAction.DENY, reason, Command(None, (SimpleCommand(command),), opaque=why, argv=command)
    )
