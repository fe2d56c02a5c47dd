"""
What stands at a path, if anything does.
"""

from __future__ import annotations

import os

__all__ = ["is_there", "mode_of"]

_EFFECTIVE = os.access in os.supports_effective_ids


def is_there(path: str) -> bool:
    """
    Whether *path* leads to anything that can be reached. Of the paths that are looked at
    before each run most do not, and an exception takes three times as long as this.
    """
    return os.access(path, os.F_OK, effective_ids=_EFFECTIVE)


def mode_of(path: str) -> int | None:
    """
    The mode of *path*, of a link its own; None where nothing is there, or it cannot be
    reached.
    """
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None
