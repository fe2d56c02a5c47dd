"""
An open box whose commands are each started by a launch plan, all under one spec.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from anyio import CancelScope, to_thread

from sandboxkit.backends._aftermath import Aftermath
from sandboxkit.backends._contract import PIPE, BoxProcess, Facts, Sandbox
from sandboxkit.backends._copies import copies
from sandboxkit.backends._cpu_limit import is_of_cpu_limit
from sandboxkit.backends._given import checked_signal, checked_variables, checked_words
from sandboxkit.backends._host import homes, look, searched
from sandboxkit.backends._outward import Outward
from sandboxkit.backends._protection import changed_among
from sandboxkit.backends._remembered import forget
from sandboxkit.backends._replaced import replaced
from sandboxkit.errors import BackendError, SetupError, SpecError
from sandboxkit.model import (
    Control,
    Enforcement,
    ExecResult,
    Invocation,
    LoopbackProxy,
    Termination,
    Violation,
)
from sandboxkit.process import LoopbackDoor, launch, open_streams, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sandboxkit.backends._obstacles import Obstacle
    from sandboxkit.backends._protection import Watched
    from sandboxkit.backends._survey import Survey
    from sandboxkit.backends._way_out import WayOut
    from sandboxkit.egress import Ask, OnEvent
    from sandboxkit.model import LaunchPlan, SandboxSpec
    from sandboxkit.process import Outcome, Running, Serve, Streams

__all__ = ["LaunchedProcess", "LaunchedSandbox", "Mechanism", "Outward"]


F = TypeVar("F", bound=Facts)


@dataclass(frozen=True, slots=True)
class Mechanism(Generic[F]):
    """
    What is particular to one way of isolating; the rest of a box is the same for all.

    Attributes:
        name: The backend's name.
        enforcement: What it would enforce.
        plan: How it would start a command.
        look: Its facts, with a fresh look at the host for a spec.
        watched: What is looked at after a run.
        refusal: What a failed start means, from what it said.
        survey: What its facts say of the host for a spec, or None.
        mounts: Whether what is denied or protected is held by a mount: see `_replaced`.
        nests: Whether it can let user namespaces be made in a box.
        discards: Whether it can show a copy in place of what a spec lets be written.
        ungrouped: Its facts on a machine without control groups, for a reason; None where
            it makes no use of them.
        trusted: Shows a box the certificate of a command's proxy, if it has one, and gives
            its path. For boxes on the machine's own loopback: their proxies listen there,
            each on a port of its own, and want a token. None where the listener comes out of
            the box.
    """

    name: str
    enforcement: Callable[[SandboxSpec, F], Enforcement]
    plan: Callable[[Invocation, SandboxSpec, F], LaunchPlan]
    look: Callable[[F, SandboxSpec], F]
    watched: Callable[[F], tuple[Watched, ...]]
    refusal: Callable[[str], Obstacle]
    survey: Callable[[F], Survey | None]
    mounts: bool = False
    nests: bool = False
    discards: bool = False
    ungrouped: Callable[[F, str], F] | None = None
    trusted: Callable[[F, bytes], AbstractContextManager[str]] | None = None


@dataclass(frozen=True, slots=True)
class _Way:
    """
    What serves the way out of one command's box; nothing where it has none.

    Attributes:
        serve: Serves its listener.
        loopback: Has that listener, where it does not come out of the box.
    """

    serve: Serve | None = None
    loopback: LoopbackDoor | None = None


class LaunchedSandbox(Sandbox, Generic[F]):
    """
    A box of a mechanism that starts each command anew. What commands share is what the
    spec lets them write. So each has the host looked at anew: an earlier one may have
    left a link, or a repository to protect.
    """

    def __init__(self, mechanism: Mechanism[F], spec: SandboxSpec, facts: F, *, outward: Outward | None = None) -> None:
        self._mechanism = mechanism
        self._spec = spec
        self._facts = facts
        self._outward = outward or Outward()
        self._way_out: WayOut | None = None
        self._proxy: LoopbackProxy | None = None
        self._enforcement = mechanism.enforcement(spec, facts)
        self._is_fresh = True
        self._is_closed = False
        self._explains = False
        self._aftermath: Aftermath | None = None

    @property
    def spec(self) -> SandboxSpec:
        """
        What the box may do.
        """
        return self._spec

    @property
    def enforcement(self) -> Enforcement:
        """
        What is enforced.
        """
        return self._enforcement

    def plan(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        pass_fds: Collection[int] = (),
        instead: tuple[tuple[str, str], ...] = (),
    ) -> LaunchPlan:
        """
        How *argv* would be started.

        Raises:
            CommandError: *argv* is empty or holds a NUL byte, or *environment* does, or a name that is none.
            SpecError: *cwd* is not visible in the box.
        """
        passed, authority = self._passed(environment), self._way_out.authority if self._way_out else b""
        invocation = Invocation(
            checked_words(argv), tuple(passed.items()), cwd, tuple(sorted(pass_fds)), instead, authority, self._proxy
        )
        return self._mechanism.plan(invocation, self._spec, self._facts)

    def _passed(self, environment: Mapping[str, str] | None) -> Mapping[str, str]:
        return self._spec.environment.apply(os.environ) if environment is None else checked_variables(environment)

    def _keep_out(self, argv: Sequence[str], environment: Mapping[str, str] | None, stdin: bytes | None = None) -> None:
        if self._way_out:
            self._way_out.keep_out(argv, self._passed(environment), stdin)

    @asynccontextmanager
    async def _copied(self, is_wanted: bool) -> AsyncIterator[tuple[tuple[str, str], ...]]:
        """
        Copies to show in place of what the spec lets a command write, where wanted.

        Raises:
            BackendError: This mechanism cannot show one thing in place of another, or
                there is more than is copied.
        """
        if not is_wanted:
            yield ()
            return
        if not self._mechanism.discards:
            raise BackendError(f"{self._mechanism.name} cannot discard what a command writes; use another backend")
        with ExitStack() as stack:
            made = copies(self._spec.filesystem.write)
            try:
                yield await to_thread.run_sync(stack.enter_context, made)
            finally:
                with CancelScope(shield=True):
                    await to_thread.run_sync(stack.close)

    def close(self) -> None:
        """
        Lets no further command start.
        """
        self._is_closed = True

    def _look(self) -> LaunchedSandbox[F]:
        """
        This box with a fresh look at the host, for one command.

        Raises:
            BackendError: The box was closed.
        """
        if self._is_closed:
            raise BackendError("this box is closed; open another for more commands")
        if self._is_fresh:
            self._is_fresh = False
            if not self._has_changed():
                return self
        facts = self._mechanism.look(self._facts, self._spec)
        return LaunchedSandbox(self._mechanism, self._spec, facts, outward=self._outward)

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
        Runs *argv* to its end; see `Sandbox.run`.
        """
        box = self._look()
        box._explains = explain
        with box._way(argv, ask, on_egress) as way:
            box._keep_out(argv, environment, stdin)
            box.note()
            try:
                async with box._copied(discard) as instead:
                    outcome = await run(
                        box.plan(argv, cwd=cwd, environment=environment, instead=instead),
                        stdin=stdin,
                        timeout=self._spec.timeout(timeout),
                        max_output_bytes=self._spec.limits.max_output_bytes,
                        explain=explain,
                        serve=way.serve,
                        loopback=way.loopback,
                    )
            except SetupError as exc:
                forget()  # what was found out about this machine may not hold any more
                meaning = self._mechanism.refusal(exc.problem)
                raise SetupError(self._mechanism.name, f"{meaning.reason}; {meaning.remedy}") from exc
            finally:
                box.settle()
        return box.result(outcome)

    @asynccontextmanager
    async def start(
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
    ) -> AsyncIterator[LaunchedProcess]:
        """
        Starts *argv* and hands out its streams; see `Sandbox.start`. `limits.wall`
        counts from here; output is the reader's to bound.
        """
        if not self._spec.process.tty:
            _refuse_terminals((stdin, stdout, stderr, *pass_fds))
        box = self._look()
        box._explains = explain
        with box._way(argv, ask, on_egress) as way:
            box._keep_out(argv, environment)
            plan = box.plan(argv, cwd=cwd, environment=environment, pass_fds=pass_fds)
            carriers = plan.confinement.pass_fds if plan.confinement else ()
            box.note()
            try:
                async with (
                    open_streams(stdin, stdout, stderr) as streams,
                    launch(
                        plan,
                        stdin=streams.stdin_fd,
                        stdout=streams.stdout_fd,
                        stderr=streams.stderr_fd,
                        pass_fds=dict(carriers),
                        timeout=self._spec.limits.wall,
                        explain=explain,
                        serve=way.serve,
                        loopback=way.loopback,
                    ) as running,
                ):
                    streams.close_far_ends()
                    yield LaunchedProcess(running, streams, box.result)
            finally:
                box.settle()

    def result(self, outcome: Outcome) -> ExecResult:
        """
        What came back, with what was enforced and what was done against the spec.
        """
        return ExecResult(
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            termination=_termination(outcome, self._spec.limits.cpu),
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            truncated=outcome.truncated,
            duration_s=outcome.duration_s,
            backend=self._mechanism.name,
            enforcement=self._held(outcome),
            usage=outcome.usage,
            violations=(
                *self.settle(),
                *self._refused(outcome),
                *(self._way_out.violations() if self._way_out else ()),
            ),
            explained=self._explains and not outcome.explain_gap,
            explain_gap=outcome.explain_gap,
        )

    @contextmanager
    def _way(self, argv: Sequence[str], ask: Ask | None, on_egress: OnEvent | None) -> Iterator[_Way]:
        """
        The way out of this command's box, where its spec lists hosts.

        Raises:
            SetupError: It cannot be made.
        """
        if self._spec.network.mode != "listed":
            yield _Way()
            return
        trusted = self._mechanism.trusted
        self._way_out = made = self._outward.way_out(
            self._mechanism.name, self._spec, argv, ask, on_egress, wants_token=trusted is not None
        )
        if trusted is None:
            yield _Way(made.serve)
            return
        with ExitStack() as stack:
            try:
                authority = stack.enter_context(trusted(self._facts, made.authority))
                door = LoopbackDoor()
            except OSError as exc:
                problem = f"the proxy of the box cannot be made: {exc}; free what that names"
                raise SetupError(self._mechanism.name, problem) from exc
            stack.callback(door.close)
            self._proxy = LoopbackProxy(door.port, made.token or "", authority)
            try:
                yield _Way(made.serve, door)
            finally:
                self._proxy = None  # the port may be anybody's from now on

    def _refused(self, outcome: Outcome) -> tuple[Violation, ...]:
        """
        What the box refused, without what the caller itself could not have done.
        """
        survey = self._mechanism.survey(self._facts)
        if survey is None or not outcome.refusals:
            return ()
        from sandboxkit.backends._refusals import Ground, is_of_the_box, merged, violation  # few runs are explained

        ground = Ground.of(
            self._spec,
            survey,
            machine=os.uname().machine,
            nests=self._mechanism.nests,
            homes=homes(),
            search=searched(),
        )
        places = ((refusal, look(refusal)) for refusal in outcome.refusals if is_of_the_box(refusal, ground))
        return merged(violation(refusal, seen, ground) for refusal, seen in places if seen is not None)

    def note(self) -> None:
        """
        Writes down what will be looked at after the command, for the case that this
        application is killed before.
        """
        self._aftermath = Aftermath(
            self._spec.filesystem,
            self._mechanism.survey(self._facts),
            self._mechanism.watched(self._facts),
            mounts=self._mechanism.mounts,
        )

    def settle(self) -> tuple[Violation, ...]:
        """
        What a command that has ended made under protected names; it is moved away. Done
        once, also where nobody waited for the command's result.
        """
        return self._aftermath.settle() if self._aftermath else ()

    def _has_changed(self) -> bool:
        """
        Whether the caller has made or replaced something since the host was looked at.
        """
        survey = self._mechanism.survey(self._facts) if self._mechanism.mounts else None
        anchors = survey.anchors if survey else {}
        return any(changed_among(self._mechanism.watched(self._facts))) or any(replaced(anchors))

    def _held(self, outcome: Outcome) -> Enforcement:
        """
        What was enforced: less than was claimed where a control group was not had, or
        something was not held in place.
        """
        held = self._aftermath.lowered(self._enforcement) if self._aftermath else self._enforcement
        if not outcome.unheld or self._mechanism.ungrouped is None:
            return held
        without = self._mechanism.enforcement(self._spec, self._mechanism.ungrouped(self._facts, "see below"))
        for name, why in outcome.unheld.items():
            control = Control(name)
            state = without.states[control]
            held = held.lowered(control, state.grade, f"{state.reason.removesuffix('; see below')}; {why}")
        return held


