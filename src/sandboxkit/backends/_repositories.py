"""
Where git repositories lie in a writable directory, and which of their files make git run
programs or say where such files are.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

from sandboxkit.backends._git import settings
from sandboxkit.backends._layouts import layouts
from sandboxkit.model import is_inside, real_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandboxkit.model import Walk

__all__ = ["IS_REPOSITORY", "repositories"]

IS_REPOSITORY = ("HEAD", "objects", "refs")
"""
What git takes a directory for a repository by; see `is_git_directory` in its setup.c. The
latter two may lie in another directory that a file `commondir` names.
"""
_OF_WORKTREE = ("commondir", "config.worktree")
_POINTER = b"gitdir: "
_MAX_POINTER_BYTES = 8192
_MAX_CONFIG_BYTES = 1 << 18
_MAX_INCLUDES = 10
"""As many levels as git follows."""


def _obeyed() -> tuple[str, ...]:
    """
    The names git obeys in a repository's own directory: those the table gives for `.git`.
    """
    return tuple(name.removeprefix(".git/") for name in layouts().protect["git"] if name.startswith(".git/"))


def repositories(root: str, walk: Walk, is_writable: Callable[[str], bool]) -> Iterator[tuple[str, ...]]:
    """
    For each repository in *root*, nearest first, the paths in it that git obeys,
    existing or not: also for modules, and for the directories worktrees point to.

    Args:
        root: A writable directory.
        walk: Lists directories; says itself where it met a bound.
        is_writable: Whether the box may write a path; others need no protection.

    Source: gitrepository-layout(5), gitsubmodules(7), git-worktree(1).
    """
    places = deque([root.rstrip("/")])
    while places:
        place = places.popleft()
        entries = walk.entries(place)
        if ".git" in entries:
            for names in _by_name(place, walk, is_directory=entries[".git"]):
                yield tuple(filter(is_writable, names))
        if all(name in entries for name in IS_REPOSITORY) or ("HEAD" in entries and "commondir" in entries):
            for names in (*_of_worktree(place, walk), _named_by(f"{place}/config", place)):
                yield tuple(filter(is_writable, names))
        below = (f"{place}/{name}" for name, is_directory in entries.items() if is_directory and name != ".git")
        places.extend(path for path in below if is_writable(path))


def _by_name(place: str, walk: Walk, *, is_directory: bool) -> Iterator[tuple[str, ...]]:
    git = f"{place}/.git"
    if is_directory:
        yield (f"{place}/.gitmodules",)
        yield from _repository(git, walk)
        yield _named_by(f"{git}/config", place)
        return
    yield (git, f"{place}/.gitmodules")
    directory = real_now(git) if os.path.islink(git) else _pointed(git, _POINTER)
    if directory is not None:
        yield from _of_worktree(directory, walk)
        for config in (f"{directory}/config", f"{_shared(directory)}/config", f"{directory}/config.worktree"):
            yield _named_by(config, place)


def _of_worktree(directory: str, walk: Walk) -> Iterator[tuple[str, ...]]:
    """
    What a worktree's or submodule's `.git` file points to, and the repository behind it.
    """
    yield from _repository(directory, walk)
    shared = _shared(directory)
    if shared != directory:
        yield from _repository(shared, walk)


def _shared(directory: str) -> str:
    """
    Where most of a worktree's repository is.
    """
    return _pointed(f"{directory}/commondir", b"") or directory


def _named_by(config: str, place: str, level: int = 0) -> tuple[str, ...]:
    """
    The real paths of the directory of hooks, and of further configuration files, that the
    file *config* names, and those in turn.

    Args:
        config: Which.
        place: Where hooks run.
        level: How many files led here.

    Source: git-config(1), `core.hooksPath` and "Includes".
    """
    found: dict[str, None] = {}
    text = os.fsdecode(_content(config, _MAX_CONFIG_BYTES)) if level < _MAX_INCLUDES else ""
    for key, value in settings(text):
        if key == "core.hookspath" and value:
            found[real_now(os.path.join(place, os.path.expanduser(value)))] = None
        elif key in ("include.path", "includeif.path") and value:
            included = real_now(os.path.join(os.path.dirname(config), os.path.expanduser(value)))
            found.update(dict.fromkeys((included, *_named_by(included, place, level + 1))))
    return tuple(path for path in found if not is_inside(place, path))  # all would be held


def _repository(directory: str, walk: Walk) -> Iterator[tuple[str, ...]]:
    yield tuple(f"{directory}/{name}" for name in _obeyed())
    entries = walk.entries(directory)
    if entries.get("worktrees"):
        for name in walk.entries(f"{directory}/worktrees"):
            yield tuple(f"{directory}/worktrees/{name}/{file}" for file in _OF_WORKTREE)
    if entries.get("modules"):
        yield from _modules(f"{directory}/modules", walk)


def _modules(place: str, walk: Walk) -> Iterator[tuple[str, ...]]:
    """
    The repositories of submodules; a submodule's name may hold slashes.
    """
    for name, is_directory in walk.entries(place).items():
        if not is_directory:
            continue
        below = f"{place}/{name}"
        if "HEAD" in walk.entries(below):
            yield from _repository(below, walk)
        else:
            yield from _modules(below, walk)


def _pointed(file: str, prefix: bytes) -> str | None:
    """
    The real path of the directory that *file* names after *prefix*, or None where it is
    no regular file or names none. A relative one counts from the file's directory.
    """
    text = _content(file, _MAX_POINTER_BYTES)
    if not text.startswith(prefix) or b"\0" in text:
        return None
    name = os.fsdecode(text[len(prefix) :].rstrip(b"\r\n"))  # as git's read_gitfile() and get_common_dir() do
    return real_now(os.path.join(os.path.dirname(file), name)) if name else None


def _content(file: str, most: int) -> bytes:
    """
    The first *most* bytes of *file*; empty where it is no regular file or cannot be read.
    """
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(fd, "rb") as opened:
        try:
            return opened.read(most)
        except OSError:
            return b""  # a directory
