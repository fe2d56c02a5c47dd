"""
Programs that start a command for each file or line: `find`, `fd`, `xargs`, `parallel`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from sandboxkit.model import UNKNOWN, Doubt, Setting, SimpleCommand, Unknown
from sandboxkit.shell._carried import MAX_STRINGS, Carried, Inner, Stdin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.shell._options import Options

__all__ = ["fd", "find", "for_each_line", "with_input"]

_FIND_STARTS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_FD_STARTS = re.compile(r"-[A-WYZa-wyz]*[xX]=?|--exec(?:-batch)?(?:=|$)")


def find(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `find … -exec CMD ;`. Source: find(1), findutils 4.9.
    """
    commands: list[Inner] = []
    at = 1
    while at < len(part.argv):
        if part.argv[at] in _FIND_STARTS:
            inner = _until(part, at + 1, (";", "+"), appends=False)
            at = inner.end
            if inner.argv:
                commands.append(inner)
        at += 1
    return Carried(commands, commands[0].start) if commands else None


def fd(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `fd … -x CMD`. Source: fd(1), fd 8.6.
    """
    commands: list[Inner] = []
    at = 1
    while at < len(part.argv):
        found = _FD_STARTS.match(part.argv[at])
        at += 1
        if found:
            attached = part.argv[at - 1][found.end() :]
            begun = replace(part, argv=(*part.argv[: at - 1], attached, *part.argv[at:]))
            inner = _until(begun, at - 1, (";",), appends=True) if attached else _until(part, at, (";",), appends=True)
            at = inner.end + 1
            if inner.argv:
                commands.append(inner)
    return Carried(commands, commands[0].start) if commands else None


def _until(part: SimpleCommand, start: int, ends: tuple[str, ...], *, appends: bool) -> Inner:
    end = next((at for at in range(start, len(part.argv)) if _ends(part.argv, at, ends)), len(part.argv))
    unknown = {index - start: doubt for index, doubt in part.unknown if start <= index < end}
    for index, word in enumerate(part.argv[start:end]):
        if "{" in word and "}" in word:
            unknown[index] = Unknown(Doubt.WORDS, word[: word.index("{")], is_output=True)
    argv = part.argv[start:end]
    if appends and "{}" not in argv:
        unknown.setdefault(len(argv), Unknown(Doubt.WORDS, is_output=True))
        argv = (*argv, UNKNOWN) if argv else ()
    return Inner(argv, tuple(sorted(unknown.items())), start, end=end)


def _ends(argv: tuple[str, ...], at: int, ends: tuple[str, ...]) -> bool:
    # A + ends the command only behind {}.
    return argv[at] in ends and (argv[at] != "+" or argv[at - 1] == "{}")


def with_input(inner: Inner, stdin: Stdin | None, found: Options) -> Inner:
    """
    What xargs starts: words of its input follow those given, or stand in their place.
    """
    replaces = found.replaces
    if replaces:
        unknown = dict(inner.unknown)
        for index, word in enumerate(inner.argv):
            if replaces in word:
                unknown[index] = Unknown(Doubt.VALUE, word[: word.index(replaces)], is_output=True)
        guess = stdin.text.strip() if stdin else UNKNOWN
        argv = tuple(word.replace(replaces, guess) for word in inner.argv)
        return replace(inner, argv=argv, unknown=tuple(sorted(unknown.items())))
    more = tuple(stdin.text.strip().split(found.delimiter)[:50] if stdin else ()) or (UNKNOWN,)
    start = len(inner.argv)
    doubts = tuple((start + index, Unknown(Doubt.WORDS, is_output=True)) for index in range(len(more)))
    return replace(inner, argv=inner.argv + more, unknown=inner.unknown + doubts)


def for_each_line(part: SimpleCommand, found: Options, stdin: Stdin | None) -> Iterator[Inner]:
    """
    What `parallel` makes of the lines of its input, or of the words behind `:::`.
    """
    words = part.argv[found.at :]
    sources = [at for at, word in enumerate(words) if word.startswith(":::")]
    if sources:
        # Without a command each of them is one.
        lines = [] if sources[0] else [word for word in words if not word.startswith(":::")]
        words = ()
    else:
        lines = stdin.text.splitlines() if stdin is not None else []
    command = " ".join(words)
    for line in lines[:MAX_STRINGS]:
        text = command.replace("{}", line) if "{}" in command else f"{command} {line}"
        yield Inner(text=text, start=found.at, setting=Setting.SUSPECT)
