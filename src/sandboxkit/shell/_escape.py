"""
Backslash escapes of ``$'…'``, `printf` and `echo -e`.
"""

from __future__ import annotations

import re

__all__ = ["printed", "unescape"]

_ANSI_C = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|0?([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_LETTERS = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_FORMAT = re.compile(r"%[-+ 0#]*\d*(?:\.\d+)?([a-zA-Z%])")


def unescape(text: str) -> str:
    """
    *text* with its escapes decoded; a byte above 127 becomes the character of that number.

    Source: bash(1), "QUOTING", version 5.2.
    """
    return _ANSI_C.sub(_decoded, text) if "\\" in text else text


def _decoded(found: re.Match[str]) -> str:
    for digits, base in ((found[1], 16), (found[2], 16), (found[3], 16), (found[4], 8)):
        if digits is not None:
            code = int(digits, base)
            return chr(code) if code <= 0x10FFFF and not 0xD800 <= code < 0xE000 else "\ufffd"
    if found[5] is not None:
        return chr(ord(found[5]) & 0x1F)
    return _LETTERS.get(found[6], "\\" + found[6])


def printed(argv: tuple[str, ...]) -> str | None:
    """
    What `echo` or `printf` with these words prints, or None for other commands. For a
    guess: escapes are always decoded, and formats only take words.
    """
    if not argv or argv[0] not in ("echo", "printf"):
        return None
    words = list(argv[1:])
    if argv[0] == "echo":
        while words and words[0] in ("-n", "-e", "-E", "-ne", "-en"):
            words.pop(0)
        return unescape(" ".join(words))
    if words[:1] == ["--"]:
        words.pop(0)
    return _formatted(words) if words else ""


def _formatted(words: list[str]) -> str:
    format_, values = unescape(words[0]), words[1:]
    takes = sum(1 for found in _FORMAT.finditer(format_) if found[1] != "%")
    rounds = max(1, -(-len(values) // takes)) if takes else 1
    remaining = iter(values)

    def filled(found: re.Match[str]) -> str:
        if found[1] == "%":
            return "%"
        value = next(remaining, "")
        return unescape(value) if found[1] == "b" else value

    return "".join(_FORMAT.sub(filled, format_) for _ in range(min(rounds, 50)))
