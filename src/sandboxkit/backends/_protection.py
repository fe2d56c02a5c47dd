"""
Names in a writable directory that other programs execute or obey.

Where one exists it is held in place by a mount. Where it does not, a mount would leave
a file behind on the host, so it is looked for after the run instead.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.backends._layouts import layouts
from sandboxkit.errors import SpecError
from sandboxkit.model import Access, Violation, access_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sandboxkit.model import SandboxSpec

__all__ = ["Watched", "protection", "state", "violations"]

_BARE = ("HEAD", "objects", "refs")
_BARE_PROTECTED = ("config", "hooks")


@dataclass(frozen=True, slots=True)
class Watched:
    """
    A path that cannot be held in place during a run.

    Attributes:
        path: Which.
        link: The text of the symbolic link that stood there before, or None where
            nothing did.
        state: What stood there before, where it could be written; see `state`.
    """

    path: str
    link: str | None = None
    state: tuple[tuple[str, int, int], ...] = ()

    @property
    def is_changed(self) -> bool:
        """
        Whether something else stands there now.
        """
        if self.state:
            return state(self.path) != self.state
        if self.link is None:
            return os.path.lexists(self.path)
        try:
            return os.readlink(self.path) != self.link
        except OSError:
            return True


def state(path: str) -> tuple[tuple[str, int, int], ...]:
    """
    (path, inode, time of the last change in ns) of *path* and of all that lies in it.
    Nobody can set the time of a change; empty where nothing stands there.
    """
    found = []
    places = [path]
    while places:
        place = places.pop()
        try:
            seen = os.lstat(place)
            if stat.S_ISDIR(seen.st_mode):
                places += [f"{place}/{name}" for name in os.listdir(place)]
        except OSError:
            continue  # it has just gone, or is closed to us as to the box
        found.append((place, seen.st_ino, seen.st_ctime_ns))
    return tuple(sorted(found))


def protection(spec: SandboxSpec) -> tuple[tuple[str, ...], tuple[Watched, ...]]:
    """
    What of *spec*'s protection sets exists and is to be held in place, and what of
    them, and of its denied paths, can only be watched.

    Raises:
        SpecError: A symbolic link stands where git would look for what it executes. A
            mount cannot hold a link, and following it would show what it points to.
    """
    tree = spec.filesystem.tree()
    held: dict[str, None] = {}
    watched: dict[str, Watched] = {}
    for root in spec.filesystem.write:
        seen: dict[str, int | None] = {}
        for group, path in _names(root.rstrip("/"), spec.filesystem.protect):
            link = _first_link(root, path, seen)
            if link and group == "git":
                raise SpecError(
                    f"{link!r} is a symbolic link where a box must keep a file in place; "
                    "replace it by what it points to, or remove it"
                )
            if link:
                watched[link] = Watched(link, _text(link))
            elif seen.get(path) is None:
                watched[path] = Watched(path)
            else:
                held[path] = None
    for path in spec.filesystem.deny:
        if _mode(path) is None and _is_below_writable(path, tree):
            watched[path] = Watched(path)
    return tuple(held), tuple(watched.values())


def _names(root: str, groups: Iterable[str]) -> Iterator[tuple[str, str]]:
    """
    (protection set, path) of what is protected in *root*.
    """
    for group in sorted(groups):
        for name in layouts().protect[group]:
            yield group, f"{root}/{name}"
    pointer = _mode(f"{root}/.git")
    if pointer is None or stat.S_ISREG(pointer):
        yield "git", f"{root}/.git"  # of a worktree or submodule: it says where the repository is
    if all(_mode(f"{root}/{name}") is not None for name in _BARE):
        for name in _BARE_PROTECTED:
            yield "git", f"{root}/{name}"
    elif _mode(f"{root}/{_BARE[0]}") is None:
        yield "git", f"{root}/{_BARE[0]}"  # with it, git takes the directory for a repository


def _first_link(root: str, path: str, seen: dict[str, int | None]) -> str | None:
    """
    The first symbolic link on the way from *root* to *path* below it. Modes on the way
    are taken from *seen*, or put there.
    """
    place = root.rstrip("/")
    for component in path[len(place) + 1 :].split("/"):
        place = f"{place}/{component}"
        if place not in seen:
            seen[place] = _mode(place)
        mode = seen[place]
        if mode is None:
            return None
        if stat.S_ISLNK(mode):
            return place
    return None


def _text(link: str) -> str | None:
    try:
        return os.readlink(link)
    except OSError:
        return None  # it has just gone


def _is_below_writable(path: str, tree: Mapping[str, Access]) -> bool:
    return path != "/" and access_of(os.path.dirname(path), tree) is Access.WRITE


def _mode(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None


def violations(watched: Iterable[Watched]) -> tuple[Violation, ...]:
    """
    One for each path of *watched* that a run made or changed.
    """
    return tuple(
        Violation(
            "protected-path-created",
            place.path,
            "the run made or changed it; it is denied to the run, or other programs execute or obey it",
        )
        for place in watched
        if place.is_changed
    )
