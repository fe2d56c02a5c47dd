"""
Whether a repository that a run made where none was is one that `git init` makes: then it
stays. `git init` is too ordinary an act to undo, and what makes a repository dangerous is
little and known: hooks, and keys of its configuration.

An allow-list: a name, a key or a value this module does not know makes it one that is
moved away. Everything is read by descriptors and without following a link.

Source: gitrepository-layout(5), git-config(1), githooks(5), git-init(1).
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from sandboxkit.backends._quarantine import opened
from sandboxkit.model import open_flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["is_as_git_init_makes", "obeyed_beyond"]

_FILES = frozenset(
    "COMMIT_EDITMSG FETCH_HEAD HEAD MERGE_HEAD MERGE_MODE MERGE_MSG ORIG_HEAD config description index packed-refs".split()
)
_DIRECTORIES = frozenset("branches hooks info logs objects refs".split())
_REPOSITORIES = frozenset({"modules", "worktrees"})
"""What is in them is looked at by itself."""
_SAMPLE = ".sample"
"""What git's templates end in, and no hook that git runs does."""
_INFO = frozenset({"exclude", "refs", "sparse-checkout"})
_NOT_IN_OBJECTS = ("info/alternates", "info/http-alternates")
"""They name object stores elsewhere."""
_UP = "../..\n"
"""What leads from the directory of a worktree to its repository."""
_MAX_BYTES = 1 << 14
_READ = open_flags("RDONLY", "NOFOLLOW", "NONBLOCK", "CLOEXEC")
_FOLDER = _READ | open_flags("DIRECTORY")

_SECTION = re.compile(r"""\[(?:([a-z]+)|(remote|branch|submodule) "[^"\\\x00-\x1f\x7f]+")\]""")
_ENTRY = re.compile(r"([a-z]+)[ \t]*=[ \t]*([^\x00-\x1f\x7f\\\";#]*)", re.IGNORECASE)
_SWITCH = re.compile(r"true|false")
_WORDS = re.compile(r"[^\x00-\x1f\x7f\\\";#]*")
_KEYS: Mapping[str, re.Pattern[str]] = {
    "core.bare": re.compile("false"),
    "core.filemode": _SWITCH,
    "core.ignorecase": _SWITCH,
    "core.logallrefupdates": _SWITCH,
    "core.precomposeunicode": _SWITCH,
    "core.repositoryformatversion": re.compile("[01]"),
    "core.symlinks": _SWITCH,
    "extensions.objectformat": re.compile("sha1|sha256"),
    "user.email": _WORDS,
    "user.name": _WORDS,
}
"""What `git init` writes, and who the user is. No key here starts a program or names a path."""
_URL = re.compile(r"(?!-)(?!.*::)[^\x00-\x1f\x7f\\\";#]*")
"""One with two colons names a program that git runs."""
_KEYS_BELOW: Mapping[str, re.Pattern[str]] = {
    "branch.merge": _WORDS,
    "branch.rebase": _SWITCH,
    "branch.remote": _WORDS,
    "core.autocrlf": re.compile("true|false|input"),
    "core.bare": _SWITCH,
    "core.quotepath": _SWITCH,
    "fetch.prune": _SWITCH,
    "merge.conflictstyle": re.compile("merge|diff3|zdiff3"),
    "pull.ff": re.compile("true|false|only"),
    "pull.rebase": _SWITCH,
    "push.autosetupremote": _SWITCH,
    "push.default": re.compile("nothing|current|upstream|simple|matching"),
    "remote.fetch": _WORDS,
    "remote.tagopt": re.compile("--no-tags|--tags"),
    "remote.url": _URL,
    "submodule.active": _WORDS,
    "submodule.url": _URL,
}
"""What `git clone` writes besides, and what users often set. No key here starts a program either."""
_WORKTREE = re.compile(r"^[ \t]*worktree[ \t]*=[ \t]*((?:\.\./)+[^\x00-\x1f\x7f\\\";#]*?)[ \t]*$", re.MULTILINE)
"""The line by which a submodule's repository leads to where it is worked in."""
_POINTER = "gitdir: "


def is_as_git_init_makes(path: str, *, is_below: bool = False) -> bool:
    """
    Whether directory *path*, a new `.git`, holds nothing by which git would run a program
    or go elsewhere. False where that is not certain.

    Args:
        path: Which.
        is_below: Whether it lies below the top, where it may also be a clone, or a repository
            without a directory to work in.
    """
    try:
        with opened(path) as place:
            folder = os.open(".", _FOLDER, dir_fd=place)
            try:
                return _is_plain(folder, is_below=is_below)
            finally:
                os.close(folder)
    except (OSError, UnicodeDecodeError):
        return False


