"""
`parse`: the only way a command enters the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from sandboxkit.errors import CommandError
from sandboxkit.model import Command, Setting, SimpleCommand
from sandboxkit.shell._found import Found
from sandboxkit.shell._lines import pieces
from sandboxkit.shell._unsure import TooMuchError, UnsureError
from sandboxkit.shell._unwrap import carried
from sandboxkit.shell._words import words

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["MAX_TEXT", "parse"]

MAX_TEXT = 10_000
"""
Characters of text that are read. Longer text is not looked at, and denied.
"""

# Looked up on its class, a member takes ten times as long.
_SUSPECT = Setting.SUSPECT
_EVALUATES = "it takes what a command printed for arithmetic, which can run commands"
_MAX_WORD_BYTES = 128 * 1024 - 1
"""
Source: execve(2), MAX_ARG_STRLEN, less the final NUL byte.
"""

_MAX_ARGV_BYTES = 1024 * 1024
"""
All words with their NUL bytes and pointers. The kernel takes a quarter of the stack
limit (2 MiB by default) for arguments and environment together; half of it is left
for the environment. Source: execve(2).
"""


def parse(command: str | Sequence[str]) -> Command:
    """
    The command, read: every simple command that would run, or `opaque` with the reason.

    Text is read as bash 5.2 reads it. Where it holds nothing but words, quotes and
    backslash escapes, its words are `argv` and run without a shell. What cannot be
    read with certainty is opaque: nobody guesses what it does. A list is one program
    with its arguments and is never read as shell text; only what it hands to a shell
    is (`["bash", "-c", text]`). Text longer than `MAX_TEXT`, with more commands than
    `MAX_COMMANDS` or deeper than `MAX_DEPTH` is not read at all.

    A wrong reading is possible where bash itself depends on more than the text: after
    `alias` and `shopt`, or with a locale of another encoding than UTF-8.

    Raises:
        CommandError: The command is empty, holds a NUL byte, is larger than the
            kernel takes, or is neither text nor a sequence of strings.
    """
    if isinstance(command, str):
        return _text(command)
    if isinstance(command, (bytes, bytearray, memoryview)) or not isinstance(command, Sequence):
        raise CommandError(f"it is of type {type(command).__name__}; give a string or a list of strings")
    return _list(command)


def _list(command: Sequence[object]) -> Command:
    argv: list[str] = []
    total = 0
    for index, word in enumerate(command):
        if not isinstance(word, str):
            raise CommandError(f"item {index} is of type {type(word).__name__}; every word must be a string")
        total += _checked(word, f"item {index}") + 9
        argv.append(word)
    if not argv:
        raise CommandError("the list is empty; give the program and its arguments")
    if total > _MAX_ARGV_BYTES:
        raise CommandError(
            f"its words take {total} bytes, the limit is {_MAX_ARGV_BYTES}; pass the data by stdin or a file"
        )
    return _plain(None, tuple(argv), None)


def _checked(word: str, where: str) -> int:
    """
    The size of *word* in bytes.
    """
    size = len(_encoded(word, where))
    if size > _MAX_WORD_BYTES:
        raise CommandError(
            f"{where} takes {size} bytes, the kernel takes {_MAX_WORD_BYTES}; pass the data by stdin or a file"
        )
    return size


def _encoded(text: str, where: str) -> bytes:
    if "\0" in text:
        raise CommandError(f"{where} holds a NUL byte, which no program can be given; remove it")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise CommandError(
            f"{where} holds half a character (a lone surrogate); decode it again with os.fsdecode()"
        ) from None


@cache
def _shell() -> ModuleType:
    """
    What reads shell: half of this room, which plain words never need.
    """
    from sandboxkit.shell import _read

    return _read


def _text(text: str) -> Command:
    if len(text) > MAX_TEXT:
        return _unread(text, f"it is longer than {MAX_TEXT} characters")
    is_printable = text.isprintable()
    if not is_printable:
        _encoded(text, "the text")
    if not text.strip(" \t\n"):
        raise CommandError("it is empty; give a program")
    argv = words(text)
    if argv is not None:
        return _plain(text, argv, _span(text))
    found = Found()
    if not is_printable and _has_invisible(text):
        with suppress(UnsureError, TooMuchError, RecursionError):
            _shell().read(text, found)
        return _opaque(text, "it has a control or invisible character", found)
    try:
        plain = pieces(text)
        if plain is not None:
            _shell().read_pieces(text, plain, found)
        else:
            _shell().read(text, found)
    except UnsureError as problem:
        return _opaque(text, str(problem), found)
    except TooMuchError as limit:
        return _unread(text, str(limit))
    except RecursionError:
        return _unread(text, "it stands too deep within itself")
    if not found.parts:
        return Command(source=text, parts=(), opaque="it holds no command")
    if found.variables.evaluates_output:
        return _suspect(text, found, _EVALUATES)
    return Command(text, tuple(found.parts), functions=frozenset(found.functions))


def _plain(source: str | None, argv: tuple[str, ...], span: tuple[int, int] | None) -> Command:
    part = SimpleCommand(argv, span)
    found = None
    try:
        inner = carried(part, None)
        if inner is None:
            return Command(source, (part,), argv=argv)
        found = Found()
        _shell().read_carried(part, inner, found)
    except UnsureError as problem:
        found = found or Found([part])
        with suppress(TooMuchError):
            for text in (source or " ".join(argv), *(word for word in argv if " " in word)):
                _shell().read_roughly(text, found, span=span)
        return _suspect(source, found, str(problem), span, argv)
    except (TooMuchError, RecursionError) as limit:
        return Command(source, (), opaque=str(limit), unread=True, argv=argv)
    if found.variables.evaluates_output:
        return _suspect(source, found, _EVALUATES, span, argv)
    return Command(source, tuple(found.parts), argv=argv, functions=frozenset(found.functions))


def _unread(text: str, problem: str) -> Command:
    return Command(text, (), opaque=problem, unread=True)


def _opaque(text: str, problem: str, found: Found) -> Command:
    """
    What can be seen in a text that cannot be read: as far as it went, and roughly.
    """
    if not found.parts:
        from sandboxkit.shell._suspects import apart

        for piece in apart(text):
            with suppress(UnsureError, TooMuchError, RecursionError):
                _shell().read(piece, found)
    with suppress(TooMuchError):
        _shell().read_roughly(text, found)
    return _suspect(text, found, problem)


def _suspect(
    source: str | None,
    found: Found,
    problem: str,
    span: tuple[int, int] | None = None,
    argv: tuple[str, ...] | None = None,
) -> Command:
    """
    An opaque command, with what was found in it.
    """
    if argv is None and source is not None:
        span = (0, len(source))
    # One that was not read to its end has no place of its own yet, and words of a list
    # stand in no text.
    parts = tuple(
        SimpleCommand(
            part.argv,
            span and (part.span or span),
            part.unknown,
            part.assignments,
            part.redirects,
            part.setting | _SUSPECT,
            part.reads_from,
            part.inside,
            part.outer,
            part.function,
            part.cwd,
            part.own,
        )
        for part in found.parts
    )
    return Command(source, parts, opaque=problem, argv=argv, functions=frozenset(found.functions))


def _has_invisible(text: str) -> bool:
    return any(not char.isprintable() and char not in "\t\n" for char in text)


def _span(text: str) -> tuple[int, int]:
    if text[0] not in " \t" and text[-1] not in " \t":
        return 0, len(text)
    return len(text) - len(text.lstrip(" \t")), len(text.rstrip(" \t"))
