"""
From a spec to what a box of Seatbelt shows, by real paths. Pure.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from sandboxkit.backends._tree import Node, Tree, box_tree
from sandboxkit.backends.seatbelt._profile import real
from sandboxkit.backends.seatbelt._system import HELD_HOME, HIDDEN, READABLE, READABLE_TOOLS
from sandboxkit.model import Access, access_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.backends._survey import Survey
    from sandboxkit.model import SandboxSpec

__all__ = ["box_nodes"]

_PRIVATE = ("/private/tmp", "/private/var/folders", "/private/var/run", "/private/var/tmp")


def box_nodes(spec: SandboxSpec, host: Survey, scratch: str) -> Mapping[str, Node]:
    """
    What a box under *spec* shows of the surveyed host, by real paths.

    What the spec names is stronger than what macOS has where, except that a home's own
    list of what launchd starts is never writable by what the spec names above it.
    """
    tree = box_tree(spec, host).nodes
    nodes = {real(path): node for path, node in tree.items() if path == real(path) or real(path) not in tree}
    named = {real(path): access for path, access in spec.filesystem.tree().items()}
    tools = READABLE_TOOLS if spec.filesystem.base == "tools" else ()
    defaults = {
        **dict.fromkeys((*READABLE, *tools), Node.READ),
        **dict.fromkeys((*HIDDEN, *_PRIVATE), Node.HIDDEN),
    }
    for path, node in defaults.items():
        if path in named or (node is Node.READ and access_of(path, named) is not Access.UNLISTED):
            continue
        nodes[path] = node
    for path in (posixpath.join(host.home, name) for name in HELD_HOME):
        if path not in named and Tree(nodes, frozenset()).at(path) is Node.WRITE:
            nodes[path] = Node.READ
    if scratch:
        nodes[scratch] = Node.READ
        nodes.update({f"{scratch}/{name}": Node.WRITE for name in ("home", "tmp")})
    return nodes
