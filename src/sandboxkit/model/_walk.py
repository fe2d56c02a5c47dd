"""
A walk below a directory that follows no symbolic link and comes to an end.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING

from sandboxkit.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = [
    "GLOB",
    "MAX_DEPTH",
    "MAX_DIRECTORIES",
    "PATTERN_DEPTH",
    "PATTERN_DIRECTORIES",
    "Walk",
    "fixed_part",
    "has_wildcard",
    "real_now",
]

MAX_DEPTH = 8
"""Levels below the directory the walk began at."""
MAX_DIRECTORIES = 4096
PATTERN_DEPTH = 40
PATTERN_DIRECTORIES = 20_000
"""Bounds for patterns a spec names: it takes about 15 µs a directory."""
MAX_ENTRIES = 200_000
_MAX_DEPTH_ELSEWHERE = 40
"""For what lies outside: a file of git may point there."""
GLOB = "glob:"
"""Before a path that is a pattern: a name may hold any character, so that nothing else tells."""
_WILDCARDS = frozenset("*?[")


def has_wildcard(text: str) -> bool:
    """
    Whether *text* is a pattern rather than a name.
    """
    return not _WILDCARDS.isdisjoint(text)


def fixed_part(pattern: str) -> tuple[str, tuple[str, ...]]:
    """
    The directory an absolute *pattern* starts in, and the rest, one part a component.
    """
    parts = pattern.strip("/").split("/")
    number = next((number for number, part in enumerate(parts) if has_wildcard(part)), len(parts) - 1)
    return "/" + "/".join(parts[:number]), tuple(parts[number:])


def real_now(path: str) -> str:
    """
    The real path of *path*, which other programs may change meanwhile.

    Raises:
        SpecError: It was replaced while it was looked at.
    """
    try:
        return os.path.realpath(path)
    except OSError as exc:
        raise SpecError(f"{path!r} was replaced while it was looked at ({exc.strerror}); try again") from exc


class Walk:
    """
    What lies below one directory, within bounds: a box may have filled it.

    Args:
        root: The directory.
        max_depth: How many levels below it are looked at.
        max_directories: How many directories are.
        admit: Called with a directory that may not be listed, before it is tried again.

    Attributes:
        unseen: Why not everything was looked at; empty where it was.
    """

    def __init__(
        self,
        root: str,
        *,
        max_depth: int = MAX_DEPTH,
        max_directories: int = MAX_DIRECTORIES,
        admit: Callable[[str], None] | None = None,
    ) -> None:
        self._root = root.rstrip("/")
        self._max_depth = max_depth
        self._max_directories = max_directories
        self._admit = admit
        self._listed: dict[str, Mapping[str, bool]] = {}
        self._entries = 0
        self.unseen = ""

    def entries(self, place: str) -> Mapping[str, bool]:
        """
        The names in directory *place*, and whether each is a directory itself (a
        symbolic link is not). Empty where it cannot be listed or a bound is met.
        """
        listed = self._listed.get(place)
        if listed is None:
            listed = self._listed[place] = self._list(place) if self._is_within_bounds(place) else {}
        return listed

    def _is_within_bounds(self, place: str) -> bool:
        inside = place == self._root or place.startswith(self._root + "/")
        depth = place.removeprefix(self._root).count("/")
        if depth > (self._max_depth if inside else _MAX_DEPTH_ELSEWHERE):
            self.unseen = f"{self._root or '/'!r} has directories below level {self._max_depth}"
        elif len(self._listed) >= self._max_directories or self._entries >= MAX_ENTRIES:
            self.unseen = (
                f"{self._root or '/'!r} has more than {self._max_directories} directories or {MAX_ENTRIES} entries"
            )
        else:
            return True
        return False

    def _list(self, place: str) -> Mapping[str, bool]:
        listed: dict[str, bool] = {}
        try:
            with self._opened(place or "/") as entries:
                for entry in islice(entries, MAX_ENTRIES - self._entries):
                    listed[entry.name] = entry.is_dir(follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return listed  # it has just gone, or never was
        except OSError as exc:
            self.unseen = f"{place!r} cannot be listed: {exc.strerror}"
        self._entries += len(listed)
        if self._entries >= MAX_ENTRIES:
            self.unseen = f"{self._root or '/'!r} has {MAX_ENTRIES} entries or more"
        return listed

    def _opened(self, place: str) -> os._ScandirIterator[str]:
        try:
            return os.scandir(place)
        except PermissionError:
            if self._admit is None:
                raise
            self._admit(place)
            return os.scandir(place)

    def matches(self, place: str, parts: Sequence[str]) -> Iterator[str]:
        """
        The existing paths below *place* that match *parts*, one pattern a component;
        `**` stands for any number of directories, none among them.
        """
        if not parts:
            yield place
            return
        head, rest = parts[0], parts[1:]
        if head == "**":
            yield from self.matches(place, rest)
        for name, is_directory in sorted(self.entries(place).items()):
            if head == "**":
                if is_directory:
                    yield from self.matches(f"{place}/{name}", parts)
            elif (is_directory or not rest) and fnmatchcase(name, head):
                yield from self.matches(f"{place}/{name}", rest)
