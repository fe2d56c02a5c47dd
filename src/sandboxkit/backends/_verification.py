"""
What the attack on a backend found out, as values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandboxkit.model import Control, Grade

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sandboxkit.model import Enforcement

__all__ = ["VERIFIED", "Finding", "Verification"]

VERIFIED: tuple[Control, ...] = (
    Control.FS_READ,
    Control.FS_WRITE,
    Control.NET_NONE,
    Control.PROCESS_ISOLATION,
    Control.PROCESS_KILL_TREE,
    Control.PROCESS_NESTED_USERNS,
    Control.SYSCALLS,
    Control.ENV,
)
"""The controls the attack looks at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """
    What the attack found out about one control.

    Attributes:
        control: Which.
        grade: The most that can be believed of it.
        reason: What happened.
    """

    control: Control
    grade: Grade
    reason: str


@dataclass(frozen=True, slots=True)
class Verification:
    """
    What the attack found out about one backend.

    Attributes:
        findings: One for each control it looked at.
        failure: Why it could not be carried out; empty when it was.
        duration_s: Seconds it took.
    """

    findings: tuple[Finding, ...] = ()
    failure: str = ""
    duration_s: float = 0.0

    def apply(self, claim: Enforcement) -> Enforcement:
        """
        *claim*, lowered where the attack disagrees. Nothing is ever raised.
        """
        for finding in self.findings:
            claim = claim.lowered(finding.control, finding.grade, finding.reason)
        return claim

    def and_also(self, other: Verification) -> Verification:
        """
        Both together.
        """
        return Verification(
            (*self.findings, *other.findings), self.failure or other.failure, self.duration_s + other.duration_s
        )

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form that `from_dict` takes back.
        """
        return {
            "findings": [[str(found.control), str(found.grade), found.reason] for found in self.findings],
            "failure": self.failure,
            "duration_s": self.duration_s,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], controls: Collection[Control] = VERIFIED) -> Verification:
        """
        What `to_dict` gave.

        Args:
            data: That.
            controls: What it must speak of.

        Raises:
            ValueError: It is nothing of that kind, or lacks a control.
        """
        try:
            findings = tuple(
                Finding(Control(control), Grade.from_name(grade), str(reason))
                for control, grade, reason in data["findings"]
            )
            found = cls(findings, str(data["failure"]), float(data["duration_s"]))
        except (LookupError, TypeError) as exc:
            raise ValueError(f"no verification: {exc}") from exc
        if {finding.control for finding in findings} != set(controls):
            raise ValueError("no verification: it does not speak of every control")
        return found
