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

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_as_git_init_makes"]

_FILES = frozenset(
    "COMMIT_EDITMSG FETCH_HEAD HEAD MERGE_HEAD MERGE_MODE MERGE_MSG ORIG_HEAD config description index packed-refs".split()
)
_DIRECTORIES = frozenset("branches hooks info logs objects refs".split())
_SAMPLE = ".sample"
"""What git's templates end in, and no hook that git runs does."""
_INFO = frozenset({"exclude", "refs", "sparse-checkout"})
_NOT_IN_OBJECTS = ("info/alternates", "info/http-alternates")
"""They name object stores elsewhere."""
_MAX_BYTES = 1 << 14
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = _READ | os.O_DIRECTORY

_SECTION = re.compile(r"\[([a-z]+)\]")
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


def is_as_git_init_makes(path: str) -> bool:
    """
    Whether directory *path*, a new `.git`, holds nothing by which git would run a program
    or go elsewhere. False where that is not certain.
    """
    try:
        with opened(path) as place:
            folder = os.open(".", _FOLDER, dir_fd=place)
            try:
                return _is_plain(folder)
            finally:
                os.close(folder)
    except (OSError, UnicodeDecodeError):
        return False


def _is_plain(folder: int) -> bool:
    kinds = {name: os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode for name in os.listdir(folder)}
    known = all(
        (stat.S_ISREG(mode) and name in _FILES) or (stat.S_ISDIR(mode) and name in _DIRECTORIES)
        for name, mode in kinds.items()
    )
    return (
        known
        and "HEAD" in kinds
        and _settings_are_plain(_text(folder, "config"))
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
        content = file.read(_MAX_BYTES)
    return content.decode() if len(content) < _MAX_BYTES else "\\"


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _settings_are_plain(text: str) -> bool:
    section = ""
    for line in filter(None, (line.strip(" \t") for line in text.split("\n"))):
        if match := _SECTION.fullmatch(line):
            section = match[1]
        elif match := _ENTRY.fullmatch(line):
            allowed = _KEYS.get(f"{section}.{match[1].lower()}")
            if allowed is None or not allowed.fullmatch(match[2].strip(" \t")):
                return False
        else:
            return False
    return True
