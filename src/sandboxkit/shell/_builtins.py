"""
Builtins that keep text for a shell, or run it on the way: `trap`, `alias`, `mapfile -C`.
"""

from __future__ import annotations

import re

from sandboxkit.model import UNKNOWN, Setting, SimpleCommand
from sandboxkit.shell._carried import ANYTHING, Carried, Inner, Stdin, guesses, is_unknown, text_of

__all__ = ["alias", "callback", "complete", "subscripts", "trap"]

_CALLBACK = re.compile(r"-t?C")


def trap(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `trap TEXT SIGNAL…`: the shell runs the text later.
    """
    start = 2 if part.argv[1:2] == ("--",) else 1
    if len(part.argv) < start + 2 or (part.argv[start] in ("-", "", "-l", "-p") and not is_unknown(part, start)):
        return None
    return Carried(text_of(part, range(start, start + 1), Setting.FUNCTION), start)


def alias(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `alias NAME=TEXT`: the text stands where the name is written later.
    """
    texts = [word.partition("=")[2] for word in part.argv[1:] if "=" in word]
    return Carried(guesses(texts))


def complete(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `complete -C TEXT` and the like: a completion runs it.
    """
    places = [index + 1 for index, word in enumerate(part.argv[:-1]) if word in ("-C", "-F", "-W")]
    return Carried([each for at in places for each in text_of(part, range(at, at + 1), Setting.FUNCTION)], None)


def callback(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `mapfile -C TEXT`.
    """
    places = [index + 1 for index, word in enumerate(part.argv[:-1]) if _CALLBACK.fullmatch(word)]
    inner = [each for at in places for each in text_of(part, range(at, at + 1))]
    inner += [Inner(text=word[2:]) for word in part.argv if word.startswith("-C") and len(word) > 2]
    return Carried(inner) if inner else None


def subscripts(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    Builtins that take a quoted array subscript for arithmetic, and run what is in it.
    """
    words = [word for word in part.argv[1:] if "[" in word and ("$(" in word or "`" in word)]
    if not words:
        return None
    inner = [found for word in words for found in re.findall(r"\$\(([^()]*)\)|`([^`]*)`", word)]
    texts = [one or other for one, other in inner]
    return Carried([Inner((UNKNOWN,), ANYTHING), *guesses(texts)])
