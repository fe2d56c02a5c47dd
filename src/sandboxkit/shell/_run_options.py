"""
Programs that do other work, with an option whose value is a command: `tar --to-command`,
`rsync -e`, `ssh -o ProxyCommand=`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxkit.shell._carried import MAX_STRINGS, NEEDS_SHELL, Carried, guesses, name_of
from sandboxkit.shell._run_tables import RUN_OPTIONS, RUN_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxkit.model import SimpleCommand
    from sandboxkit.shell._carried import Stdin

__all__ = ["options_that_run", "values_of", "words_that_run"]

_TARS = frozenset(("tar", "bsdtar"))
_PATTERNS = {"rg": frozenset(("-e", "--regexp"))}
"""
Options whose value is a pattern, whatever it begins with: `rg -e --pre` looks for text. Of
other options no value is told apart, which can only find more.
"""
_MAX_CLUSTER = 8
_MAX_VALUES = 100
_TAKE_VALUES = frozenset("mMWX")
"""
Letters of short options behind which a value stands in many of these programs.
"""


def options_that_run(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    Commands in options of a program that does other work, in its words, and in its input.
    A program's name alone says nothing that these do not.
    """
    argv, name = part.argv, name_of(part.argv[0])
    options = RUN_OPTIONS.get(name)
    words = _without_patterns(argv, _PATTERNS[name]) if name in _PATTERNS else argv
    texts = [text.removeprefix("exec=").lstrip("| ") for text in values_of(words, options)] if options else []
    if name in _TARS and argv[1:2] and argv[1].isalpha() and ("I" in argv[1] or "F" in argv[1]):
        texts += argv[2:5]  # `tar cIf PROGRAM FILE`: the letters take the words in their order
    texts += words_that_run(name, argv[1:] if stdin is None else (*argv[1:], stdin.text))
    inner = guesses(text for text in texts[:MAX_STRINGS] if NEEDS_SHELL.search(text.strip()))
    return Carried(inner) if inner else None


def _without_patterns(argv: tuple[str, ...], options: frozenset[str]) -> tuple[str, ...]:
    """
    *argv* up to `--`, without the values of *options*.
    """
    words: list[str] = []
    at = 0
    while at < len(argv) and argv[at] != "--":
        words.append(argv[at])
        at += 2 if argv[at] in options else 1
    return tuple(words)


def words_that_run(name: str, words: Sequence[str]) -> list[str]:
    """
    The text for a shell within *words* of the program *name*.
    """
    pattern = RUN_WORDS.get(name)
    if pattern is None:
        return []
    texts = [each[each.lastindex or 0] for word in words for each in pattern.finditer(word)]
    return texts + [re.sub(r"\\(.)", r"\1", text) for text in texts if "\\" in text]


def values_of(argv: tuple[str, ...], options: tuple[str, ...]) -> list[str]:
    """
    The values of *options* among the words of a program, however they are written: as the
    next word, attached, behind other letters, or with a name cut short. An option is not
    told from another one's value, so there may be more than there are.
    """
    texts: list[str] = []
    for at, word in enumerate(argv):
        if len(texts) > _MAX_VALUES:
            break
        if word in options:
            texts += argv[at + 1 : at + 2]
        elif word[:1] != "-" or len(word) < 3:
            continue
        elif word[1] == "-" or "=" in word:
            name, attached, value = word.partition("=")
            if len(name) > 2 and any(each.startswith(name) for each in options):
                texts += [value] if attached else argv[at + 1 : at + 2]
            elif word[1] != "-":
                texts += _clustered(argv, at, options)
        else:
            texts += _clustered(argv, at, options)
    return texts


def _clustered(argv: tuple[str, ...], at: int, options: tuple[str, ...]) -> list[str]:
    """
    The values of short options that stand behind other letters in one word.
    """
    texts: list[str] = []
    word = argv[at]
    if f"-{word[-1]}" in options:
        texts += argv[at + 1 : at + 2]
    for place, letter in enumerate(word[1:_MAX_CLUSTER], 2):
        if f"-{letter}" in options:
            texts.append(word[place:])
        elif letter in _TAKE_VALUES or not letter.isalnum():
            break
    return texts
