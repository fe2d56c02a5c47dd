"""
What holds for every rule and every command.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sandboxkit.errors import CommandError, PolicyError
from sandboxkit.model import Level, PolicyAction
from sandboxkit.policy import ExecPolicy, PolicyRule, RuleConstraints

if TYPE_CHECKING:
    import pytest

CORPUS = Path(__file__).parent.parent / "corpus"
KNOWN = [
    row["argv"] if "argv" in row else row["command"]
    for name in ("policy_ok.jsonl", "policy_bypass.jsonl")
    for row in map(json.loads, (CORPUS / name).read_text(encoding="utf-8").splitlines())
]
WORDS = ["ls", "git", "rm", "tool", "./tool", "/usr/bin/tool", "-x", "--force", "push", "src/a", "/", "*"]

commands = st.one_of(
    st.sampled_from(KNOWN),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
    st.lists(st.sampled_from([*WORDS, ";", "|", "&&", "$(", ")", "'", '"']), min_size=1, max_size=6).map(" ".join),
    st.text(min_size=1, max_size=40),
)
actions = st.sampled_from(PolicyAction)
matchers = st.one_of(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(lambda words: {"prefix": tuple(words)}),
    st.lists(st.sampled_from([*WORDS, "?"]), min_size=1, max_size=3).map(lambda words: {"glob": " ".join(words)}),
    st.sampled_from(["tool.*", "(ls|rm) .*", ".*", "git push( --force)?"]).map(lambda text: {"regex": text}),
)
constraints = st.sampled_from(
    [{}, {"denied_arguments": ("-x",)}, {"allowed_arguments": ("*",)}, {"allowed_directories": ("/src",)}]
)
rules = st.builds(
    lambda number, matcher, action, given, priority: PolicyRule(
        id=f"r{number}", action=action, priority=priority, constraints=RuleConstraints(**given), **matcher
    ),
    st.integers(0, 10**6),
    matchers,
    actions,
    constraints,
    st.one_of(st.none(), st.integers(-3, 3)),
)
policies = st.lists(rules, max_size=4)
quick = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


def made(given_rules: list[PolicyRule], default: PolicyAction = PolicyAction.SANDBOX) -> ExecPolicy:
    try:
        return ExecPolicy.from_dict({"rules": given_rules, "default": default})
    except PolicyError:
        assume(False)
        raise


def action(policy: ExecPolicy, command: str | list[str]) -> PolicyAction:
    try:
        return policy.evaluate(command).action
    except CommandError:
        assume(False)
        raise


@quick
@given(policies, rules, commands)
def test_adding_a_denial_never_loosens(
    given_rules: list[PolicyRule], rule: PolicyRule, command: str | list[str]
) -> None:
    policy = made(given_rules)
    before = action(policy, command)
    try:
        policy.add_rule(rule.model_copy(update={"action": PolicyAction.DENY}))
    except PolicyError:
        return
    assert action(policy, command) >= before


@quick
@given(policies, rules, commands)
def test_a_project_rule_never_loosens(
    tmp_path_factory: pytest.TempPathFactory, given_rules: list[PolicyRule], rule: PolicyRule, command: str | list[str]
) -> None:
    assume(rule.regex is None and rule.action is not PolicyAction.ALLOW)
    directory = tmp_path_factory.mktemp("project")
    (directory / "user.json").write_text(json.dumps({"rules": [each.to_dict() for each in given_rules]}))
    (directory / "project.json").write_text(json.dumps({"rules": [rule.to_dict()]}))
    try:
        without = ExecPolicy.from_files(user=directory / "user.json")
        with_project = ExecPolicy.from_files(user=directory / "user.json", project=directory / "project.json")
    except PolicyError:
        assume(False)
        raise
    assert action(with_project, command) >= action(without, command)


@quick
@given(policies, commands)
def test_no_rule_lifts_the_floor(given_rules: list[PolicyRule], command: str | list[str]) -> None:
    if action(ExecPolicy.empty(default=PolicyAction.ALLOW), command) is PolicyAction.DENY:
        assert action(made(given_rules), command) is PolicyAction.DENY


@quick
@given(policies, commands, actions)
def test_evaluations_are_sound(given_rules: list[PolicyRule], command: str | list[str], default: PolicyAction) -> None:
    policy = made(given_rules, default)
    try:
        evaluation = policy.evaluate(command)
    except CommandError:
        return
    assert evaluation == policy.evaluate(command)
    assert evaluation.reason
    if evaluation.command.opaque is not None:
        assert evaluation.action > PolicyAction.ALLOW
    if evaluation.is_direct:
        assert evaluation.action is PolicyAction.ALLOW
    known = {rule.id for rule in policy.rules()} | {row.id for row in policy.floor()}
    for match in evaluation.matches:
        assert match.rule_id in known
        assert not match.decided or match.action is evaluation.action or len(evaluation.command.parts) != 1
    if any(match.level is Level.FLOOR for match in evaluation.matches):
        assert evaluation.action is PolicyAction.DENY


@quick
@given(policies)
def test_saved_rules_come_back(given_rules: list[PolicyRule]) -> None:
    policy = made(given_rules)
    assert ExecPolicy.from_dict(tomllib.loads(policy.to_toml())).rules_digest == policy.rules_digest
    assert ExecPolicy.from_dict(json.loads(policy.to_json())).rules_digest == policy.rules_digest
