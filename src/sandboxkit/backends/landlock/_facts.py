"""
What Landlock has to work with on a machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sandboxkit.backends._contract import Facts
from sandboxkit.backends._layouts import layouts
from sandboxkit.backends._protection import Watched, state
from sandboxkit.backends._survey import Survey, survey
from sandboxkit.backends._tree import Node, box_tree
from sandboxkit.backends.landlock._grants import Grants, grants
from sandboxkit.model import Control

if TYPE_CHECKING:
    from sandboxkit.model import SandboxSpec

__all__ = ["LandlockFacts"]

_SPECIAL = ("/proc", "/dev", "/sys")


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
        nodes = dict(box_tree(spec, found).nodes)
        for path in (*layouts().private, *_SPECIAL):
            if path not in spec.filesystem.tree():
                nodes[path] = Node.HIDDEN
        return replace(self, survey=found, grants=grants(nodes, _names), processes=_threads_of(found.identity.uid))

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


def _names(directory: str) -> tuple[str, ...]:
    try:
        with os.scandir(directory) as entries:
            return tuple(sorted(entry.name for entry in entries if not entry.is_symlink()))
    except OSError:
        return ()  # what cannot be listed is not granted


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
