"""
Which rule decides: level, priority, strictness; the project and the floor on top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandboxkit.model import Level, PolicyAction, SandboxSpec
from sandboxkit.policy import ExecPolicy, PolicyRule

if TYPE_CHECKING:
    from pathlib import Path

ALLOW, SANDBOX, ASK, DENY = PolicyAction


def write(path: Path, *rows: str, head: str = "") -> Path:
    path.write_text(head + "".join(f"[[rules]]\n{row}\n" for row in rows), encoding="utf-8")
    return path


def row(rule_id: str, action: str, more: str = 'prefix = ["tool"]') -> str:
    return f'id = "{rule_id}"\naction = "{action}"\n{more}\n'


@pytest.mark.parametrize(
    ("user", "organisation", "project", "expected", "deciders"),
    [
        (None, None, None, SANDBOX, set()),
        ("allow", None, None, ALLOW, {"u"}),
        ("deny", "allow", None, ALLOW, {"o"}),
        ("allow", "deny", None, DENY, {"o"}),
        ("allow", None, "ask", ASK, {"p"}),
        ("deny", None, "ask", DENY, {"u"}),
        (None, "allow", "deny", DENY, {"p"}),
        ("ask", None, "ask", ASK, {"u", "p"}),
        (None, None, "ask", ASK, {"p"}),
    ],
)
def test_levels(
    tmp_path: Path,
    user: str | None,
    organisation: str | None,
    project: str | None,
    expected: PolicyAction,
    deciders: set[str],
) -> None:
    files = {
        level: write(tmp_path / f"{level}.toml", row(level[0], action))
        for level, action in (("user", user), ("organisation", organisation), ("project", project))
        if action
    }
    evaluation = ExecPolicy.from_files(**files).evaluate("tool x")
    assert evaluation.action is expected
    assert {match.rule_id for match in evaluation.matches if match.decided} == deciders
    assert {match.rule_id for match in evaluation.matches} == {level[0] for level in files}


def test_a_user_rule_beats_the_built_in_table_but_not_the_floor() -> None:
    policy = ExecPolicy.from_dict({"rules": [{"id": "rm", "prefix": ["rm"], "action": "allow"}]})
    assert policy.evaluate("rm -rf build").action is ALLOW
    evaluation = policy.evaluate("rm -rf /")
    assert evaluation.action is DENY
    assert [(match.rule_id, match.level, match.decided) for match in evaluation.matches] == [
        ("floor.destruction.remove", Level.FLOOR, True),
        ("builtin.files.write", Level.BUILTIN, False),
        ("rm", Level.USER, False),
    ]


def test_the_floor_holds_where_everything_is_allowed() -> None:
    policy = ExecPolicy.empty(default=ALLOW)
    assert policy.evaluate("unknown").action is ALLOW
    assert policy.evaluate("rm -rf /").action is DENY
    assert policy.evaluate("curl x | sh").action is DENY
    assert policy.evaluate("a; b").action is ALLOW
    assert policy.evaluate("a; b)").action is ASK
    assert policy.evaluate("$a").action is ASK


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"action": "deny"}, {"action": "allow", "prefix": ["tool", "x"]}], ALLOW),
        ([{"action": "deny", "priority": 1}, {"action": "allow", "glob": "tool x*"}], DENY),
        ([{"action": "allow", "priority": 9}, {"action": "deny", "glob": "tool *"}], ALLOW),
        ([{"action": "deny"}, {"action": "allow", "regex": "tool .*"}], DENY),
        ([{"action": "deny", "enabled": False}, {"action": "allow", "glob": "tool*"}], ALLOW),
        (
            [
                {"action": "ask", "priority": 0},
                {"action": "allow", "glob": "tool*"},
                {"action": "sandbox", "regex": "tool.*"},
            ],
            ASK,
        ),
    ],
)
def test_within_a_level(rows: list[dict[str, object]], expected: PolicyAction) -> None:
    rules = [
        {"id": f"r{index}", **({} if {"glob", "regex"} & each.keys() else {"prefix": ["tool"]}), **each}
        for index, each in enumerate(rows)
    ]
    assert ExecPolicy.from_dict({"rules": rules}).evaluate("tool x").action is expected


@pytest.mark.parametrize(
    ("organisation", "user", "project", "expected"),
    [
        (None, None, None, SANDBOX),
        (None, "ask", None, ASK),
        ("deny", "ask", None, DENY),
        ("sandbox", "deny", None, SANDBOX),
        (None, "ask", "sandbox", ASK),
        (None, None, "ask", ASK),
        ("allow", None, "ask", ASK),
    ],
)
def test_the_default(
    tmp_path: Path, organisation: str | None, user: str | None, project: str | None, expected: PolicyAction
) -> None:
    given = {"organisation": organisation, "user": user, "project": project}
    files = {
        name: write(tmp_path / f"{name}.toml", head=f'default = "{value}"\n') for name, value in given.items() if value
    }
    policy = ExecPolicy.from_files(**files)
    assert policy.default_action is expected
    assert policy.evaluate("unknown-tool").action is expected
    assert policy.evaluate("unknown-tool; x").action is max(expected, SANDBOX)


def test_a_rule_that_allows_never_allows_opaque_text() -> None:
    policy = ExecPolicy.from_dict({"rules": [{"id": "a", "glob": "*", "action": "allow"}]})
    assert policy.evaluate("ls").action is ALLOW
    assert policy.evaluate("ls; unknown $HOME").action is ALLOW
    for text in ("ls; ls)", "ls;; ls", "$x ls", "echo ${x@P}", "ls\u200b", "sh -c '('"):
        evaluation = policy.evaluate(text)
        assert evaluation.action is ASK, text
        assert not evaluation.is_direct


def test_every_part_is_decided() -> None:
    policy = ExecPolicy.from_dict({"rules": [{"id": "d", "prefix": ["tool"], "action": "deny"}]})
    evaluation = policy.evaluate("ls && tool x")
    assert evaluation.action is DENY
    assert [part.action for part in evaluation.parts] == [ALLOW, DENY]
    match = next(match for match in evaluation.matches if match.rule_id == "d")
    assert match.decided
    assert (match.part, match.span, match.words) == (1, (6, 12), ("tool", "x"))
    assert evaluation.parts[1].matches == (match,)


def test_a_denial_is_heard_in_text_that_cannot_be_read() -> None:
    policy = ExecPolicy.from_dict({"rules": [{"id": "d", "prefix": ["tool"], "action": "deny"}]})
    assert policy.evaluate("ls && (tool x").action is DENY
    assert policy.evaluate("ls && (other x").action is ASK


def test_too_long_is_denied_unread() -> None:
    evaluation = ExecPolicy.empty(default=ALLOW).evaluate("echo " + "a" * 10_000)
    assert evaluation.action is DENY
    assert evaluation.command.unread
    assert "not read" in evaluation.reason


def test_timeouts_and_specs_of_the_rules_that_decide() -> None:
    read, offline = SandboxSpec.isolated(), SandboxSpec.isolated(limits={"wall": 5})
    policy = ExecPolicy.from_dict(
        {
            "rules": [
                {"id": "a", "prefix": ["tool"], "action": "sandbox", "spec": read, "constraints": {"max_timeout": 9}},
                {
                    "id": "b",
                    "prefix": ["tool"],
                    "action": "sandbox",
                    "spec": offline,
                    "constraints": {"max_timeout": 7},
                },
                {"id": "c", "glob": "tool*", "action": "sandbox", "constraints": {"max_timeout": 1}},
            ]
        }
    )
    evaluation = policy.evaluate("tool")
    assert evaluation.max_timeout == 7
    assert evaluation.spec == read.tighten(offline)
    assert [match.rule_id for match in evaluation.matches if match.decided] == ["a", "b"]


def test_a_user_s_rule_leaves_a_direct_tool_direct_unless_it_is_stricter() -> None:
    policy = ExecPolicy.from_dict(
        {
            "rules": [
                {"id": "a", "prefix": ["ls"], "action": "allow"},
                {"id": "s", "prefix": ["pwd"], "action": "sandbox"},
            ]
        }
    )
    assert policy.evaluate("ls").is_direct
    assert not policy.evaluate("pwd").is_direct


@pytest.mark.parametrize(
    ("command", "allowed", "denied"),
    [
        ("tool x", True, True),
        ("/usr/bin/tool x", True, True),
        ("./tool x", False, True),
        ("/tmp/tool x", False, True),
        ("/usr/bin/../bin/tool x", False, True),
        ("TOOL x", False, True),
        ("tool.exe x", False, True),
        ("toolbox x", False, False),
        ("/tmp/x/", False, False),
    ],
)
def test_program_paths(command: str, allowed: bool, denied: bool) -> None:
    def action(said: str) -> PolicyAction:
        return (
            ExecPolicy.from_dict({"rules": [{"id": "r", "prefix": ["tool"], "action": said}]}).evaluate(command).action
        )

    assert (action("allow") is ALLOW) is allowed
    assert (action("deny") is DENY) is denied


def test_a_rule_may_name_a_path() -> None:
    policy = ExecPolicy.from_dict({"rules": [{"id": "r", "prefix": ["./run.sh", ["fast", "slow"]], "action": "allow"}]})
    assert policy.evaluate("./run.sh fast").action is ALLOW
    assert policy.evaluate("./run.sh other").action is SANDBOX
    assert policy.evaluate("run.sh fast").action is SANDBOX


def test_the_evaluation_reads_well() -> None:
    evaluation = ExecPolicy.default().evaluate("npm install express")
    assert evaluation.reason == (
        "runs in a sandbox: it runs code of the packages it installs (builtin rule builtin.packages.language)"
    )
    assert ExecPolicy.default().evaluate("nobody-knows").reason == "runs in a sandbox: no rule matches it"
    assert ExecPolicy.empty().evaluate("a | b").reason == "runs in a sandbox: no rule matches it"
    rule = PolicyRule(id="x", prefix=("a",), action=DENY, reason="never here")
    assert ExecPolicy.from_dict({"rules": [rule]}).evaluate("a").reason == "denied: never here (user rule x)"


def test_the_reason_of_opaque_text_says_what_could_not_be_read() -> None:
    assert ExecPolicy.default().evaluate("ls ;; wc").reason == (
        "needs approval: it has ';;' where the reader does not expect it"
    )
    assert ExecPolicy.default().evaluate("ls | curl x").reason.startswith("needs approval: it talks to another host")
