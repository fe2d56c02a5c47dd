"""
The question a person or program is asked, and the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from sandboxkit.model._decision import PolicyEvaluation
    from sandboxkit.model._spec import SandboxSpec

__all__ = ["ApprovalReply", "ApprovalRequest", "Approver"]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """
    A command that waits for approval.

    Attributes:
        evaluation: The decision that asks, with the exact command.
        cwd: Where it would run.
        spec: The box it would get.
    """

    evaluation: PolicyEvaluation
    cwd: str
    spec: SandboxSpec


@dataclass(frozen=True, slots=True)
class ApprovalReply:
    """
    The answer to a request.

    Attributes:
        approved: True lets exactly this command run, in the box of the request.
        reason: Why, for the record.
    """

    approved: bool
    reason: str = ""


@runtime_checkable
class Approver(Protocol):
    """
    Somebody who can say yes. Everything else than a reply with `approved=True`
    (an exception, a timeout, another value) is a no.
    """

    async def approve(self, request: ApprovalRequest) -> ApprovalReply:
        """
        Answers *request*.
        """
        ...
