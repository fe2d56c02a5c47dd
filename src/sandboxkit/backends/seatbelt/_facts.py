"""
What Seatbelt has to work with on a machine.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sandboxkit.backends._contract import Facts
from sandboxkit.backends._survey import Survey, survey
from sandboxkit.backends._tree import Node, Tree, box_tree
from sandboxkit.backends.seatbelt._profile import real
from sandboxkit.backends.seatbelt._system import HELD_HOME, HIDDEN, READABLE, READABLE_TOOLS
from sandboxkit.model import Access, access_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.backends._verify import Finding
    from sandboxkit.model import SandboxSpec

__all__ = ["SeatbeltFacts", "box_nodes"]

_PRIVATE = ("/private/tmp", "/private/var/folders", "/private/var/run", "/private/var/tmp")


@dataclass(frozen=True, slots=True)
class SeatbeltFacts(Facts):
    """
    What this machine has for a box of Seatbelt.

    Attributes:
        program: Where sandbox-exec(1) is; empty where it is not.
        macos: The version of macOS; empty elsewhere.
        interpreter: The Python that puts the command in its place.
        survey: The host as one spec needs it, or None where no spec was given.
        scratch: A private directory for the command's home and temporary files; empty
            where no box is open.
        mark: A name only this box may look up, by which its processes are found.
        processes: Processes the user has already, which its limit counts too; None where
            they could not be counted.
        tried: What the backend's own attack found, on this machine, beyond the shared one.
    """

    program: str = ""
    macos: str = ""
    interpreter: str = ""
    survey: Survey | None = None
    scratch: str = ""
    mark: str = ""
    processes: int | None = None
    tried: tuple[Finding, ...] = field(default=())

    def surveyed(self, spec: SandboxSpec) -> SeatbeltFacts:
        """
        These facts with a fresh look at the host for *spec*.

        Raises:
            SpecError: See `survey`.
        """
        return replace(self, survey=survey(spec, maps_ids=False))

    def to_dict(self) -> dict[str, Any]:
        """
        The facts worth showing to people, JSON-ready.
        """
        return {
            "program": self.program,
            "macos": self.macos,
            "interpreter": self.interpreter,
            "tried": {str(finding.control): finding.reason for finding in self.tried},
        }


def box_nodes(spec: SandboxSpec, host: Survey, scratch: str) -> Mapping[str, Node]:
    """
    What a box under *spec* shows of the surveyed host, by real paths. Pure.

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