def obeyed_beyond(names: Iterable[str]) -> Iterator[str]:
    """
    Those of *names*, the paths that git obeys in one new repository below the top, that
    exist and say more than `git init` and `git clone` do.
    """
    return (path for path in names if os.path.lexists(path) and not _says_nothing_more(path))


def _says_nothing_more(path: str) -> bool:
    directory, name = os.path.split(path)
    try:
        with opened(directory) as place:
            folder = os.open(".", _FOLDER, dir_fd=place)
            try:
                return _PLAIN.get(name, _never)(folder)
            finally:
                os.close(folder)
    except (OSError, UnicodeDecodeError):
        return False


def _never(_folder: int) -> bool:
    return False


_PLAIN: Mapping[str, Callable[[int], bool]] = {
    ".git": lambda _folder: True,  # what it points to is looked at by itself
    ".gitmodules": lambda _folder: True,  # git takes no program from it
    "commondir": lambda folder: _text(folder, "commondir") == _UP,  # likewise
    "config": lambda folder: _are_plain(folder, is_below=True),
    "hooks": lambda folder: all(name.endswith(_SAMPLE) for name in _files(folder, "hooks", {"hooks": 0})),
}


def _is_plain(folder: int, *, is_below: bool) -> bool:
    kinds = {name: os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode for name in os.listdir(folder)}
    directories = _DIRECTORIES | _REPOSITORIES if is_below else _DIRECTORIES
    known = all(
        (stat.S_ISREG(mode) and name in _FILES) or (stat.S_ISDIR(mode) and name in directories)
        for name, mode in kinds.items()
    )
    return (
        known
        and "HEAD" in kinds
        and _are_plain(folder, is_below=is_below)
        and all(name.endswith(_SAMPLE) for name in _files(folder, "hooks", kinds))
        and all(name in _INFO for name in _files(folder, "info", kinds))
        and not any(_exists(folder, f"objects/{name}") for name in _NOT_IN_OBJECTS)
    )


def _files(folder: int, name: str, kinds: Mapping[str, int]) -> list[str]:
    """
    The names in directory *name*, if it is there; what is no regular file counts as
    something nobody knows.
    """
    if name not in kinds:
        return []
    below = os.open(name, _FOLDER, dir_fd=folder)
    try:
        return [
            entry if stat.S_ISREG(os.stat(entry, dir_fd=below, follow_symlinks=False).st_mode) else ""
            for entry in os.listdir(below)
        ]
    finally:
        os.close(below)


def _text(folder: int, name: str) -> str:
    with open(os.open(name, _READ, dir_fd=folder), "rb") as file:
        if os.fstat(file.fileno()).st_nlink != 1:
            return "\\"  # a later run could write it by its other name
        content = file.read(_MAX_BYTES)
    return content.decode() if len(content) < _MAX_BYTES else "\\"


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _are_plain(folder: int, *, is_below: bool) -> bool:
    """
    Whether the settings of the repository *folder* are. Below the top one of them may lead
    to where a submodule is worked in, if that leads back here: so it is nobody else's.
    """
    text = _text(folder, "config")
    worktrees = _WORKTREE.findall(text) if is_below else []
    if len(worktrees) == 1 and _leads_back(folder, worktrees[0]):
        text = _WORKTREE.sub("", text)
    return _settings_are_plain(text, is_below=is_below)


def _leads_back(folder: int, worktree: str) -> bool:
    """
    Whether the file `.git` in *worktree*, which counts from *folder*, names *folder*.
    """
    try:
        place = os.open(worktree, _FOLDER, dir_fd=folder)
    except OSError:
        return False
    try:
        pointer = _text(place, ".git").rstrip("\n")
        there = os.stat(pointer.removeprefix(_POINTER), dir_fd=place)
        here = os.stat(folder)
        return pointer.startswith(_POINTER) and (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
    except OSError:
        return False
    finally:
        os.close(place)


def _settings_are_plain(text: str, *, is_below: bool) -> bool:
    keys = {**_KEYS, **_KEYS_BELOW} if is_below else _KEYS
    section = ""
    for line in filter(None, (line.strip(" \t") for line in text.split("\n"))):
        if match := _SECTION.fullmatch(line):
            section = match[1] or match[2]
        elif match := _ENTRY.fullmatch(line):
            allowed = keys.get(f"{section}.{match[1].lower()}")
            if allowed is None or not allowed.fullmatch(match[2].strip(" \t")):
                return False
        else:
            return False
    return True
