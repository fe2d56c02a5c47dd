"""
A command as it was read: either plain words, or something nobody may guess about.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Command", "SimpleCommand"]


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """
    One program and its arguments, with every word literal.

    Attributes:
        argv: The words after quote removal; never empty.
        span: Where it stands in the source text, as (start, end) in characters;
            None for a command that was given as a list.
    """

    argv: tuple[str, ...]
    span: tuple[int, int] | None = None

    @property
    def program(self) -> str:
        """
        The first word.
        """
        return self.argv[0]


@dataclass(frozen=True, slots=True)
class Command:
    """
    What was asked for.

    Attributes:
        source: The text as given, or None for a command given as a list.
        parts: Every simple command that would run. Empty when opaque.
        opaque: Why the text could not be read to the end, or None. An opaque
            command runs boxed through bash and is never `allow`.
        unread: True where the text was too long to be looked at; such a command
            is denied.
    """

    source: str | None
    parts: tuple[SimpleCommand, ...]
    opaque: str | None = None
    unread: bool = False

    @property
    def is_plain(self) -> bool:
        """
        Whether it is one program with literal words, to be run without a shell.
        """
        return self.opaque is None and len(self.parts) == 1

    @property
    def text(self) -> str:
        """
        A one-line form for people and records. Not for a shell.
        """
        if self.source is not None:
            return self.source
        return " ".join(_quoted(word) for part in self.parts for word in part.argv)


def _quoted(word: str) -> str:
    plain = word and all(c.isalnum() or c in "@%+=:,./-_" for c in word)
    return word if plain else "'" + word.replace("'", "'\"'\"'") + "'"
