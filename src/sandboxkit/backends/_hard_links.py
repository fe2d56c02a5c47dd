"""
Which files have other names: a mount, or a right that is not granted, holds one name only.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["linked_files", "other_names"]

MAX_ENTRIES = 4096
"""So many are looked at below one path; it takes about 3 µs each."""


def other_names(path: str) -> str:
    """
    Why *path*, a file or a directory, may be reached by a name outside of it; empty where
    it cannot.
    """
    files = linked_files(path)
    if files is None:
        return f"{path!r} has more than {MAX_ENTRIES} entries, which were not all looked at for hard links"
    if not files:
        return ""
    named = min(files)
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{named!r}{more} has other names (hard links), under which it is not held"


def linked_files(path: str) -> dict[str, tuple[int, int]] | None:
    """
    The regular files at or below *path* that have a name elsewhere, with (device, inode) of
    each; None where there are too many to be looked at.
    """
    found: dict[str, tuple[int, int]] = {}
    elsewhere: Counter[tuple[int, int]] = Counter()
    for count, (place, seen) in enumerate(_files(path)):
        if count >= MAX_ENTRIES:
            return None
        if stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1:
            found[place] = node = (seen.st_dev, seen.st_ino)
            elsewhere[node] += (0 if node in elsewhere else seen.st_nlink) - 1
    return {place: node for place, node in found.items() if elsewhere[node] > 0}


def _files(path: str) -> Iterator[tuple[str, os.stat_result]]:
    places = [path]
    while places:
        place = places.pop()
        try:
            seen = os.lstat(place)
            if stat.S_ISDIR(seen.st_mode):
                places += [f"{place}/{name}" for name in os.listdir(place)]
        except OSError:
            continue  # it has just gone, or is closed to us as to the box
        yield place, seen
