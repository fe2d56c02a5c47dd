"""
Runs a launch plan: streams, bounds, deadline, and the end of the whole tree.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from sandboxkit.errors import (
    BrokerError,
    LaunchError,
    ProgramNotExecutableError,
    ProgramNotFoundError,
    SetupError,
    SpecError,
)
from sandboxkit.model import Termination, Usage
from sandboxkit.process._client import Control, submit
from sandboxkit.process._door import Door, Serving, serving
from sandboxkit.process._streams import CHUNK, PipeReader, PipeWriter, pipe_from_us, pipe_to_us

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from sandboxkit.model import LaunchPlan, Refusal
    from sandboxkit.process._door import LoopbackDoor, Serve
    from sandboxkit.process._kept import LineControl

__all__ = ["Outcome", "Running", "launch", "run", "without_interpreter"]

_KILL_FACTOR = 16
_KILL_FLOOR = 1 << 20
_ENOENT, _EACCES, _ENOEXEC, _E2BIG, _ENOTDIR = 2, 13, 8, 7, 20
_KILL_SECONDS = 10.0
_KEPT_SIGNALS = (17, 19, 34)
"""Those a supervisor does not pass on: CHLD, STOP, and the one that ends a box; see `confine/_child.py`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    How a launched command ended, before a backend adds what it enforced.

    Attributes are those of `ExecResult` with the same names, and:

    Attributes:
        unheld: For each control whose control group could not be made: why.
        refusals: What was refused, where that was asked for.
        explain_gap: What is missing of them, and why; empty where nothing is.
    """

    exit_code: int | None
    signal: int | None
    termination: Termination
    stdout: bytes
    stderr: bytes
    truncated: bool
    duration_s: float
    usage: Usage | None
    unheld: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    explain_gap: str = ""


class _Found:
    """
    What a run was refused, in a file in memory that the broker fills.

    Args:
        is_wanted: Whether anybody asked.
        is_possible: Whether the plan says how to follow the command.
        ends: Closes it.
    """

    def __init__(self, *, is_wanted: bool, is_possible: bool, ends: contextlib.AsyncExitStack) -> None:
        self._is_wanted = is_wanted
        self.fd = os.memfd_create("sandboxkit-refusals") if is_wanted and is_possible else None
        if self.fd is not None:
            ends.callback(os.close, self.fd)

    def read(self) -> tuple[tuple[Refusal, ...], str]:
        """
        The refusals, and what is missing of them.
        """
        if self.fd is None:
            return (), "its backend does not say how to follow a command" if self._is_wanted else ""
        from sandboxkit.process._explain import found  # few runs are explained

        with open(self.fd, "rb", closefd=False) as file:
            file.seek(0)
            return found(file.read())


class Running:
    """
    A launched command.
    """

    def __init__(self, plan: LaunchPlan, control: Control | LineControl, started: float, found: _Found) -> None:
        self._plan = plan
        self._found = found
        self._refused: tuple[tuple[Refusal, ...], str] = ((), "")
        self._control = control
        self._records: dict[str, Any] = {}
        self._status: int | None = None
        self.started = started
        self._is_lost = False
        self.is_done = False
        self.service: Serving | None = None
        self.ended_for: Termination | None = None

    def kill(self, because: Termination = Termination.KILLED) -> None:
        """
        Ends the command and everything it started, at once.
        """
        self.ended_for = self.ended_for or because
        self._control.order("kill")

    def send_signal(self, number: int) -> None:
        """
        Sends signal *number* to the command.

        Raises:
            SpecError: It would reach the box's first process and not the command.
        """
        if self._plan.confinement is not None and isinstance(self._control, Control):
            if number == signal.SIGKILL:
                self.kill()
                return
            if number in _KEPT_SIGNALS:
                raise SpecError(f"signal {number} cannot be passed on into a box; give another, or kill()")
        self._control.order(f"signal {int(number)}")

    async def wait(self) -> None:
        """
        Waits until the command and everything it started has ended.
        """
        if self.is_done:
            return
        message = await self._control.receive()
        self.is_done = True
        self._refused = self._found.read()
        self._is_lost = message is None
        if self.service is not None:
            await self.service.end()
        if message is not None:
            self._records, self._status = message, message["done"]
            if "ended" in message:
                self.ended_for = self.ended_for or Termination(message["ended"])

    def outcome(self, stdout: bytes = b"", stderr: bytes = b"", *, truncated: bool = False) -> Outcome:
        """
        How it ended.

        Raises:
            LaunchError: It never started.
            BrokerError: The broker was ended meanwhile; the box went with it.
            SetupError: What served its listener failed; the box was ended.
        """
        if self.service is not None and self.service.failure is not None:
            raise SetupError(
                self._plan.backend, f"the proxy of the box failed: {self.service.failure}; the box was ended"
            ) from self.service.failure
        if self._is_lost and self.ended_for is None:
            raise BrokerError(self._control.lost)
        if "error" in self._records:
            raise _launch_error(self._plan, self._records, stderr)
        supervised = self._plan.confinement is not None
        if supervised and not self.ended_for and "started" not in self._records:
            raise SetupError(self._plan.backend, _starved(self._records) or _said(stderr, self._status))
        code, number = self._supervised_end() if supervised else self._direct_end()
        refusals, gap = self._refused
        return Outcome(
            exit_code=code,
            signal=number,
            termination=self._termination(code, number),
            stdout=stdout,
            stderr=stderr,
            truncated=truncated,
            duration_s=time.monotonic() - self.started,
            usage=_usage(self._records),
            unheld=self._records.get("failed", {}),
            refusals=refusals,
            explain_gap=gap,
        )

    def _supervised_end(self) -> tuple[int | None, int | None]:
        if "exit" not in self._records:
            return None, None
        number = self._records["signal"]
        return (None, number) if number else (self._records["exit"], None)

    def _direct_end(self) -> tuple[int | None, int | None]:
        status = self._status
        if status is None or status < 0:
            return None, None
        if os.WIFSIGNALED(status):
            return None, os.WTERMSIG(status)
        return os.WEXITSTATUS(status), None

    def _termination(self, code: int | None, number: int | None) -> Termination:
        if code == 0:
            return Termination.EXITED
        if code is None and self.ended_for:
            return self.ended_for
        if _is_starved(self._records):
            return Termination.MEMORY_LIMIT
        if _figures(self._records).get("refused_processes"):
            return Termination.PROCESS_LIMIT
        if code is not None:
            return Termination.EXITED
        return Termination.SIGNALED if number is not None else Termination.KILLED


def _figures(records: Mapping[str, Any]) -> Mapping[str, int]:
    """
    What the control groups of the run counted; empty where it had none.
    """
    figures: Mapping[str, int] = records.get("figures", {})
    return figures


def _usage(records: Mapping[str, Any]) -> Usage | None:
    tree = _figures(records)
    if "exit" in records:
        own = (records["user_us"] / 1e6, records["system_us"] / 1e6, records["max_rss_kb"] * 1024)
    elif "cpu_user_us" in tree and "cpu_system_us" in tree:
        own = (tree["cpu_user_us"] / 1e6, tree["cpu_system_us"] / 1e6, None)
    else:
        return None
    return Usage(
        *own,
        tree_cpu_s=tree["cpu_us"] / 1e6 if "cpu_us" in tree else None,
        tree_memory_peak_bytes=tree.get("memory_peak_bytes"),
        tree_processes_peak=tree.get("processes_peak"),
        oom_kills=tree.get("oom_kills"),
        refused_processes=tree.get("refused_processes"),
    )


def _is_starved(records: Mapping[str, Any]) -> bool:
    """
    Whether the kernel ended a process of the run at the run's own limit of memory.
    """
    figures = _figures(records)
    return bool(figures.get("oom_kills") and figures.get("memory_refusals"))


def _starved(records: Mapping[str, Any]) -> str:
    """
    That the box had too little memory to come up, where a counter proves it.
    """
    if not _is_starved(records):
        return ""
    return "the limit of memory was reached before the command started; raise limits.memory_bytes"


def _said(stderr: bytes, status: int | None) -> str:
    text = stderr[-2000:].decode(errors="replace").strip()
    return text or f"it ended with status {status} and said nothing"


def without_interpreter(program: str, interpreter: str, where: str) -> ProgramNotExecutableError:
    """
    The error of a script whose *interpreter* cannot be executed.
    """
    return ProgramNotExecutableError(
        program,
        f"its first line names the interpreter {interpreter!r}, which is not there {where}, not marked executable, or not readable by the spec; name another, or let the spec read it",
    )


def _launch_error(plan: LaunchPlan, record: Mapping[str, Any], stderr: bytes) -> LaunchError:
    stage, number = record["error"], record.get("errno", 0)
    why = os.strerror(number)
    argv = plan.confinement.argv if plan.confinement else plan.argv
    where = f"in the {plan.backend} sandbox" if plan.confinement else "on this machine"
    if stage == "exec" and number in (_ENOENT, _ENOTDIR):
        return ProgramNotFoundError(
            argv[0], f"{where}; name one that a directory of its PATH holds and the spec lets it read"
        )
    if stage == "exec" and (named := record.get("interpreter")):
        return without_interpreter(argv[0], os.fsdecode(bytes.fromhex(named)), where)
    if stage == "exec" and number == _EACCES:
        return ProgramNotExecutableError(
            argv[0], f"{why}; it is not marked executable, or the spec does not let the box read it"
        )
    if stage == "exec" and number == _ENOEXEC:
        return ProgramNotExecutableError(argv[0], "it is neither a program of this machine nor a script with a #! line")
    if stage == "exec" and number == _E2BIG:
        return ProgramNotExecutableError(
            argv[0],
            "its arguments and environment are too long; the kernel takes 128 KiB an argument, so hand more over on stdin or in a file",
        )
    detail = record.get("text") or why
    return SetupError(plan.backend, f"step {stage!r} failed: {detail}" + (f"; {_said(stderr, None)}" if stderr else ""))


def _nothing(ends: contextlib.ExitStack) -> int:
    fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    ends.callback(os.close, fd)
    return fd


@contextlib.asynccontextmanager
async def launch(
    plan: LaunchPlan,
    *,
    stdin: int | None,
    stdout: int,
    stderr: int,
    pass_fds: Mapping[int, int] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - the broker's to keep
    explain: bool = False,
    serve: Serve | None = None,
    loopback: LoopbackDoor | None = None,
) -> AsyncIterator[Running]:
    """
    Starts *plan*; leaving the context ends whatever still runs of it.

    Args:
        plan: What to start.
        stdin: A descriptor it reads, or None for an empty input. Like the next two it
            stays open here; the caller closes it.
        stdout: A descriptor it writes.
        stderr: Likewise.
        pass_fds: {number in the command: descriptor here}.
        timeout: Seconds after which it is ended; None is no deadline.
        explain: Follow it by ptrace(2) and keep what it was refused. It takes longer.
        serve: Serves the listener of a plan that has one, until the command has ended.
        loopback: Has the listener where it is here and does not come out of the box; the
            caller closes it.

    Raises:
        BrokerError: The broker could not be reached.
    """
    started = time.monotonic()
    async with contextlib.AsyncExitStack() as kept:
        refused = _Found(is_wanted=explain, is_possible=plan.trace is not None, ends=kept)
        with contextlib.ExitStack() as ends:
            source = _nothing(ends) if stdin is None else stdin
            fds = [(source, 0), (stdout, 1), (stderr, 2), *((fd, number) for number, fd in (pass_fds or {}).items())]
            door = Door() if plan.listener_fd is not None else None
            if door is not None and plan.listener_fd is not None:
                kept.callback(door.close)
                fds.append((door.fileno(), plan.listener_fd))
            service = _service(plan, serve, door or loopback, lambda: running.kill())
            control = await submit(plan, fds, timeout, refused.fd)
        running = Running(plan, control, started, refused)
        try:
            if door is not None:
                door.close_far_end()
            if service is not None:
                await kept.enter_async_context(serving(service))
                running.service = service
            yield running
        finally:
            try:
                if not running.is_done:
                    running.kill()
                    with anyio.CancelScope(shield=True), anyio.move_on_after(_KILL_SECONDS):
                        await running.wait()
            finally:
                control.close()


def _service(
    plan: LaunchPlan, serve: Serve | None, door: Door | LoopbackDoor | None, on_failure: Callable[[], object]
) -> Serving | None:
    """
    What waits for the listener of *plan* at its *door*; None where it has none.
    """
    if door is None:
        return None
    if serve is None:
        raise SetupError(plan.backend, "its box has a listener, and nobody serves it; give launch() a serve")
    return Serving(serve, door.listener, on_failure=on_failure)


class _Collector:
    """
    Keeps the first bytes of a stream and counts the rest.
    """

    def __init__(self, reader: PipeReader, keep: int) -> None:
        self._reader = reader
        self._keep = keep
        self._chunks: list[bytes] = []
        self._kept = 0
        self.seen = 0

    async def collect(self, running: Running) -> None:
        flood = max(self._keep * _KILL_FACTOR, _KILL_FLOOR)
        with contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError):
            while True:
                chunk = await self._reader.receive()
                self.seen += len(chunk)
                if self._kept < self._keep:
                    self._chunks.append(chunk[: self._keep - self._kept])
                    self._kept += len(self._chunks[-1])
                if self.seen > flood and running.ended_for is None:
                    running.kill(Termination.OUTPUT_LIMIT)
                if self.seen % (CHUNK * 64) < len(chunk):
                    await anyio.lowlevel.checkpoint()  # a flood must not starve the deadline

    @property
    def content(self) -> bytes:
        return b"".join(self._chunks)

    @property
    def truncated(self) -> bool:
        return self.seen > self._kept


async def _feed(writer: PipeWriter, data: bytes) -> None:
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await writer.send(data)
    writer.close()


async def run(
    plan: LaunchPlan,
    *,
    stdin: bytes | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - a deadline is a result here, not an exception
    max_output_bytes: int = 16 << 20,
    explain: bool = False,
    serve: Serve | None = None,
    loopback: LoopbackDoor | None = None,
) -> Outcome:
    """
    Runs *plan* to its end.

    Args:
        plan: What to run.
        stdin: What it reads; None is an empty input.
        timeout: Seconds until everything is killed; None is no deadline.
        max_output_bytes: Bytes kept of each of stdout and stderr. Past 16 times as
            much (at least 1 MiB) the run is ended.
        explain: Follow it by ptrace(2) and keep what it was refused. It takes longer.
        serve: As for `launch`.
        loopback: As for `launch`.

    Raises:
        LaunchError: It never started.
        BrokerError: The broker was ended meanwhile.
    """
    with contextlib.ExitStack() as ends:
        stdout, stdout_end = pipe_to_us(ends)
        stderr, stderr_end = pipe_to_us(ends)
        feed, feed_end = pipe_from_us(ends) if stdin else (None, None)
        collectors = [_Collector(stdout, max_output_bytes), _Collector(stderr, max_output_bytes)]
        source = feed_end.fd if feed_end else None
        async with launch(
            plan,
            stdin=source,
            stdout=stdout_end.fd,
            stderr=stderr_end.fd,
            timeout=timeout,
            explain=explain,
            serve=serve,
            loopback=loopback,
        ) as running:
            for end in (stdout_end, stderr_end, feed_end):
                if end:
                    end.close()
            async with anyio.create_task_group() as tasks:
                for collector in collectors:
                    tasks.start_soon(collector.collect, running)
                if stdin and feed:
                    tasks.start_soon(_feed, feed, stdin)
                await running.wait()
        truncated = any(collector.truncated for collector in collectors)
        return running.outcome(collectors[0].content, collectors[1].content, truncated=truncated)
