"""
The one way a reading ends early.
"""

from __future__ import annotations

__all__ = ["TooMuchError", "UnsureError"]


class UnsureError(Exception):
    """
    It is not certain what the text means; the message says why. Never leaves the room.
    """


class TooMuchError(Exception):
    """
    The text holds more than is read; the message says of what. Never leaves the room.
    """
