"""
What is doubtful in a file of rules.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sandboxkit.model import Level
from sandboxkit.policy import ExecPolicy
from sandboxkit.policy._lint import CHECKS, lint_file, warnings_of

if TYPE_CHECKING:
    from pathlib import Path

FINE = {"action": "ask", "prefix": ["tool"], "reason": "so", "match": ["tool x"], "not_match": ["ls"]}


def checks(tmp_path: Path, *rows: dict[str, Any], level: Level = Level.USER) -> list[tuple[str, str]]:
    path = tmp_path / "rules.json"
    full = [{"id": f"r{number}", **FINE, **row} for number, row in enumerate(rows)]
    clean = [{key: value for key, value in row.items() if value is not None} for row in full]
    path.write_text(json.dumps({"rules": clean}))
    return [(problem.key, problem.check) for problem in lint_file(str(path), level)]


def test_a_rule_with_everything_is_fine(tmp_path: Path) -> None:
    assert checks(tmp_path, {}) == []


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"reason": None}, ("", "no-reason")),
        ({"match": None}, ("", "no-examples")),
        ({"not_match": None}, ("", "no-examples")),
        ({"prefix": None, "glob": "*", "match": ["ls"], "not_match": [["a", "b"]]}, ("glob", "broad")),
        ({"prefix": None, "glob": "tool *", "action": "allow"}, ("glob", "broad")),
        ({"prefix": None, "regex": "tool .*", "action": "allow"}, ("regex", "broad")),
        ({"prefix": ["bash"], "match": ["bash x"], "action": "allow"}, ("prefix", "broad")),
        ({"prefix": [["cat", "env"]], "match": ["env x"], "not_match": ["id"], "action": "allow"}, ("prefix", "broad")),
        ({"prefix": None, "regex": "(tool|tools) x|tool .*"}, ("regex", "unindexed")),
        ({"prefix": None, "glob": "*x", "match": ["tool x"]}, ("glob", "unindexed")),
        ({"action": "allow", "prefix": ["rm"], "match": ["rm x", "rm -rf /"]}, ("match.1", "floor")),
        ({"action": "sandbox", "prefix": ["rm", ["-r", "-rf"], "/"], "match": None}, ("prefix", "floor")),
        (
            {"prefix": None, "glob": "*x", "match": ["tool x"], "constraints": {"more_than": {"pages": 3}}},
            ("constraints.more_than", "number"),
        ),
    ],
)
def test_one_doubt(tmp_path: Path, row: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected in checks(tmp_path, row)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"priority": 2}, {"prefix": ["tool", "x"]}], ("priority", "repeats")),
        ([{"action": "allow", "priority": 9}, {"prefix": ["tool", "x"]}], ("priority", "half-shadowed")),
    ],
)
def test_a_doubt_about_two(tmp_path: Path, rows: list[dict[str, Any]], expected: tuple[str, str]) -> None:
    assert checks(tmp_path, *rows) == [expected]


def test_what_is_allowed_by_a_list_is_not_broad(tmp_path: Path) -> None:
    row = {"prefix": ["env"], "match": ["env"], "action": "allow", "constraints": {"allowed_arguments": []}}
    assert checks(tmp_path, row) == []


def test_a_rule_of_which_the_floor_denies_every_example_is_a_mistake(tmp_path: Path) -> None:
    row = {"action": "allow", "prefix": ["rm"], "match": ["rm -rf /", ["rm", "-rf", "~"]]}
    assert ("match", "") in checks(tmp_path, row)
    row["action"] = "deny"
    assert checks(tmp_path, row) == []


def test_mistakes_and_doubts_come_in_the_order_of_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        '[[rules]]\nid = "a"\nprefix = ["x"]\naction = "ask"\n\n[[rules]]\nid = "b"\naction = "no"\nprefix = ["y"]\n\n'
        '[[rules]]\nid = "c"\nglob = "*"\naction = "deny"\nreason = "r"\nmatch = ["x"]\nnot_match = ["z"]\n'
    )
    found = [(problem.line, problem.rule_id, problem.check) for problem in lint_file(str(path), Level.USER)]
    assert found == [
        (1, "a", "no-reason"),
        (1, "a", "no-examples"),
        (8, "b", ""),
        (13, "c", "broad"),
        (13, "c", "unindexed"),
        (17, "c", ""),
    ]


@pytest.mark.parametrize(
    ("name", "text", "line"), [("x.toml", "a = 1\nb = ]", 2), ("x.json", '{\n"a": }', 2), ("none.toml", None, None)]
)
def test_what_is_no_file_of_rules_is_one_mistake(tmp_path: Path, name: str, text: str | None, line: int | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    (problem,) = lint_file(str(tmp_path / name), Level.USER)
    assert (problem.line, problem.check) == (line, "")


def test_a_project_file_is_read_as_one(tmp_path: Path) -> None:
    assert ("action", "") in checks(tmp_path, {"action": "allow"}, level=Level.PROJECT)


def test_the_built_in_rules_are_examples_of_how_it_is_done() -> None:
    rules = ExecPolicy.default().rules(Level.BUILTIN)
    found = {check for _, _, check, _ in warnings_of(rules, Level.BUILTIN)}
    assert found <= {"repeats", "half-shadowed", "unindexed", "floor", "broad"}
    assert found <= CHECKS.keys()
