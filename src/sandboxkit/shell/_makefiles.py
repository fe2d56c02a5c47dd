"""
`make`: the recipes of a makefile that stands in the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxkit.shell._carried import MAX_STRINGS, NEEDS_SHELL, Carried, Stdin, guesses, printed_files
from sandboxkit.shell._run_options import options_that_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.model import SimpleCommand

__all__ = ["make"]

_STDIN_FILES = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_MAKE_CODE = re.compile(r" -(?:[A-Za-z]*f|E|-f|-m|-ev)")
_FILE = re.compile(r"-[A-Za-z]*f")
_MAKE_SHELL = re.compile(r"\$[({]shell\s+([^)}]+)")


def make(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `make -f FILE`, where the text says what is in the file: its recipes. What `--eval` is
    given is a makefile too. Source: make(1), "Rule Syntax", GNU make 4.3.
    """
    if not part.unknown and not _MAKE_CODE.search(" ".join(part.argv)):
        return options_that_run(part, stdin)
    codes = printed_files(part)
    for at, word in enumerate(part.argv):
        name, attached, value = word.partition("=")
        following = part.argv[at + 1] if at + 1 < len(part.argv) else ""
        if (short := _FILE.match(word)) or word.startswith(("--f", "--m")):
            file = word[short.end() :] or following if short else value or following
            if stdin is not None and file in _STDIN_FILES:
                codes.append(stdin.text)
        elif name in ("--ev", "--eva", "--eval", "-E"):
            codes.append(value if attached else following)
    inner = options_that_run(part, stdin)
    recipes = [recipe for code in codes for recipe in _recipes(code) if NEEDS_SHELL.search(recipe.strip())]
    if not recipes:
        return inner
    return Carried([*(inner.commands if inner else ()), *guesses(recipes[:MAX_STRINGS])])


def _recipes(makefile: str) -> Iterator[str]:
    """
    The lines of *makefile* that a shell reads.
    """
    for line in makefile.replace("\\\n", " ").split("\n"):
        recipe = line if line.startswith("\t") else line.partition(";")[2] if ":" in line else ""
        if recipe.strip():
            yield recipe.lstrip("\t @+-").replace("$$", "$")
        yield from (found[1] for found in _MAKE_SHELL.finditer(line))
