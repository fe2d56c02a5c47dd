"""
The question itself. Whatever is not a plain yes is a no.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NoReturn

import anyio

from sandboxkit.errors import ApprovalError
from sandboxkit.model import ApprovalReply, Approver

if TYPE_CHECKING:
    from sandboxkit.model import ApprovalRequest

__all__ = ["decide"]

_REMEDY = "give the router an approver that can answer, or a rule that decides this command"


async def decide(approver: Approver | None, request: ApprovalRequest, timeout: float) -> ApprovalReply:  # noqa: ASYNC109 - the deadline is a no with its own message
    """
    The reply that approves *request*.

    Args:
        approver: Who is asked; None is a no.
        request: The question.
        timeout: Seconds to wait, positive and finite.

    Raises:
        ApprovalError: There is no approver, it declined, failed, did not answer in time
            or answered anything but an `ApprovalReply` whose `approved` is True.
    """
    if approver is None:
        _refuse(request, f"it needs approval and there is nobody to ask; {_REMEDY}")
    if not 0 < timeout < math.inf:
        _refuse(request, f"it needs approval and the approval timeout is {timeout} s; give a positive number")
    deadline = anyio.current_time() + timeout
    reply: object = None
    try:
        with anyio.move_on_after(timeout):
            reply = await approver.approve(request)
    except Exception as exc:  # noqa: BLE001 - whatever an approver does wrong is a no
        _refuse(request, f"it needs approval and the approver failed ({type(exc).__name__}: {exc}); {_REMEDY}", exc)
    # Also an approver that swallows its cancellation and says yes afterwards is too late.
    if anyio.current_time() >= deadline:
        _refuse(request, f"it needs approval and nobody answered within {timeout:g} s")
    if not isinstance(reply, ApprovalReply):
        _refuse(request, f"it needs approval and the approver answered with {type(reply).__name__}, not ApprovalReply")
    if reply.approved is not True:
        _refuse(request, "approval was declined" + (f": {reply.reason}" if reply.reason else ""))
    return reply


def _refuse(request: ApprovalRequest, because: str, cause: Exception | None = None) -> NoReturn:
    raise ApprovalError(request.evaluation, because) from cause
