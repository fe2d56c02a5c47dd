"""
What Landlock has to work with on a machine.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sandboxkit.backends._contract import Facts
from sandboxkit.backends._hard_links import linked_files
from sandboxkit.backends._layouts import layouts
from sandboxkit.backends._protection import Watched, state
from sandboxkit.backends._replaced import node_of
from sandboxkit.backends._survey import Survey, survey
from sandboxkit.backends._tree import Node, box_tree
from sandboxkit.backends.landlock._grants import Grants, grants
from sandboxkit.model import Control

if TYPE_CHECKING:
    from collections.abc import Collection

    from sandboxkit.backends._tree import Tree
    from sandboxkit.model import SandboxSpec

__all__ = ["LandlockFacts"]

_SPECIAL = ("/proc", "/dev", "/sys")
_LESSER = frozenset({(Node.HIDDEN, Node.READ), (Node.HIDDEN, Node.WRITE), (Node.READ, Node.WRITE)})


@dataclass(frozen=True, slots=True)
class LandlockFacts(Facts):
    """
    What this machine has for a box of Landlock.

    Attributes:
        abi: The Landlock ABI that is used; 0 for none.
        kernel_abi: The one the kernel has.
        machine: The architecture, as uname(2) names it.
        kernel: The kernel's release.
        interpreter: The Python that runs the supervisor.
        survey: The host as one spec needs it, or None where no spec was given.
        grants: What is granted for that spec.
        scratch: A private directory for the command's home and temporary files; empty
            where no box is open.
        processes: Threads the command's user has already, which its limit counts too.
    """

    abi: int = 0
    kernel_abi: int = 0
    machine: str = ""
    kernel: str = ""
    interpreter: str = ""
    survey: Survey | None = None
    grants: Grants = field(default_factory=Grants)
    scratch: str = ""
    processes: int = 0

    def surveyed(self, spec: SandboxSpec) -> LandlockFacts:
        """
        These facts with a fresh look at the host for *spec*.

        Raises:
            SpecError: See `survey`.
        """
        found = survey(spec, maps_ids=False)
        if Control.FS_DENY_INSIDE_ALLOW in spec.allow_degraded:
            loose = tuple(Watched(path, state=state(path)) for path in found.protected)
            found = replace(found, protected=(), watched=(*found.watched, *loose))
        tree = box_tree(spec, found)
        nodes = dict(tree.nodes)
        names = partial(_names, aliases=_aliases(tree))
        for path in (*layouts().private, *_SPECIAL):
            if path not in spec.filesystem.tree():
                nodes[path] = Node.HIDDEN
        return replace(self, survey=found, grants=grants(nodes, names), processes=_threads_of(found.identity.uid))

    def fingerprint(self) -> str:
        """
        These facts.
        """
        return json.dumps(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """
        The facts worth showing to people, JSON-ready.
        """
        return {
            "landlock_abi": self.abi,
            "kernel_landlock_abi": self.kernel_abi,
            "kernel": self.kernel,
            "machine": self.machine,
            "interpreter": self.interpreter,
        }


def _aliases(tree: Tree) -> frozenset[tuple[int, int]]:
    """
    (device, inode) of what *tree* shows less of than of what it lies in, and of the files in it
    that have a name elsewhere. The kernel grants a file or directory, not a name of it: with
    another name, which may be one by another mount, it is granted under both.
    """
    lesser = [path for path, node in tree.nodes.items() if (node, tree.at(os.path.dirname(path))) in _LESSER]
    linked = (node for path in lesser for node in (linked_files(path) or {}).values())
    return frozenset((*linked, *(node for path in lesser if (node := node_of(path)))))


def _names(directory: str, aliases: Collection[tuple[int, int]]) -> tuple[str, ...]:
    try:
        with os.scandir(directory) as entries:
            return tuple(sorted(entry.name for entry in entries if not _is_left_out(entry, aliases)))
    except OSError:
        return ()  # what cannot be listed is not granted


def _is_left_out(entry: os.DirEntry[str], aliases: Collection[tuple[int, int]]) -> bool:
    if entry.is_symlink():
        return True
    return bool(aliases) and node_of(entry.path) in (None, *aliases)  # None: it has just gone


def _threads_of(uid: int) -> int:
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue  # it has just gone
    return count
