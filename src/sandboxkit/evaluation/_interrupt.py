"""
A deadline for code of this process, as far as there can be one.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import types
    from collections.abc import Callable

__all__ = ["Interrupted", "done_by"]

T = TypeVar("T")
_AGAIN_SECONDS = 0.05


class Interrupted(BaseException):
    """
    The deadline passed in what runs here. Not an Exception: it unwinds past every
    `except Exception`.
    """


def done_by(deadline: float, act: Callable[[], T]) -> T:
    """
    What *act* gives; raises `Interrupted` in it when *deadline*, in time.monotonic(), passes.

    By SIGALRM, which reaches bytecode, sleeping and waiting calls and the regular
    expression engine. It holds in the main thread only, and not while a timer of somebody
    else's is due earlier, or where a handler was installed before Python was; there *act*
    runs to its end. Another handler and timer are put back afterwards.

    Source: setitimer(2), signal(7).
    """
    left = max(0.001, deadline - time.monotonic())
    other, interval = signal.getitimer(signal.ITIMER_REAL)
    previous = signal.getsignal(signal.SIGALRM)
    if previous is None or threading.current_thread() is not threading.main_thread() or 0 < other <= left:
        return _acting(act)
    began = time.monotonic()
    signal.signal(signal.SIGALRM, _interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, left, _AGAIN_SECONDS)
        return _acting(act)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if other:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, other - (time.monotonic() - began)), interval)


def _acting(act: Callable[[], T]) -> T:
    return act()


def _interrupt(_: int, frame: types.FrameType | None) -> None:
    # An alarm that comes while `done_by` begins or cleans up would leave the handler and its
    # timer in place for good, so it counts only where what is running runs in `_acting`.
    while frame is not None and frame.f_code is not done_by.__code__:
        if frame.f_code is _acting.__code__:
            raise Interrupted
        frame = frame.f_back
