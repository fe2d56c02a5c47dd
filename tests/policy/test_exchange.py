"""
Rules at run time: switched, taken in, handed out, looked over.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from sandboxkit.errors import PolicyError, RuleNotFoundError
from sandboxkit.model import Level, PolicyAction, SandboxSpec
from sandboxkit.policy import ExecPolicy, PolicyRule
from sandboxkit.policy._dashboard import dashboard, floor_in_full, may_match, rule_in_full

if TYPE_CHECKING:
    from pathlib import Path

RULE = PolicyRule(id="deploy", prefix=("make", ("deploy", "release")), action=PolicyAction.DENY, reason="by people")


def with_rule() -> ExecPolicy:
    policy = ExecPolicy.default()
    policy.add_rule(RULE)
    return policy


def test_a_rule_is_switched_off_and_on() -> None:
    policy = with_rule()
    assert not policy.disable_rule("deploy").enabled
    assert policy.evaluate("make deploy").action is PolicyAction.SANDBOX
    assert policy.enable_rule("deploy").enabled
    assert policy.evaluate("make deploy").action is PolicyAction.DENY
    for switch in (policy.enable_rule, policy.disable_rule):
        with pytest.raises(RuleNotFoundError):
            switch("builtin.read.ls")


def test_a_rule_that_would_never_decide_cannot_be_switched_on() -> None:
    policy = with_rule()
    policy.disable_rule("deploy")
    policy.add_rule(RULE.model_copy(update={"id": "first", "priority": 9}))
    with pytest.raises(PolicyError, match="never decides"):
        policy.enable_rule("deploy")
    assert [rule.enabled for rule in policy.rules(Level.USER)] == [False, True]


def test_the_default_action_changes() -> None:
    policy = ExecPolicy.default()
    digest = policy.rules_digest
    policy.set_default_action(PolicyAction.DENY)
    assert (policy.default_action, policy.evaluate("frobnicate").action) == (PolicyAction.DENY,) * 2
    assert policy.rules_digest != digest
    policy.add_rule(RULE)
    assert policy.default_action is PolicyAction.DENY
    policy.remove_rule("deploy")
    policy.set_default_action(None)
    assert (policy.default_action, policy.rules_digest) == (PolicyAction.SANDBOX, digest)


def test_the_default_of_the_organisation_and_the_project_stay(tmp_path: Path) -> None:
    for name in ("ask", "deny"):
        (tmp_path / f"{name}.toml").write_text(f'default = "{name}"')
    policy = ExecPolicy.from_files(organisation=tmp_path / "ask.toml")
    policy.set_default_action(PolicyAction.ALLOW)
    assert policy.default_action is PolicyAction.ASK
    policy = ExecPolicy.from_files(project=tmp_path / "deny.toml")
    policy.set_default_action(PolicyAction.ALLOW)
    assert policy.default_action is PolicyAction.DENY


@pytest.mark.parametrize("name", ["rules.toml", "rules.json"])
def test_what_is_handed_out_can_be_taken_in(tmp_path: Path, name: str) -> None:
    policy = with_rule()
    policy.set_default_action(PolicyAction.ASK)
    policy.save(tmp_path / name)
    taken = ExecPolicy.default()
    assert taken.import_rules(tmp_path / name) == (RULE,)
    assert taken.rules_digest == policy.rules_digest
    assert ExecPolicy.from_files(user=tmp_path / name).rules_digest == policy.rules_digest


def test_rules_are_taken_in_beside_others_or_in_their_place() -> None:
    policy = with_rule()
    policy.set_default_action(PolicyAction.DENY)
    other = {"rules": [{"id": "other", "glob": "x *", "action": "ask"}]}
    policy.import_rules(other)
    assert [rule.id for rule in policy.rules(Level.USER)] == ["deploy", "other"]
    assert str(policy.default_action) == "deny"
    policy.import_rules({**other, "default": "ask"}, replace=True)
    assert [rule.id for rule in policy.rules(Level.USER)] == ["other"]
    assert str(policy.default_action) == "ask"
    policy.import_rules({}, replace=True)
    assert policy.rules_digest == ExecPolicy.default().rules_digest


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": "new", "prefix": ["a"], "action": "ask"}, {"id": "bad", "prefix": [], "action": "ask"}],
        [{"id": "new", "prefix": ["a"], "action": "ask"}, {"id": "deploy", "prefix": ["b"], "action": "ask"}],
        [{"id": "new", "prefix": ["make", "deploy"], "action": "ask"}],
    ],
)
def test_where_anything_is_wrong_nothing_is_taken(rows: list[object]) -> None:
    policy = with_rule()
    digest = policy.rules_digest
    with pytest.raises(PolicyError):
        policy.import_rules({"rules": rows, "default": "deny"})
    assert (policy.rules_digest, policy.default_action) == (digest, PolicyAction.SANDBOX)


def test_the_dashboard_has_every_rule_and_the_counts(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [RULE.to_dict()], "default": "ask"}))
    policy = ExecPolicy.from_files(user=tmp_path / "rules.json")
    policy.add_rule(PolicyRule(id="off", glob="x\u202ey", action=PolicyAction.ASK, enabled=False))
    text = policy.describe()
    lines = text.splitlines()
    assert lines[0] == "default action  ask, where no rule matches"
    assert f"file            {tmp_path}/rules.json" in lines
    assert "user              2      -        -    -     1         1" in "\n".join(lines).replace("  user", "user", 1)
    assert "\u202e" not in text
    row = next(line for line in lines if line.startswith("  deploy"))
    assert row.split() == ["deploy", "deny", "2", "make", "{deploy,release}", "…", "by", "people"]
    assert next(line for line in lines if line.startswith("  off")).split()[1] == "(ask)"
    ids = [rule.id for rule in policy.rules()] + [floor.id for floor in policy.floor()]
    assert [rule_id for rule_id in ids if f"\n  {rule_id} " not in text] == []


def test_the_dashboard_can_be_narrowed() -> None:
    policy = with_rule()
    text = dashboard(policy, level=Level.USER, wanted=lambda rule: rule.id == "deploy")
    assert "\n  deploy " in text
    assert "builtin.read" not in text
    assert "no rules" in dashboard(policy, level=Level.PROJECT)


def test_which_rules_may_be_about_a_program() -> None:
    assert may_match(RULE, "make")
    assert may_match(RULE.model_copy(update={"enabled": False}), "make")
    assert not may_match(RULE, "cmake")
    assert may_match(PolicyRule(id="g", glob="*x", action=PolicyAction.ASK), "make")
    assert not may_match(PolicyRule(id="g", glob="git *", action=PolicyAction.ASK), "make")
    assert any(may_match(row, "rm") for row in ExecPolicy.default().floor())


def test_one_rule_in_full() -> None:
    spec = SandboxSpec.model_validate({"network": {"mode": "none"}})
    text = rule_in_full(RULE.model_copy(update={"spec": spec, "match": ("make deploy",)}), Level.USER)
    assert text.startswith("# user rule, priority 2\n# matches make {deploy,release} …\n[[rules]]\n")
    assert 'match = ["make deploy"]' in text
    row = ExecPolicy.default().floor()[0]
    assert f"id = {row.id!r}" in floor_in_full(row)
