"""
The corpora: nothing that must not be allowed is, nothing ordinary is denied.
"""

from __future__ import annotations

import json
from collections import Counter
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
MORE_BYPASS = rows("policy_more_bypass.jsonl")
MORE_OK = rows("policy_more_ok.jsonl")


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


def test_no_further_bypass_is_allowed() -> None:
    assert all(row["must_not"] == "allow" for row in MORE_BYPASS)
    assert [row["id"] for row in MORE_BYPASS if action(row) is PolicyAction.ALLOW] == []


def test_no_further_ordinary_command_is_denied() -> None:
    assert all(row["must_not"] == "deny" for row in MORE_OK)
    assert [row["id"] for row in MORE_OK if action(row) is PolicyAction.DENY] == []


def table(*chosen: Row) -> dict[str, Counter[str]]:
    """
    Per category: rows, rows that came out as their ideal, and as each action.
    """
    found: dict[str, Counter[str]] = {}
    for row in chosen:
        counts = found.setdefault(str(row["category"]), Counter())
        counts["rows"] += 1
        counts["ideal"] += str(action(row)) == row["ideal"]
        counts[str(action(row))] += 1
    return found


def share(found: list[Row], ideal: str | None = None) -> float:
    chosen = [row for row in found if ideal in (None, row["ideal"])]
    return sum(str(action(row)) == row["ideal"] for row in chosen) / len(chosen)


def show(*chosen: Row) -> None:
    print(f"\n{'category':16}{'rows':>6}{'ideal':>7}{'allow':>7}{'sandbox':>9}{'ask':>6}{'deny':>6}")
    for category, counts in sorted(table(*chosen).items()):
        print(
            f"{category:16}{counts['rows']:>6}{counts['ideal']:>7}"
            f"{counts['allow']:>7}{counts['sandbox']:>9}{counts['ask']:>6}{counts['deny']:>6}"
        )


def test_the_scores_do_not_fall() -> None:
    show(*BYPASS, *OK)
    assert share(BYPASS, "deny") >= 0.97
    assert share(OK, "allow") >= 0.97
    assert share([*BYPASS, *OK]) >= 0.95
    assert share(OK, "sandbox") >= 0.99
    assert share(OK, "ask") >= 0.99


def test_the_scores_of_the_further_rows_do_not_fall() -> None:
    show(*MORE_BYPASS, *MORE_OK)
    assert share(MORE_BYPASS, "deny") >= 0.95
    assert share(MORE_OK, "allow") >= 0.97
    assert share(MORE_OK, "sandbox") >= 0.97
    assert share([*MORE_BYPASS, *MORE_OK]) >= 0.92
