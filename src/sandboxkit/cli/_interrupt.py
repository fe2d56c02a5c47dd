"""
Ctrl-C while the program loads.

Python raises KeyboardInterrupt wherever it happens to be. In the callbacks of importlib's locks
it is printed and lost; where a class is made another exception takes its place, or pydantic's
compiled part panics. So it is noted, and raised a moment later while a module is being loaded.

Source: Python's `signal`, "Note on Signal Handlers and Exceptions".
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["came", "listen"]

_LATER_SECONDS = 0.005
_came = False


def listen() -> None:
    """
    Notes Ctrl-C from now on, where nobody else has taken it.
    """
    is_ours = threading.current_thread() is threading.main_thread()
    if sys.platform != "win32" and is_ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def came() -> bool:
    """
    Whether it came.
    """
    return _came


def _interrupted(_: int, frame: FrameType | None) -> None:
    global _came
    _came = True
    if _is_loading(frame):
        signal.signal(signal.SIGALRM, _interrupted)
        signal.setitimer(signal.ITIMER_REAL, _LATER_SECONDS)
        return
    raise KeyboardInterrupt


def _is_loading(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
