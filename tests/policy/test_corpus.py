"""
The corpora: nothing that must not be allowed is, nothing ordinary is denied.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandboxkit.model import EvaluationContext, PolicyAction
from sandboxkit.policy import ExecPolicy

CORPUS = Path(__file__).parent.parent / "corpus"
CONTEXT = EvaluationContext(cwd="/home/dev/project", home="/home/dev", workspace_roots=("/home/dev/project",))
POLICY = ExecPolicy.default()
Row = dict[str, object]


def rows(name: str) -> list[Row]:
    return [json.loads(line) for line in (CORPUS / name).read_text(encoding="utf-8").splitlines() if line.strip()]


BYPASS = rows("policy_bypass.jsonl")
OK = rows("policy_ok.jsonl")


def action(row: Row) -> PolicyAction:
    command = row["argv"] if "argv" in row else row["command"]
    assert isinstance(command, (str, list))
    return POLICY.evaluate(command, context=CONTEXT).action


@pytest.mark.parametrize("row", BYPASS, ids=lambda row: row["id"])
def test_bypass_is_not_allowed(row: Row) -> None:
    assert row["must_not"] == "allow"
    assert action(row) > PolicyAction.ALLOW


@pytest.mark.parametrize("row", OK, ids=lambda row: row["id"])
def test_ordinary_command_is_not_denied(row: Row) -> None:
    assert row["must_not"] == "deny"
    assert action(row) < PolicyAction.DENY


def share(found: list[Row], ideal: str) -> float:
    chosen = [row for row in found if row["ideal"] == ideal]
    return sum(str(action(row)) == ideal for row in chosen) / len(chosen)


def test_the_softer_score_does_not_fall() -> None:
    assert share(BYPASS, "deny") >= 0.92
    assert share(OK, "sandbox") >= 0.99
    assert share(OK, "ask") >= 0.99
    # Compound commands stay boxed until the full reader of shell text is there.
    assert share(OK, "allow") >= 0.70
