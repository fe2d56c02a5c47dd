"""
An open box: a container that is kept, and commands that its agent starts in it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc

from sandboxkit.backends._aftermath import Aftermath
from sandboxkit.backends._contract import PIPE, BoxProcess, Sandbox
from sandboxkit.backends._cpu_limit import is_of_cpu_limit
from sandboxkit.backends._given import checked_signal, checked_variables, checked_words
from sandboxkit.backends.docker import _agent as wire
from sandboxkit.backends.docker._container import Container
from sandboxkit.backends.docker._copy import copy_in
from sandboxkit.backends.docker._enforcement import enforcement
from sandboxkit.backends.docker._labels import own_labels
from sandboxkit.backends.docker._outlet import Outlet, outlet
from sandboxkit.backends.docker._plan import DOOR, DOOR_FILE, container, order, shown_tree
from sandboxkit.backends.docker._readback import held, misplaced, too_many_cpus
from sandboxkit.backends.docker._scratch import make_ways, trusted
from sandboxkit.backends.docker._streams import ACK_BYTES, CommandStreams, feed
from sandboxkit.confine import ARCHITECTURES, seccomp_filter
from sandboxkit.errors import (
    BackendError,
    BackendUnavailableError,
    BrokerError,
    EnforcementError,
    ProgramNotExecutableError,
    ProgramNotFoundError,
    SetupError,
    SpecError,
)
from sandboxkit.model import ExecResult, Invocation, Termination, Usage
from sandboxkit.process import NamedDoor, without_interpreter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from sandboxkit.backends._outward import Outward
    from sandboxkit.backends.docker._engine import Engine
    from sandboxkit.backends.docker._facts import DockerFacts
    from sandboxkit.backends.docker._session import Remote, Session
    from sandboxkit.egress import Ask, OnEvent
    from sandboxkit.model import Enforcement, SandboxSpec, Violation

__all__ = ["DockerSandbox", "agent_command"]

_KILL_FACTOR, _KILL_FLOOR = 16, 1 << 20
_OUTSIDE_GRACE = 5.0
"""Seconds after the deadline inside until the container is removed from outside."""
_END_SECONDS = 10.0
_NO_EXPLAIN = "a container engine tells nothing of refused calls"
_SIGKILL = 9
_BY_US = (Termination.TIMED_OUT, Termination.OUTPUT_LIMIT, Termination.KILLED)
_KEPT = (0, 1, 2)
"""RLIMIT_CPU, RLIMIT_FSIZE and RLIMIT_DATA: the application's own hold in the box too."""
_WRONG_PLACE = (
    "the engine sees something else there than this machine does: it is on another machine, or a link was put there; "
    "use an engine of this machine, or DockerBackend(workspace='copy') with an image"
)


def agent_command(python: str) -> tuple[str, ...]:
    """
    The first process of a container: the agent, read by *python*.
    """
    with open(wire.__file__, encoding="utf-8") as file:
        return (python, "-I", "-S", "-c", file.read())


@dataclass(slots=True)
class _Up:
    container: Container
    enforcement: Enforcement
    facts: DockerFacts
    door: NamedDoor | None

    @property
    def session(self) -> Session:
        return self.container.session

    async def close(self) -> None:
        if self.door is not None:
            self.door.close()
        await self.container.close()


