"""
One simple command as the rules look at it.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from sandboxkit.policy._paths import normal
from sandboxkit.shell import quote

if TYPE_CHECKING:
    from sandboxkit.model import EvaluationContext

__all__ = ["Place", "Subject", "program_name"]

_EXTENSIONS = (".exe", ".com", ".bat", ".cmd")


class Place(Enum):
    """
    Where a program's name points.
    """

    TRUSTED = auto()
    """A bare name, or a path right below a trusted directory."""
    ELSEWHERE = auto()
    """Any other path, and a name only a careless file system would find."""


@dataclass(frozen=True, slots=True)
class Subject:
    """
    A simple command with its program told apart.

    Attributes:
        argv: The words.
        name: The program's name, as of `program_name`.
        place: Whether that name can be taken at its word.
        texts: The canonical texts: as written, and with the bare name where it was
            something else.
        context: Where the command would run.
    """

    argv: tuple[str, ...]
    name: str
    place: Place
    texts: tuple[str, ...]
    context: EvaluationContext

    @classmethod
    def of(cls, argv: tuple[str, ...], context: EvaluationContext) -> Subject:
        """
        *argv* as a subject.
        """
        word = argv[0]
        base, name = program_name(word)
        is_trusted = name == base and ("/" not in word or _is_trusted_path(word, context))
        texts = (quote(argv),) if word == name else (quote(argv), quote((name, *argv[1:])))
        return cls(argv, name, Place.TRUSTED if is_trusted else Place.ELSEWHERE, texts, context)


def program_name(word: str) -> tuple[str, str]:
    """
    The last component of the program's path, as written and as a careless file
    system would take it: in small letters and without an extension of Windows.
    """
    base = posixpath.basename(normal(word)) if "/" in word else word
    name = base.lower()
    return base, name.rpartition(".")[0] if name.endswith(_EXTENSIONS) else name


def _is_trusted_path(word: str, context: EvaluationContext) -> bool:
    # A path with dots in it may pass through a link that leads elsewhere.
    directory, _, name = word.rpartition("/")
    return bool(name) and directory in context.trusted_directories
