"""
Whether what our reader saw of a text covers what somebody else saw of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from sandboxkit.model import Doubt, Setting, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.shell.oracle import Seen

    from sandboxkit.model import Command, SimpleCommand

__all__ = ["Tally", "fits", "may_run_more", "shortened", "uncovered"]

Word: TypeAlias = str | Unknown | None

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""What bash assigns to; shfmt takes `x{a,b}=1` and `*=1` for assignments too."""

_NOT_OWN = Setting.TEXT
"""Text handed to another program is no part of the shell's own; what is only suspected stands beside it."""

READERS = frozenset(
    (". source eval trap alias bash sh xargs env command builtin exec coproc nohup nice setsid timeout stdbuf").split()
)
"""Programs that run what they are given: as arguments, by a file, or by their input."""


@dataclass(slots=True)
class Tally:
    """
    How many texts were compared, and why the others were not.
    """

    compared: int = 0
    opaque: int = 0
    refused: int = 0
    unseen: int = 0
    excused: int = 0
    reasons: dict[str, list[str]] = field(default_factory=dict)

    def note_opaque(self, reason: str, text: str) -> None:
        if reason.startswith("it takes what a command printed"):
            return  # it was read to its end
        self.opaque += 1
        self.reasons.setdefault(reason, []).append(text)

    @property
    def read_share(self) -> float:
        """
        How much of the valid text our reader did not give up on.
        """
        return self.compared / max(1, self.opaque + self.compared)

    def __str__(self) -> str:
        lines = [f"{self.compared} compared, {self.opaque} opaque although valid ({1 - self.read_share:.0%})"]
        lines += [f"{self.refused} refused by bash, {self.unseen} by the other side, {self.excused} excused"]
        for reason, texts in sorted(self.reasons.items(), key=lambda item: -len(item[1])):
            lines.append(f"  {len(texts):5} {reason}: {min(texts, key=len)[:100]!r}")
        return "\n".join(lines)


def fits(words: Sequence[str | None], part: SimpleCommand) -> bool:
    """
    Whether *part* may be the command with these words, None standing for any number of them.
    """
    return _match(tuple(words), _words(part))


def may_run_more(command: Command) -> bool:
    """
    Whether *command* says itself that not all it runs is known.
    """
    return any(
        part.is_dynamic
        or part.program in {".", "source"}
        or (part.program.rpartition("/")[2] in READERS and bool(part.unknown or part.reads_from or part.redirects))
        for part in command.parts
    )


def uncovered(theirs: Sequence[Seen], command: Command) -> list[str]:
    """
    What *theirs* holds and *command* does not: commands, names assigned, files opened.

    Each part stands for one command at most.
    """
    own = [part for part in command.parts if not part.setting & _NOT_OWN]
    assigned = {each.name.partition("[")[0].rstrip("+") for part in own for each in part.assignments}
    redirects = [each for part in own for each in part.redirects]
    wanted = [each for each in theirs if each.words]
    problems = [f"no part for {_shown(wanted[index].words)}" for index in _unmatched(wanted, own)]
    names = [name for each in theirs for name in each.assigned if _NAME.fullmatch(name)]
    problems += [f"no assignment of {name}" for name in names if name not in assigned]
    problems += [
        f"no redirection {operator}{target}"
        for each in theirs
        for operator, target in each.redirects
        if not any(
            ours.operator.lstrip("0123456789") == operator.removesuffix("-")
            and (target is None or not ours.is_known or ours.target == target)
            for ours in redirects
        )
    ]
    return problems


def shortened(text: str, is_wrong: Callable[[str], bool], *, attempts: int = 300) -> str:
    """
    *text* without what can be left out so that it stays wrong.
    """
    size = len(text) // 2
    while size:
        start = 0
        while start < len(text) and attempts:
            attempts -= 1
            shorter = text[:start] + text[start + size :]
            if shorter and is_wrong(shorter):
                text = shorter
            else:
                start += size
        size //= 2
    return text


def _shown(words: Sequence[str | None]) -> str:
    return " ".join("…" if word is None else repr(word) for word in words)


def _unmatched(wanted: Sequence[Seen], own: Sequence[SimpleCommand]) -> list[int]:
    """
    The commands without a part in a greatest matching of commands and parts.
    """
    able = [[index for index, part in enumerate(own) if fits(each.words, part)] for each in wanted]
    taken: dict[int, int] = {}

    def place(command: int, tried: set[int]) -> bool:
        for part in able[command]:
            if part not in tried:
                tried.add(part)
                if part not in taken or place(taken[part], tried):
                    taken[part] = command
                    return True
        return False

    return [command for command in range(len(wanted)) if not place(command, set())]


def _words(part: SimpleCommand) -> tuple[Word, ...]:
    unknown = dict(part.unknown)
    return tuple(unknown.get(index, word) for index, word in enumerate(part.argv))


@cache
def _match(theirs: tuple[str | None, ...], ours: tuple[Word, ...]) -> bool:
    if not theirs or not ours:
        return all(map(_may_be_none, theirs + ours))
    first, mine = theirs[0], ours[0]
    return (
        (_may_be_none(first) and _match(theirs[1:], ours))
        or (_may_be_none(mine) and _match(theirs, ours[1:]))
        or (len(ours) > 1 and _is_value(mine) and _is_value(ours[1]) and _match(theirs, ours[1:]))
        or (_may_be_many(first) and _match(theirs, ours[1:]))
        or (_same(first, mine) and _match(theirs[1:], ours[1:]))
        or (_may_be_many(mine) and _same(first, mine) and _match(theirs[1:], (_next(mine), *ours[1:])))
    )


def _next(word: Word) -> Word:
    """
    What is known of the words that *word* stands for behind the first.
    """
    return replace(word, known="") if isinstance(word, Unknown) else word


def _is_value(word: Word) -> bool:
    """
    Whether *word* is one that is not known: those of a list stand beside each other, and bash
    takes one of them for `"$v1"`.
    """
    return isinstance(word, Unknown) and word.doubt is Doubt.VALUE


def _may_be_none(word: Word) -> bool:
    return word is None or (isinstance(word, Unknown) and word.doubt is Doubt.WORDS)


def _may_be_many(word: Word) -> bool:
    return word is None or (isinstance(word, Unknown) and word.doubt is not Doubt.VALUE)


def _same(theirs: str | None, ours: Word) -> bool:
    if theirs is None or ours is None:
        return True
    return theirs.startswith(ours.known) if isinstance(ours, Unknown) else theirs == ours
