"""
Code of somebody else that may block or end the process: run where it holds up nobody.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["aside"]

_T = TypeVar("_T")
_POLL_SECONDS = 0.005


async def aside(function: Callable[[], Awaitable[_T]], timeout: float) -> _T:  # noqa: ASYNC109 - a blocked loop keeps none
    """
    What *function* gives, awaited in a thread and an event loop of its own.

    What blocks there stays until it is done, and keeps no process from ending.

    Raises:
        TimeoutError: It took longer than *timeout* seconds.
    """
    done: Future[_T] = Future()

    def carry_out() -> None:
        try:
            done.set_result(anyio.run(function))
        except BaseException as exc:  # noqa: BLE001 - whatever it is, whoever waits is told
            done.set_exception(exc)

    threading.Thread(target=carry_out, daemon=True, name="sandboxkit-aside").start()
    with anyio.fail_after(timeout):
        while not done.done():  # noqa: ASYNC110 - no event loop's primitive reaches another thread
            await anyio.sleep(_POLL_SECONDS)
    return done.result()
