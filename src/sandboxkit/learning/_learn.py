"""
Learning a spec: run, see what was refused, ask, widen, and leave out again what was not
needed. Nothing a run writes stays.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from sandboxkit.approval import decide
from sandboxkit.backends import bash_argv, command_environment
from sandboxkit.errors import ApprovalError, CommandDeniedError, SpecError
from sandboxkit.learning._lines import is_proposed, widened
from sandboxkit.model import ApprovalRequest, EvaluationContext, PolicyAction, SandboxSpec, ToolAction
from sandboxkit.policy import ExecPolicy
from sandboxkit.router import open_sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sandboxkit.backends import SandboxRegistry
    from sandboxkit.model import Approver, ExecResult, Violation

__all__ = ["Lesson", "learn_spec"]

_QUESTION_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Lesson:
    """
    What was learned.

    Attributes:
        spec: The spec: the base and the approved lines that are needed.
        passed: Whether the command exits with 0 under it.
        lines: The lines beyond the base, in the order they were approved.
        spared: Approved lines without which the command passes too.
        declined: Proposals that nobody approved, each with why.
        open: What was refused in the last run and has no line: credentials, protected
            names, hosts, what no spec can name.
        runs: How often the command ran.
        result: Its last run under `spec`.
    """

    spec: SandboxSpec
    passed: bool
    lines: tuple[str, ...]
    spared: tuple[str, ...]
    declined: Mapping[str, str]
    open: tuple[Violation, ...]
    runs: int
    result: ExecResult

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form, by the names of the attributes.
        """
        return {
            "spec": self.spec.model_dump(mode="json", exclude_unset=True),
            "passed": self.passed,
            "lines": list(self.lines),
            "spared": list(self.spared),
            "declined": dict(self.declined),
            "open": [found.to_dict() for found in self.open],
            "runs": self.runs,
            "result": self.result.to_dict(),
        }


async def learn_spec(
    command: str | Sequence[str],
    *,
    approver: Approver,
    base: SandboxSpec | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - of each run, as everywhere
    max_runs: int = 50,
    policy: ExecPolicy | None = None,
    registry: SandboxRegistry | None = None,
    on_run: Callable[[int, ExecResult], object] | None = None,
) -> Lesson:
    """
    The smallest spec under which *command* exits with 0.

    It runs in a box that reads the working directory and the tools, writes nothing and
    has no network. Where it fails, the refusals of that run are proposed, the last first,
    until one is approved; then it runs again with that line. In the end each line that it
    passes without is left out. What a run writes goes to copies of the paths that were
    approved and is thrown away, so every run begins with what is on the host now.

    Never proposed are credentials, protected names, what *base* denies, and the whole
    network. Where *base* lists hosts, as `NetworkPolicy(mode="listed")` does without any,
    each host and port that was refused is proposed, and what an earlier run sent to an
    approved one was sent. A program may ask for anything: who approves should read each
    line as if the program itself had asked.

    Args:
        command: Text as for bash, or a list of words.
        approver: Who is asked about each line.
        base: Where to begin; None reads the working directory.
        cwd: Where it runs; None is the application's.
        stdin: What it reads in each run.
        timeout: Seconds of each run.
        max_runs: Runs after which it gives up.
        policy: Rules that may deny the command; None are the built-in ones.
        registry: The backends; None are the process's own.
        on_run: Called after each run with its number and result, for progress.

    Returns:
        What was learned; `passed` is false where the approved lines were not enough.

    Raises:
        CommandDeniedError: *policy* denies the command.
        SpecError: *base*, *cwd* or *max_runs* is wrong.
        BackendError: The backend cannot discard what is written, or there is too much
            of it to be copied.
        SandboxError: The command could not be started; see `Sandbox.run`.
    """
    if max_runs < 1:
        raise SpecError(f"max_runs is {max_runs}; give at least 1")
    place = _place(cwd)
    base = SandboxSpec.read_only(place) if base is None else base
    argv, is_text = _words(command, policy or ExecPolicy.default(), base, place)
    trial = _Trial(argv, is_text, base, place, stdin, timeout, max_runs, registry, on_run)
    lines: list[str] = []
    declined: dict[str, str] = {}
    result = await trial.run(lines)
    while result.exit_code != 0 and trial.may_run:
        line = await _approved(result, lines, declined, approver)
        if line is None:
            break
        lines.append(line)
        result = await trial.run(lines)
    needed = lines
    if result.exit_code == 0:
        needed, result = await _needed(trial, lines, result)
    return Lesson(
        spec=widened(base, needed),
        passed=result.exit_code == 0,
        lines=tuple(needed),
        spared=tuple(line for line in lines if line not in needed),
        declined=declined,
        open=tuple(found for found in result.violations if not is_proposed(found)),
        runs=trial.runs,
        result=result,
    )


