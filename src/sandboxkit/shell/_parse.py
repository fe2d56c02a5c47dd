"""
`parse`: the only way a command enters the library.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandboxkit.errors import CommandError
from sandboxkit.model import Command, SimpleCommand
from sandboxkit.shell._words import NotPlainError, words

__all__ = ["MAX_TEXT", "parse"]

MAX_TEXT = 10_000
"""
Characters of text that are read. Longer text is not looked at, and denied.
"""

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
    The command, read: plain words, or `opaque` with the reason.

    Text is plain where it holds nothing but words, quotes and backslash escapes;
    then its words are exactly those bash would run. Everything else, down to a file
    name pattern or a builtin of the shell, is opaque: nobody guesses what it does,
    and only bash can run it. A list is one program with its arguments and is never
    read as shell text. Text longer than `MAX_TEXT` is not read at all.

    Raises:
        CommandError: The command is empty, holds a NUL byte, is larger than the
            kernel takes, or is neither text nor a sequence of strings.
    """
    if isinstance(command, str):
        return _text(command)
    if isinstance(command, (bytes, bytearray, memoryview)) or not isinstance(command, Sequence):
        raise CommandError(f"it is of type {type(command).__name__}; give a string or a list of strings")
    return _list(command)


def _list(command: Sequence[str]) -> Command:
    argv = tuple(command)
    if not argv:
        raise CommandError("the list is empty; give the program and its arguments")
    total = 0
    for index, word in enumerate(argv):
        if not isinstance(word, str):
            raise CommandError(f"item {index} is of type {type(word).__name__}; every word must be a string")
        total += _checked(word, f"item {index}") + 9
    if total > _MAX_ARGV_BYTES:
        raise CommandError(
            f"its words take {total} bytes, the limit is {_MAX_ARGV_BYTES}; pass the data by stdin or a file"
        )
    return Command(source=None, parts=(SimpleCommand(argv),), argv=argv)


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


def _text(text: str) -> Command:
    if len(text) > MAX_TEXT:
        return Command(source=text, parts=(), opaque=f"it is longer than {MAX_TEXT} characters", unread=True)
    _encoded(text, "the text")
    if not text.strip(" \t\n"):
        raise CommandError("it is empty; give a program")
    try:
        argv = words(text)
    except NotPlainError as problem:
        return Command(source=text, parts=(), opaque=str(problem))
    return Command(source=text, parts=(SimpleCommand(argv, _span(text)),), argv=argv)


def _span(text: str) -> tuple[int, int]:
    return len(text) - len(text.lstrip(" \t")), len(text.rstrip(" \t"))
