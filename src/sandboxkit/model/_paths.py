"""
Access to paths as a tree: the deepest listed ancestor of a path decides.

Pure and lexical: symbolic links are the box's business.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Access", "access_of", "is_inside", "strictest"]


class Access(IntEnum):
    """
    What a box may do with a path; greater allows more.

    `UNLISTED` is a path nobody named: it shows the system's own files and
    otherwise nothing.
    """

    DENY = 0
    UNLISTED = 1
    READ = 2
    WRITE = 3


def is_inside(path: str, root: str) -> bool:
    """
    Whether *path* is *root* or lies below it, by whole components.
    """
    return path == root or root == "/" or path.startswith(root + "/")


def access_of(path: str, tree: Mapping[str, Access]) -> Access:
    """
    The access *tree* gives to *path*: that of its deepest listed ancestor or itself.
    """
    while path not in tree:
        if path == "/":
            return Access.UNLISTED
        path = path[: path.rindex("/")] or "/"
    return tree[path]


def strictest(one: Mapping[str, Access], other: Mapping[str, Access]) -> dict[str, Access]:
    """
    The tree that allows, at every path, the lesser of what both allow.

    A denial inside a denial is left out, so that merging in another order gives the
    same tree. A path that only one of both names, inside what the other denies, is
    denied.
    """
    merged: dict[str, Access] = {}
    for path in sorted(one.keys() | other.keys()):  # parents first
        access = min(access_of(path, one), access_of(path, other))
        is_repeated = access is Access.DENY and access_of(path, merged) is Access.DENY
        if access is not Access.UNLISTED and not is_repeated:
            merged[path] = access
    return merged
