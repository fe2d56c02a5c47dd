"""
Globs over one line of text or one word: `*` and `?`, nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Later", "Searched", "all_characters", "any_glob", "any_of", "glob_pattern"]


class Searched(Protocol):
    """
    A pattern, compiled or not.
    """

    @property
    def pattern(self) -> str:
        """
        Its text.
        """


@final
class Later:
    """
    A pattern that is compiled when something is first looked for: a process asks few of
    those in the built-in tables.

    Args:
        pattern: Its text.
        make: Compiles it, to what has a `fullmatch` and, where it is asked for, a `search`.

    Attributes:
        search, fullmatch: Those of the compiled pattern; what they find is true.
    """

    __slots__ = ("_make", "fullmatch", "pattern", "search")

    fullmatch: Callable[[str], object]
    search: Callable[..., object]

    def __init__(self, pattern: str, make: Callable[[str], object] = re.compile) -> None:
        self.pattern = pattern
        self._make = make

    def __getattr__(self, name: str) -> object:
        # Only before the first use: afterwards both stand in their slots.
        if name not in ("fullmatch", "search"):
            raise AttributeError(name)
        compiled = self._make(self.pattern)
        for each in ("fullmatch", "search"):
            if hasattr(compiled, each):
                setattr(self, each, getattr(compiled, each))
        return getattr(compiled, name)


def all_characters(pattern: str) -> re.Pattern[str]:
    """
    *pattern* compiled so that its dots take every character.
    """
    return re.compile(pattern, re.DOTALL)


def glob_pattern(glob: str, *, one: str = ".") -> re.Pattern[str]:
    """
    *glob* compiled for `fullmatch`; see `_text`.
    """
    return re.compile(_text(glob, one), re.DOTALL)


def _text(glob: str, one: str = ".") -> str:
    """
    *glob* as a regular expression. ``*`` takes any characters, also blanks and
    slashes, ``?`` takes one, of the regular expression *one*; all others stand for
    themselves.

    Linear: every piece between two stars is found once, at its leftmost place, in a
    group that is never entered again.
    """
    pieces = ["".join(one if char == "?" else re.escape(char) for char in piece) for piece in re.split(r"\*+", glob)]
    if len(pieces) == 1:
        return pieces[0]
    middle = "".join(f"(?>.*?{piece})" for piece in pieces[1:-1] if piece)
    return f"{pieces[0]}{middle}.*{pieces[-1]}"


def any_glob(globs: Iterable[str]) -> Later:
    """
    All of *globs* as one.
    """
    return Later("|".join(f"(?:{_text(glob)})" for glob in globs), all_characters)


def any_of(patterns: Sequence[Searched | None]) -> Later | None:
    """
    Found where any of *patterns* is, or None where one is missing.
    """
    known = dict.fromkeys(pattern.pattern for pattern in patterns if pattern)
    return None if None in patterns or not known else Later("|".join(known))
