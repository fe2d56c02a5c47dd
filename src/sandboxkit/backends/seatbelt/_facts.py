"""
What Seatbelt has to work with on a machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sandboxkit.backends._contract import Facts
from sandboxkit.backends._survey import Survey, survey

if TYPE_CHECKING:
    from sandboxkit.backends._verification import Finding
    from sandboxkit.model import SandboxSpec

__all__ = ["SeatbeltFacts"]


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
        has_proxy: Whether the egress proxy can be used: the extra `egress` is installed.
        tried: What the backend's own attack found, on this machine, beyond the shared one.
    """

    program: str = ""
    macos: str = ""
    interpreter: str = ""
    survey: Survey | None = None
    scratch: str = ""
    mark: str = ""
    processes: int | None = None
    has_proxy: bool = False
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
            "egress_proxy": self.has_proxy,
            "tried": {str(finding.control): finding.reason for finding in self.tried},
        }
