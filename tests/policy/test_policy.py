"""
`ExecPolicy` as a value that changes whole: add, update, remove, save, load.
"""

from __future__ import annotations

import json
import stat
import threading
import tomllib
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from sandboxkit.errors import CommandError, PolicyError, RuleNotFoundError
from sandboxkit.model import Level, PolicyAction, SandboxSpec
from sandboxkit.policy import ExecPolicy, PolicyRule, RuleConstraints, get_exec_policy, initialize_exec_policy

if TYPE_CHECKING:
    from pathlib import Path

RULE = PolicyRule(id="npm", prefix=("npm", ("install", "ci")), action=PolicyAction.ALLOW)


def test_add_update_remove() -> None:
    policy = ExecPolicy.default()
    before = policy.rules_digest
    policy.add_rule(RULE)
    assert policy.is_allowed("npm ci")
    assert policy.rules(Level.USER) == (RULE,)
    changed = policy.update_rule("npm", action="deny", reason="no packages")
    assert changed == RULE.model_copy(update={"action": PolicyAction.DENY, "reason": "no packages"})
    assert policy.evaluate("npm ci").action is PolicyAction.DENY
    assert policy.update_rule("npm", enabled=False).action is PolicyAction.DENY
    assert policy.evaluate("npm ci").action is PolicyAction.SANDBOX
    assert policy.remove_rule("npm").id == "npm"
    assert policy.rules_digest == before
    assert policy.rules() == ExecPolicy.default().rules()


def test_unknown_ids() -> None:
    policy = ExecPolicy.default()
    for rule_id in ("none", "builtin.read.ls", "floor.destruction.remove"):
        with pytest.raises(RuleNotFoundError, match=rule_id):
            policy.update_rule(rule_id, action="deny")
        with pytest.raises(RuleNotFoundError):
            policy.remove_rule(rule_id)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"id": "other"}, "cannot change"),
        ({"glob": "x"}, "exactly one"),
        ({"action": "never"}, "no action"),
        ({"colour": 1}, "no such key"),
        ({"direct": True}, "only the built-in table"),
        ({"match": ["npm run x"]}, "does not match"),
    ],
)
def test_a_wrong_change_changes_nothing(changes: dict[str, object], problem: str) -> None:
    policy = ExecPolicy.default()
    policy.add_rule(RULE)
    with pytest.raises(PolicyError, match=problem):
        policy.update_rule("npm", **changes)
    assert policy.rules(Level.USER) == (RULE,)


def test_a_wrong_rule_is_not_added() -> None:
    policy = ExecPolicy.default()
    policy.add_rule(RULE)
    for rule in (RULE, RULE.model_copy(update={"id": "twin"}), RULE.model_copy(update={"id": "builtin.x"})):
        with pytest.raises(PolicyError):
            policy.add_rule(rule)
    assert policy.rules(Level.USER) == (RULE,)


def test_rules_are_frozen() -> None:
    with pytest.raises(ValidationError):
        RULE.action = PolicyAction.DENY


def test_evaluating_has_no_side_effects() -> None:
    policy = ExecPolicy.default()
    digest, rules = policy.rules_digest, policy.rules()
    first = policy.evaluate("git push")
    assert policy.evaluate("git push") == first
    assert (policy.rules_digest, policy.rules()) == (digest, rules)
    assert first.rules_digest == digest


def test_the_digest_names_the_content() -> None:
    assert ExecPolicy.default().rules_digest == ExecPolicy.default().rules_digest
    one, two, default = ExecPolicy.empty(), ExecPolicy.empty(), ExecPolicy.empty(default=PolicyAction.ASK)
    assert one.rules_digest == two.rules_digest != default.rules_digest
    one.add_rule(RULE)
    assert one.rules_digest != two.rules_digest


def test_policies_do_not_share_rules() -> None:
    one, two = ExecPolicy.default(), ExecPolicy.default()
    one.add_rule(RULE)
    assert two.rules(Level.USER) == ()


def test_wrong_commands_are_refused() -> None:
    with pytest.raises(CommandError):
        ExecPolicy.default().evaluate([])


FULL = [
    RULE,
    PolicyRule(
        id="full",
        name="quotes \" ' \\ and ☃ \x7f \x01",
        regex=r"tool '\w+\\'",
        action=PolicyAction.SANDBOX,
        priority=-3,
        enabled=False,
        reason="two\nlines",
        tags=("a", "b c"),
        constraints=RuleConstraints(
            allowed_arguments=("-x=", "*"), max_operands=2, denied_directories=("~/x",), max_timeout=0.5
        ),
        spec=SandboxSpec.isolated(limits={"wall": 5.0}, require={"fs.overlay": "partial"}),
        match=(),
        not_match=(("tool",),),
    ),
    PolicyRule(
        id="empty-list", prefix=("x",), action=PolicyAction.ALLOW, constraints=RuleConstraints(allowed_arguments=())
    ),
]


