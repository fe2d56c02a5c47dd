"""
`sandboxkit check` and `sandboxkit explain`: what would be done, and why. Nothing runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from sandboxkit.cli._box import spec_of
from sandboxkit.cli._exit import Exit
from sandboxkit.cli._output import enforcement_table, printable, say, table
from sandboxkit.cli._run import command_of
from sandboxkit.model import PolicyAction, SandboxSpec
from sandboxkit.router import default_router

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from sandboxkit.cli._report import Report
    from sandboxkit.model import PolicyEvaluation
    from sandboxkit.router import Explanation

__all__ = ["check", "explain"]

_CODES = {PolicyAction.DENY: Exit.DENIED, PolicyAction.ASK: Exit.APPROVAL}


def check(options: argparse.Namespace, report: Report) -> int:
    """
    Prints the policy's decision about the command and the rules that matched.
    """
    evaluation = default_router().evaluate(command_of(options), spec=SandboxSpec.read_only())
    code = _CODES.get(evaluation.action, Exit.DONE)
    if not report.is_json:
        say(_decision(evaluation))
    return report.done(code, "checked", evaluation.to_dict())


def explain(options: argparse.Namespace, report: Report) -> int:
    """
    Prints the decision, the backend, its plan, and what would be enforced.
    """

    async def ask() -> Explanation:
        return await default_router().explain(command_of(options), spec=spec_of(options))

    found = anyio.run(ask)
    code = _CODES.get(found.evaluation.action, _refusal(found) if found.mode == "refused" else Exit.DONE)
    if not report.is_json:
        say("\n\n".join(_explanation(found)))
    return report.done(code, "explained", found.to_dict())


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


def _decision(evaluation: PolicyEvaluation) -> str:
    lines = [
        f"command  {printable(evaluation.command.text)}",
        f"action   {evaluation.action}",
        f"reason   {printable(evaluation.reason)}",
    ]
    if evaluation.command.opaque:
        lines.append(f"opaque   {printable(evaluation.command.opaque)}")
    if evaluation.matches:
        rows = [
            (match.rule_id, str(match.level), str(match.action), "yes" if match.decided else "", match.reason)
            for match in evaluation.matches
        ]
        lines += ["", table(("rule", "level", "action", "decided", "reason"), rows)]
    return "\n".join(lines)