def _place(cwd: str | os.PathLike[str] | None) -> str:
    try:
        place = os.path.realpath(os.getcwd() if cwd is None else cwd)
    except FileNotFoundError as exc:
        raise SpecError("the working directory is gone; name another with cwd") from exc
    if not os.path.isdir(place):
        raise SpecError(f"the working directory {place!r} does not exist; create it first")
    return place


def _words(
    command: str | Sequence[str], policy: ExecPolicy, base: SandboxSpec, cwd: str
) -> tuple[tuple[str, ...], bool]:
    """
    The words that run *command*, and whether bash reads it.
    """
    context = EvaluationContext(cwd=cwd, home=os.path.expanduser("~"), workspace_roots=base.filesystem.write)
    evaluation = policy.evaluate(command, context=context)
    if evaluation.action is PolicyAction.DENY:
        raise CommandDeniedError(evaluation)
    asked = evaluation.command
    return (asked.argv, False) if asked.argv is not None else (bash_argv(asked.source or ""), True)


async def _approved(result: ExecResult, lines: list[str], declined: dict[str, str], approver: Approver) -> str | None:
    """
    The line that was approved of those that *result* proposes; the others that were asked
    about go to *declined*.
    """
    for found in reversed(result.violations):
        line = found.spec_line
        if line is None or not is_proposed(found) or line in lines or line in declined:
            continue
        try:
            await decide(approver, _question(line, found), _QUESTION_SECONDS)
        except ApprovalError as exc:
            declined[line] = str(exc).removeprefix("denied: ")
        else:
            return line
    return None


def _question(line: str, found: Violation) -> ApprovalRequest:
    action = ToolAction("learn.widen", (line, found.detail))
    evaluation = ExecPolicy.empty(PolicyAction.ASK).evaluate(action.words)
    return ApprovalRequest.for_action(action, evaluation)


async def _needed(trial: _Trial, lines: list[str], result: ExecResult) -> tuple[list[str], ExecResult]:
    """
    The lines without which the command does not pass, and its run with those.
    """
    needed = list(lines)
    for line in lines:
        if not trial.may_run:
            break
        without = [other for other in needed if other != line]
        tried = await trial.run(without)
        if tried.exit_code == 0:
            needed, result = without, tried
    return needed, result


@final
class _Trial:
    """
    The command, ready to be run under the base and any lines.
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        is_text: bool,
        base: SandboxSpec,
        cwd: str,
        stdin: bytes | None,
        timeout: float | None,
        max_runs: int,
        registry: SandboxRegistry | None,
        on_run: Callable[[int, ExecResult], object] | None,
    ) -> None:
        self._argv = argv
        self._is_text = is_text
        self._base = base
        self._cwd = cwd
        self._stdin = stdin
        self._timeout = timeout
        self._max_runs = max_runs
        self._registry = registry
        self._on_run = on_run
        self.runs = 0

    @property
    def may_run(self) -> bool:
        """
        Whether there are runs left.
        """
        return self.runs < self._max_runs

    async def run(self, lines: Sequence[str]) -> ExecResult:
        """
        One run under the base and *lines*, explained, its writes discarded.
        """
        spec = widened(self._base, lines)
        environment = command_environment(spec, os.environ, for_bash=self._is_text)
        async with open_sandbox(spec, registry=self._registry) as box:
            result = await box.run(
                self._argv,
                stdin=self._stdin,
                cwd=self._cwd,
                timeout=self._timeout,
                environment=environment,
                explain=True,
                discard=True,
            )
        self.runs += 1
        if self._on_run is not None:
            self._on_run(self.runs, result)
        return result
