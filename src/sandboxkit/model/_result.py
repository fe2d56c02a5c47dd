"""
What came back from a command.
"""

from __future__ import annotations

import signal as _signal
from dataclasses import asdict, dataclass, field
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
    What ended a run. A limit is named only where a counter read back proves that it was
    reached. At its limit of memory or of processes a command gets an error or loses a
    process; what it makes of that is its own business. So those two are named where it
    also failed: it was ended by a signal, or exited with another code than 0.
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
    What a run used.

    The first three are of the command and the children it waited for. Where the command
    was ended before they could be reported, the times are the whole tree's and the size
    is not known. The others are of every process of the box, its launcher inside
    included, and known only where a control group counted them, or where it was seen that
    all together are above a limit.

    Attributes:
        cpu_user_s: Processor time in user mode, in seconds.
        cpu_system_s: Processor time in the kernel, in seconds.
        max_rss_bytes: The largest resident size of one process, in bytes, or None.
        tree_cpu_s: Processor time of all processes, in seconds, or None.
        tree_memory_peak_bytes: The most memory they held at one time, in bytes, with
            files in memory and the page cache they filled, or None.
        tree_processes_peak: The most processes and threads at one time, or None.
        oom_kills: How many processes the kernel ended at the limit of memory, or None.
        refused_processes: How often the control group refused a new process or thread,
            or None.

    Source: getrusage(2), RUSAGE_CHILDREN; cgroups(7).
    """

    cpu_user_s: float
    cpu_system_s: float
    max_rss_bytes: int | None
    tree_cpu_s: float | None = None
    tree_memory_peak_bytes: int | None = None
    tree_processes_peak: int | None = None
    oom_kills: int | None = None
    refused_processes: int | None = None

    def to_dict(self) -> dict[str, float | int | None]:
        """
        A JSON-ready form, by the names of the attributes.
        """
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Violation:
    """
    Something the command did, or tried, against the spec.

    Attributes:
        kind: What it was: `protected-path-created` or `protected-path-changed` where a run
            did that; `protected-path-replaced` where a program outside did, so that the run
            was not kept from it any more; and where it was explained and was refused something, `read`,
            `write`, `exec`, `connect`, `bind`, `signal` or `syscall`. `egress` where the
            proxy of a box whose spec lists hosts refused a connection.
        target: The path, two paths with ` -> ` between them, the address, the process or
            the system call. What a program named: a hostile one may name anything.
        detail: One sentence.
        spec_line: The line of a spec file that would allow it; None where none would, or
            where none is proposed: credentials, protected names, what the spec denies.
        call: The system call that was refused, or for `egress` how the proxy was asked;
            empty where something was done.
        error: The name of its error, for example `EROFS`.
        program: The program that made it, as the box shows it.
        count: How often.
    """

    kind: str
    target: str
    detail: str
    spec_line: str | None = None
    call: str = ""
    error: str = ""
    program: str = ""
    count: int = 1

    def to_dict(self) -> dict[str, str | int | None]:
        """
        A JSON-ready form, by the names of the attributes.
        """
        return {name: _text(value) for name, value in asdict(self).items()}


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
        violations: What it did against the spec, and where `explain` was asked for what
            it was refused.
        explained: Whether it was: every refused call was looked at.
        explain_gap: Where that was asked for, what is missing of it and why; else empty.
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
    explained: bool = False
    explain_gap: str = ""
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
            case Termination.MEMORY_LIMIT:
                return f"was ended at its limit of memory{self._used('tree_memory_peak_bytes', 'bytes')}"
            case Termination.CPU_LIMIT:
                return f"was ended at its limit of processor time{self._used('tree_cpu_s', 's')}"
            case Termination.PROCESS_LIMIT:
                how = (
                    f"exited with code {self.exit_code}"
                    if self.signal is None
                    else f"was ended by {_signal_name(self.signal)}"
                )
                return f"{how} at its limit of processes{self._refused()}"
            case _:
                return f"was ended: {self.termination.value.replace('_', ' ')}"

    def _refused(self) -> str:
        count = self.usage.refused_processes if self.usage else None
        return f", which refused it {count} more" if count else ""

    def _used(self, name: str, unit: str) -> str:
        figure = getattr(self.usage, name, None)
        return "" if figure is None else f", having used {round(figure, 2)} {unit}"

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
            "usage": self.usage.to_dict() if self.usage else None,
            "violations": [violation.to_dict() for violation in self.violations],
            "explained": self.explained,
            "explain_gap": self.explain_gap,
            "changes": list(self.changes),
        }


def _text(value: str | int | None) -> str | int | None:
    """
    *value*, with bytes of a path that are no text as escapes.
    """
    return value.encode(errors="surrogateescape").decode(errors="backslashreplace") if isinstance(value, str) else value


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
