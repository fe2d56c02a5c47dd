"""
What came back from a command.
"""

from __future__ import annotations

import signal as _signal
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from sandboxkit.errors import CommandFailedError, CommandTimeoutError

if TYPE_CHECKING:
    from sandboxkit.model._control import Enforcement
    from sandboxkit.model._decision import PolicyEvaluation

__all__ = ["ExecResult", "RouteResult", "Termination", "Usage", "Violation"]

Stream = Literal["stdout", "stderr"]


class Termination(StrEnum):
    """
    What ended a run. A limit is named only where a counter read back proves it.
    """

    EXITED = "exited"
    SIGNALED = "signaled"
    TIMED_OUT = "timed_out"
    OUTPUT_LIMIT = "output_limit"
    MEMORY_LIMIT = "memory_limit"
    CPU_LIMIT = "cpu_limit"
    PROCESS_LIMIT = "process_limit"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class Usage:
    """
    What a run used, of the command and the children it waited for.

    Attributes:
        cpu_user_s: Processor time in user mode, in seconds.
        cpu_system_s: Processor time in the kernel, in seconds.
        max_rss_bytes: The largest resident size of one process, in bytes.

    Source: getrusage(2), RUSAGE_CHILDREN.
    """

    cpu_user_s: float
    cpu_system_s: float
    max_rss_bytes: int


@dataclass(frozen=True, slots=True)
class Violation:
    """
    Something the command did, or tried, against the spec.

    Attributes:
        kind: What it was, for example `protected-path-created`.
        target: The path or address.
        detail: One sentence.
    """

    kind: str
    target: str
    detail: str


@dataclass(frozen=True, slots=True)
class ExecResult:
    """
    A command that ran to its end, whatever that end was.

    Attributes:
        exit_code: Its exit code, or None where it did not exit by itself.
        signal: The signal that ended it, or None.
        termination: What ended the run.
        stdout: What it wrote, at most `limits.max_output_bytes`.
        stderr: Likewise.
        truncated: Whether more was written than kept.
        duration_s: Seconds from start to end, measured on a monotonic clock.
        backend: The backend that ran it, or `direct`.
        enforcement: What was enforced.
        usage: What it used, or None where that could not be read.
        violations: What it did against the spec.
        changes: Paths it changed, where the backend keeps a layer.
    """

    exit_code: int | None
    signal: int | None
    termination: Termination
    stdout: bytes
    stderr: bytes
    truncated: bool
    duration_s: float
    backend: str
    enforcement: Enforcement
    usage: Usage | None = None
    violations: tuple[Violation, ...] = ()
    changes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """
        Whether it exited with code 0.
        """
        return self.termination is Termination.EXITED and self.exit_code == 0

    @property
    def outcome(self) -> str:
        """
        How it ended, as a phrase: "exited with code 2", "was ended by SIGKILL".
        """
        match self.termination:
            case Termination.EXITED:
                return f"exited with code {self.exit_code}"
            case Termination.SIGNALED if self.signal is not None:
                return f"was ended by {_signal_name(self.signal)}"
            case Termination.TIMED_OUT:
                return f"was ended by its deadline after {self.duration_s:.3g} s"
            case Termination.OUTPUT_LIMIT:
                return "was ended for writing too much output"
            case _:
                return f"was ended: {self.termination.value.replace('_', ' ')}"

    def text(self, stream: Stream = "stdout", *, encoding: str = "utf-8") -> str:
        """
        What it wrote, decoded; bytes that do not decode become U+FFFD.
        """
        return (self.stdout if stream == "stdout" else self.stderr).decode(encoding, errors="replace")

    def check(self) -> ExecResult:
        """
        This result, if the command succeeded.

        Raises:
            CommandTimeoutError: It was ended by its deadline.
            CommandFailedError: It ended in any other way than exit code 0.
        """
        if self.ok:
            return self
        raise (CommandTimeoutError if self.termination is Termination.TIMED_OUT else CommandFailedError)(self)

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form. Output that is not UTF-8 is given with U+FFFD.
        """
        return {
            "exit_code": self.exit_code,
            "signal": self.signal,
            "termination": self.termination.value,
            "stdout": self.text(),
            "stderr": self.text("stderr"),
            "truncated": self.truncated,
            "duration_s": round(self.duration_s, 6),
            "backend": self.backend,
            "enforcement": self.enforcement.to_dict(),
            "usage": {
                "cpu_user_s": self.usage.cpu_user_s,
                "cpu_system_s": self.usage.cpu_system_s,
                "max_rss_bytes": self.usage.max_rss_bytes,
            }
            if self.usage
            else None,
            "violations": [{"kind": v.kind, "target": v.target, "detail": v.detail} for v in self.violations],
            "changes": list(self.changes),
        }


def _signal_name(number: int) -> str:
    try:
        return _signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class RouteResult:
    """
    A routed command: where it ran, why, and what came back.

    Attributes:
        mode: `sandbox`, `direct` (a tool that needs no box), or `unsandboxed`
            (isolation was switched off by the application).
        evaluation: The policy's decision.
        result: What came back.
    """

    mode: Literal["sandbox", "direct", "unsandboxed"]
    evaluation: PolicyEvaluation
    result: ExecResult

    @property
    def backend(self) -> str:
        """
        The backend that ran it, or `direct`.
        """
        return self.result.backend

    @property
    def enforcement(self) -> Enforcement:
        """
        What was enforced.
        """
        return self.result.enforcement

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form.
        """
        return {"mode": self.mode, "evaluation": self.evaluation.to_dict(), "result": self.result.to_dict()}
