"""
`sandboxkit run`.
"""

from __future__ import annotations

import os
import select
import stat
from typing import TYPE_CHECKING

from sandboxkit import sync
from sandboxkit.cli._box import spec_of
from sandboxkit.cli._exit import Exit, reserved
from sandboxkit.cli._injected import backends_for, secrets_of
from sandboxkit.cli._output import note, write
from sandboxkit.cli._verbs import Usage
from sandboxkit.errors import AuditError, SpecError
from sandboxkit.model import Termination
from sandboxkit.router import AutoSandboxRouter

if TYPE_CHECKING:
    import argparse

    from sandboxkit.audit import JsonlAudit
    from sandboxkit.cli._report import Report
    from sandboxkit.model import ExecResult, Violation
    from sandboxkit.secrets import SecretRegistry

__all__ = ["command_of", "described", "input_of", "run"]

MAX_STDIN_BYTES = 64 << 20
_PATIENCE_SECONDS = 2.0
_LIMITS = {
    Termination.TIMED_OUT,
    Termination.OUTPUT_LIMIT,
    Termination.MEMORY_LIMIT,
    Termination.CPU_LIMIT,
    Termination.PROCESS_LIMIT,
}


def run(options: argparse.Namespace, report: Report) -> int:
    """
    Runs the command in a box and passes on what it wrote and how it ended.
    """
    if options.grants is not None and not options.ask:
        raise Usage(
            "--grants goes with --ask: without it nobody is asked", "usage: sandboxkit run --ask --grants FILE -- CMD"
        )
    if options.audit_key is not None and options.audit is None:
        raise Usage(
            "--audit-key goes with --audit: no log is named",
            "usage: sandboxkit run --audit FILE --audit-key FILE -- CMD",
        )
    spec = spec_of(options)
    try:
        secrets = secrets_of(spec)
        router = _router(options, secrets) if options.ask or options.policy or options.audit or secrets else None
        routed = sync.route(
            command_of(options),
            spec=spec,
            router=router,
            stdin=input_of(),
            timeout=options.timeout,
            explain=options.explain,
        )
    except AuditError as exc:
        return _unrecorded(exc, report)
    result = routed.result
    code, status = _exit(result)
    if not report.is_json:
        write(1, result.stdout)
        write(2, result.stderr)
        _remark(result, code)
    return report.done(code, status, routed.to_dict())


def _unrecorded(problem: AuditError, report: Report) -> int:
    """
    Nothing ran; or it did, and only its end is not in the log: what it wrote is shown then.
    """
    if problem.result is None:
        return report.failed(Exit.USAGE, problem, str(problem))
    if not report.is_json:
        write(1, problem.result.stdout)
        write(2, problem.result.stderr)
    return report.failed(Exit.INTERNAL, problem, str(problem))


def _router(options: argparse.Namespace, secrets: SecretRegistry | None) -> AutoSandboxRouter:
    from sandboxkit.approval import GrantStore, RememberingApprover, TerminalApprover
    from sandboxkit.cli._policy_files import policy_of

    store = GrantStore(options.grants)
    approver = RememberingApprover(TerminalApprover(), store=store, session=False) if options.ask else None
    policy = policy_of(options.policy) if options.policy else None
    return AutoSandboxRouter(
        policy=policy, approver=approver, audit=_log(options, secrets), registry=backends_for(secrets)
    )


def _log(options: argparse.Namespace, secrets: SecretRegistry | None) -> JsonlAudit | None:
    if options.audit is None:
        return None
    from sandboxkit.audit import AuditKey, JsonlAudit

    key = AuditKey.from_file(options.audit_key) if options.audit_key is not None else None
    return JsonlAudit(options.audit, key=key, secrets=secrets)


def command_of(options: argparse.Namespace) -> str | list[str]:
    """
    One argument is a command line; several are a program and its arguments.
    """
    words: list[str] = options.command
    return words[0] if len(words) == 1 else words


def _exit(result: ExecResult) -> tuple[int, str]:
    if result.termination in _LIMITS:
        return Exit.LIMIT, Exit.LIMIT.status
    if result.exit_code is None:
        return 128 + (result.signal or 9), "ran"
    return (Exit.THEIRS if result.exit_code in reserved() else result.exit_code), "ran"


def _remark(result: ExecResult, code: int) -> None:
    if code == Exit.LIMIT:
        note(f"the command {result.outcome}")
    elif code == Exit.THEIRS:
        note(
            f"the command exited with code {result.exit_code}, which is one of ours; this is {int(Exit.THEIRS)} instead"
        )
    if result.truncated:
        note("the output is longer than limits.max_output_bytes of the spec; the rest was dropped")
    for violation in result.violations:
        note(described(violation))
    if result.explain_gap:
        note(f"not everything it was refused is known: {result.explain_gap}")
    elif result.explained and not any(violation.call for violation in result.violations):
        note("it was refused nothing that you may do yourself")


def described(violation: Violation) -> str:
    """
    One line for what was done or refused, and one for what would allow it.
    """
    if not violation.call:
        return f"{violation.kind}: {violation.target}: {violation.detail}"
    often = f" ({violation.count} times)" if violation.count > 1 else ""
    said = f"refused {violation.kind}: {violation.target}: {violation.detail}{often}"
    return said if violation.spec_line is None else f"{said}\nto allow it: {violation.spec_line}"


def input_of() -> bytes | None:
    """
    What stdin holds, unless it is a terminal or another device.
    """
    try:
        return None if stat.S_ISCHR(os.fstat(0).st_mode) else _read()
    except OSError as exc:
        raise SpecError(
            f"standard input cannot be read: {exc.strerror}; give </dev/null where the command needs none"
        ) from exc


def _read() -> bytes:
    if not select.select([0], [], [], _PATIENCE_SECONDS)[0]:
        note("waiting for standard input to end; give </dev/null where the command needs none")
    content = bytearray()
    while chunk := os.read(0, 1 << 16):
        content += chunk
        if len(content) > MAX_STDIN_BYTES:
            raise SpecError(f"standard input is longer than {MAX_STDIN_BYTES} bytes; give a file that --read names")
    return bytes(content)