def _refuse_terminals(fds: Iterable[int | None]) -> None:
    for fd in fds:
        if fd is not None and fd >= 0 and os.isatty(fd):
            raise SpecError(f"descriptor {fd} is a terminal; hand in a pipe, or set process.tty=true")


class LaunchedProcess(BoxProcess):
    """
    A command that runs in such a box.
    """

    def __init__(self, running: Running, streams: Streams, result: Callable[[Outcome], ExecResult]) -> None:
        self._running = running
        self._result = result
        self.stdin = streams.stdin
        self.stdout = streams.stdout
        self.stderr = streams.stderr

    async def wait(self) -> ExecResult:
        """
        How it ended.
        """
        await self._running.wait()
        return self._result(self._running.outcome())

    def send_signal(self, number: int) -> None:
        """
        Sends signal *number* to the command.
        """
        self._running.send_signal(checked_signal(number))

    def kill(self) -> None:
        """
        Ends it, and everything it started, at once.
        """
        self._running.kill()


def _termination(outcome: Outcome, cpu: float | None) -> Termination:
    """
    The outcome's own, except that the usage read back may prove the limit of
    processor time behind a signal.
    """
    if outcome.termination is not Termination.SIGNALED or outcome.usage is None:
        return outcome.termination
    used = max(outcome.usage.cpu_user_s + outcome.usage.cpu_system_s, outcome.usage.tree_cpu_s or 0.0)
    return Termination.CPU_LIMIT if is_of_cpu_limit(outcome.signal, used, cpu) else outcome.termination
