"""
Who git says the user is. The user's own configuration file stays out of a box, since it
may hold tokens and name programs; without a name and an address git cannot commit.
"""

from __future__ import annotations

import os
import re

__all__ = ["git_identity"]

_SECTION = re.compile(r"\s*\[\s*([\w.-]+)(\s+\"[^\"]*\")?\s*\]")
_ENTRY = re.compile(r"\s*(name|email)\s*=\s*(.*?)\s*$", re.IGNORECASE)
_MAX_BYTES = 1 << 16
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
