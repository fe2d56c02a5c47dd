"""
What stands at a path, if anything does.
"""

from __future__ import annotations

import os
import sys
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

__all__ = ["is_there", "may_hold", "mode_of", "names_in"]

_MOST_NAMES = 300
"""Up to here listing a directory takes less than looking for a hundred names in it."""
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


def names_in(directory: str) -> AbstractSet[str] | None:
    """
    The names in *directory*, in small letters; None where they are too many to be worth
    listing, or cannot be listed.
    """
    if sys.platform != "linux":
        return None  # there a name may be found by others than its own
    try:
        with os.scandir(directory) as entries:
            names = {entry.name.casefold() for entry in islice(entries, _MOST_NAMES + 1)}
    except OSError:
        return None
    return names if len(names) <= _MOST_NAMES else None


def may_hold(names: AbstractSet[str] | None, path: str) -> bool:
    """
    Whether something may be at *path*, below the directory that holds *names*; not, only
    where that is certain.
    """
    return names is None or path.partition("/")[0].casefold() in names
