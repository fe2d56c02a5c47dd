"""
What can be enforced, and how well: the vocabulary of every promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["BASELINE", "Control", "ControlState", "Enforcement", "Grade"]


class Control(StrEnum):
    """
    One property a box may hold. The value is its name in specs and results.
    """

    FS_READ = "fs.read"
    FS_WRITE = "fs.write"
    FS_DENY_INSIDE_ALLOW = "fs.deny_inside_allow"
    FS_OVERLAY = "fs.overlay"
    NET_NONE = "net.none"
    NET_ALLOWLIST = "net.allowlist"
    NET_INTERCEPT = "net.intercept"
    PROCESS_ISOLATION = "process.isolation"
    PROCESS_KILL_TREE = "process.kill_tree"
    PROCESS_NESTED_USERNS = "process.nested_userns"
    SYSCALLS = "syscalls"
    ENV = "env"
    LIMITS_WALL = "limits.wall"
    LIMITS_CPU = "limits.cpu"
    LIMITS_MEMORY = "limits.memory"
    LIMITS_PROCESSES = "limits.processes"
    LIMITS_FILE_SIZE = "limits.file_size"
    LIMITS_OUTPUT = "limits.output"


class Grade(IntEnum):
    """
    How well a control holds; greater is stronger.

    `PARTIAL` always comes with the reason that says where it ends, for example
    a memory limit that counts each process and not their sum.
    """

    ABSENT = 0
    PARTIAL = 1
    ENFORCED = 2

    @classmethod
    def from_name(cls, name: str) -> Grade:
        """
        The grade called *name* (`absent`, `partial`, `enforced`).

        Raises:
            ValueError: No grade has this name.
        """
        try:
            return cls[name.upper()]
        except KeyError:
            raise ValueError(f"{name!r} is no grade; use enforced, partial or absent") from None

    def __str__(self) -> str:
        return self.name.lower()


BASELINE: Mapping[Control, Grade] = {
    Control.FS_READ: Grade.ENFORCED,
    Control.FS_WRITE: Grade.ENFORCED,
    Control.PROCESS_ISOLATION: Grade.ENFORCED,
    Control.PROCESS_KILL_TREE: Grade.ENFORCED,
    Control.PROCESS_NESTED_USERNS: Grade.ENFORCED,
    Control.SYSCALLS: Grade.ENFORCED,
    Control.ENV: Grade.ENFORCED,
    Control.LIMITS_WALL: Grade.ENFORCED,
    Control.LIMITS_OUTPUT: Grade.ENFORCED,
    Control.LIMITS_MEMORY: Grade.PARTIAL,
    Control.LIMITS_CPU: Grade.PARTIAL,
    Control.LIMITS_PROCESSES: Grade.PARTIAL,
    Control.LIMITS_FILE_SIZE: Grade.PARTIAL,
}
"""
What every spec requires unless it says otherwise. The network control is added by
the spec's own network mode; the limits are only `partial` because an ordinary user
often has no cgroup.
"""


@dataclass(frozen=True, slots=True)
class ControlState:
    """
    How well one control holds, and why not better.

    Attributes:
        grade: The grade.
        reason: What enforces it, or what is missing. Never empty.
    """

    grade: Grade
    reason: str


@dataclass(frozen=True, slots=True)
class Enforcement:
    """
    What a backend enforces for one spec: a state for every control it speaks about.

    A control that is not listed is `absent`.
    """

    states: Mapping[Control, ControlState]

    def grade(self, control: Control) -> Grade:
        """
        How well *control* holds.
        """
        state = self.states.get(control)
        return state.grade if state else Grade.ABSENT

    def reason(self, control: Control) -> str:
        """
        Why *control* has its grade.
        """
        state = self.states.get(control)
        return state.reason if state else "this backend makes no claim"

    def lowered(self, control: Control, grade: Grade, reason: str) -> Enforcement:
        """
        The same record with *control* at most at *grade*. Never raises a grade.
        """
        if self.grade(control) <= grade:
            return self
        return Enforcement({**self.states, control: ControlState(grade, reason)})

    def missing(self, requirements: Mapping[Control, Grade]) -> tuple[str, ...]:
        """
        One sentence for each requirement this record does not meet.
        """
        return tuple(
            f"{control} is {self.grade(control)}, {needed} is required ({self.reason(control)})"
            for control, needed in requirements.items()
            if self.grade(control) < needed
        )

    def __iter__(self) -> Iterator[tuple[Control, ControlState]]:
        return iter(sorted(self.states.items()))

    def to_dict(self) -> dict[str, dict[str, str]]:
        """
        A JSON-ready form.
        """
        return {str(control): {"grade": str(state.grade), "reason": state.reason} for control, state in self}