class DockerSandbox(Sandbox):
    """
    A box in one container. Its commands share it, with all that is in its memory: `/tmp`
    and the home last as long as the box. The host is looked at anew for each command; where
    that shows something new to protect, the next command gets a new container.

    Args:
        engine: The engine.
        spec: What the box may do.
        facts: From `detect(spec)`.
        image: The image's id.
        scratch: A directory of the box's own on the host.
        outward: What the proxies of its commands work with, where the spec lists hosts.
    """

    def __init__(
        self,
        engine: Engine,
        spec: SandboxSpec,
        facts: DockerFacts,
        image: str,
        scratch: str,
        *,
        outward: Outward,
    ) -> None:
        self._engine = engine
        self._spec = spec
        self._facts = facts
        self._image = image
        self._scratch = scratch
        self._outward = outward
        self._up: dict[str, _Up] = {}
        self._last: _Up | None = None
        self._opening = anyio.Lock()
        self._is_closed = False

    @property
    def spec(self) -> SandboxSpec:
        """
        What the box may do.
        """
        return self._spec

    @property
    def enforcement(self) -> Enforcement:
        """
        What is enforced: as read back in the container once there is one.
        """
        return self._last.enforcement if self._last else enforcement(self._spec, self._facts)

    @property
    def containers(self) -> tuple[str, ...]:
        """
        The ids of its containers.
        """
        return tuple(up.container.ident for up in self._up.values())

    async def close(self) -> None:
        """
        Ends everything in it; nothing is left on the engine.
        """
        self._is_closed = True
        found, self._up = tuple(self._up.values()), {}
        for up in found:
            await up.close()

    # -- containers ----------------------------------------------------------------

    async def ready(self) -> tuple[_Up, DockerFacts]:
        """
        A container for the next command, and the host as it is now.

        Raises:
            BackendError: The box was closed.
            EnforcementError: What was read back is less than the spec requires.
            SetupError: The container did not come up.
        """
        if self._is_closed:
            raise BackendError("this box is closed; open another for more commands")
        async with self._opening:
            facts = self._facts.surveyed(self._spec)
            up = self._last
            if up is None or up.facts != facts or not await up.session.is_alive():
                up = await self._of_now(facts)
            self._last = up
            return up, facts

    async def _of_now(self, facts: DockerFacts) -> _Up:
        """
        The container that shows the host as *facts* have it.
        """
        config = container(
            self._spec,
            facts,
            image=self._image,
            labels=own_labels(),
            scratch=self._scratch,
            command=agent_command(self._python()),
        )
        key = json.dumps([config, sorted((facts.places or {}).items())], sort_keys=True)
        up = self._up.get(key)
        if up is None or not await up.session.is_alive():
            await self._drop_idle()
            up = self._up[key] = await self._started(config, facts)
        up.facts = facts
        return up

    def _python(self) -> str:
        return self._facts.interpreter if self._facts.is_hosts_system else "python3"

    async def _drop_idle(self) -> None:
        for key, up in tuple(self._up.items()):
            if up.session.is_idle:
                del self._up[key]
                await up.close()

    async def _started(self, config: dict[str, Any], facts: DockerFacts) -> _Up:
        make_ways(self._scratch, self._spec, facts)
        door = NamedDoor(f"{self._scratch}/{DOOR_FILE}") if self._spec.network.mode == "listed" else None
        try:
            made = await Container.start(self._engine, config)
        except BaseException:
            if door is not None:
                door.close()
            raise
        up = _Up(made, enforcement(self._spec, facts), facts, door)
        try:
            await self._read_back(up)
            if facts.is_copy:
                await copy_in(made.session, self._spec, facts, self._python())
        except BaseException:
            await up.close()
            raise
        return up

    async def _read_back(self, up: _Up) -> None:
        """
        Raises:
            EnforcementError: What is in force is less than the spec requires.
            SetupError: The container did not come up, or has something else than was asked for.
        """
        facts, name = up.facts, self._engine.name
        bound = () if facts.is_copy else tuple(facts.places or {})
        report = await up.container.greet(
            self._files(facts),
            bound,
            self._filter(facts),
            door=DOOR if up.door is not None else "",
            is_counted=facts.cgroup > 0,
        )
        if wrong := misplaced(facts, bound, report):
            raise SetupError(name, f"{', '.join(map(repr, wrong))}: {_WRONG_PLACE}")
        if wrong_number := too_many_cpus(facts, report):
            raise SetupError(name, f"{wrong_number}; use another engine or runtime, or leave cpus out")
        if up.door is not None:
            _admit(name, up.door, report["shut"])
        up.enforcement = held(up.enforcement, self._spec, facts, report)
        if missing := up.enforcement.missing(self._spec.requirements()):
            raise EnforcementError({name: f"{'; '.join(missing)}; list in allow_degraded what may hold less well"})

    def _filter(self, facts: DockerFacts) -> bytes:
        if facts.machine not in ARCHITECTURES or not facts.has_seccomp:
            return b""
        return seccomp_filter(
            facts.machine,
            allow_ptrace=self._spec.process.allow_ptrace,
            allow_nested_userns=self._spec.process.allow_nested_userns,
        )

    def _files(self, facts: DockerFacts) -> dict[str, str]:
        tree, survey = shown_tree(self._spec, facts)
        settings = f"{survey.box_home}/.gitconfig"
        shown = survey.git_identity and facts.is_hosts_system and tree.nodes.get(survey.box_home)
        return {settings: survey.git_identity.decode(errors="surrogateescape")} if shown else {}

    # -- commands ------------------------------------------------------------------

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

        Raises:
            BackendError: *discard* was asked for; a copied workspace is what comes nearest.
            BackendUnavailableError: The engine or the container went away.
        """
        if discard:
            raise BackendError(
                f"{self._engine.name} cannot discard what a command writes to a bound directory; use DockerBackend(workspace='copy')"
            )
        invocation = self._invocation(argv, cwd, environment)
        up, facts = await self.ready()
        bound = self._spec.timeout(timeout)
        kept = _Kept(self._spec.limits.max_output_bytes)
        refused: tuple[Violation, ...] = ()
        aftermath = self._aftermath(facts)
        try:
            with anyio.CancelScope() as scope:
                async with self._outlet(up, invocation, ask, on_egress, stdin) as way:
                    if way is not None:
                        way.on_failure(scope.cancel)
                    told = self._order(invocation, facts, bound, way)
                    ended_outside = await self._followed(up, told, stdin, kept, bound)
                    refused = await way.end() if way else ()
            if way is not None:
                way.check()
        finally:
            found = aftermath.settle()
        remote = kept.remote
        if remote is None or (remote.end is None and not ended_outside):
            raise BrokerError("the command was not followed to its end")
        return _result(
            remote,
            self._facts,
            aftermath.lowered(up.enforcement),
            self._spec,
            kept,
            (*found, *refused),
            ended_outside=ended_outside,
            explain=explain,
        )

    @contextlib.asynccontextmanager
    async def _outlet(
        self,
        up: _Up,
        invocation: Invocation,
        ask: Ask | None,
        on_egress: OnEvent | None,
        stdin: bytes | None = None,
    ) -> AsyncIterator[Outlet | None]:
        """
        The proxy of one command; None where its spec lists no hosts.

        Raises:
            CommandError: It would be handed the value of a secret.
            SpecError: Likewise in its environment; or a secret is unknown.
        """
        if up.door is None:
            yield None
            return
        way_out = self._outward.way_out(self._engine.name, self._spec, invocation.argv, ask, on_egress)
        way_out.keep_out(invocation.argv, dict(invocation.environment), stdin)
        async with outlet(self._engine.name, up.session, up.door, way_out) as found:
            with trusted(self._scratch, way_out.authority) as found.authority:
                yield found

    def _aftermath(self, facts: DockerFacts) -> Aftermath:
        survey = None if facts.is_copy else facts.survey
        return Aftermath(self._spec.filesystem, survey, survey.watched if survey else (), mounts=True)

    def _invocation(self, argv: Sequence[str], cwd: str | None, environment: Mapping[str, str] | None) -> Invocation:
        passed = self._spec.environment.apply(os.environ) if environment is None else checked_variables(environment)
        return Invocation(checked_words(argv), tuple(passed.items()), cwd)

    def _order(
        self, invocation: Invocation, facts: DockerFacts, timeout: float | None, way: Outlet | None
    ) -> dict[str, Any]:
        proxy = (way.port, way.authority) if way else (None, "")
        told = order(invocation, self._spec, facts, timeout, *proxy)
        return {**told, "rlimits": _under_callers(told["rlimits"])}

    async def _followed(
        self, up: _Up, told: dict[str, Any], stdin: bytes | None, kept: _Kept, bound: float | None
    ) -> bool:
        """
        Follows one command to its end. Whether it had to be ended from outside.
        """
        session = up.session
        remote = kept.remote = await session.order(told, kept.put)
        failure: BaseException | None = None
        with anyio.move_on_after(None if bound is None else bound + _OUTSIDE_GRACE) as scope:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(feed, session, remote, stdin)
                    try:
                        await kept.follow(session)
                    except BrokerError as exc:
                        failure = exc
                    tasks.cancel_scope.cancel()
            except BaseException:
                await self._ended(up, remote)
                raise
        if scope.cancelled_caught:
            await self._ended(up, remote)
            await self._given_up(up, remote, Termination.TIMED_OUT)
            return True
        if failure is None and not remote.is_over:
            await self._given_up(up, remote, Termination.OUTPUT_LIMIT)
        session.forget(remote)
        if failure is not None:
            await self._tell_apart(up, remote, failure)
        if remote.failure:
            raise _launch_error(self._engine.name, *remote.failure, told)
        return False

    async def _given_up(self, up: _Up, remote: Remote, because: Termination) -> None:
        """
        Removes the container of a command that its agent has not ended, and counts it as ended.
        """
        if not remote.is_over:
            remote.end = {"code": None, "signal": _SIGKILL, "ended": because.value}
        up.session.forget(remote)
        await up.close()

    async def _end_late(self, up: _Up, remote: Remote) -> None:
        """
        Ends a command that its agent has not ended in time.
        """
        if self._spec.limits.wall is not None:
            await anyio.sleep(self._spec.limits.wall + _OUTSIDE_GRACE)
            if not remote.is_over:
                await self._given_up(up, remote, Termination.TIMED_OUT)

    async def _tell_apart(self, up: _Up, remote: Remote, failure: BaseException) -> None:
        """
        The stream has ended. Where the engine still answers, the container has: a command
        can bring that about, by the limits of the first process, which has its user.

        Raises:
            BackendUnavailableError: The engine went away.
            BrokerError: The agent said what has no meaning.
        """
        await up.close()
        if remote.is_over:
            return
        if up.session.fault:
            raise BrokerError(f"{self._engine.name}: {up.session.fault}") from failure
        try:
            await self._engine.call("answer", lambda client: client.ping())
        except BackendUnavailableError:
            raise self._lost(up) from failure
        remote.end = {"code": None, "signal": None, "ended": Termination.KILLED.value}

    async def _ended(self, up: _Up, remote: Remote) -> None:
        """
        Ends a command nobody waits for any more; the container too where that fails.
        """
        if remote.is_over:
            return
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_END_SECONDS), contextlib.suppress(BrokerError):
                remote.on_output = lambda kind, data: None
                await up.session.kill(remote, Termination.KILLED.value)
                await up.session.until(lambda: remote.is_over)
            up.session.forget(remote)
            if not remote.is_over:
                await up.close()

    def _lost(self, up: _Up) -> BackendUnavailableError:
        said = f" ({up.session.said[-300:]})" if up.session.said else ""
        return BackendUnavailableError(
            self._engine.name,
            f"{self._engine.host}: the engine went away during the run, and the box with it{said}",
            "what the command did until then stays; look at the engine's log, then run it again",
        )

    @contextlib.asynccontextmanager
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
    ) -> AsyncIterator[DockerProcess]:
        """
        Starts *argv* and hands out its streams; see `Sandbox.start`. What goes to a
        descriptor is carried there by this process.

        Raises:
            BackendError: *pass_fds* names descriptors: none reaches a container.
        """
        if pass_fds:
            raise BackendError("descriptors cannot be handed into a container; use files, or the three streams")
        if any(fd is not None and fd >= 0 and os.isatty(fd) for fd in (stdin, stdout, stderr)):
            raise SpecError("a terminal cannot be handed into a container; hand in a pipe")
        if sys.platform == "win32" and any(fd is not None and fd != PIPE for fd in (stdin, stdout, stderr)):
            raise SpecError("no descriptor can be waited for on Windows; take PIPE, or None for nothing")
        invocation = self._invocation(argv, cwd, environment)
        up, facts = await self.ready()
        aftermath = self._aftermath(facts)
        try:
            async with (
                _ungrouped() as tasks,
                self._outlet(up, invocation, ask, on_egress) as way,
            ):
                told = self._order(invocation, facts, self._spec.limits.wall, way)
                streams = CommandStreams(up.session, stdin, stdout, stderr)
                remote = await up.session.order(told, streams.put)
                try:
                    streams.open(remote, tasks)
                    process = DockerProcess(
                        self, up, remote, told, streams, tasks, facts, way, aftermath, explain=explain
                    )
                    if way is not None:
                        way.on_failure(process.kill)
                    tasks.start_soon(self._end_late, up, remote)
                    yield process
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._ended(up, remote)
                        up.session.forget(remote)
                        await streams.aclose()
                    tasks.cancel_scope.cancel()
        finally:
            aftermath.settle()


def _admit(name: str, door: NamedDoor, shut: str) -> None:
    """
    Lets the agent of a container in.

    Raises:
        SetupError: It has not come.
    """
    try:
        if not shut:
            door.admit()
    except BlockingIOError:
        shut = "it came to another socket"
    if shut:
        raise SetupError(
            name,
            f"the container cannot reach the socket its way out is handed over by: {shut}; use an engine of this machine "
            "and its own kernel, and let containers connect to sockets that are bound (security modules may refuse it)",
        )


def _under_callers(rows: Sequence[tuple[int, int]]) -> list[list[int]]:
    """
    Limits of one process, each no higher than this application's own.
    """
    if sys.platform == "win32":
        return [list(row) for row in rows]  # an application there has none
    import resource

    found = dict(rows)
    own = {what: resource.getrlimit(what)[1] for what in (*found, *_KEPT)}
    return [
        [what, min(bound for bound in (found.get(what), mine) if bound not in (None, resource.RLIM_INFINITY))]
        for what, mine in own.items()
        if what in found or mine != resource.RLIM_INFINITY
    ]


@contextlib.asynccontextmanager
async def _ungrouped() -> AsyncIterator[anyio.abc.TaskGroup]:
    """
    A task group out of which a single error comes as itself.
    """
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


class _Kept:
    """
    What a command writes: its first bytes, and how many there were.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._chunks: dict[int, list[bytes]] = {wire.OUT: [], wire.ERR: []}
        self._kept = {wire.OUT: 0, wire.ERR: 0}
        self._seen = {wire.OUT: 0, wire.ERR: 0}
        self._due = {wire.OUT: 0, wire.ERR: 0}
        self.remote: Remote | None = None

    def put(self, kind: int, data: bytes) -> None:
        self._seen[kind] += len(data)
        self._due[kind] += len(data)
        if room := self._keep - self._kept[kind]:
            self._chunks[kind].append(data[:room])
            self._kept[kind] += len(self._chunks[kind][-1])

    def content(self, kind: int) -> bytes:
        return b"".join(self._chunks[kind])

    @property
    def is_truncated(self) -> bool:
        return self._seen != self._kept

    @property
    def is_flood(self) -> bool:
        """
        Whether it is so much that the command is ended for it.
        """
        return max(self._seen.values()) > max(self._keep * _KILL_FACTOR, _KILL_FLOOR)

    async def follow(self, session: Session) -> None:
        """
        Takes what comes until the command is over; ends one that writes without end.
        """
        while not self._is_over and not self.is_flood:
            await self._next(session)
        if self.remote is not None and not self._is_over:
            await session.kill(self.remote, Termination.OUTPUT_LIMIT.value)
            with anyio.move_on_after(_END_SECONDS):  # else the container has to go
                while not self._is_over:
                    await self._next(session)

    @property
    def _is_over(self) -> bool:
        return self.remote is None or self.remote.is_over

    async def _next(self, session: Session) -> None:
        """
        Takes what comes, so that more may.
        """
        await session.until(lambda: self._is_over or max(self._due.values()) >= ACK_BYTES)
        for kind, due in self._due.items():
            self._due[kind] = 0
            if self.remote is not None:
                await session.taken(self.remote, kind, due)


