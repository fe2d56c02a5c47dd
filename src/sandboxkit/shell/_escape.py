"""
Backslash escapes of ``$'…'``, `printf` and `echo -e`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Output", "printed", "unescape"]

_CODE = r"x(?P<hex>[0-9A-Fa-f]{1,2})|u(?P<u>[0-9A-Fa-f]{1,4})|U(?P<long>[0-9A-Fa-f]{1,8})"
_OTHER = r"(?P<other>.)"
_ANSI_C = re.compile(
    rf"\\(?:{_CODE}|x\{{(?P<braced>[0-9A-Fa-f]*)\}}?|(?P<octal>[0-7]{{1,3}})|c(?P<control>\\\\|.)|{_OTHER})", re.DOTALL
)
_ECHO = re.compile(rf"\\(?:{_CODE}|0(?P<octal>[0-7]{{0,3}})|(?P<stop>c).*|{_OTHER})", re.DOTALL)
_VALUE = re.compile(rf"\\(?:{_CODE}|0?(?P<octal>[0-7]{{1,3}})|(?P<stop>c).*|{_OTHER})", re.DOTALL)
_FORMAT = re.compile(
    rf"\\(?:{_CODE}|(?P<octal>[0-7]{{1,3}})|(?P<other>[^%]))"
    r"|%(?P<flags>[-+ 0#']*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?)(?P<kind>[a-zA-Z%]|\([^)]*\)T)",
    re.DOTALL,
)
_LETTERS = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "e": 27, "E": 27, "f": 12, "v": 11, "\\": 92}
_QUOTES = {"'": 39, '"': 34, "?": 63}
_ECHO_OPTION = re.compile(r"-[neE]+")
_MAX_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Output:
    """
    What a command prints, without the newline at its end.

    Attributes:
        text: The text.
        is_known: Whether bash prints exactly that.
    """

    text: str
    is_known: bool


def unescape(text: str) -> str:
    """
    The value of ``$'text'``. Bytes that are no UTF-8 become lone surrogates, as with
    `os.fsdecode`.

    Source: bash(1), "QUOTING"; ``lib/sh/strtrans.c`` of version 5.2 for ``\\x{…}`` and
    for what follows ``\\c``.
    """
    if "\\" not in text:
        return text
    # Like every string of C it ends at the first NUL.
    return _decoded(_ANSI_C, text).partition("\0")[0]


def printed(argv: tuple[str, ...]) -> Output | None:
    """
    What `echo` or `printf` with these words prints, or None for other commands.
    """
    if argv and argv[0] in ("which", "command", "type", "true", "pwd"):
        return _found(argv)
    if not argv or argv[0] not in ("echo", "printf"):
        return None
    words = list(argv[1:])
    if argv[0] == "echo":
        return _echoed(words)
    if words[:1] == ["--"]:
        words.pop(0)
    if not words or words[0] == "-v":
        return Output("", is_known=True)
    return _formatted(words)


def _found(argv: tuple[str, ...]) -> Output | None:
    """
    What a look for a program prints, as far as its name matters.
    """
    if argv == ("pwd",):
        return Output(".", is_known=False)
    if argv[0] == "true":
        return Output("", is_known=True)
    looks = argv[0] == "which" or argv[1:2] in (("-v",), ("-p",), ("-P",))
    return Output(argv[-1], is_known=False) if looks and len(argv) > 1 else None


def _echoed(words: list[str]) -> Output:
    decodes = False
    while words and _ECHO_OPTION.fullmatch(words[0]):
        for letter in words.pop(0)[1:]:
            decodes = letter == "e" if letter in "eE" else decodes
    text = " ".join(words)
    return _output(_decoded(_ECHO, text) if decodes else text)


def _formatted(words: list[str]) -> Output:
    form, values = _latin(words[0]), [_latin(value) for value in words[1:]]
    kinds = [found for found in _FORMAT.finditer(form) if found["kind"]]
    takes = sum(1 for found in kinds if found["kind"] != "%")
    rounds = max(1, -(-len(values) // takes)) if takes else 1
    remaining = iter(values)

    def filled(found: re.Match[str]) -> str:
        if not found["kind"]:
            return _piece(found)
        if found["kind"] == "%":
            return "%"
        value = next(remaining, "")
        return _VALUE.sub(_piece, value) if found["kind"] == "b" else value

    text = _text("".join(_FORMAT.sub(filled, form) for _ in range(min(rounds, _MAX_ROUNDS))))
    is_plain = all(not found["flags"] and found["kind"] in "sb%" for found in kinds) and "%" not in _FORMAT.sub(
        "", form
    )
    stops = any(found["kind"] == "b" for found in kinds) and any("\\c" in value for value in values)
    return _output(text, is_known=is_plain and not stops and rounds <= _MAX_ROUNDS)


def _output(text: str, *, is_known: bool = True) -> Output:
    return Output(text.replace("\0", ""), is_known and "\0" not in text)


def _latin(text: str) -> str:
    """
    The bytes of *text*, each as the character of that number.
    """
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _text(latin: str) -> str:
    return latin.encode("latin-1").decode("utf-8", "surrogateescape")


def _decoded(escapes: re.Pattern[str], text: str) -> str:
    return _text(escapes.sub(_piece, _latin(text)))


def _piece(found: re.Match[str]) -> str:
    groups = found.groupdict()
    if (digits := groups["hex"] or groups.get("octal")) is not None:
        return chr(int(digits or "0", 16 if groups["hex"] else 8) & 0xFF)
    if (digits := groups["u"] or groups["long"]) is not None:
        return _encoded(int(digits, 16))
    if (digits := groups.get("braced")) is not None:
        return chr(int(digits or "0", 16) & 0xFF)
    if groups.get("stop"):
        return ""
    if control := groups.get("control"):
        return "\x7f" if control == "?" else chr(ord(control[0].upper()) & 0x1F)
    other = found["other"]
    known = _LETTERS.get(other) or (None if found.re in (_ECHO, _VALUE) else _QUOTES.get(other))
    return "\\" + other if known is None else chr(known)


def _encoded(code: int) -> str:
    """
    The bytes bash writes for a character, also for numbers that are none.
    """
    if code < 0x80:
        return chr(code)
    length = next((length for length in range(2, 7) if code < 1 << (5 * length + 1)), 0)
    if not length:
        return "\0"
    rest = [0x80 | (code >> 6 * place) & 0x3F for place in reversed(range(length - 1))]
    return "".join(map(chr, [(0xFF00 >> length) & 0xFF | code >> 6 * (length - 1), *rest]))
