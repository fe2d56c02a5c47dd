"""
Names in a writable directory that other programs execute or obey.

Where one exists it is held in place by a mount. Where it does not, a mount would leave
a file behind on the host, so it is looked for after the run instead, and moved away.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from sandboxkit.backends._exists import may_hold, mode_of, names_in
from sandboxkit.backends._layouts import layouts
from sandboxkit.backends._new_repository import is_as_git_init_makes, obeyed_beyond
from sandboxkit.backends._quarantine import Quarantine, quarantine_place, readmit
from sandboxkit.backends._repositories import IS_REPOSITORY, repositories
from sandboxkit.errors import SpecError
from sandboxkit.model import (
    PATTERN_DEPTH,
    PATTERN_DIRECTORIES,
    Access,
    Violation,
    Walk,
    access_of,
    has_wildcard,
    is_inside,
    real_now,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from sandboxkit.model import FilesystemPolicy, SandboxSpec

__all__ = [
    "MAX_MOUNT_POINTS",
    "Protection",
    "Watched",
    "changed_among",
    "new_repositories",
    "protection",
    "state",
    "violations",
]

MAX_MOUNT_POINTS = 120
"""
For repositories below the top of writable directories. Each is one open file while a box
starts, of which one message to the broker carries 250; see unix(7), SCM_RIGHTS.
"""


@dataclass(frozen=True, slots=True)
class Watched:
    """
    A path that cannot be held in place during a run.

    Attributes:
        path: Which.
        root: The writable directory it lies in.
        link: The text of the symbolic link that stood there before, or None where
            nothing did.
        state: What stood there before, where it could be written; see `state`.
    """

    path: str
    root: str = "/"
    link: str | None = None
    state: tuple[tuple[str, int, int], ...] = ()

    def change(self, names: AbstractSet[str] | None = None) -> str | None:
        """
        What a run made here: the path, or the symbolic link that now stands on the way to
        it; None where all is as it was.

        Args:
            names: What `names_in` says of the root.
        """
        if self.state:
            return self.path if state(self.path) != self.state else None
        place = self.root.rstrip("/")
        if self.link is None and not may_hold(names, self.path[len(place) + 1 :]):
            return None
        for component in self.path[len(place) + 1 :].split("/"):
            place = f"{place}/{component}"
            try:
                mode = _mode_behind(place)
            except PermissionError:
                return self.path  # it cannot be looked at, let alone moved: that is reported
            if mode is None:
                return None if self.link is None else self.path
            if stat.S_ISLNK(mode):
                break
        is_as_before = place == self.path and self.link is not None and _text(place) == self.link
        return None if is_as_before else place


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


@dataclass(slots=True)
class Protection:
    """
    What is done for a spec's protection sets.

    Attributes:
        held: Existing paths that are held in place.
        watched: What cannot be, by path.
        gaps: Why something that should be held may not be; empty where nothing was missed.
        repositories: The directories in which something is held or watched for git; None
            where there may be others.
    """

    held: dict[str, None] = field(default_factory=dict)
    watched: dict[str, Watched] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)
    repositories: set[str] | None = field(default_factory=set)

    def watch(self, path: str, root: str, link: str | None = None) -> None:
        """
        Has *path* looked at after the run.
        """
        self.watched[path] = Watched(path, root, link)


def protection(spec: SandboxSpec) -> Protection:
    """
    What of *spec*'s protection sets exists and is to be held in place, and what of
    them, and of its denied paths, can only be watched.

    Raises:
        SpecError: A symbolic link stands at the top of a writable directory where git
            would look for what it executes. A mount cannot hold a link, and following
            it would show what it points to.
    """
    tree = spec.filesystem.tree()
    found = Protection()
    for root in spec.filesystem.write:
        _at_top(root.rstrip("/"), spec.filesystem.protect, tree, found)
    for root in spec.filesystem.write:
        walk = Walk(root)
        _repositories(root.rstrip("/"), walk, tree, found)
        _own(root.rstrip("/"), walk, spec.filesystem.protect, tree, found)
        if walk.unseen:
            found.repositories = None
            found.gaps.append(f"{walk.unseen}, so a repository or pattern below is not protected")
    for path in (path for path, access in tree.items() if access is Access.DENY):
        if mode_of(path) is None and _is_below_writable(path, tree):
            found.watch(path, _root_of(path, tree))
    return found


def _at_top(root: str, protect: Iterable[str], tree: Mapping[str, Access], found: Protection) -> None:
    seen: dict[str, int | None] = {}
    names = names_in(root or "/")
    for group, path in _names(root, protect):
        link = _first_link(root, path, seen) if may_hold(names, path[len(root) + 1 :]) else None
        if link and group == "git":
            raise SpecError(
                f"{link!r} is a symbolic link where a box must keep a file in place; "
                "replace it by what it points to, or remove it"
            )
        if link:
            _hold_linked(link, path, root, tree, found)
        elif seen.get(path) is None:
            found.watch(path, root)
        else:
            found.held[path] = None


def _hold_linked(link: str, path: str, root: str, tree: Mapping[str, Access], found: Protection) -> None:
    """
    Watches *link* on the way to *path*, and holds what it leads to where the box could
    write that. A link to a directory that holds *root* is left alone: all would be held.
    """
    found.watch(link, root, _text(link))
    target = real_now(path)
    is_held = access_of(target, tree) is Access.WRITE and not is_inside(root or "/", target)
    if is_held and os.path.basename(path) != ".git":
        if mode_of(target) is None:
            found.watch(target, _root_of(target, tree))
        else:
            found.held[target] = None


def _repositories(root: str, walk: Walk, tree: Mapping[str, Access], found: Protection) -> None:
    """
    Holds and watches the files git obeys in every repository of *root*, until so many
    mount points would be needed that a box could not start.
    """
    points: set[str] = set()
    left_out = 0
    for names in repositories(root or "/", walk, lambda path: _is_open(path, tree)):
        new = Protection()
        if found.repositories is not None:
            found.repositories.update(map(os.path.dirname, names))
        for path in names:
            if path not in found.held and path not in found.watched:
                _look(path, _root_of(path, tree), tree, new)
        needed = points.union(*(_way(path, root) for path in new.held))
        if len(needed) > MAX_MOUNT_POINTS:
            left_out += 1
            continue
        points = needed
        found.held.update(new.held)
        found.watched.update(new.watched)
    if left_out:
        found.gaps.append(f"{left_out} repositories in {root or '/'!r} need more mount points than {MAX_MOUNT_POINTS}")


def _is_open(path: str, tree: Mapping[str, Access]) -> bool:
    """
    Whether the box may write the host's *path*: /tmp and its like are its own.
    """
    own = _boxes_own()
    while path not in tree and path not in own and path != "/":
        path = path[: path.rindex("/")] or "/"  # os.path.dirname takes six times as long, and this is asked often
    return tree.get(path) is Access.WRITE


@cache
def _boxes_own() -> frozenset[str]:
    return frozenset(("/dev", "/proc", "/sys", *layouts().private))


def _way(path: str, root: str) -> Iterator[str]:
    """
    *path* and the directories on the way to it from *root*: all become mount points.
    """
    while path not in (root, "/", ""):
        yield path
        path = os.path.dirname(path)


def _own(root: str, walk: Walk, protect: Iterable[str], tree: Mapping[str, Access], found: Protection) -> None:
    """
    The spec's own entries: `./name` in every writable directory, `/path` by itself.
    """
    for entry in sorted(protect):
        if entry.startswith("./"):
            parts = entry[2:].split("/")
        elif entry.startswith("/") and is_inside(entry, root or "/"):
            parts = entry[len(root) + 1 :].split("/")
        else:
            continue
        if not has_wildcard(entry):
            _look("/".join((root, *parts)), root or "/", tree, found)
            continue
        found.gaps.append(f"what {entry!r} matches only later is not protected")
        for path in walk.matches(root, parts):
            _look(path, root or "/", tree, found)


def _look(path: str, root: str, tree: Mapping[str, Access], found: Protection) -> None:
    """
    Holds *path*, or watches it where it does not exist or a symbolic link leads to it.
    """
    seen: dict[str, int | None] = {}
    link = _first_link(root, path, seen)
    if link:
        _hold_linked(link, path, root, tree, found)
    elif seen.get(path) is None:
        found.watch(path, root)
    else:
        found.held[path] = None


def _names(root: str, groups: Iterable[str]) -> Iterator[tuple[str, str]]:
    """
    (protection set, path) of what is protected at the top of *root*.
    """
    for group in sorted(set(groups) & layouts().protect.keys()):
        for name in layouts().protect[group]:
            yield group, f"{root}/{name}"
    pointer = mode_of(f"{root}/.git")
    if pointer is None or stat.S_ISREG(pointer):
        yield "git", f"{root}/.git"  # of a worktree or submodule: it says where the repository is
    head = f"{root}/{IS_REPOSITORY[0]}"
    if mode_of(head) is None:
        yield "git", head  # with it, git takes the directory for a repository


def _first_link(root: str, path: str, seen: dict[str, int | None]) -> str | None:
    """
    The first symbolic link on the way from *root* to *path* below it. Modes on the way
    are taken from *seen*, or put there.
    """
    place = root.rstrip("/")
    for component in path[len(place) + 1 :].split("/"):
        place = f"{place}/{component}"
        if place not in seen:
            seen[place] = mode_of(place)
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


def _root_of(path: str, tree: Mapping[str, Access]) -> str:
    """
    The writable directory that *path* lies in; the root directory where there is none.
    """
    while tree.get(path) is not Access.WRITE and path != "/":
        path = os.path.dirname(path)
    return path


def _is_below_writable(path: str, tree: Mapping[str, Access]) -> bool:
    return path != "/" and access_of(os.path.dirname(path), tree) is Access.WRITE


def _mode_behind(path: str) -> int | None:
    """
    The mode of *path*, also where a box took its owner's right to look there.

    Raises:
        PermissionError: It cannot be looked at.
    """
    try:
        return os.lstat(path).st_mode
    except PermissionError:
        readmit(os.path.dirname(path))
    except OSError:
        return None
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return None


def changed_among(watched: Iterable[Watched]) -> Iterator[tuple[Watched, str]]:
    """
    Each path of *watched* that is not as it was, with what `Watched.change` says.
    """
    listed: dict[str, AbstractSet[str] | None] = {}
    for place in watched:
        if place.root not in listed:
            listed[place.root] = names_in(place.root or "/")
        if (change := place.change(listed[place.root])) is not None:
            yield place, change


def violations(watched: Iterable[Watched]) -> tuple[Violation, ...]:
    """
    One for each path of *watched* that a run made or changed. What stands there is moved
    to a quarantine, and a symbolic link that stood there before is put back. A new
    repository that is as `git init` makes one stays, and is none.
    """
    found = list(_left(changed_among(watched)))
    # What stood there before is the user's own: it is not moved.
    kept = tuple(Violation("protected-path-changed", place.path, _WHY) for place, _ in found if place.state)
    changed = [(place, change) for place, change in found if not place.state]
    if not changed:
        return kept
    quarantine = Quarantine(quarantine_place({place.root for place, _ in changed}))
    links = {place.path: place.link for place, _ in changed if place.link is not None}
    moved: dict[str, str] = {}
    for _, change in sorted(changed, key=lambda pair: pair[1]):  # what holds others comes before them
        if not any(is_inside(change, done) for done in moved):
            moved[change] = _move(quarantine, change, links.get(change))
    made = (
        Violation("protected-path-created", place.path, f"{_WHY}; {_done(change, moved)}") for place, change in changed
    )
    return (*kept, *made)


def new_repositories(
    filesystem: FilesystemPolicy, before: Collection[str] | None
) -> tuple[tuple[Violation, ...], tuple[str, ...]]:
    """
    One for each repository below the top of a writable directory that a run made, unless
    it is as `git init` or `git clone` makes one; and why some may have been missed. What git
    would obey in it is moved to a quarantine: git enters a repository below the one it was
    called in, too. The rest stays: a copy of a repository may well be what the run was for.

    Args:
        filesystem: Whose writable directories are looked through.
        before: `Protection.repositories`, from before the run.
    """
    if before is None:
        return (), ()
    tree = filesystem.tree()
    quarantine = Quarantine(quarantine_place(filesystem.write))
    found: dict[str, Violation] = {}
    missed = []
    for root in filesystem.write:
        # Before the run there was nothing beyond the usual bounds, and nothing that could not be listed.
        walk = Walk(root, max_depth=PATTERN_DEPTH, max_directories=PATTERN_DIRECTORIES, admit=readmit)
        for names in repositories(root.rstrip("/") or "/", walk, lambda path: _is_open(path, tree)):
            place = os.path.dirname(names[0]) if names else ""
            if place and place not in before and place not in found and (why := _beyond(place, names, quarantine)):
                found[place] = Violation("protected-path-created", place, why)
        if walk.unseen:
            missed.append(f"after the run {walk.unseen}, so a repository that it made there was not looked at")
    return tuple(found.values()), tuple(missed)


def _beyond(place: str, names: Iterable[str], quarantine: Quarantine) -> str:
    """
    What was done about the new repository *place*, in which git obeys *names*; empty where
    it is plain.
    """
    moved = [f"{path[len(place) + 1 :]!r} was {_move(quarantine, path, None)}" for path in obeyed_beyond(names)]
    if moved:
        return f"{_NEW}; {', '.join(moved)}"
    is_repository = os.path.lexists(f"{place}/HEAD") and not os.path.lexists(f"{place}/commondir")
    if is_repository and not is_as_git_init_makes(place, is_below=True):
        return f"{_NEW}; it was left there: look at it before you use git in it"
    return ""


_NEW = "the run made this repository, which holds more than git init and git clone give it"


def _left(found: Iterable[tuple[Watched, str]]) -> Iterator[tuple[Watched, str]]:
    """
    *found* without what belongs to new repositories that stay.
    """
    changes = list(found)
    stays = [
        change
        for place, change in changes
        if os.path.basename(change) == ".git" and change == place.path and not place.state and place.link is None
        if is_as_git_init_makes(change)
    ]
    return (pair for pair in changes if not any(is_inside(pair[1], repository) for repository in stays))


_WHY = "the run made or changed it, and it is denied to the run, or other programs execute or obey it"


def _move(quarantine: Quarantine, path: str, link: str | None) -> str:
    try:
        return f"moved to {quarantine.take(path, link)!r}"
    except FileNotFoundError:
        return "gone again"
    except OSError as exc:
        return f"not moved away ({exc.strerror}): remove {path!r} before you go on there"


def _done(change: str, moved: Mapping[str, str]) -> str:
    """
    What was done about *change*, itself or with a directory above it.
    """
    above = next(path for path in moved if is_inside(change, path))
    return moved[above] if above == change else f"with {above!r} {moved[above]}"
