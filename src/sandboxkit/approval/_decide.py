"""
The question itself. Whatever is not a plain yes is a no.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NoReturn, cast, get_args

import anyio

from sandboxkit.errors import ApprovalError
from sandboxkit.model import ApprovalReply, Approver, Remember

if TYPE_CHECKING:
    from sandboxkit.model import ApprovalRequest

__all__ = ["decide", "problem_of"]

_REMEDY = "give the router an approver that can answer, or a rule that decides this command"
_CHOICES = get_args(Remember)
_ORIGINS = ("asked", "session", "always")


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
    except ApprovalError as exc:
        if exc.evaluation is request.evaluation:
            raise  # it has said no in its own words
        _refuse(request, f"it needs approval and the approver failed ({_said(exc)}); {_REMEDY}", exc)
    except Exception as exc:  # noqa: BLE001 - whatever an approver does wrong is a no
        _refuse(request, f"it needs approval and the approver failed ({_said(exc)}); {_REMEDY}", exc)
    # Also an approver that swallows its cancellation and says yes afterwards is too late.
    if anyio.current_time() >= deadline:
        _refuse(request, f"it needs approval and nobody answered within {timeout:g} s")
    if problem := problem_of(reply):
        _refuse(request, problem)
    return cast("ApprovalReply", reply)


def problem_of(reply: object) -> str | None:
    """
    Why *reply* is no plain yes; None where it is one.

    A subclass is none either: what its attributes answer may differ each time.
    """
    if type(reply) is not ApprovalReply:
        return f"it needs approval and the approver answered with {type(reply).__name__}, not ApprovalReply"
    if type(reply.reason) is not str or reply.approved is not True:
        because = f": {reply.reason}" if type(reply.reason) is str and reply.reason else ""
        return f"approval was declined{because}"
    if not _is_one_of(reply.remember, _CHOICES):
        return f"it needs approval and the answer does not say how long it counts; use {', '.join(_CHOICES)}"
    if not _is_one_of(reply.origin, _ORIGINS):
        return f"it needs approval and the answer does not say where it comes from; use {', '.join(_ORIGINS)}"
    return None


def _is_one_of(value: object, words: tuple[str, ...]) -> bool:
    return type(value) is str and value in words


def _said(exc: Exception) -> str:
    try:
        return f"{type(exc).__name__}: {exc}"
    except Exception:  # noqa: BLE001 - its text may be anybody's code, and it is a no in any case
        return type(exc).__name__


def _refuse(request: ApprovalRequest, because: str, cause: Exception | None = None) -> NoReturn:
    raise ApprovalError(request.evaluation, because) from cause
