"""
Those who can be asked.
"""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread

from sandboxkit.model import ApprovalReply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxkit.model import ApprovalRequest

__all__ = ["CallbackApprover", "DenyApprover"]


class DenyApprover:
    """
    Says no to everything.

    Args:
        reason: Why, for the record.
    """

    def __init__(self, reason: str = "approval is switched off") -> None:
        self._reason = reason

    async def approve(self, request: ApprovalRequest) -> ApprovalReply:
        """
        Declines *request*.
        """
        return ApprovalReply(approved=False, reason=self._reason)


class CallbackApprover:
    """
    Asks a function.

    Args:
        callback: Gets the request and returns an `ApprovalReply`; a coroutine function,
            or a plain function, which is called in a thread so that it may block. Any
            other value it returns, `True` included, is a no: only a reply says that the
            question was understood.
        timeout: Seconds to wait for it; None leaves that to whoever asks. A plain
            function that is still busy then goes on in its thread, and its answer is
            thrown away.
    """

    def __init__(
        self,
        callback: Callable[[ApprovalRequest], ApprovalReply] | Callable[[ApprovalRequest], Awaitable[ApprovalReply]],
        *,
        timeout: float | None = None,
    ) -> None:
        if timeout is not None and not 0 < timeout < math.inf:
            raise ValueError(f"timeout {timeout}: give a positive number of seconds")
        self._callback = callback
        self._timeout = timeout

    async def approve(self, request: ApprovalRequest) -> ApprovalReply:
        """
        What the function answers to *request*.

        Raises:
            TimeoutError: It did not answer in time.
        """
        with anyio.fail_after(self._timeout):
            if _is_async(self._callback):
                answer: object = await cast("Awaitable[object]", self._callback(request))
            else:
                (answer,) = await anyio.to_thread.run_sync(_called, self._callback, request, abandon_on_cancel=True)
                if inspect.isawaitable(answer):
                    answer = await answer
        return cast("ApprovalReply", answer)


def _called(callback: Callable[[ApprovalRequest], object], request: ApprovalRequest) -> tuple[object]:
    # In a tuple: trio takes a thread's answer that can be awaited for a mistake.
    return (callback(request),)


def _is_async(callback: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004 - the method itself is looked at
