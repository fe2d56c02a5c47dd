"""
The audit records of one run: `decided` before anything starts, `egress` for each connection
of a box whose spec lists hosts, `finished` after.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import TYPE_CHECKING, Any

import anyio

from sandboxkit.errors import ApprovalError, AuditError, CommandDeniedError
from sandboxkit.model import AuditEvent, AuditSink, Grade

if TYPE_CHECKING:
    from typing import Literal

    from sandboxkit.egress import EgressEvent
    from sandboxkit.model import (
        ApprovalReply,
        Enforcement,
        EvaluationContext,
        ExecResult,
        PolicyEvaluation,
        SandboxSpec,
    )

__all__ = ["Record"]

MAX_CONNECTIONS = 200
"""Connections of one run that get a record each."""


class Record:
    """
    Collects what is known of a run, and writes it.

    Args:
        sink: Where to.
        is_required: Whether a run that cannot be recorded is refused.
    """

    def __init__(self, sink: AuditSink, *, is_required: bool) -> None:
        self._sink = sink
        self._is_required = is_required
        self._id = uuid.uuid4().hex
        self._connections = 0
        self._unwritten: AuditError | None = None
        self._fields: dict[str, Any] = {"pid": os.getpid(), "uid": os.getuid() if hasattr(os, "getuid") else None}

    def read(
        self,
        command: str | tuple[str, ...],
        context: EvaluationContext,
        evaluation: PolicyEvaluation,
        spec: SandboxSpec,
    ) -> None:
        """
        Notes the decision and the box, and what was judged, so that it can be judged again.
        """
        is_text = isinstance(command, str)
        self._fields |= {
            "command": command if is_text else evaluation.command.text,
            **({} if is_text else {"argv": command}),
            "opaque": evaluation.command.opaque,
            "cwd": context.cwd,
            "home": context.home,
            "workspace_roots": context.workspace_roots,
            "user": context.user,
            **({"numbers": dict(context.numbers)} if context.numbers else {}),
            "action": str(evaluation.action),
            "reason": evaluation.reason,
            "rules": [f"{match.level}:{match.rule_id}" for match in evaluation.matches if match.decided],
            "rules_digest": evaluation.rules_digest,
            "spec": _described(spec),
        }

    def approved(self, digest: str, reply: ApprovalReply) -> None:
        """
        Notes that exactly what has this digest was approved, and how: by whom was asked,
        or by an answer that was remembered.
        """
        self._fields["approval"] = {
            "approved": True,
            "digest": digest,
            "reason": reply.reason,
            "origin": reply.origin,
            "remember": reply.remember if reply.origin == "asked" else reply.origin,
        }

    def decided(self, mode: str, backend: str, enforcement: Enforcement) -> None:
        """
        Writes the first record.

        Raises:
            AuditError: It could not be written, and must be.
        """
        self._fields |= {"outcome": "run", "mode": mode, "backend": backend, "enforcement": _weak(enforcement)}
        if mode != "sandbox":
            del self._fields["spec"]  # nothing keeps it
        problem = self._write("decided", self._fields)
        if problem and self._is_required:
            raise problem

    def egress(self, event: EgressEvent) -> None:
        """
        Writes a record of a connection of the box that ended or was refused; of many only
        the first, the rest is counted in the second record of the run.
        """
        self._connections += 1
        if self._connections > MAX_CONNECTIONS:
            return
        verdict = event.verdict
        fields = {
            "protocol": event.protocol,
            "destination": event.destination,
            "method": event.method,
            "action": verdict.action,
            "code": verdict.code,
            "reason": verdict.reason,
            "rule": verdict.rule,
            "address": event.address,
            "problem": event.problem,
            "sent_bytes": event.sent_bytes,
            "received_bytes": event.received_bytes,
            "duration_s": round(event.duration_s, 6),
        }
        problem = self._write("egress", {name: value for name, value in fields.items() if value is not None})
        self._unwritten = self._unwritten or problem

    def refused(self, error: BaseException) -> None:
        """
        Writes the only record of a run that does not take place. That it could not be
        written is added to *error*: nothing runs in any case.
        """
        outcome = _refusal(error)
        if problem := self._write("decided", {**self._fields, "outcome": outcome, "error": _error(error)}):
            error.add_note(str(problem))

    def broken(self, error: BaseException) -> None:
        """
        Writes the second record of a run that ended in an exception.
        """
        outcome = "cancelled" if _is_cancellation(error) else "failed"
        if problem := self._write("finished", {"outcome": outcome, "error": _error(error)}):
            error.add_note(str(problem))

    def finished(self, result: ExecResult) -> None:
        """
        Writes the second record.

        Raises:
            AuditError: It could not be written, and must be; the error holds *result*.
        """
        usage = result.usage
        fields = {
            "outcome": "finished",
            "backend": result.backend,
            "exit_code": result.exit_code,
            "signal": result.signal,
            "termination": result.termination.value,
            "duration_s": round(result.duration_s, 6),
            "stdout_bytes": len(result.stdout),
            "stderr_bytes": len(result.stderr),
            "truncated": result.truncated,
            "cpu_s": round(usage.cpu_user_s + usage.cpu_system_s, 6) if usage else None,
            "max_rss_bytes": usage.max_rss_bytes if usage else None,
            "violations": [f"{found.kind} {found.target}" for found in result.violations],
            "enforcement": _weak(result.enforcement),
        }
        if self._connections:
            fields["connections"] = self._connections
        problem = self._write("finished", fields) or self._unwritten
        if problem and self._is_required:
            said = f"the command has run and {result.outcome}, and this could not be recorded: {problem.problem}"
            raise AuditError(problem.sink, said, remedy=problem.remedy, result=result) from problem

    def _write(self, kind: Literal["decided", "egress", "finished"], fields: dict[str, Any]) -> AuditError | None:
        try:
            self._sink.write(AuditEvent(kind, self._id, time.time(), fields))
        except AuditError as exc:
            return exc
        except Exception as exc:  # noqa: BLE001 - a sink may be anybody's code; a record it did not take is not written
            problem = AuditError(
                str(getattr(self._sink, "name", type(self._sink).__name__)), f"{type(exc).__name__}: {exc}"
            )
            problem.__cause__ = exc
            return problem
        return None


def _is_cancellation(error: BaseException) -> bool:
    return isinstance(error, anyio.get_cancelled_exc_class())


def _refusal(error: BaseException) -> str:
    if isinstance(error, ApprovalError):
        return "not approved"
    if isinstance(error, CommandDeniedError):
        return "denied"
    return "cancelled" if _is_cancellation(error) else "refused"


def _error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _weak(enforcement: Enforcement) -> dict[str, str]:
    """
    The controls that are not fully enforced: the rest is the rule.
    """
    return {str(control): str(state.grade) for control, state in enforcement if state.grade is not Grade.ENFORCED}


def _described(spec: SandboxSpec) -> dict[str, Any]:
    """
    What *spec* names, without the values of variables, which may be secret.
    """
    described = spec.model_dump(mode="json", exclude_unset=True)
    if "set" in described.get("environment", {}):
        described["environment"]["set"] = sorted(described["environment"]["set"])
    return described