@pytest.mark.parametrize("name", ["rules.toml", "rules.json"])
def test_what_is_saved_loads_as_the_same_rules(tmp_path: Path, name: str) -> None:
    policy = ExecPolicy.default()
    for rule in FULL:
        policy.add_rule(rule)
    path = tmp_path / name
    policy.save(path)
    loaded = ExecPolicy.from_files(user=path)
    assert loaded.rules(Level.USER) == policy.rules(Level.USER) == tuple(FULL)
    assert loaded.rules_digest == policy.rules_digest
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_only_the_user_s_rules_are_written(tmp_path: Path) -> None:
    organisation = tmp_path / "organisation.json"
    organisation.write_text('{"rules": [{"id": "o", "prefix": ["o"], "action": "deny"}]}')
    policy = ExecPolicy.from_files(organisation=organisation)
    policy.add_rule(RULE)
    assert [row["id"] for row in tomllib.loads(policy.to_toml())["rules"]] == ["npm"]
    assert json.loads(policy.to_json())["rules"] == [
        {"id": "npm", "prefix": ["npm", ["install", "ci"]], "action": "allow"}
    ]


def test_a_failed_save_leaves_what_was_there(tmp_path: Path) -> None:
    policy = ExecPolicy.default()
    policy.add_rule(RULE)
    target = tmp_path / "directory.toml"
    target.mkdir()
    with pytest.raises(PolicyError, match="cannot be written"):
        policy.save(target)
    with pytest.raises(PolicyError, match="cannot be written: No such file"):
        policy.save(tmp_path / "none" / "rules.toml")
    assert [each.name for each in tmp_path.iterdir()] == ["directory.toml"]
    assert list(target.iterdir()) == []


def test_toml_has_no_word_for_no_limit() -> None:
    policy = ExecPolicy.default()
    policy.add_rule(
        PolicyRule(id="x", prefix=("x",), action=PolicyAction.SANDBOX, spec=SandboxSpec.isolated(limits={"wall": None}))
    )
    with pytest.raises(PolicyError, match=r"spec\.limits\.wall: TOML has no way to write None; save as JSON"):
        policy.to_toml()
    assert json.loads(policy.to_json())["rules"][0]["spec"]["limits"] == {"wall": None}


def test_readers_see_whole_rule_sets() -> None:
    policy = ExecPolicy.empty()
    seen: set[tuple[PolicyAction, str]] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            evaluation = policy.evaluate("npm ci")
            seen.add((evaluation.action, evaluation.rules_digest))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(200):
        policy.add_rule(RULE)
        policy.remove_rule("npm")
    done.set()
    reader.join()
    assert len(seen) == len({digest for _, digest in seen}) <= 2


def test_writers_do_not_lose_rules() -> None:
    policy = ExecPolicy.empty()

    def write(number: int) -> None:
        for index in range(20):
            policy.add_rule(
                PolicyRule(id=f"r-{number}-{index}", prefix=(f"tool-{number}-{index}",), action=PolicyAction.DENY)
            )

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(policy.rules()) == 80


def test_the_policy_of_the_process(tmp_path: Path) -> None:
    first = initialize_exec_policy()
    try:
        assert get_exec_policy() is first
        assert first.rules() == ExecPolicy.default().rules()
        own = ExecPolicy.empty()
        assert initialize_exec_policy(own) is own
        assert get_exec_policy() is own
        path = tmp_path / "user.toml"
        ExecPolicy.default().save(path)
        with pytest.raises(PolicyError, match="together"):
            initialize_exec_policy(own, user=path)
        with pytest.raises(PolicyError):
            initialize_exec_policy(user=tmp_path / "none")
        assert get_exec_policy() is own
        assert initialize_exec_policy(user=path) is get_exec_policy() is not own
    finally:
        initialize_exec_policy()


@pytest.mark.parametrize("command", ["ls", ["ls"], "ls; ls"])
def test_a_failure_while_it_decides_is_a_denial(monkeypatch: pytest.MonkeyPatch, command: str | list[str]) -> None:
    def fail(*args: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr("sandboxkit.policy._memo.decide", fail)
    policy = ExecPolicy.default()
    found = policy.evaluate(command)
    assert found.action is PolicyAction.DENY
    assert "the policy failed (IndexError: list index out of range)" in found.reason
    monkeypatch.undo()
    assert policy.is_allowed(command)  # it is not remembered
