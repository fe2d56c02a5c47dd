"""
From what a box shows to what Landlock is asked to grant. Pure.

Rights add up along a path and nothing below a granted directory can be taken away. So a
directory that holds something lesser is not granted itself: all else in it is, name by
name. What appears in it later is not granted, it cannot be listed, and nothing can be
made in it, moved out of it or removed from it. For a readable directory that is a small
price. In a writable one a command would fail at its first new file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.backends._tree import Node, depth
from sandboxkit.model import is_inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Grants", "grants"]

_RANKS = {Node.HIDDEN: 0, Node.PRIVATE: 0, Node.READ: 1, Node.WRITE: 2}


@dataclass(frozen=True, slots=True)
class Grants:
    """
    What the command may do with files.

    Attributes:
        readable: Paths it may read, list and execute.
        writable: Paths it may also write.
        split: Writable directories that are granted name by name, because something
            in them is not writable.
        held: What that is.
    """

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    held: tuple[str, ...] = ()

    def shows(self, path: str) -> bool:
        """
        Whether *path* is one of these or lies in one, or in a split directory.
        """
        return path in self.split or any(is_inside(path, root) for root in (*self.readable, *self.writable))


def grants(nodes: Mapping[str, Node], names: Callable[[str], tuple[str, ...]]) -> Grants:
    """
    What to grant so that *nodes* holds.

    Args:
        nodes: What stands where; the deepest above a path decides.
        names: What lies in a directory, symbolic links left out: a grant on a link
            would be one on what it points to.
    """
    granted: dict[Node, list[str]] = {Node.READ: [], Node.WRITE: []}
    split: list[str] = []
    for path in sorted(nodes, key=depth):
        node = nodes[path]
        if node in granted:
            for place, is_whole in _places(path, node, nodes, names):
                (granted[node] if is_whole else split if node is Node.WRITE else []).append(place)
    held = tuple(
        path
        for path, node in sorted(nodes.items())
        if _RANKS[node] < _RANKS[Node.WRITE] and any(is_inside(path, place) for place in split)
    )
    return Grants(tuple(granted[Node.READ]), tuple(granted[Node.WRITE]), tuple(split), held)


def _places(
    path: str, node: Node, nodes: Mapping[str, Node], names: Callable[[str], tuple[str, ...]]
) -> Iterator[tuple[str, bool]]:
    """
    (path, whether it can be granted as it is) for *path* and what it must be split into.
    """
    if not _holds_lesser(path, node, nodes):
        yield path, True
        return
    yield path, False
    for name in names(path):
        below = f"{path.rstrip('/')}/{name}"
        if below not in nodes:
            yield from _places(below, node, nodes, names)


def _holds_lesser(path: str, node: Node, nodes: Mapping[str, Node]) -> bool:
    return any(
        other != path and _RANKS[lesser] < _RANKS[node] and is_inside(other, path) for other, lesser in nodes.items()
    )
