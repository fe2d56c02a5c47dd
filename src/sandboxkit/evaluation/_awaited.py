"""
Awaiting what a caller's function gives, on whichever event loop runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio.lowlevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

__all__ = ["Awaited"]


class Awaited:
    """
    Awaits *awaitable*. A bare `yield`, which is how `asyncio.sleep(0)` and others let the
    next task run, does that on trio as well, which would end the task for it. What needs
    a loop of asyncio's raises on trio as ever.

    Source: PEP 380, PEP 492.
    """

    __slots__ = ("_awaitable",)

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, Any]:
        return _steps(_result(self._awaitable).__await__())


async def _result(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _steps(steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """
    `yield from steps`, with a checkpoint for each bare `yield`.
    """
    try:
        asked = next(steps)
        while True:
            try:
                if asked is None:
                    given = None
                    yield from anyio.lowlevel.checkpoint().__await__()
                else:
                    given = yield asked
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as exc:  # noqa: BLE001 - also a cancellation is the awaitable's to see
                asked = steps.throw(exc)
            else:
                asked = steps.send(given)
    except StopIteration as end:
        return end.value
