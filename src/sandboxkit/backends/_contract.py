"""
What a backend promises: five members, and a box that keeps them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sandboxkit.backends._files import BoxFiles
from sandboxkit.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import ByteReceiveStream, ByteSendStream

    from sandboxkit.egress import Ask, OnEvent
    from sandboxkit.model import Enforcement, ExecResult, Invocation, LaunchPlan, SandboxSpec

__all__ = ["PIPE", "BoxProcess", "Detection", "Facts", "Sandbox", "SandboxBackend"]

PIPE: Final = -1
"""
Asks `Sandbox.start` for a stream; the same number as `subprocess.PIPE`.
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """
    What a backend found out about this machine; backends add their own fields.

    `enforcement` and `plan` read the machine only through it, so both are pure.
    """

    def to_dict(self) -> dict[str, Any]:
        """
        The facts worth showing to people, JSON-ready.
        """
        return {}

    def fingerprint(self) -> str:
        """
        What on this machine the attack's findings depend on, beside the kernel, the user
        and this library: where it is the same, the next process may believe them for a
        short time. Empty, the default: each process attacks the backend itself.
        """
        return ""


@dataclass(frozen=True, slots=True)
class Detection:
    """
    Whether a backend can run here.

    Attributes:
        available: Whether it can.
        reason: Why, in one sentence.
        remedy: What would make it available; empty when it is.
        facts: What was found.
        warnings: What does not stop it and should be known.
    """

    available: bool
    reason: str
    remedy: str = ""
    facts: Facts = field(default_factory=Facts)
    warnings: tuple[str, ...] = ()


class Sandbox(ABC):
    """
    An open box: commands run in it under one spec.
    """

    @property
    @abstractmethod
    def spec(self) -> SandboxSpec:
        """
        What the box may do.
        """

    @property
    @abstractmethod
    def enforcement(self) -> Enforcement:
        """
        What is enforced, as far as was verified.
        """

    @abstractmethod
    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        cwd: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline is part of the result, not an exception
        environment: Mapping[str, str] | None = None,
        explain: bool = False,
        discard: bool = False,
        ask: Ask | None = None,
        on_egress: OnEvent | None = None,
    ) -> ExecResult:
        """
        Runs *argv* to its end. No shell reads it.

        Args:
            argv: The program and its arguments.
            stdin: What it reads; None is an empty input.
            cwd: A directory on the host that is visible in the box; None lets the
                spec choose.
            timeout: Seconds; the smaller of this and `limits.wall` counts.
            environment: The command's whole environment; None takes the
                application's through the spec's allowlist.
            explain: Also look at what it is refused, and put it into the result's
                `violations`. It takes longer, and a debugger inside does not work. Where
                it is not possible the command runs all the same, and `explain_gap` says
                why; a backend may know no way.
            discard: It writes to copies of the spec's writable paths, which are thrown
                away afterwards. Copying takes time, and at most 512 MiB and 100,000
                files are copied.
            ask: Answers, while a connection waits, where the spec's network asks: within 60
                seconds, at most 20 questions a run, one for each host, port and rule; None
                is a no.
            on_egress: Gets what became of each connection to a host outside, when it ends.
                Must return at once and not raise.

        Raises:
            ProgramNotFoundError: The program does not exist in the box.
            ProgramNotExecutableError: It exists and cannot be executed.
            SetupError: The box did not come up.
            SpecError: A named path does not exist or cannot be kept.
        """

    def start(
        self,
        argv: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int | None = PIPE,
        stderr: int | None = PIPE,
        pass_fds: Collection[int] = (),
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        explain: bool = False,
        ask: Ask | None = None,
        on_egress: OnEvent | None = None,
    ) -> AbstractAsyncContextManager[BoxProcess]:
        """
        Starts *argv* and hands out its streams. Leaving the context ends it, and
        everything it started.

        Args:
            argv: The program and its arguments.
            stdin: A descriptor it reads, `subprocess.PIPE` for a stream of the
                process, or None for an empty input.
            stdout: A descriptor it writes, `PIPE`, or None to drop what it writes.
            stderr: Likewise.
            pass_fds: Descriptors it gets under the same numbers.
            cwd: As for `run`.
            environment: As for `run`.
            explain: As for `run`.
            ask: As for `run`.
            on_egress: As for `run`.

        Raises:
            BackendError: This backend cannot stream; only `run` is required of one.
        """
        raise BackendError(
            f"{type(self).__name__} cannot stream{self._no_streams()}; use run(), which waits for the end"
        )

    def _no_streams(self) -> str:
        """
        Why it cannot stream and what would, as the end of a sentence; empty where that is not known.
        """
        return ""

    @property
    def files(self) -> BoxFiles:
        """
        The box's files, reached through the box.
        """
        return BoxFiles(self)


class BoxProcess(ABC):
    """
    A command that runs in a box.

    Attributes:
        stdin: Where to write its input, or None.
        stdout: Where to read its output, or None.
        stderr: Likewise.
    """

    stdin: ByteSendStream | None = None
    stdout: ByteReceiveStream | None = None
    stderr: ByteReceiveStream | None = None

    @abstractmethod
    async def wait(self) -> ExecResult:
        """
        How it ended, without output: that went to the streams.

        Raises:
            LaunchError: It never started.
        """

    @abstractmethod
    def send_signal(self, number: int) -> None:
        """
        Sends signal *number* to the command.

        Raises:
            SpecError: There is no such signal, or this backend cannot pass it on into a box.
        """

    @abstractmethod
    def kill(self) -> None:
        """
        Ends it, and everything it started, at once.
        """


class SandboxBackend(ABC):
    """
    One way to isolate a command.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """
        The mechanism it really uses, in lower case.
        """

    @abstractmethod
    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        """
        Whether it can run here, and what it found. Cheap.

        Args:
            spec: Also look at the paths this spec names, so that `plan` can be
                called with the facts.

        Raises:
            SpecError: A path of *spec* does not exist or is no real path.
        """

    @abstractmethod
    def enforcement(self, spec: SandboxSpec, facts: Facts) -> Enforcement:
        """
        What it would enforce for *spec* on a machine with *facts*. Pure.
        """

    @abstractmethod
    def plan(self, invocation: Invocation, spec: SandboxSpec, facts: Facts) -> LaunchPlan:
        """
        How it would start *invocation*. Pure; *facts* come from `detect(spec)`.
        """

    @abstractmethod
    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """
        A box under *spec*. Leaving the context ends everything in it.
        """

    def open_detected(self, spec: SandboxSpec, detection: Detection) -> AbstractAsyncContextManager[Sandbox]:
        """
        As `open`, for a caller that has just called `detect(spec)`; a backend may spare
        itself to look again.
        """
        return self.open(spec)
