"""
The published form of a rule file: what is shipped is what the models say.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tests.policy.json_schema import mistakes

from sandboxkit.errors import PolicyError
from sandboxkit.model import Level
from sandboxkit.policy import ExecPolicy, PolicyRule, RuleConstraints, rules_schema
from sandboxkit.policy._bake import CATEGORIES
from sandboxkit.policy._schema import generated_schema

SCHEMA = rules_schema()
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "snippets" / "rules.toml"


def test_what_is_shipped_is_what_the_models_say() -> None:
    remedy = "python -m sandboxkit.policy._schema > src/sandboxkit/policy/data/rule-file.schema.json"
    assert generated_schema() == SCHEMA, remedy


def test_each_call_gives_a_copy_of_its_own() -> None:
    rules_schema().clear()
    assert rules_schema() == SCHEMA


def test_every_key_is_in_it_and_described() -> None:
    definitions = SCHEMA["$defs"]
    rule = definitions["PolicyRule"]["properties"]
    assert set(rule) == set(PolicyRule.model_fields) - {"direct"}
    assert set(definitions["RuleConstraints"]["properties"]) == set(RuleConstraints.model_fields)
    assert [name for name, said in rule.items() if not said.get("description")] == []


def test_the_documented_example_is_right() -> None:
    assert mistakes(tomllib.loads(EXAMPLE.read_text()), SCHEMA) == []


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_built_in_rules_have_that_form(category: str) -> None:
    text = files("sandboxkit.policy").joinpath("data", f"{category}.toml").read_text(encoding="utf-8")
    rules = [
        {**{key: value for key, value in rule.items() if key != "direct"}, "id": rule["id"].replace("builtin.", "b-")}
        for rule in tomllib.loads(text)["rules"]
    ]
    assert mistakes({"rules": rules}, SCHEMA) == []


def test_what_a_policy_hands_out_has_that_form() -> None:
    policy = ExecPolicy.from_files(user=EXAMPLE)
    assert mistakes(tomllib.loads(policy.to_toml()), SCHEMA) == []
    data = {"rules": [rule.to_dict() for rule in policy.rules(Level.USER)]}
    assert mistakes(data, SCHEMA) == []


RULE: dict[str, Any] = {"id": "r", "prefix": ["a"], "action": "ask"}


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"$schema": "rule-file.schema.json", "version": 1, "default": "deny", "rules": [], "tests": []},
        {"rules": [{**RULE, "prefix": ["a", ["b", "c"]], "match": ["a b", ["a", "c", ""]]}]},
        {"rules": [{**RULE, "constraints": {"more_than": {"urls": 25.5}, "allowed_directories": ["~", "/x"]}}]},
        {"rules": [{**RULE, "spec": {"limits": {"cpu": None, "wall": 3}, "require": {"fs.read": "enforced"}}}]},
        {"tests": [{"command": "a | b", "action": "ask", "rule": "r"}, {"command": ["a"], "action": "deny"}]},
    ],
)
def test_what_is_taken_is_right_by_the_schema(data: dict[str, Any]) -> None:
    ExecPolicy.from_dict(data)
    assert mistakes(data, SCHEMA) == []


@pytest.mark.parametrize(
    "data",
    [
        {"colour": 1},
        {"version": 2},
        {"version": True},
        {"default": "maybe"},
        {"rules": {}},
        {"rules": ["x"]},
        {"rules": [{"id": "r", "action": "ask"}]},
        {"rules": [{"prefix": ["a"], "action": "ask"}]},
        {"rules": [{"id": "r", "prefix": ["a"]}]},
        {"rules": [{**RULE, "glob": "a"}]},
        {"rules": [{**RULE, "id": "builtin.r"}]},
        {"rules": [{**RULE, "id": "R"}]},
        {"rules": [{**RULE, "prefix": []}]},
        {"rules": [{**RULE, "prefix": [[]]}]},
        {"rules": [{**RULE, "prefix": [["a", "a"]]}]},
        {"rules": [{**RULE, "prefix": "a"}]},
        {"rules": [{**RULE, "action": 2}]},
        {"rules": [{**RULE, "priority": 1001}]},
        {"rules": [{**RULE, "priority": True}]},
        {"rules": [{**RULE, "enabled": "yes"}]},
        {"rules": [{**RULE, "surprise": 1}]},
        {"rules": [{**RULE, "direct": True}]},
        {"rules": [{**RULE, "match": [""]}]},
        {"rules": [{**RULE, "match": [[]]}]},
        {"rules": [{**RULE, "constraints": {"max_operands": 1}}]},
        {"rules": [{**RULE, "constraints": {"max_timeout": 0}}]},
        {"rules": [{**RULE, "constraints": {"more_than": {"URLs": 1}}}]},
        {"rules": [{**RULE, "constraints": {"more_than": {"urls": "1"}}}]},
        {"rules": [{**RULE, "constraints": {"allowed_directories": ["src"]}}]},
        {"rules": [{**RULE, "spec": {"network": {"mode": "wide"}}}]},
        {"rules": [{**RULE, "spec": {"require": {"fs.read": 2}}}]},
        {"tests": [{"command": "a"}]},
        {"tests": [{"command": "", "action": "ask"}]},
        {"tests": [{"command": "a", "action": "maybe"}]},
    ],
)
def test_what_is_wrong_by_the_schema_is_refused(data: dict[str, Any]) -> None:
    assert mistakes(data, SCHEMA) != []
    with pytest.raises(PolicyError):
        ExecPolicy.from_dict(data)