class DockerProcess(BoxProcess):
    """
    A command that runs in a container.
    """

    def __init__(
        self,
        box: DockerSandbox,
        up: _Up,
        remote: Remote,
        told: dict[str, Any],
        streams: CommandStreams,
        tasks: anyio.abc.TaskGroup,
        facts: DockerFacts,
        way: Outlet | None,
        aftermath: Aftermath,
        *,
        explain: bool,
    ) -> None:
        self._box, self._up, self._remote, self._told, self._way = box, up, remote, told, way
        self._aftermath = aftermath
        self._tasks, self._facts, self._explain, self._streams = tasks, facts, explain, streams
        self.stdin = streams.stdin
        self.stdout = streams.stdout
        self.stderr = streams.stderr

    async def wait(self) -> ExecResult:
        """
        How it ended.

        Raises:
            LaunchError: It never started.
            BackendUnavailableError: The container or the engine went away.
        """
        session, remote = self._up.session, self._remote
        try:
            await session.until(lambda: remote.is_over)
        except BrokerError as exc:
            await self._box._tell_apart(self._up, remote, exc)
        await self._streams.carried()
        if remote.failure:
            raise _launch_error(self._facts.engine, *remote.failure, self._told)
        refused = await self._way.end() if self._way else ()
        found = (*self._aftermath.settle(), *refused)
        return _result(
            remote,
            self._facts,
            self._aftermath.lowered(self._up.enforcement),
            self._box.spec,
            _Kept(0),
            found,
            ended_outside=False,
            explain=self._explain,
        )

    def send_signal(self, number: int) -> None:
        """
        Sends signal *number* to the command.
        """
        self._tasks.start_soon(self._up.session.signal, self._remote, checked_signal(number))

    def kill(self) -> None:
        """
        Ends it, and everything it started, at once.
        """
        self._tasks.start_soon(self._up.session.kill, self._remote, Termination.KILLED.value)


