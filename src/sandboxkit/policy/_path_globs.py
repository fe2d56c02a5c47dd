"""
Globs over normal paths: `**` is any depth, `*` stays within one component.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, final

from sandboxkit.policy._glob import Later, all_characters

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PathGlobs"]

_STARS = re.compile(r"(\*\*/|/\*\*|\*)")
_PATTERNS = {"**/": "(?:.*/)?", "/**": "(?:/.*)?", "*": "[^/]*"}


@final
class PathGlobs:
    """
    A list of globs. A path is only compared with those of which it has a component.
    """

    __slots__ = ("_by_name", "_literals", "_nameless")

    def __init__(self, globs: Iterable[str]) -> None:
        listed = tuple(globs)
        self._literals = frozenset(glob for glob in listed if "*" not in glob)
        by_name: dict[str, list[str]] = {}
        for glob in listed:
            if glob not in self._literals:
                by_name.setdefault(_telling(glob), []).append(glob)
        nameless = by_name.pop("", None)
        self._by_name = {name: _pattern(named) for name, named in by_name.items()}
        self._nameless = _pattern(nameless) if nameless else None

    def take(self, path: str) -> bool:
        """
        Whether one of them takes the whole of *path*.
        """
        if path in self._literals:
            return True
        for name in path.split("/"):
            named = self._by_name.get(name)
            if named is not None and named.fullmatch(path):
                return True
        return self._nameless is not None and self._nameless.fullmatch(path) is not None


def _telling(glob: str) -> str:
    """
    The component of *glob* that the fewest paths have, or nothing where all hold a wildcard.
    """
    names = [name for name in glob.split("/") if "*" not in name]
    return max(names, key=lambda name: (not name[:1].isalpha(), len(name)) if name else (False, 0), default="")


def _pattern(globs: Iterable[str]) -> Later:
    return Later("|".join(_text(glob) for glob in globs), all_characters)


def _text(glob: str) -> str:
    return "".join(_PATTERNS.get(piece) or re.escape(piece) for piece in _STARS.split(glob))
