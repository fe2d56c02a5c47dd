"""
The ways a reading ends early.
"""

from __future__ import annotations

__all__ = ["MAX_NESTING", "TooMuchError", "UnsureError", "check_nesting"]

MAX_NESTING = 100
"""
How deep expressions, expansions and braces may stand within their like. Python's own limit
would count the frames of whoever asks too, so that one text had two readings.
"""


class UnsureError(Exception):
    """
    It is not certain what the text means; the message says why. Never leaves the room.
    """


class TooMuchError(Exception):
    """
    The text holds more than is read; the message says of what. Never leaves the room.
    """


def check_nesting(depth: int) -> None:
    """
    Refuses what stands *depth* deep within its like.

    Raises:
        TooMuchError: That is more than `MAX_NESTING`.
    """
    if depth > MAX_NESTING:
        raise TooMuchError(f"it stands more than {MAX_NESTING} deep within itself")
