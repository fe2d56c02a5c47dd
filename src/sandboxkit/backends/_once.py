"""
A value that is found out once, by whoever needs it first.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Once"]

T = TypeVar("T")
_POLL_SECONDS = 0.005


class Once(Generic[T]):
    """
    Keeps what was found out, for every thread and event loop of this process.

    While one task finds it out, others wait by polling: primitives of an event loop
    would tie the value to the loop that made them. A forked child starts anew.

    Args:
        patience: Seconds after which a task that is still finding out is given up on,
            as its event loop may be gone.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._found: tuple[T, float] | None = None
        self._finder: tuple[object, float] | None = None

    def forget(self) -> None:
        """
        Drops the value, and what is being found out right now.
        """
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            self._found = self._finder = None

    async def get(self, find: Callable[[], Awaitable[T]], lasts: Callable[[T], float]) -> T:
        """
        The value; *find* finds it out where it is not known.

        Args:
            find: Called by one task at a time.
            lasts: For how many seconds a value is kept.
        """
        if self._pid != os.getpid():
            self._reset()
        me = object()
        while True:
            with self._lock:
                now = time.monotonic()
                if self._found and now < self._found[1]:
                    return self._found[0]
                if self._finder is None or now > self._finder[1]:
                    self._finder = me, now + self._patience
                    break
            await anyio.sleep(_POLL_SECONDS)
        try:
            value = await find()
            with self._lock:
                if self._is_finder(me):
                    self._found = value, time.monotonic() + lasts(value)
        finally:
            with self._lock:
                if self._is_finder(me):
                    self._finder = None
        return value

    def _is_finder(self, task: object) -> bool:
        return self._finder is not None and self._finder[0] is task
