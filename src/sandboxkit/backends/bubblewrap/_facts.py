"""
What bubblewrap has to work with on a machine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sandboxkit.backends._cgroups import Cgroups
from sandboxkit.backends._contract import Facts
from sandboxkit.backends._remembered import identity_of
from sandboxkit.backends._survey import Survey, survey

if TYPE_CHECKING:
    from sandboxkit.backends.bubblewrap._program import Program
    from sandboxkit.model import SandboxSpec

__all__ = ["BubblewrapFacts"]


@dataclass(frozen=True, slots=True)
class BubblewrapFacts(Facts):
    """
    What this machine has for bubblewrap.

    Attributes:
        program: The bwrap that is executed, or None.
        landlock_abi: The kernel's Landlock ABI; 0 for none.
        machine: The architecture, as uname(2) names it.
        kernel: The kernel's release.
        interpreter: The Python that runs the in-box child.
        survey: The host as one spec needs it, or None where no spec was given.
        passwd: The content of /etc/passwd and of /etc/group, for a user without an
            entry there.
        cgroups: Where control groups of whole trees can be made.
        has_proxy: Whether the egress proxy can be used: the extra `egress` is installed.
    """

    program: Program | None = None
    landlock_abi: int = 0
    machine: str = ""
    kernel: str = ""
    interpreter: str = ""
    survey: Survey | None = None
    passwd: tuple[bytes, bytes] = (b"", b"")
    cgroups: Cgroups = field(default_factory=Cgroups)
    has_proxy: bool = False

    def surveyed(self, spec: SandboxSpec) -> BubblewrapFacts:
        """
        These facts with a fresh look at the host for *spec*.

        Raises:
            SpecError: See `survey`.
        """
        programs = [self.program.path] if self.program else []
        return replace(self, survey=survey(spec, programs=programs), cgroups=self.cgroups.refreshed())

    def fingerprint(self) -> str:
        """
        These facts, and which file the bwrap is.
        """
        return json.dumps([self.to_dict(), identity_of(self.program.path) if self.program else None])

    def to_dict(self) -> dict[str, Any]:
        """
        The facts worth showing to people, JSON-ready.
        """
        program = self.program
        return {
            "bwrap": program.path if program else None,
            "bwrap_origin": program.origin if program else None,
            "bwrap_version": program.version if program else None,
            "kernel": self.kernel,
            "machine": self.machine,
            "landlock_abi": self.landlock_abi,
            "disable_userns": bool(program and "--disable-userns" in program.options),
            "interpreter": self.interpreter,
            "cgroups": self.cgroups.describe(),
            "egress_proxy": self.has_proxy,
        }
