"""
Interpreters of other languages: `python -c`, `perl -e`, `awk` and the like.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from sandboxkit.model import PIPES, Setting, SimpleCommand
from sandboxkit.shell._carried import (
    MAX_STRINGS,
    NEEDS_SHELL,
    VERSION,
    Carried,
    Inner,
    Stdin,
    guesses,
    name_of,
    printed_files,
)
from sandboxkit.shell._run_options import values_of
from sandboxkit.shell._run_tables import CODE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["code"]

_STRINGS = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\\n]|\\.)*)`")
_STARTS = re.compile(
    r"system|exec|popen|spawn|shell|process|callc|callp|cmd|\brun\b|\bcall\b|check_|getoutput|\bqx\b|%x|child_|\beval\b|open3|subprocess|\bos\b|open\b[^\n]{0,30}[\"']\s*\|",
    re.IGNORECASE,
)
_PIPED = re.compile(r"[`|]")
_CALL = re.compile(r"(?<![.\w])\w+\s*\(\s*[frbu]*$")
_PRINTING = re.compile(r"(?:print\w*|log|puts|echo|write\w*|info|warn\w*|error|assert\w*)\s*\(?\s*[frbu]*$")
"""
Code without what starts programs may still do so by a name of its own, but not by one of these.
"""
_QUOTED = re.compile(r"(?:\bqx|%x)\s*(?:\(([^()\n]*)\)|\{([^{}\n]*)\}|\[([^\[\]\n]*)\]|([/|!~])([^\n]*?)\4)")
_SHELL = re.compile(
    r"(?:\||(?:system|exec\w*|popen|spawn\w*|run|call)\s*\(?)\s*[\[(]?[\"'](?:/(?:usr/)?bin/)?(?:ba|da|z|k)?sh[\"' ]"
)
_AWK_FILE = re.compile(r"-[fE]|--(?:fi|ex)")
_AWK_VALUED = frozenset(("-F", "-v", "-i", "-l", "-W", "--assign", "--field-separator", "--include"))
_MAX_TAILS = 4


def code(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    Code of another language: the strings in it may be commands.
    """
    name = name_of(part.argv[0])
    options = CODE_OPTIONS.get(name)
    if options is None:
        options = CODE_OPTIONS.get(VERSION.sub("", name), ())
    codes = values_of(part.argv, options)
    if "" in options:
        codes += [word for word in _operands(part.argv) if not word.startswith(PIPES)][:1]
    if "timeit" in part.argv:
        codes += part.argv[part.argv.index("timeit") + 1 :]
    if not codes:
        # What a process substitution prints is the program, where a file would be.
        codes = printed_files(part)
    is_piped = part.stands(Setting.PIPELINE)
    inner: list[Inner] = []
    if stdin is not None:
        if not codes:
            codes = [stdin.text]
        elif any(map(_SHELL.search, codes)):
            inner += guesses([stdin.text])  # that shell reads what this program was given
    inner += [each for code in codes for each in _strings(code, is_piped=is_piped)]
    return Carried(inner, None) if codes else None


def _operands(argv: tuple[str, ...]) -> list[str]:
    """
    The operands of awk, the first of which is the program; none where a file is.
    """
    if any(map(_AWK_FILE.match, argv)):
        return []
    return [word for before, word in pairwise(argv) if not word.startswith("-") and before not in _AWK_VALUED]


def _is_handed(before: str) -> bool:
    """
    Whether a string behind *before* is the argument of a function that may be any.
    """
    return bool(_CALL.search(before)) and not _PRINTING.search(before)


def _strings(code: str, *, is_piped: bool) -> Iterator[Inner]:
    # What it prints may be what another program of the pipeline executes.
    may_start = (
        is_piped
        or _STARTS.search(code)
        or _PIPED.search(_STRINGS.sub(lambda each: each[0][0] if each[3] else "", code))
    )
    found = [each for each in _STRINGS.finditer(code) if may_start or _is_handed(code[: each.start()][-80:])]
    strings = [next(filter(None, each.groups()), "") for each in found[:MAX_STRINGS]]
    for each in _QUOTED.finditer(code):
        yield Inner(text=each[each.lastindex or 0], setting=Setting.SUSPECT)
    for text in strings:
        text = re.sub(r"\\(.)", r"\1", text)
        if NEEDS_SHELL.search(text.strip()):
            yield Inner(text=text, setting=Setting.SUSPECT)
    words = tuple(word for word in strings if word)
    # The first of them may be the name of a module or function.
    for start in range(min(len(words) - 1, _MAX_TAILS)):
        yield Inner(words[start:], setting=Setting.SUSPECT)
