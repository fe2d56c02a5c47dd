"""
Brace expansion: one word in, the words bash makes of it out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxkit.shell._unsure import UnsureError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["braces"]

_MAX_WORDS = 200
_SEQUENCE = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")


def braces(word: str) -> tuple[str, ...]:
    """
    The words *word* stands for, in order. Only unquoted braces and commas may be in it.

    Raises:
        UnsureError: They are more than are read.

    Source: bash(1), "Brace Expansion", version 5.2.
    """
    found = tuple(_limited(_expanded(word)))
    return found or ("",)


def _limited(words: Iterator[str]) -> Iterator[str]:
    for number, word in enumerate(words):
        if number >= _MAX_WORDS:
            raise UnsureError(f"a word in braces stands for more than {_MAX_WORDS} words")
        yield word


def _expanded(word: str) -> Iterator[str]:
    begin = word.find("{")
    while begin >= 0:
        end = _closing(word, begin)
        choices = _choices(word[begin + 1 : end]) if end > 0 else None
        if choices is not None:
            for choice in choices:
                for tail in _expanded(word[end + 1 :]):
                    yield word[:begin] + choice + tail
            return
        begin = word.find("{", begin + 1)
    yield word


def _closing(word: str, begin: int) -> int:
    depth = 0
    for place in range(begin, len(word)):
        depth += (word[place] == "{") - (word[place] == "}")
        if not depth:
            return place
    return -1


def _choices(inside: str) -> list[str] | None:
    pieces = _at_commas(inside)
    if len(pieces) > 1:
        return [word for piece in pieces for word in _expanded(piece)]
    found = _SEQUENCE.fullmatch(inside)
    return _sequence(found) if found else None


def _at_commas(inside: str) -> list[str]:
    pieces, depth, begin = [], 0, 0
    for place, char in enumerate(inside):
        depth += (char == "{") - (char == "}")
        if char == "," and not depth:
            pieces.append(inside[begin:place])
            begin = place + 1
    return [*pieces, inside[begin:]]


def _sequence(found: re.Match[str]) -> list[str] | None:
    first, last = found[1], found[2]
    if first.isalpha() != last.isalpha():
        return None
    is_letters = first.isalpha()
    low, high = (ord(first), ord(last)) if is_letters else (int(first), int(last))
    step = abs(int(found[3] or 1)) or 1
    if abs(high - low) // step >= _MAX_WORDS:
        raise UnsureError(f"a word in braces stands for more than {_MAX_WORDS} words")
    numbers = range(low, high + 1, step) if low <= high else range(low, high - 1, -step)
    width = 0 if is_letters else max((len(end) for end in (first, last) if end.lstrip("-").startswith("0")), default=0)
    return [chr(number) if is_letters else f"{number:0{width}d}" for number in numbers]
