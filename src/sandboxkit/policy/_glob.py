"""
Globs over one line of text or one word: `*` and `?`, nothing else.
"""

from __future__ import annotations

import re

__all__ = ["glob_pattern"]


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