def _launch_error(engine: str, step: str, number: int, interpreter: str, told: dict[str, Any]) -> Exception:
    why, program = os.strerror(number), told["argv"][0]
    if interpreter:
        return without_interpreter(program, interpreter, f"in the {engine} sandbox")
    if step == "exec" and number in (errno.ENOENT, errno.ENOTDIR):
        where = f"in the {engine} sandbox; name one that a directory of its PATH holds and the spec lets it read"
        return ProgramNotFoundError(program, where)
    if step == "exec" and number in (errno.EACCES, errno.EPERM):
        return ProgramNotExecutableError(
            program, f"{why}; it is not marked executable, or the spec does not let the box read it"
        )
    if step == "exec" and number == errno.ENOEXEC:
        return ProgramNotExecutableError(program, "it is neither a program of this machine nor a script with a #! line")
    if step == "exec" and number == errno.E2BIG:
        return ProgramNotExecutableError(
            program, "its arguments and environment are too long; hand more over on stdin or in a file"
        )
    if step == "cwd":
        return SpecError(f"the working directory {told['cwd']!r} cannot be entered in the container: {why}")
    return SetupError(engine, f"step {step!r} failed: {why}")


def _result(
    remote: Remote,
    facts: DockerFacts,
    found: Enforcement,
    spec: SandboxSpec,
    kept: _Kept,
    done: tuple[Violation, ...],
    *,
    ended_outside: bool,
    explain: bool,
) -> ExecResult:
    end: Mapping[str, Any] = remote.end or {"code": None, "signal": _SIGKILL, "ended": Termination.TIMED_OUT.value}
    termination = _termination(end, spec.limits.cpu)
    is_ended = termination in _BY_US
    return ExecResult(
        exit_code=None if is_ended else end["code"],
        signal=None if is_ended else end["signal"],
        termination=termination,
        stdout=kept.content(wire.OUT),
        stderr=kept.content(wire.ERR),
        truncated=kept.is_truncated,
        duration_s=time.monotonic() - remote.started,
        backend=facts.engine,
        enforcement=found,
        usage=_usage(end) if not ended_outside else None,
        violations=done,
        explain_gap=_NO_EXPLAIN if explain else "",
    )


def _usage(end: Mapping[str, Any]) -> Usage | None:
    if "user_s" not in end:
        return None
    return Usage(
        cpu_user_s=end["user_s"],
        cpu_system_s=end["system_s"],
        max_rss_bytes=end["rss_bytes"],
        tree_cpu_s=end["cpu_s"],
        oom_kills=end["oom"],
        refused_processes=end["refused"],
    )


def _termination(end: Mapping[str, Any], cpu: float | None) -> Termination:
    code, number = end["code"], end["signal"]
    if code == 0:
        return Termination.EXITED
    if code is None and end["ended"]:
        return Termination(end["ended"])
    if end.get("oom"):
        return Termination.MEMORY_LIMIT
    if code is not None:
        return Termination.EXITED
    used = max(end["user_s"] + end["system_s"], end["cpu_s"] or 0.0)
    return Termination.CPU_LIMIT if is_of_cpu_limit(number, used, cpu) else Termination.SIGNALED
