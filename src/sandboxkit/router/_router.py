"""
`AutoSandboxRouter`: evaluate, ask, choose, run, record.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, final

from sandboxkit.approval import decide, default_folder, grant_for, permits
from sandboxkit.audit import MemoryAudit
from sandboxkit.backends import SandboxRegistry, bash_argv, command_environment, default_registry
from sandboxkit.errors import (
    ApprovalError,
    CommandDeniedError,
    EnforcementError,
    IsolationError,
    NoBackendError,
    PluginError,
    ProgramNotFoundError,
    SandboxError,
)
from sandboxkit.model import (
    TRUSTED_PATH,
    Advice,
    ApprovalOffer,
    ApprovalRequest,
    EvaluationContext,
    ExecResult,
    Invocation,
    PolicyAction,
    PolicyEvaluation,
    RouteResult,
)
from sandboxkit.policy import ExecPolicy, failed, get_exec_policy, undecided
from sandboxkit.router._account import home_of, own_account
from sandboxkit.router._direct import ENFORCEMENT, Direct, find_program, trusted_program
from sandboxkit.router._explanation import Explanation
from sandboxkit.router._record import Record
from sandboxkit.router._request import Request
from sandboxkit.router._spec import effective_spec, protected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from sandboxkit.backends import Sandbox, Selection
    from sandboxkit.model import Approver, AuditSink, Enforcement, Grant, LaunchPlan, RunMode, SandboxSpec

__all__ = ["AutoSandboxRouter", "default_router", "open_sandbox", "run"]

_NO_BOX = "it ran without a box, so there was none to refuse anything"
_SWITCHED_OFF = "isolation is switched off by the application"


@dataclass(frozen=True, slots=True)
class _Task:
    """
    A request that was decided.

    Attributes:
        request: What was asked for.
        context: The place it was judged for.
        evaluation: What the policy says.
        spec: The box: the caller's, bounded by the rules.
    """

    request: Request
    context: EvaluationContext
    evaluation: PolicyEvaluation
    spec: SandboxSpec

    @property
    def uses_bash(self) -> bool:
        return isinstance(self.request.command, str) and not self.evaluation.command.is_plain

    def argv(self) -> tuple[str, ...]:
        """
        What is executed: plain words as they are, any other text by bash.
        """
        command = self.request.command
        plain = command if not isinstance(command, str) else self.evaluation.command.argv
        return bash_argv(str(command)) if plain is None else plain

    def environment(self) -> dict[str, str]:
        return command_environment(self.spec, self.request.environ, for_bash=self.uses_bash)

    def search(self) -> str:
        """
        Where a bare program name is looked for.
        """
        return self.environment().get("PATH") or ":".join(TRUSTED_PATH)

    def timeout(self) -> float | None:
        bounds = [bound for bound in (self.request.timeout, self.evaluation.max_timeout) if bound is not None]
        return min(bounds, default=None)

    def grant(self, mode: RunMode) -> Grant:
        """
        What an approval of it covers.
        """
        return grant_for(
            self.evaluation,
            command=self.request.command,
            argv=self.argv(),
            cwd=self.request.cwd,
            search=self.search(),
            workspace_roots=_workspace_roots(self.request),
            spec=self.spec,
            mode=mode,
            stdin=self.request.stdin,
        )


@dataclass(frozen=True, slots=True)
class _Boxed:
    """
    A run in a box.
    """

    selection: Selection
    task: _Task
    invocation: Invocation
    mode: Literal["sandbox"] = "sandbox"

    @property
    def backend(self) -> str:
        return self.selection.backend.name

    @property
    def enforcement(self) -> Enforcement:
        return self.selection.enforcement

    @property
    def others(self) -> Mapping[str, str]:
        return self.selection.others

    @property
    def plan(self) -> LaunchPlan:
        with _translated(self.backend):
            return self.selection.backend.plan(self.invocation, self.task.spec, self.selection.detection.facts)

    async def run(self, approver: Approver | None, record: Record) -> ExecResult:
        # An older backend may not know what nobody asks for.
        asked: dict[str, Any] = {"explain": True} if self.task.request.explain else {}
        if self.task.spec.network.mode == "listed":
            asked |= {"ask": functools.partial(permits, approver), "on_egress": record.egress}
        with _translated(self.backend):
            async with self.selection.open(self.task.spec) as box:
                result: object = await box.run(
                    self.invocation.argv,
                    stdin=self.task.request.stdin,
                    cwd=self.invocation.cwd,
                    timeout=self.task.timeout(),
                    environment=dict(self.invocation.environment),
                    **asked,
                )
        if not isinstance(result, ExecResult):
            raise PluginError(
                self.backend, f"run() returned {type(result).__name__}; whether the command ran is not known"
            )
        if self.task.request.explain and not result.explained and not result.explain_gap:
            return replace(result, explain_gap=f"backend {self.backend!r} does not say what it refuses")
        return result


@contextlib.contextmanager
def _translated(backend: str) -> Iterator[None]:
    try:
        yield
    except SandboxError:
        raise
    except Exception as exc:
        raise PluginError(
            backend, f"it raised {type(exc).__name__}: {exc}; whether the command ran is not known"
        ) from exc


@dataclass(frozen=True, slots=True)
class _Unboxed:
    """
    A run without a box.
    """

    direct: Direct
    task: _Task
    mode: Literal["direct", "unsandboxed"]
    backend: str = "direct"
    enforcement: Enforcement = ENFORCEMENT
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def plan(self) -> LaunchPlan:
        return self.direct.plan

    async def run(self, _approver: Approver | None, _record: Record) -> ExecResult:
        result = await self.direct.run(stdin=self.task.request.stdin, timeout=self.task.timeout())
        return replace(result, explain_gap=_NO_BOX) if self.task.request.explain else result


@final
class AutoSandboxRouter:
    """
    Decides about commands by a policy and runs them in the strongest box there is.

    Two routers share nothing but what is known of the machine. Nothing a router does
    can be weakened by an environment variable.

    Args:
        policy: The rules; None asks for the process's own (`get_exec_policy()`) at
            every command.
        registry: The backends; None are the process's own.
        approver: Who is asked where a rule says `ask`; without one the answer is no.
        audit: Where records go; None is a `MemoryAudit` of this router.
        audit_required: Whether a run that cannot be recorded is refused.
        enabled: Whether commands are isolated; see `set_enabled`.
        may_disable: Whether isolation may ever be switched off here.
        approval_timeout: Seconds an approver has for its answer.
        environ: The variables commands may inherit from; None are the application's,
            as they are at each run.

    Raises:
        IsolationError: *enabled* is False without *may_disable*.
    """

    def __init__(
        self,
        *,
        policy: ExecPolicy | None = None,
        registry: SandboxRegistry | None = None,
        approver: Approver | None = None,
        audit: AuditSink | None = None,
        audit_required: bool = True,
        enabled: bool = True,
        may_disable: bool = False,
        approval_timeout: float = 300.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        if not 0 < approval_timeout < math.inf:
            raise ValueError(f"approval_timeout {approval_timeout}: give a positive number of seconds")
        self._policy = policy
        self._registry = registry
        self._approver = approver
        self._audit: AuditSink = audit if audit is not None else MemoryAudit()
        self._audit_required = audit_required
        self._may_disable = may_disable
        self._approval_timeout = approval_timeout
        self._environ = None if environ is None else dict(environ)
        self._enabled = True
        self.set_enabled(enabled)

    @property
    def policy(self) -> ExecPolicy:
        """
        The rules that decide.
        """
        return self._policy if self._policy is not None else get_exec_policy()

    @property
    def registry(self) -> SandboxRegistry:
        """
        The backends that are chosen from.
        """
        return self._registry if self._registry is not None else default_registry()

    @property
    def audit(self) -> AuditSink:
        """
        Where records go.
        """
        return self._audit

    @property
    def enabled(self) -> bool:
        """
        Whether commands are isolated.
        """
        return self._enabled

    def set_enabled(self, enabled: bool) -> None:
        """
        Switches isolation on or off, and never decisions: while it is off, `deny` and
        `ask` hold, a spec given by a caller is refused, and every run is recorded as
        `unsandboxed`.

        Raises:
            IsolationError: It is to be switched off, and this router was not made with
                `may_disable=True`.
        """
        if not enabled and not self._may_disable:
            raise IsolationError(
                "isolation cannot be switched off here; make the router with may_disable=True to permit that"
            )
        self._enabled = bool(enabled)

    def evaluate(
        self,
        command: str | Sequence[str],
        *,
        spec: SandboxSpec | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> PolicyEvaluation:
        """
        What the policy says about *command*, in the place it would run. Runs and records
        nothing.

        Raises:
            CommandError: The command is empty or larger than the kernel takes.
            SpecError: *cwd* is no directory.
        """
        return self._task(self._request(command, spec=spec, cwd=cwd)).evaluation

    def should_sandbox(self, command: str | Sequence[str], *, cwd: str | os.PathLike[str] | None = None) -> Advice:
        """
        Whether *command*, given without a spec, would run in a box. Runs and records
        nothing; a command that is denied runs nowhere.

        Raises:
            CommandError: The command is empty or larger than the kernel takes.
            SpecError: *cwd* is no directory.
        """
        evaluation = self.evaluate(command, cwd=cwd)
        if evaluation.action is PolicyAction.DENY:
            return Advice(sandbox=True, action=evaluation.action, reason=evaluation.reason)
        if not self._enabled:
            return Advice(sandbox=False, action=evaluation.action, reason=_SWITCHED_OFF)
        return Advice(sandbox=not _may_be_direct(evaluation), action=evaluation.action, reason=evaluation.reason)

    async def route(
        self,
        command: str | Sequence[str],
        *,
        spec: SandboxSpec | None = None,
        stdin: bytes | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline is part of the result, not an exception
        explain: bool = False,
    ) -> RouteResult:
        """
        Decides about *command*, runs it and records both.

        Args:
            command: A text, or words. Plain words run without a shell, any other text
                by bash without its start-up files.
            spec: The box; always kept, or the command does not run. None is a box that
                writes the working directory, or for what is allowed only reads it.
            stdin: What it reads; None is an empty input.
            cwd: Its working directory on the host; None is the application's.
            timeout: Seconds; the smallest of this, the rules' and `limits.wall` counts.
            explain: Also look at what it is refused; see `Sandbox.run`.

        Raises:
            CommandError: The command is empty or larger than the kernel takes.
            SpecError: The spec, *cwd* or *timeout* is wrong.
            CommandDeniedError: The policy denies it.
            ApprovalError: The policy asks, and nobody approved.
            IsolationError: *spec* is given while isolation is switched off.
            NoBackendError: No backend is available. Nothing runs without one.
            EnforcementError: No backend enforces what the spec requires.
            LaunchError: It could not be started.
            AuditError: The run could not be recorded.
        """
        task = self._task(self._request(command, spec=spec, stdin=stdin, cwd=cwd, timeout=timeout, explain=explain))
        record = Record(self._audit, is_required=self._audit_required)
        record.read(task.request.command, task.context, task.evaluation, task.spec)
        try:
            await self._permit(task, record)
            way = await self._way(task)
        except BaseException as exc:
            record.refused(exc)
            raise
        record.decided(way.mode, way.backend, way.enforcement)
        try:
            result = await way.run(self._approver, record)
        except BaseException as exc:
            record.broken(exc)
            raise
        record.finished(result)
        return RouteResult(way.mode, task.evaluation, result)

    async def explain(
        self,
        command: str | Sequence[str],
        *,
        spec: SandboxSpec | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> Explanation:
        """
        What `route` would do with *command*. Runs nothing of it, asks nobody and records
        nothing; a backend may be verified for it.

        Raises:
            CommandError: The command is empty or larger than the kernel takes.
            SpecError: The spec or *cwd* is wrong.
        """
        task = self._task(self._request(command, spec=spec, cwd=cwd))
        evaluation = task.evaluation
        if evaluation.action is PolicyAction.DENY:
            return Explanation(evaluation, "refused", task.spec, refusals={"policy": evaluation.reason})
        try:
            way = await self._way(task)
            found = Explanation(
                evaluation, way.mode, task.spec, way.backend, way.plan, way.enforcement, others=way.others
            )
        except (NoBackendError, EnforcementError) as exc:
            return Explanation(evaluation, "refused", task.spec, refusals=exc.reasons)
        except IsolationError as exc:
            return Explanation(evaluation, "refused", task.spec, refusals={"isolation": str(exc)})
        except ProgramNotFoundError as exc:
            return Explanation(evaluation, "refused", task.spec, refusals={"program": str(exc)})
        return found

    def _request(
        self,
        command: str | Sequence[str],
        *,
        spec: SandboxSpec | None = None,
        stdin: bytes | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        explain: bool = False,
    ) -> Request:
        environ = dict(os.environ) if self._environ is None else self._environ
        return Request.of(command, spec=spec, stdin=stdin, cwd=cwd, timeout=timeout, environ=environ, explain=explain)

    def _task(self, request: Request) -> _Task:
        context = EvaluationContext(
            cwd=request.cwd,
            home=home_of(request.environ),
            workspace_roots=_workspace_roots(request),
            user=own_account()[0],
            platform=sys.platform,
        )
        evaluation = self._evaluation(request.command, context)
        spec = effective_spec(evaluation, request.spec, request.cwd)
        return _Task(request, context, evaluation, protected(spec, self._protected_files()))

    def _evaluation(self, command: str | tuple[str, ...], context: EvaluationContext) -> PolicyEvaluation:
        """
        What the policy says; whatever goes wrong in it is a denial.
        """
        try:
            found: object = self.policy.evaluate(command, context=context)
        except SandboxError:
            raise
        except Exception as exc:  # noqa: BLE001 - fail closed, whatever it is
            return undecided(command, failed(exc))
        if isinstance(found, PolicyEvaluation) and isinstance(found.action, PolicyAction):
            return found
        return undecided(command, f"the policy answered with {type(found).__name__}")

    def _protected_files(self) -> tuple[str, ...]:
        """
        Files a box never writes, whatever its spec says: the rules, the records and the
        remembered approvals, also those of other applications of this user.
        """
        keepers = (self.policy, self._audit, self._approver)
        files = [path for keeper in keepers for path in getattr(keeper, "paths", ())]
        files += filter(None, [default_folder()])
        return tuple(os.path.realpath(path) for path in files if os.path.exists(path))

    def _mode(self) -> RunMode:
        """
        Where a command that was approved runs.
        """
        return "sandbox" if self._enabled else "unsandboxed"

    async def _permit(self, task: _Task, record: Record) -> None:
        evaluation = task.evaluation
        if evaluation.action is PolicyAction.DENY:
            raise CommandDeniedError(evaluation)
        if not self._enabled:
            _check_no_spec(task)  # before anybody is asked in vain
        if evaluation.action is not PolicyAction.ASK:
            return
        mode = self._mode()
        grant = task.grant(mode)
        request = ApprovalRequest(evaluation, task.request.cwd, task.spec, ApprovalOffer(mode, grant))
        reply = await decide(self._approver, request, self._approval_timeout)
        if self._task(task.request).grant(mode).digest != grant.digest or mode != self._mode():
            raise ApprovalError(
                evaluation, "the program, the rules or the box changed while approval was awaited; ask again"
            )
        record.approved(grant.digest, reply)

    async def _way(self, task: _Task) -> _Boxed | _Unboxed:
        if not self._enabled:
            _check_no_spec(task)
            return _unsandboxed(task)
        if task.request.spec is None and _may_be_direct(task.evaluation):
            argv = task.argv()
            path = trusted_program(argv[0])
            if path is not None:
                return _unboxed(task, (path, *argv[1:]), "direct")
        invocation = Invocation(task.argv(), tuple(task.environment().items()), task.request.box_cwd)
        return _Boxed(await self.registry.active(task.spec), task, invocation)


def _workspace_roots(request: Request) -> tuple[str, ...]:
    return request.spec.filesystem.write if request.spec is not None else (request.cwd,)


def _check_no_spec(task: _Task) -> None:
    if task.request.spec is not None:
        raise IsolationError(
            f"{_SWITCHED_OFF}, so the spec of this command cannot be kept; switch it on with set_enabled(True)"
        )


def _may_be_direct(evaluation: PolicyEvaluation) -> bool:
    return (
        evaluation.action is PolicyAction.ALLOW
        and evaluation.is_direct
        and evaluation.command.is_plain
        and evaluation.spec is None
    )


def _unsandboxed(task: _Task) -> _Unboxed:
    argv = task.argv()
    path = find_program(argv[0], cwd=task.request.cwd, search=task.search())
    return _unboxed(task, (path, *argv[1:]), "unsandboxed")


def _unboxed(task: _Task, argv: tuple[str, ...], mode: Literal["direct", "unsandboxed"]) -> _Unboxed:
    direct = Direct.of(argv, environment=task.environment(), cwd=task.request.cwd, limits=task.spec.limits)
    return _Unboxed(direct, task, mode)


_KEY = "router"
_shared: dict[str, AutoSandboxRouter] = {}
"""Filled by `setdefault`, which is atomic: a lock could be held when another thread forks."""


def default_router() -> AutoSandboxRouter:
    """
    The process's own router: its policy, its backends, the last 1000 records in memory.
    """
    return _shared.get(_KEY) or _shared.setdefault(_KEY, AutoSandboxRouter())


async def run(
    command: str | Sequence[str],
    *,
    spec: SandboxSpec | None = None,
    router: AutoSandboxRouter | None = None,
    stdin: bytes | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - a deadline is part of the result, not an exception
    explain: bool = False,
) -> ExecResult:
    """
    Decides about *command*, runs it and gives what came back.

    Args:
        command: A text, or words. Plain words run without a shell, any other text by
            bash without its start-up files.
        spec: The box; always kept, or the command does not run. None is a box that
            writes the working directory, or for what is allowed only reads it.
        router: Who decides; None is the process's own.
        stdin: What it reads; None is an empty input.
        cwd: Its working directory on the host; None is the application's.
        timeout: Seconds; the smallest of this, the rules' and `limits.wall` counts.
        explain: Also look at what it is refused: the result's `violations` name it, with
            the line of a spec file that would allow it.

    Raises:
        SandboxError: It did not run, or could not be recorded; see
            `AutoSandboxRouter.route`. How the command ended is in the result.
    """
    chosen = router if router is not None else default_router()
    routed = await chosen.route(command, spec=spec, stdin=stdin, cwd=cwd, timeout=timeout, explain=explain)
    return routed.result


@contextlib.asynccontextmanager
async def open_sandbox(spec: SandboxSpec, *, registry: SandboxRegistry | None = None) -> AsyncIterator[Sandbox]:
    """
    A box under *spec* on the best backend. No policy is asked about what runs in it, and
    nothing is recorded: the box is the boundary. Leaving the context ends everything in it.

    Args:
        spec: The box.
        registry: The backends; None are the process's own.

    Raises:
        NoBackendError: No backend is available.
        EnforcementError: None enforces what *spec* requires.
        SpecError: A path of *spec* is wrong.
        SetupError: The box did not come up.
    """
    async with (registry if registry is not None else default_registry()).open(spec) as box:
        yield box
