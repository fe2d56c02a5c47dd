"""
`sandboxkit check` and `sandboxkit explain`: what would be done, and why. Nothing runs.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import anyio

from sandboxkit.cli._box import spec_of
from sandboxkit.cli._exit import Exit
from sandboxkit.cli._output import enforcement_table, printable, say, table
from sandboxkit.cli._policy_files import policy_of
from sandboxkit.cli._run import command_of
from sandboxkit.model import PolicyAction, SandboxSpec
from sandboxkit.policy import diagnostic
from sandboxkit.router import AutoSandboxRouter, default_router

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from sandboxkit.cli._report import Report
    from sandboxkit.model import PolicyEvaluation
    from sandboxkit.router import Explanation

__all__ = ["check", "explain"]

_MAX_OTHERS = 20
_CODES = {PolicyAction.DENY: Exit.DENIED, PolicyAction.ASK: Exit.APPROVAL}


def check(options: argparse.Namespace, report: Report) -> int:
    """
    Prints the policy's decision about the command, with carets under what decided.
    """
    evaluation = _router(options).evaluate(command_of(options), spec=SandboxSpec.read_only())
    code = _CODES.get(evaluation.action, Exit.DONE)
    if not report.is_json:
        say(_decision(evaluation))
    return report.done(code, "checked", evaluation.to_dict())


def explain(options: argparse.Namespace, report: Report) -> int:
    """
    Prints the decision, the backend, its plan, and what would be enforced.
    """

    async def ask() -> Explanation:
        return await _router(options).explain(command_of(options), spec=spec_of(options))

    found = anyio.run(ask)
    code = _CODES.get(found.evaluation.action, _refusal(found) if found.mode == "refused" else Exit.DONE)
    if not report.is_json:
        say("\n\n".join(_explanation(found)))
    return report.done(code, "explained", found.to_dict())


def _router(options: argparse.Namespace) -> AutoSandboxRouter:
    return AutoSandboxRouter(policy=policy_of(options.policy)) if options.policy else default_router()


def _refusal(found: Explanation) -> Exit:
    return Exit.PROGRAM if "program" in found.refusals else Exit.SANDBOX


def _explanation(found: Explanation) -> Iterator[str]:
    yield _decision(found.evaluation)
    for name, reason in found.refusals.items():
        yield f"refused by {printable(name)}: {printable(reason)}"
    if found.plan:
        until = "once approved, " if found.evaluation.action is PolicyAction.ASK else ""
        yield f"plan: {until}{found.mode}\n" + "\n".join(
            f"  {printable(line)}" for line in found.plan.describe().splitlines()
        )
    if found.enforcement:
        yield enforcement_table(found.enforcement)
    if found.others:
        yield f"taken: {found.backend}\n" + "\n".join(
            f"not taken: {name}: {printable(reason)}" for name, reason in found.others.items()
        )


def _decision(evaluation: PolicyEvaluation) -> str:
    """
    The diagnostic, and the rules that matched without deciding.
    """
    shown = diagnostic(evaluation, width=min(160, shutil.get_terminal_size((100, 24)).columns - 8))
    others = [
        (match.rule_id, str(match.level), str(match.action), match.reason)
        for match in evaluation.matches
        if not match.decided
    ]
    if not others:
        return shown
    rows = list(dict.fromkeys(others))
    more = f"\nand {len(rows) - _MAX_OTHERS} more" if len(rows) > _MAX_OTHERS else ""
    return f"{shown}\n\nalso matched:\n{table(('rule', 'level', 'action', 'reason'), rows[:_MAX_OTHERS])}{more}"
