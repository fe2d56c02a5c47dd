"""
A deadline for code of this process, as far as there can be one.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Interrupted", "interrupted_at"]

_AGAIN_SECONDS = 0.05


class Interrupted(BaseException):
    """
    The deadline passed in what runs here. Not an Exception: it unwinds past every
    `except Exception`.
    """


@contextlib.contextmanager
def interrupted_at(deadline: float) -> Iterator[None]:
    """
    Raises `Interrupted` in the block when *deadline*, in time.monotonic(), passes.

    By SIGALRM, which reaches bytecode, sleeping and waiting calls and the regular
    expression engine. It holds in the main thread only, and not while a timer of somebody
    else's is due earlier; there the block runs to its end. Another handler and timer are
    put back afterwards.

    Source: setitimer(2), signal(7).
    """
    left = max(0.001, deadline - time.monotonic())
    other, interval = signal.getitimer(signal.ITIMER_REAL)
    if threading.current_thread() is not threading.main_thread() or 0 < other <= left:
        yield
        return
    is_inside = True

    def interrupt(*_: object) -> None:
        if is_inside:
            _raise()

    began = time.monotonic()
    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, left, _AGAIN_SECONDS)
    try:
        yield
    finally:
        is_inside = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if other:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, other - (time.monotonic() - began)), interval)


def _raise() -> NoReturn:
    raise Interrupted
