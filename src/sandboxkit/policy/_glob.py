"""
Globs over one line of text or one word: `*` and `?`, nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["any_glob", "any_of", "glob_pattern"]


def glob_pattern(glob: str, *, one: str = ".") -> re.Pattern[str]:
    """
    *glob* compiled for `fullmatch`. ``*`` takes any characters, also blanks and
    slashes, ``?`` takes one, of the regular expression *one*; all others stand for
    themselves.

    Linear: every piece between two stars is found once, at its leftmost place, in a
    group that is never entered again.
    """
    pieces = ["".join(one if char == "?" else re.escape(char) for char in piece) for piece in re.split(r"\*+", glob)]
    if len(pieces) == 1:
        return re.compile(pieces[0], re.DOTALL)
    middle = "".join(f"(?>.*?{piece})" for piece in pieces[1:-1] if piece)
    return re.compile(f"{pieces[0]}{middle}.*{pieces[-1]}", re.DOTALL)


def any_glob(globs: Iterable[str]) -> re.Pattern[str]:
    """
    All of *globs* compiled as one.
    """
    return re.compile("|".join(f"(?:{glob_pattern(glob).pattern})" for glob in globs), re.DOTALL)


def any_of(patterns: Sequence[re.Pattern[str] | None]) -> re.Pattern[str] | None:
    """
    Found where any of *patterns* is, or None where one is missing.
    """
    known = dict.fromkeys(pattern.pattern for pattern in patterns if pattern)
    return None if None in patterns or not known else re.compile("|".join(known))
