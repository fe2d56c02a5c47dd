"""
A command as it was read: every simple command that would run, with what is not known
about it, or something nobody may guess about.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag, auto
from functools import cache

from sandboxkit.model._quick import quick

__all__ = ["PIPES", "UNKNOWN", "Assignment", "Command", "Doubt", "Redirect", "Setting", "SimpleCommand", "Unknown"]

UNKNOWN = "\N{HORIZONTAL ELLIPSIS}"
"""
Stands in a word for what only the shell will know.
"""

PIPES = "/dev/fd/"
"""
Where the names that stand for process substitutions begin.
"""


class Doubt(IntEnum):
    """
    How much of a word is not known before the shell runs; greater is less known.
    """

    PATTERN = auto()
    """A file-name pattern: one or more names that match it, or the pattern itself."""
    VALUE = auto()
    """Exactly one word."""
    WORDS = auto()
    """Any number of words, also none."""


@quick
@dataclass(frozen=True, slots=True)
class Unknown:
    """
    A word whose value only the shell will know.

    Attributes:
        doubt: How much is not known.
        known: The literal text it certainly begins with, often empty: with one that
            is not empty and no `-` at its beginning, the word cannot be an option.
        is_output: Whether a command's output is part of it.
        printed: What that command prints, where the text says it.
        is_secret: Whether a variable is part of it whose name says that it holds a secret.
    """

    doubt: Doubt
    known: str = ""
    is_output: bool = False
    printed: str | None = None
    is_secret: bool = False


class Setting(IntFlag):
    """
    How a simple command stands in the whole.
    """

    NONE = 0
    PIPELINE = auto()
    """It is part of a pipeline."""
    BACKGROUND = auto()
    """The shell does not wait for it."""
    SUBSHELL = auto()
    """It runs in a subshell of its own: ``( )``, a coprocess."""
    CONDITIONAL = auto()
    """Whether it runs depends on another's result: lists, `if`, `case`."""
    LOOP = auto()
    """It may run many times."""
    ENDLESS = auto()
    """It is started again and again in the background, without end and without waiting."""
    FUNCTION = auto()
    """It is in the body of a function, or waits for an event (`trap`)."""
    SUBSTITUTION = auto()
    """Its output becomes a word, or its input or output a file name."""
    WRAPPED = auto()
    """Another program starts it: `outer` says which."""
    TEXT = auto()
    """It stands in text that is handed to a shell, an argument for example."""
    FOREIGN = auto()
    """Its text is read by another shell than bash, which may read it differently."""
    REMOTE = auto()
    """It runs in another file system: another host, a container, a changed root."""
    SUSPECT = auto()
    """It was seen in text that could not be read with certainty, and may not run at all."""

    def __or__(self, other: int) -> Setting:
        # The operator of all flags makes its result anew, which takes microseconds.
        return _setting(int.__or__(self, other))


@cache
def _setting(value: int) -> Setting:
    return Setting(value)


@quick
@dataclass(frozen=True, slots=True)
class Assignment:
    """
    `name=value` in front of a command, on its own, or as an argument of `env`.

    Attributes:
        name: The variable.
        value: Its value as far as it is known, with `UNKNOWN` for the rest.
        is_known: Whether that is exactly the value.
        is_exported: Whether programs started later see it.
    """

    name: str
    value: str
    is_known: bool = True
    is_exported: bool = False


@quick
@dataclass(frozen=True, slots=True)
class Redirect:
    """
    A redirection to or from a file, or text given as standard input.

    Attributes:
        operator: As it was written: ``>``, ``>>``, ``<``, ``<>``, ``>|``, ``&>``, ``<<``,
            ``<<<`` and so on. Copies of descriptors (``2>&1``) are left out.
        target: The file; for ``<<`` and ``<<<`` the text itself. As far as it is known.
        is_known: Whether that is exactly the target.
    """

    operator: str
    target: str
    is_known: bool = True

    @property
    def is_text(self) -> bool:
        """
        Whether `target` is text rather than a file.
        """
        return self.operator.startswith("<<")

    @property
    def writes(self) -> bool:
        """
        Whether it opens a file for writing.
        """
        return ">" in self.operator


@quick
@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """
    One program or builtin with its arguments, or assignments and redirections alone.

    Attributes:
        argv: The words after quote removal and expansion, as far as they are known:
            variables set in the text are filled in, unset ones are empty. Empty where
            it only assigns or redirects, and for the head of a loop or `case`, in whose
            words others may be inside.
        span: Where it stands in the source text, as (start, end) in characters; None
            for a command that was given as a list.
        unknown: The words of `argv` whose value only the shell will know, by index.
        assignments: What it assigns.
        redirects: Where it reads from and writes to.
        setting: How it stands in the whole.
        reads_from: The indices of the parts whose output it reads through a pipe, or whose
            redirection it reads: that of the loop or group it stands in.
        inside: The index of the part whose word, redirection or assignment it is a
            substitution in, or None.
        outer: The index of the part that starts it, for example `sudo`, or None.
        function: The function whose body it stands in, or None.
        cwd: The directory a `cd` before it leads to, as it was written, or None where
            there was none; `UNKNOWN` is in it where the text does not say.
        own: How many words of `argv` are the program's own: those behind are another
            command, a part of its own with `outer` set. None where all are.
    """

    argv: tuple[str, ...]
    span: tuple[int, int] | None = None
    unknown: tuple[tuple[int, Unknown], ...] = ()
    assignments: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    setting: Setting = Setting.NONE
    reads_from: tuple[int, ...] = ()
    inside: int | None = None
    outer: int | None = None
    function: str | None = None
    cwd: str | None = None
    own: int | None = None

    @property
    def program(self) -> str:
        """
        The first word, or an empty string.
        """
        return self.argv[0] if self.argv else ""

    def stands(self, setting: Setting) -> bool:
        """
        Whether it stands in any of *setting*.
        """
        # int's own operator: the one of flags takes microseconds.
        return int.__and__(self.setting, setting) != 0

    @property
    def is_dynamic(self) -> bool:
        """
        Whether the program itself is not known.
        """
        return bool(self.unknown) and self.unknown[0][0] == 0


@quick
@dataclass(frozen=True, slots=True)
class Command:
    """
    What was asked for.

    Attributes:
        source: The text as given, or None for a command given as a list.
        parts: Every simple command that would run, in the order they begin; those
            within words and behind wrappers too. For an opaque command those that
            could be seen in it, all `Setting.SUSPECT`.
        opaque: Why it is not certain what the text means, or None. An opaque command is
            at least `ask`; once approved it runs boxed through bash.
        unread: True where the text was too long or too deep to be looked at; such a
            command is denied.
        argv: The words to run without any shell, or None where only bash can run it.
        functions: The functions the text defines.
    """

    source: str | None
    parts: tuple[SimpleCommand, ...]
    opaque: str | None = None
    unread: bool = False
    argv: tuple[str, ...] | None = None
    functions: frozenset[str] = frozenset()

    @property
    def is_plain(self) -> bool:
        """
        Whether it is one program with literal words, to be run without a shell.
        """
        return self.argv is not None

    @property
    def text(self) -> str:
        """
        A one-line form for people and records. Not for a shell.
        """
        if self.source is not None:
            return self.source
        return " ".join(_quoted(word) for word in self.argv or ())


def _quoted(word: str) -> str:
    plain = word and all(c.isalnum() or c in "@%+=:,./-_" for c in word)
    return word if plain else "'" + word.replace("'", "'\"'\"'") + "'"
