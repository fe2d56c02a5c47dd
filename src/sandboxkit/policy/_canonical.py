"""
Which patterns can match a command's canonical line at all.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

from sandboxkit.policy._regex import MAX_PATTERN, linear_regex

if TYPE_CHECKING:
    from sandboxkit.policy._rule import PolicyRule

__all__ = ["can_match"]

_BARE = frozenset(string.ascii_letters + string.digits + "@%+=:,./_-")
_OTHERS = (
    "\t\n\x01\N{LATIN SMALL LETTER E WITH ACUTE}\N{CYRILLIC SMALL LETTER ZHE}\N{HORIZONTAL ELLIPSIS}\N{GRINNING FACE}"
)
_LETTERS = "".join(chr(code) for code in range(32, 127)) + _OTHERS
_PLAIN = re.compile(r"[A-Za-z0-9@%+=:,./_*?-]+(?: [A-Za-z0-9@%+=:,./_*?-]+)*")
_MAX_STATES = 300
_BEFORE, _IN_WORD, _IN_QUOTES, _CLOSED, _OUT_1, _OUT_2, _OUT_3 = range(7)
_ENDS = frozenset((_IN_WORD, _CLOSED))


def can_match(rule: PolicyRule) -> bool:
    """
    Whether the glob or regex of *rule* matches any line that `shell.quote` can give:
    words with one blank between, each bare or wholly in single quotes.

    Also true where that is not worth finding out: the pattern is too large.
    """
    if rule.glob is not None and _PLAIN.fullmatch(rule.glob):
        return True
    pattern = _regex_of(rule.glob) if rule.glob is not None else rule.regex
    if pattern is None or len(pattern) > MAX_PATTERN:
        return True
    regex = linear_regex(pattern)
    if regex.states > _MAX_STATES:
        return True
    # Every letter of the pattern is tried, and some of each kind besides: no class of
    # characters that could matter is left out.
    kinds: dict[str, set[str]] = {}
    for letter in _LETTERS + pattern:
        kinds.setdefault(_kind(letter), set()).add(letter)
    return regex.meets(_step, _ENDS, {kind: tuple(alike) for kind, alike in kinds.items()})


def _kind(letter: str) -> str:
    """
    One of the letters that `_step` treats like *letter*.
    """
    if letter in _BARE or not letter.isascii():
        return "a"
    return letter if letter in " '\"" else "$"


def _regex_of(glob: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(char) or _literal(char) for char in re.sub(r"\*+", "*", glob))


def _literal(char: str) -> str:
    return f"\\{char}" if char in string.punctuation and char != "_" else char


def _step(state: int, char: str) -> int | None:
    """
    One character of a canonical line. What is not ASCII is taken bare too, which
    `shell.quote` would not do: that errs on the side of taking a rule.
    """
    if state == _IN_QUOTES:
        return _CLOSED if char == "'" else _IN_QUOTES
    if state in (_BEFORE, _IN_WORD):
        if char in _BARE or not char.isascii():
            return _IN_WORD
        if char == "'" and state == _BEFORE:
            return _IN_QUOTES
        return _BEFORE if char == " " and state == _IN_WORD else None
    # A single quote within quotes is written '"'"'.
    following = {(_CLOSED, " "): _BEFORE, (_CLOSED, '"'): _OUT_1, (_OUT_1, "'"): _OUT_2, (_OUT_2, '"'): _OUT_3}
    return _IN_QUOTES if (state, char) == (_OUT_3, "'") else following.get((state, char))
