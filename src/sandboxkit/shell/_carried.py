"""
What a command starts, as a value, and how it is made from the command's words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sandboxkit.model import PIPES, UNKNOWN, Assignment, Doubt, Setting, SimpleCommand, Unknown
from sandboxkit.model._quick import quick
from sandboxkit.shell._tables import RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ANYTHING",
    "MAX_STRINGS",
    "NEEDS_SHELL",
    "VERSION",
    "Carried",
    "Inner",
    "Stdin",
    "guesses",
    "is_unknown",
    "may_be_several",
    "name_of",
    "option_text",
    "printed_at",
    "printed_files",
    "read_input",
    "tail",
    "text_of",
    "unsure",
]

VERSION = re.compile(r"[-.0-9]+$")
# Looked up on its class, a member takes ten times as long.
_SUSPECT = Setting.SUSPECT
_PLAIN = re.compile(r"[ \t]*[A-Za-z0-9_./-][A-Za-z0-9_./:,@%+-]*(?:[ \t]+[A-Za-z0-9_./:,@%+=-]+)*[ \t]*")
NEEDS_SHELL = re.compile(r"[\s;&|<>()`$]")
MAX_STRINGS = 20
ANYTHING = ((0, Unknown(Doubt.WORDS)),)


@quick
@dataclass(frozen=True, slots=True)
class Stdin:
    """
    Standard input that stands in the text itself.

    Attributes:
        text: The text.
        is_known: Whether it is exactly that.
    """

    text: str
    is_known: bool = False


@quick
@dataclass(frozen=True, slots=True)
class Inner:
    """
    A command that another one starts.

    Attributes:
        argv: Its words, or empty where it is text.
        unknown: What is not known about them.
        start: The index in the outer command's words at which it begins, 0 where it is
            not one of them.
        text: Text that a shell reads, or None.
        arguments: The words behind that text: `$0` and the positional parameters.
        assignments: What the outer command puts into its environment.
        setting: How it stands, beyond how the outer one does.
        cwd: The directory the outer command changes to, or None.
        end: The index behind it, for one that ends before the outer words do.
    """

    argv: tuple[str, ...] = ()
    unknown: tuple[tuple[int, Unknown], ...] = ()
    start: int = 0
    text: str | None = None
    arguments: tuple[str, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    setting: Setting = Setting.NONE
    cwd: str | None = None
    end: int = 0


@dataclass(slots=True)
class Carried:
    """
    Everything a command starts.

    Attributes:
        commands: The commands.
        own: How many words are the outer command's own; None where all are.
    """

    commands: list[Inner] = field(default_factory=list)
    own: int | None = None


def name_of(word: str) -> str:
    name = word.rpartition("/")[2].lower()
    return name.removesuffix(".exe")


def is_unknown(part: SimpleCommand, index: int) -> bool:
    return any(place == index for place, _ in part.unknown)


def may_be_several(part: SimpleCommand, index: int) -> bool:
    return any(place == index and doubt.doubt is Doubt.WORDS for place, doubt in part.unknown)


def tail(
    part: SimpleCommand,
    start: int,
    *,
    assignments: tuple[Assignment, ...] = (),
    setting: Setting = Setting.NONE,
    cwd: str | None = None,
) -> Inner:
    """
    The words of *part* from *start* on as a command.
    """
    unknown = tuple((index - start, doubt) for index, doubt in part.unknown if index >= start)
    return Inner(part.argv[start:], unknown, start, assignments=assignments, setting=setting, cwd=cwd)


def unsure(part: SimpleCommand, start: int = 1) -> Carried:
    """
    For words that cannot be told apart: some unknown command, and every tail of the
    words as one that may be it, and every word that may be text for a shell.
    """
    unknown = Inner((UNKNOWN,), ANYTHING, start)
    words = range(start, min(len(part.argv), start + 12))
    tails = [tail(part, index, setting=Setting.SUSPECT) for index in words]
    texts = guesses(part.argv[index] for index in words if " " in part.argv[index])
    return Carried([unknown, *(tail for tail in tails if not tail.argv[0].startswith("-")), *texts], start)


def text_of(
    part: SimpleCommand, words: range, setting: Setting = Setting.NONE, arguments: tuple[str, ...] = ()
) -> list[Inner]:
    """
    Some words of *part*, joined by blanks, as text for a shell.
    """
    text = " ".join(part.argv[index] for index in words)
    if any(is_unknown(part, index) for index in words):
        unknown = Inner((UNKNOWN,), ANYTHING, words.start, setting=setting)
        guess = Inner(text=text, start=words.start, setting=setting | Setting.SUSPECT, arguments=arguments)
        return [unknown, guess] if text.strip() else [unknown]
    if not text.strip():
        return []
    return [Inner(text=text, start=words.start, setting=setting, arguments=arguments)]


def option_text(part: SimpleCommand, index: int, attached: str | None, setting: Setting) -> list[Inner]:
    if attached is None:
        return text_of(part, range(index, index + 1), setting)
    return text_of(replace(part, argv=(attached,), unknown=_only(part, index)), range(1), setting)


def _only(part: SimpleCommand, index: int) -> tuple[tuple[int, Unknown], ...]:
    return tuple((0, doubt) for place, doubt in part.unknown if place == index)


def guesses(texts: Iterable[str]) -> list[Inner]:
    """
    Each of *texts* as what may be text for a shell; an empty one starts nothing.
    """
    return [_guess(text) for text in texts if text.strip()]


def _guess(text: str) -> Inner:
    if _PLAIN.fullmatch(text):
        words = tuple(text.split())
        if words[0] not in RESERVED:
            return Inner(words, setting=_SUSPECT)  # the same in any grammar, so none is asked
    return Inner(text=text, setting=_SUSPECT)


def read_input(stdin: Stdin, setting: Setting) -> list[Inner]:
    if stdin.is_known:
        return [Inner(text=stdin.text, setting=setting)]
    guess = Inner(text=stdin.text, setting=setting | Setting.SUSPECT)
    return [Inner((UNKNOWN,), ANYTHING, setting=setting), guess]


def printed_at(part: SimpleCommand, index: int) -> str | None:
    """
    What a process substitution at *index* prints, where the text says it.
    """
    return next((unknown.printed for place, unknown in part.unknown if place == index), None)


def printed_files(part: SimpleCommand) -> list[str]:
    """
    What each process substitution among the words prints, where the text says it.
    """
    return [doubt.printed for _, doubt in part.unknown if doubt.printed and PIPES in doubt.known]
