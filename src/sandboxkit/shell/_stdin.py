"""
`stdin_of`: what a command reads as standard input, where the text says it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxkit.model import PIPES, Setting, SimpleCommand
from sandboxkit.shell._carried import Stdin
from sandboxkit.shell._escape import printed

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["prints_number", "stdin_of"]

_PRINT_NUMBERS = frozenset(("date", "egrep", "fgrep", "git", "grep", "id", "nproc", "seq", "stat", "tr", "wc"))
_COUNTERS = frozenset(("grep", "egrep", "fgrep"))
_COUNTS = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*|--count")
_NAMES_FILES = re.compile(r"-[a-zA-Z]*[rRHob]|--(?:rec|der|with)")
_FORMATS = frozenset(("%s", "%Y", "%X", "%W", "%a", "%u", "%g", "%h"))


def stdin_of(part: SimpleCommand, parts: Sequence[SimpleCommand], inherited: Stdin | None) -> Stdin | None:
    """
    What *part* reads, or None where that cannot be told.

    Args:
        part: The command.
        parts: All commands found so far.
        inherited: What it, or the first command of its pipeline, reads without a
            redirection of its own.
    """
    for redirect in reversed(part.redirects):
        if redirect.is_text:
            return Stdin(redirect.target, redirect.is_known)
        if redirect.operator.startswith("<") and not redirect.target.startswith(PIPES):
            return None
    outputs = [output for source in part.reads_from if (output := _output_of(source, parts, inherited))]
    if not outputs:
        return None if part.reads_from else inherited
    is_known = len(outputs) == len(part.reads_from) and all(output.is_known for output in outputs)
    return Stdin("\n".join(output.text for output in outputs), is_known)


def prints_number(part: SimpleCommand, parts: Sequence[SimpleCommand]) -> bool:
    """
    Whether *part*, one of *parts*, prints nothing that could be more than a number.
    """
    if not part.argv or part.argv[0] not in _PRINT_NUMBERS:
        return False
    name, words = part.argv[0], part.argv[1:]
    operands = [word for word in words if word[:1] != "-"]
    if name == "seq":
        return len(operands) == len(words)
    if name in _COUNTERS:
        counts = any(map(_COUNTS.fullmatch, words)) and not any(map(_NAMES_FILES.match, words))
        return counts and len(operands) <= 2
    if name == "tr":
        return words[:1] == ("-d",) and bool(part.reads_from) and _print_numbers(part, parts)
    if part.unknown:
        return False
    if name == "wc":
        return not operands and not any(word.startswith("--f") for word in words)
    if name == "date":
        return len(words) == len(operands) == 1 and "[" not in words[0]
    if name == "stat":
        return len(words) == 3 and words[0] == "-c" and words[1] in _FORMATS
    return (
        name == "nproc" or part.argv in (("id", "-u"), ("id", "-g")) or part.argv[:3] == ("git", "rev-list", "--count")
    )


def _print_numbers(part: SimpleCommand, parts: Sequence[SimpleCommand]) -> bool:
    return all(prints_number(parts[source], parts) for source in part.reads_from)


def _output_of(index: int, parts: Sequence[SimpleCommand], inherited: Stdin | None) -> Stdin | None:
    part = parts[index]
    if not part.argv:
        return None
    if part.argv == ("cat",) or part.program == "tee":
        return stdin_of(part, parts, inherited)
    if part.own is not None:
        inner = [number for number, each in enumerate(parts) if each.outer == index]
        return _output_of(inner[0], parts, inherited) if len(inner) == 1 else None
    output = printed(part.argv)
    if output is None:
        return None
    if part.program == "echo" and "\\" in output.text and part.stands(Setting.FOREIGN):
        # Some shells decode escapes without being asked to.
        decoded = printed(("echo", "-e", *part.argv[1:])) or output
        return Stdin(f"{output.text}\n{decoded.text}")
    return Stdin(output.text, output.is_known and not part.unknown and output.text.isascii())
