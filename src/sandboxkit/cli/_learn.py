"""
`sandboxkit learn`.
"""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Any

from sandboxkit import sync
from sandboxkit.approval import TerminalApprover
from sandboxkit.cli._box import spec_of
from sandboxkit.cli._exit import Exit
from sandboxkit.cli._injected import backends_for, secrets_of
from sandboxkit.cli._output import note, write
from sandboxkit.cli._policy_files import policy_of
from sandboxkit.cli._run import command_of, described, input_of
from sandboxkit.cli._verbs import Usage
from sandboxkit.errors import PolicyError, SpecError
from sandboxkit.model import ApprovalReply, is_inside, real_path
from sandboxkit.policy._dump import save

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from sandboxkit.cli._report import Report
    from sandboxkit.learning import Lesson
    from sandboxkit.model import ApprovalRequest, ExecResult

__all__ = ["learn"]


def learn(options: argparse.Namespace, report: Report) -> int:
    """
    Finds the smallest spec the command passes under, and prints or writes it.
    """
    _check_target(options)
    base = spec_of(options)
    lesson = sync.learn_spec(
        command_of(options),
        approver=_Within([_real(path) for path in options.within]),
        base=base,
        stdin=input_of(),
        timeout=options.timeout,
        max_runs=options.max_runs,
        policy=policy_of(options.policy) if options.policy else None,
        registry=backends_for(secrets_of(base)),
        on_run=_progress,
    )
    text = lesson.spec.to_toml()
    if lesson.passed and options.output:
        _save(text, options.output)
    if not report.is_json:
        _remark(lesson)
        if lesson.passed and not options.output:
            write(1, text.encode())
    code = Exit.DONE if lesson.passed else Exit.FOUND_WANTING
    return report.done(code, code.status, {"toml": text, **lesson.to_dict()})


class _Within:
    """
    Approves lines about paths in given directories, and asks at the terminal about others.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots
        self._terminal = TerminalApprover()

    async def approve(self, request: ApprovalRequest) -> ApprovalReply:
        """
        The answer to *request*.
        """
        line = request.action.arguments[0] if request.action else ""
        paths = list(_paths(tomllib.loads(line).get("filesystem")))
        if paths and all(any(is_inside(path, root) for root in self._roots) for path in paths):
            return ApprovalReply(approved=True, reason="--within names where it lies")
        return await self._terminal.approve(request)


def _paths(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _paths(item)


def _real(path: str) -> str:
    try:
        return real_path(path)
    except ValueError as exc:
        raise SpecError(f"--within: {exc}") from None


def _progress(number: int, result: ExecResult) -> None:
    refused = sum(1 for found in result.violations if found.call)
    note(f"run {number}: the command {result.outcome}; {refused} refused")


def _remark(lesson: Lesson) -> None:
    for line, why in lesson.declined.items():
        note(f"not approved: {line}: {why}")
    for line in lesson.spared:
        note(f"approved and not needed: {line}")
    if lesson.passed:
        return
    if lesson.result.explain_gap:
        note(f"not everything it was refused is known: {lesson.result.explain_gap}")
    for found in lesson.open:
        note(described(found) if found.spec_line is None else f"never proposed: {found.spec_line}: {found.detail}")
    write(2, lesson.result.stderr)
    note(f"no spec was found: the command {lesson.result.outcome} with all that was approved")


def _check_target(options: argparse.Namespace) -> None:
    if options.force and not options.output:
        raise Usage("--force goes with --output", "usage: sandboxkit learn --output FILE --force -- CMD")
    if options.output and not options.force and os.path.lexists(options.output):
        raise SpecError(f"--output: {options.output!r} exists; give --force to replace it, or another name")
    folder = os.path.dirname(os.path.abspath(options.output)) if options.output else ""
    if folder and not os.access(folder, os.W_OK | os.X_OK):
        raise SpecError(f"--output: no file can be made in {folder!r}; create it, or choose another name")


def _save(text: str, path: str) -> None:
    try:
        save(text, path)
    except PolicyError as exc:
        problem = getattr(exc.__cause__, "strerror", None) or exc.__cause__
        raise SpecError(f"--output: {path!r} cannot be written: {problem}; choose another name") from exc
