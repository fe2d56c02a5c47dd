"""
`Draft`: a simple command while it is read; and `finish`, which makes it one of the parts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxkit.model import Assignment, Redirect, SimpleCommand
from sandboxkit.shell._effects import SETTERS, noted, with_declared
from sandboxkit.shell._tables import RESERVED
from sandboxkit.shell._unsure import UnsureError
from sandboxkit.shell._word import Words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from sandboxkit.shell._found import Place
    from sandboxkit.shell._reader import Reader

__all__ = ["Draft", "finish"]

_ASSIGNS = re.compile(rb"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_COMPOUND = RESERVED - {"time", "coproc", "[["}


class Draft:
    """
    A simple command while it is read.

    Attributes:
        words: Its words.
        assignments: What it assigns.
        redirects: Its redirections.
        reads: The commands whose output it reads from a `<(…)`.
    """

    __slots__ = ("assignments", "reads", "redirects", "words")

    def __init__(self) -> None:
        self.words = Words()
        self.assignments: list[Assignment] = []
        self.redirects: list[Redirect] = []
        self.reads: list[int] = []


def finish(
    reader: Reader, index: int, node: Node, draft: Draft, place: Place, outside: Sequence[Node] = ()
) -> tuple[int, ...]:
    """
    Puts *draft* at *index* of the parts, with what it starts and leaves behind.

    Args:
        reader: The reader.
        index: The index reserved for it.
        node: Where it stands in the tree.
        draft: The command.
        place: Where it stands.
        outside: Redirections of it that stand outside *node*.

    Raises:
        UnsureError: It is not certain what it starts.
        TooMuchError: It starts more than is read.
    """
    words, found = draft.words, reader.found
    span_of = reader.source.span_of
    end = outside[-1].end_byte if outside else node.end_byte
    if reader.words.assigned:
        draft.assignments += reader.assigned_in_words()
    part = SimpleCommand(
        argv=tuple(words.argv),
        span=span_of(node.start_byte, end),
        unknown=tuple(words.unknown.items()),
        assignments=tuple(draft.assignments),
        redirects=tuple(draft.redirects),
        setting=place.setting,
        reads_from=(*place.reads_from, *draft.reads) if draft.reads else place.reads_from,
        inside=place.inside,
        outer=place.outer,
        function=place.function,
        cwd=reader.cwd,
    )
    if words.argv and words.argv[0] in SETTERS:
        part = with_declared(part, found.variables)
    found.parts[index] = part
    if part.argv:
        starts = words.starts
        if words.literal[0]:
            _check_keywords(words)
        if _ASSIGNS.match(reader.source.data, starts[0]):
            raise UnsureError("it has an assignment behind a redirection, which the grammar takes for a program")
        reader.starter.start(
            index, part, place, lambda word: span_of(starts[word], end) if word < len(starts) else None
        )
        reader.cwd = noted(part, found, place.stdin, reader.cwd)
        if reader.fed:
            _feed(reader, index, place)
    return (index,)


def _feed(reader: Reader, index: int, place: Place) -> None:
    """
    Adds what those in each `>( )` of the part at *index* start: only now can be told
    what it writes to them.
    """
    parts = reader.found.parts
    waiting = [first for first, part in reader.fed if part == index]
    reader.fed = [each for each in reader.fed if each[1] != index]
    for first in waiting:
        if first < len(parts) and all(part.outer != first for part in parts):
            reader.starter.start(first, parts[first], place.within(index))


def _check_keywords(words: Words) -> None:
    first = words.argv[0]
    if first in _COMPOUND:
        raise UnsureError(f"it has the reserved word {first!r} where the reader does not expect it")
    if first in ("time", "coproc"):
        # Reserved words too; the grammar takes them for programs.
        rest = words.argv[2:] if words.argv[1:2] == ["-p"] else words.argv[1:]
        rest = rest[1:] if rest[:1] == ["--"] else rest
        if not rest or (first == "time" and rest[0].startswith("-")):
            raise UnsureError(f"it has {first!r} in front of nothing, or of an option it does not take")
        own = len(words.argv) - len(rest)
        if not all(words.literal[1:own]):
            raise UnsureError(f"it has {first!r} in front of an option with quotes, which is a program then")
        for word, literal in zip(words.argv[1:], words.literal[1:], strict=True):
            if not literal and "=" in word:
                raise UnsureError(f"it has {first!r} in front of what may be an assignment")
            if literal and word in RESERVED:
                raise UnsureError(f"it has {first!r} in front of a compound command")
