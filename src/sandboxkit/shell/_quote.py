"""
Writing words down so that they read back as the same words, but for a program whose name
has a `=`: that reads back as an assignment.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["quote"]

_BARE = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")
_BARE_LINE = re.compile(r"[A-Za-z0-9@%+=:,./_-]+(?: [A-Za-z0-9@%+=:,./_-]+)*")


def quote(words: Sequence[str]) -> str:
    """
    *words* as one line: the canonical text that glob and regex rules are matched on.

    A word of ASCII letters, digits and ``@%+=:,./_-`` stands bare, every other word
    in single quotes, with a single quote inside written as ``'"'"'``.
    """
    line = " ".join(words)
    if _BARE_LINE.fullmatch(line) and line.count(" ") == len(words) - 1:
        return line
    return " ".join(word if _BARE.fullmatch(word) else "'" + word.replace("'", "'\"'\"'") + "'" for word in words)
