"""
What git's configuration says: who the user is, and where it names files that git obeys. The
user's own configuration file stays out of a box, since it may hold tokens and name programs;
without a name and an address git cannot commit.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["git_identity", "settings"]

_SECTION = re.compile(r"\s*\[\s*([\w.-]+)(\s+\"[^\"]*\")?\s*\]")
_ENTRY = re.compile(r"\s*(name|email)\s*=\s*(.*?)\s*$", re.IGNORECASE)
_MAX_BYTES = 1 << 16
_HEADER = re.compile(r"\s*\[\s*([\w.-]+)(?:\s+\"(?:[^\"\\]|\\.)*\")?\s*\]")
_VARIABLE = re.compile(r"\s*([A-Za-z][\w-]*)\s*=\s*(.*)", re.DOTALL)
_SAFE = re.compile(r"[^\x00-\x1f\x7f\\\"]{1,200}")


def git_identity(home: str) -> bytes:
    """
    A git configuration file with only the name and the address that the files of
    *home* give the user; empty where they give none. Included files are not read.

    Source: git-config(1), FILES and CONFIGURATION FILE.
    """
    found: dict[str, str] = {}
    for name in (".config/git/config", ".gitconfig"):  # the later one wins
        found.update(_user_section(_read(os.path.join(home, name))))
    if not found:
        return b""
    lines = [f'\t{key} = "{value}"' for key, value in sorted(found.items())]
    return "\n".join(["[user]", *lines, ""]).encode()


def settings(text: str) -> Iterator[tuple[str, str]]:
    """
    (`section.key` in small letters, value) of a git configuration file; subsections are left
    out of the name.

    Source: git-config(1), "Syntax".
    """
    section = ""
    for line in re.sub(r"\\\r?\n", "", text).split("\n"):
        rest = line
        if header := _HEADER.match(line):
            section, rest = header[1].lower().partition(".")[0], line[header.end() :]
        if variable := _VARIABLE.match(rest):
            yield f"{section}.{variable[1].lower()}", _value(variable[2])


def _value(text: str) -> str:
    """
    *text* without quotes, escapes and a comment.
    """
    value, is_quoted, letters = "", False, iter(text)
    for letter in letters:
        if letter == "\\":
            value += next(letters, "")
        elif letter == '"':
            is_quoted = not is_quoted
        elif letter in "#;" and not is_quoted:
            break
        else:
            value += letter
    return value.strip()


def _user_section(text: str) -> dict[str, str]:
    section, found = "", {}
    for line in text.splitlines():
        if match := _SECTION.match(line):
            section = match[1].lower() if not match[2] else ""
        elif section == "user" and (match := _ENTRY.match(line)):
            value = match[2].strip('"')
            if _SAFE.fullmatch(value):
                found[match[1].lower()] = value
    return found


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""
