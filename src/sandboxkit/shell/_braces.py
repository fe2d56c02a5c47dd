"""
Brace expansion: one word in, the words bash makes of it out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxkit.shell._unsure import UnsureError, check_nesting

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["braces"]

_MAX_WORDS = 200
_SEQUENCE = re.compile(r"([-+]?\d+|[A-Za-z])\.\.([-+]?\d+|[A-Za-z])(?:\.\.([-+]?\d+))?")
_PADDED = re.compile(r"-?0.")
_MAX_DIGITS = 18


def braces(word: str) -> tuple[str, ...]:
    """
    The words *word* stands for, in order. Only unquoted braces and commas may be in it.

    Raises:
        UnsureError: They are more than are read.

    Source: bash(1), "Brace Expansion", and ``braces.c`` of version 5.2.
    """
    found = tuple(_limited(_expanded(word)))
    return found or ("",)


def _limited(words: Iterator[str]) -> Iterator[str]:
    for number, word in enumerate(words):
        if number >= _MAX_WORDS:
            raise UnsureError(f"a word in braces stands for more than {_MAX_WORDS} words")
        yield word


def _expanded(word: str, depth: int = 0) -> Iterator[str]:
    # As brace_expand() of braces.c does it: an odd form is left alone there or not for
    # no reason that could be guessed.
    check_nesting(depth)
    begin = word.find("{")
    while begin >= 0:
        end = -1 if begin == 0 and word[1:2] == "}" else _closing(word, begin)
        if end > 0:
            for choice in _choices(word[begin : end + 1], depth + 1):
                for tail in _expanded(word[end + 1 :], depth + 1):
                    yield word[:begin] + choice + tail
            return
        begin = word.find("{", begin + 1)
    yield word


def _closing(word: str, begin: int) -> int:
    """
    The place of the first closing brace behind a comma or two dots of the same level.
    """
    depth, is_separated = 0, False
    for place in range(begin + 1, len(word)):
        char = word[place]
        if char == "}" and not depth and is_separated:
            return place
        depth = _depth(depth, char)
        is_dots = word.startswith("..", place) and word[place + 2 : place + 3] != "}"
        is_separated |= not depth and (char == "," or is_dots)
    return -1


def _depth(depth: int, char: str) -> int:
    return depth + 1 if char == "{" else depth - 1 if char == "}" and depth else depth


def _choices(braced: str, depth: int) -> list[str]:
    inside = braced[1:-1]
    if "," in inside:
        return [word for piece in _at_commas(inside) for word in _expanded(piece, depth)]
    found = _SEQUENCE.fullmatch(inside)
    return (_sequence(found) if found else None) or [braced]


def _at_commas(inside: str) -> list[str]:
    pieces, depth, begin = [], 0, 0
    for place, char in enumerate(inside):
        depth = _depth(depth, char)
        if char == "," and not depth:
            pieces.append(inside[begin:place])
            begin = place + 1
    return [*pieces, inside[begin:]]


def _sequence(found: re.Match[str]) -> list[str] | None:
    first, last = found[1], found[2]
    if first.isalpha() != last.isalpha():
        return None
    is_letters = first.isalpha()
    if is_letters and first.isupper() != last.isupper():
        raise UnsureError("a word in braces runs over characters that are no letters")
    if max(len(number or "") for number in found.groups()) > _MAX_DIGITS:
        raise UnsureError("a word in braces counts too far")
    low, high = (ord(first), ord(last)) if is_letters else (int(first), int(last))
    step = abs(int(found[3] or 1)) or 1
    if abs(high - low) // step >= _MAX_WORDS:
        raise UnsureError(f"a word in braces stands for more than {_MAX_WORDS} words")
    numbers = range(low, high + 1, step) if low <= high else range(low, high - 1, -step)
    if is_letters:
        return [chr(number) for number in numbers]
    is_padded = _PADDED.match(first) or _PADDED.match(last)
    width = max(len(first), len(last)) if is_padded else 0
    return [f"{number:0{width}d}" for number in numbers]
