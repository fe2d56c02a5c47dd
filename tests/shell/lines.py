"""
What was read, as lines short enough for a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.model import Setting
from sandboxkit.shell import parse, quote

if TYPE_CHECKING:
    from sandboxkit.model import Assignment, Command, SimpleCommand

__all__ = ["line", "lines", "started", "words"]


def lines(text: str | list[str]) -> list[str]:
    """
    A line for every part of *text*, which must be read to its end.

    `a <x:value> [loop] in 0 from 1` is the program `a` with a word that is guessed as
    `x`, in a loop, in a word of part 0, reading the output of part 1.
    """
    return [line(part) for part in _read(text).parts]


def started(text: str | list[str]) -> list[str]:
    """
    A line for every part that another one starts, without saying so in each.
    """
    hidden = Setting.WRAPPED | Setting.PIPELINE | Setting.TEXT
    return [
        _line(part, part.setting & ~hidden, with_places=False) for part in _read(text).parts if part.outer is not None
    ]


def line(part: SimpleCommand) -> str:
    """
    *part* as a line.
    """
    return _line(part, part.setting, with_places=True)


def words(part: SimpleCommand) -> str:
    """
    The words of *part*, those that are not known with their doubt.
    """
    unknown = dict(part.unknown)
    shown = []
    for index, word in enumerate(part.argv):
        if index not in unknown:
            shown.append(quote([word]))
            continue
        doubt = unknown[index].doubt.name.lower()
        shown.append(f"<{word}:{doubt}{':' + unknown[index].known if unknown[index].known else ''}>")
    return " ".join(shown)


def _read(text: str | list[str]) -> Command:
    command = parse(text)
    assert command.opaque is None, (text, command.opaque)
    return command


def _line(part: SimpleCommand, setting: Setting, *, with_places: bool) -> str:
    pieces = [_assigned(each) for each in part.assignments]
    pieces += [words(part)] if part.argv else []
    pieces += [f"{each.operator}{quote([each.target])}{'' if each.is_known else '?'}" for each in part.redirects]
    named = [each.name or "" for each in Setting if each in setting]
    pieces += [f"[{' '.join(named).lower()}]"] if named else []
    pieces += [f"in {part.inside}"] if with_places and part.inside is not None else []
    pieces += [f"by {part.outer}"] if with_places and part.outer is not None else []
    pieces += [f"from {' '.join(map(str, part.reads_from))}"] if with_places and part.reads_from else []
    pieces += [f"of {part.function}"] if part.function else []
    pieces += [f"at {part.cwd}"] if part.cwd else []
    return " ".join(pieces) or "-"


def _assigned(each: Assignment) -> str:
    return f"{'export ' if each.is_exported else ''}{each.name}={quote([each.value])}{'' if each.is_known else '?'}"
