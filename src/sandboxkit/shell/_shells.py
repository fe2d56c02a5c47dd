"""
Shells, and what else runs a text as shells do: `eval`, `source`, `at`.
"""

from __future__ import annotations

import re

from sandboxkit.model import PIPES, UNKNOWN, Setting, SimpleCommand
from sandboxkit.shell._carried import (
    ANYTHING,
    MAX_STRINGS,
    Carried,
    Inner,
    Stdin,
    guesses,
    is_unknown,
    name_of,
    printed_at,
    read_input,
    text_of,
)

__all__ = ["evaluated", "schedule", "shell", "source", "stdin_text"]

_BARE = re.compile(r"[\w./+-]+")
_TIMES = re.compile(r"^\s*(?:@\w+|(?:\S+\s+){5})\s*")
_DESCRIPTORS = (PIPES, "/proc/self/fd/")


def shell(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `bash -c TEXT`, or the text that a shell without operands, or with a descriptor for
    one, reads.

    Source: bash(1), "OPTIONS" and "ARGUMENTS", version 5.2.
    """
    argv = part.argv
    foreign = Setting.NONE if name_of(argv[0]) in ("bash", "rbash") else Setting.FOREIGN
    at, is_text, reads_stdin = _operands(part)
    if is_text:
        return _given_text(part, at, foreign)
    if at < len(argv) and (printed := printed_at(part, at)):
        return Carried(read_input(Stdin(printed), foreign), at)
    if at < len(argv) and argv[at].startswith(_DESCRIPTORS):
        # Which descriptor holds which text is not followed.
        return Carried(read_input(Stdin(stdin.text if stdin else UNKNOWN), foreign), at)
    if stdin is not None and (at >= len(argv) or reads_stdin or argv[at] in ("-", "/dev/stdin")):
        return Carried(read_input(stdin, foreign), None)
    return None


def _operands(part: SimpleCommand) -> tuple[int, bool, bool]:
    """
    The index of a shell's first operand, whether that is text, and whether it reads its
    input all the same.
    """
    at, is_text, reads_stdin = 1, False, False
    argv = part.argv
    while at < len(argv) and not is_unknown(part, at):
        word = argv[at]
        if word in ("-", "--"):
            at += 1
            break
        if word[:1] not in "-+" or len(word) < 2:
            break
        if word.startswith("--"):
            at += 1 + (word in ("--rcfile", "--init-file"))
            continue
        is_text |= word[0] == "-" and "c" in word
        reads_stdin |= word[0] == "-" and "s" in word
        at += 1 + sum(letter in "oO" for letter in word[1:])
    return at, is_text, reads_stdin


def _given_text(part: SimpleCommand, at: int, setting: Setting) -> Carried | None:
    argv = part.argv
    if at >= len(argv):
        return None
    inner = text_of(part, range(at, at + 1), setting, arguments=argv[at + 1 :] or ("bash",))
    if at + 1 < len(argv) and _BARE.fullmatch(argv[at]) and not is_unknown(part, at + 1):
        # Words follow that it cannot use: whoever wrote this meant something else.
        inner.append(Inner((UNKNOWN,), ANYTHING, at))
    return Carried(inner, at)


def source(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `source FILE`, where the text says what is in the file.
    """
    printed = printed_at(part, 1)
    if printed:
        return Carried(read_input(Stdin(printed), Setting.NONE), 1)
    return Carried(read_input(stdin, Setting.NONE), 1) if stdin and part.argv[1:2] == ("/dev/stdin",) else None


def evaluated(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `eval WORD…`.
    """
    start = 2 if part.argv[1:2] == ("--",) else 1
    return Carried(text_of(part, range(start, len(part.argv))), start) if len(part.argv) > start else None


def stdin_text(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    What `at` and `batch` read to run it later.
    """
    return Carried(read_input(stdin, Setting.FOREIGN), None) if stdin else None


def schedule(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    The commands of a table that `crontab` reads. Source: crontab(5).
    """
    if stdin is None:
        return None
    lines = [_TIMES.sub("", line) for line in stdin.text.splitlines()]
    return Carried(guesses(lines[:MAX_STRINGS]))
