"""
One at a time, over all event loops and threads of a process.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["turn"]

_SECONDS = 0.02
_held: dict[tuple[object, ...], object] = {}
"""
Who has which turn, by process. Filled by `setdefault`, which is atomic: a lock could be
held when another thread forks, and belongs to one event loop.
"""


@contextlib.asynccontextmanager
async def turn(*key: object) -> AsyncIterator[None]:
    """
    Waits until nobody else of this process has the turn named *key*, and has it.
    """
    name, mine = (os.getpid(), *key), object()
    while _held.setdefault(name, mine) is not mine:  # noqa: ASYNC110 - who has it may be on another event loop
        await anyio.sleep(_SECONDS)
    try:
        yield
    finally:
        del _held[name]
