"""
Triggers: patterns found in every text that some glob takes, and in few others. Most
commands hold none, so that most globs need not be tried.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxkit.policy._glob import Later

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["trigger_of"]

_END = "\0"
_ENDS = r"(?=[/ =@:]|$)"
"""
What follows the last component of a path in a command: a slash, the end of the word, or
what cuts a word into paths.
"""


def trigger_of(globs: Iterable[str]) -> Later:
    """
    A pattern found in the words of every command, or in the directory it starts in, that
    names a path one of *globs* takes. Of each glob it is the component that tells most.
    """
    found = {_telling(glob) for glob in globs}
    ending = {literal.removesuffix(_END) for literal in found if literal.endswith(_END)}
    others = {literal for literal in found if not literal.endswith(_END)}
    choices = ([_either(ending) + _ENDS] if ending else []) + ([_either(others)] if others else [])
    return Later("|".join(choices))


def _telling(glob: str) -> str:
    """
    The literal of *glob* that is found in the fewest texts, with `_END` behind it where
    its component ends with it.
    """
    pieces = [
        piece + (_END if at == len(pieces) - 1 else "")
        for component in glob.split("/")
        for pieces in (re.split(r"[*?]+", component),)
        for at, piece in enumerate(pieces)
        if piece
    ]
    # Of two that tell as much, the later is less often a directory that everybody has.
    return max(reversed(pieces), key=lambda piece: (not piece[0].isalpha(), len(piece)), default="")


def _either(literals: set[str]) -> str:
    """
    A pattern for *literals* that looks at no character twice.
    """
    rests: dict[str, set[str]] = {}
    for literal in literals - {""}:
        rests.setdefault(literal[0], set()).add(literal[1:])
    choices = [re.escape(char) + _either(rests[char]) for char in sorted(rests)]
    if "" in literals:
        choices.append("")
    return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"
