"""
Runs without a box: tools that need none, and whatever an application that switched
isolation off runs.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit import process
from sandboxkit.confine import rlimits
from sandboxkit.errors import ProgramNotFoundError
from sandboxkit.model import TRUSTED_PATH, Control, ControlState, Enforcement, ExecResult, Grade, Limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sandboxkit.model import LaunchPlan

__all__ = ["ENFORCEMENT", "Direct", "find_program", "trusted_program"]

_EACH = "a limit of each process by itself"
ENFORCEMENT = Enforcement(
    {
        Control.ENV: ControlState(Grade.ENFORCED, "allowlist"),
        Control.LIMITS_WALL: ControlState(Grade.ENFORCED, "deadline, then SIGKILL"),
        Control.LIMITS_OUTPUT: ControlState(Grade.ENFORCED, "bounded by the reader, then SIGKILL"),
        Control.LIMITS_CPU: ControlState(Grade.PARTIAL, _EACH),
        Control.LIMITS_MEMORY: ControlState(Grade.PARTIAL, _EACH),
        Control.LIMITS_FILE_SIZE: ControlState(Grade.PARTIAL, _EACH),
    }
)
"""What a command without a box is held to. There is no isolation at all."""


def trusted_program(program: str) -> str | None:
    """
    The path of *program* in the trusted directories, or None.
    """
    folder, _, name = program.rpartition("/")
    if folder and folder not in TRUSTED_PATH:
        return None
    return _found(name, [folder] if folder else TRUSTED_PATH)


def find_program(program: str, *, cwd: str, search: str) -> str:
    """
    The path of *program* as a shell would find it.

    Raises:
        ProgramNotFoundError: There is none.
    """
    folders = [""] if "/" in program else search.split(":")
    path = _found(program, [os.path.join(cwd, folder) for folder in folders])
    if path is None:
        raise ProgramNotFoundError(program, "on this machine; name one that a directory of PATH holds")
    return path


def _found(name: str, folders: Iterable[str]) -> str | None:
    for folder in folders:
        path = os.path.join(folder, name)
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(mode) and os.access(path, os.X_OK):
            return path
    return None


@dataclass(frozen=True, slots=True)
class Direct:
    """
    A run without a box.

    Attributes:
        plan: The command.
        limits: What bounds it.
    """

    plan: LaunchPlan
    limits: Limits

    @classmethod
    def of(cls, argv: tuple[str, ...], *, environment: Mapping[str, str], cwd: str, limits: Limits) -> Direct:
        """
        Runs *argv*, whose first word is a path.

        The process limit is left out: on the host it would count all processes of the user.
        """
        bounds = rlimits(limits.model_copy(update={"processes": None}))
        return cls(process.direct_plan(argv, environment=environment, cwd=cwd, rlimits=bounds), limits)

    async def run(self, *, stdin: bytes | None, timeout: float | None) -> ExecResult:  # noqa: ASYNC109 - a deadline is part of the result
        """
        Runs it to its end.

        Raises:
            LaunchError: It did not start.
        """
        bounds = [bound for bound in (timeout, self.limits.wall) if bound is not None]
        outcome = await process.run(
            self.plan,
            stdin=stdin,
            timeout=min(bounds, default=None),
            max_output_bytes=self.limits.max_output_bytes,
        )
        return ExecResult(
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            termination=outcome.termination,
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            truncated=outcome.truncated,
            duration_s=outcome.duration_s,
            backend="direct",
            enforcement=ENFORCEMENT,
            usage=outcome.usage,
        )
