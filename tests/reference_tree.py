"""
What a box must show at a path, said as simply as it can be: to compare mount plans and
real boxes with.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["PLACES", "access"]

PLACES = ["/".join(names) for length in (1, 2, 3, 4) for names in product("ab", repeat=length)]
"""Enough to hold a denial in an allowance in a denial in an allowance, in every order."""


def access(path: str, read: Collection[str], write: Collection[str], deny: Collection[str]) -> str:
    """
    `deny`, `write`, `read`, or `unlisted`: what the deepest named directory says.
    """
    names = path.split("/")
    for length in range(len(names), 0, -1):
        place = "/".join(names[:length])
        for found, named in (("deny", deny), ("write", write), ("read", read)):
            if place in named:
                return found
    return "unlisted"
