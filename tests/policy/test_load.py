"""
Rule files: what is taken, and every mistake with its place.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from sandboxkit.errors import PolicyError
from sandboxkit.model import Level, PolicyAction
from sandboxkit.policy import ExecPolicy, PolicyRule

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
version = 1
default = "ask"

[[rules]]
id = "tests"
name = "our tests"
prefix = ["make", ["test", "check"]]
action = "allow"
priority = 7
reason = "they only read"
tags = ["ours"]
match = ["make test", ["make", "check", "-j"]]
not_match = ["make install"]
constraints = { denied_arguments = ["-f", "--file"], max_timeout = 60 }

[[rules]]
id = "deploy"
glob = "./deploy.sh *"
action = "deny"
enabled = false
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def problems(path: Path, level: str = "user") -> tuple[str, ...]:
    with pytest.raises(PolicyError) as caught:
        ExecPolicy.from_files(**{level: path})
    assert caught.value.source == str(path)
    return caught.value.problems


def test_a_toml_file(tmp_path: Path) -> None:
    policy = ExecPolicy.from_files(user=write(tmp_path / "rules.toml", GOOD))
    tests, deploy = policy.rules(Level.USER)
    assert tests.prefix == ("make", ("test", "check"))
    assert tests.constraints.max_timeout == 60
    assert not deploy.enabled
    assert policy.default_action is PolicyAction.ASK
    evaluation = policy.evaluate("make test -j4")
    assert (evaluation.action, evaluation.max_timeout) == (PolicyAction.ALLOW, 60)
    assert policy.evaluate("make test --fil=x").action is PolicyAction.SANDBOX
    assert policy.evaluate("./deploy.sh now").action is PolicyAction.ASK


def test_a_json_file(tmp_path: Path) -> None:
    text = json.dumps({"rules": [{"id": "a", "regex": "tool( -v)?", "action": "allow"}]})
    policy = ExecPolicy.from_files(organisation=write(tmp_path / "rules.json", text))
    assert policy.is_allowed("tool -v")
    assert not policy.is_allowed("tool -v x")
    assert [rule.id for rule in policy.rules(Level.ORGANISATION)] == ["a"]


def test_an_empty_file_has_no_rules(tmp_path: Path) -> None:
    assert (
        ExecPolicy.from_files(user=write(tmp_path / "rules.toml", "")).rules_digest == ExecPolicy.default().rules_digest
    )


BAD = """\
version = 1
colour = "red"

[[rules]]
id = "Upper"
prefix = ["a"]
action = "allow"

[[rules]]
id = "two"
prefix = ["a"]
glob = "a *"
action = "permit"

[[rules]]
id = "three"
regex = "(a"
priority = "high"
surprise = true
action = "ask"

[[rules]]
id = "four"
prefix = ["git", "push"]
action = "ask"
match = ["git pull", "git push | cat"]
not_match = [
  "git push x",
]

[[rules]]
id = "four"
prefix = ["b"]
action = "ask"
"""


def test_every_mistake_is_reported_with_its_place(tmp_path: Path) -> None:
    found = problems(write(tmp_path / "bad.toml", BAD))
    expected = [
        "line 2: colour: there is no such key",
        "rules[0] 'Upper' (line 5): id: an id has",
        "rules[1] 'two' (line 13): action: 'permit' is no action",
        "rules[2] 'three' (line 17): regex: at character 2: it ends too early",
        "rules[2] 'three' (line 18): priority: Input should be a valid integer",
        "rules[2] 'three' (line 19): surprise: there is no such key",
        "rules[3] 'four' (line 26): match.0: 'git pull': the rule does not match it",
        "rules[3] 'four' (line 26): match.1: 'git push | cat': an example is plain words",
        "rules[3] 'four' (line 28): not_match.0: 'git push x': the rule matches it",
        "rules[4] 'four' (line 32): id: rule 'four' is there already",
    ]
    assert len(found) == len(expected), found
    for problem, beginning in zip(found, expected, strict=True):
        assert problem.startswith(beginning), (problem, beginning)


def rule(**fields: object) -> dict[str, object]:
    return {"id": "r", "prefix": ["a"], "action": "ask", **fields}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([rule(glob="a")], "exactly one of prefix, glob and regex; this one has prefix and glob"),
        ([{"id": "r", "action": "ask"}], "this one has none"),
        ([rule(prefix=[])], "at least one word"),
        ([rule(prefix=[["a", "a"]])], "listed twice"),
        ([rule(prefix=[[]])], "at least one string"),
        ([rule(prefix="git")], "prefix"),
        ([rule(action=2)], "one of allow, sandbox, ask, deny"),
        ([rule(id="builtin.x")], "are taken"),
        ([rule(id="floor.x")], "are taken"),
        ([rule(direct=True)], "only a rule that allows can be direct"),
        ([rule(direct=True, action="allow")], "only the built-in table"),
        ([rule(enabled="yes")], "enabled"),
        ([rule(prefix=None, regex="a" * 501)], "1 to 500 characters"),
        ([rule(prefix=None, regex="(?=a)b")], "look-around"),
        ([rule(prefix=None, regex=r"(a)\1")], "no meaning"),
        ([rule(constraints={"max_timeout": 0})], "constraints.max_timeout"),
        ([rule(constraints={"allowed_directories": ["src"]})], "relative path"),
        ([rule(constraints={"max_operands": 1})], "needs allowed_arguments"),
        ([rule(constraints={"allow": 1})], "constraints.allow: there is no such key"),
        ([rule(spec={"network": {"mode": "wide"}})], "spec.network.mode"),
        ([rule(match=[""])], "match"),
        ([rule(), rule(id="s")], "it never decides"),
        ([rule(), rule(id="s", action="deny")], "it never decides: rule 's'"),
        ([rule(priority=3), rule(id="s", action="deny")], "it never decides: rule 'r'"),
        (["x"], "not a table"),
        ({"id": "r"}, "must be a list"),
    ],
)
def test_mistakes(rows: object, problem: str) -> None:
    with pytest.raises(PolicyError) as caught:
        ExecPolicy.from_dict({"rules": rows})
    assert any(problem in found for found in caught.value.problems), caught.value.problems


def test_an_unknown_key_hides_no_other_mistake() -> None:
    with pytest.raises(PolicyError) as caught:
        ExecPolicy.from_dict({"rules": [rule(colour="red", match=["b"]), rule(id="s", colour=1, action="ak")]})
    found = [problem.partition(": ")[2] for problem in caught.value.problems]
    assert found[:2] == ["colour: there is no such key", "match.0: 'b': the rule does not match it"]
    assert any("'ak' is no action" in problem for problem in found[2:])


def test_rules_that_decide_together_are_no_mistake() -> None:
    rows = [
        rule(constraints={"max_timeout": 5}),
        rule(id="s", constraints={"max_timeout": 3}),
        rule(id="t", enabled=False),
    ]
    assert ExecPolicy.from_dict({"rules": rows}).evaluate("a").max_timeout == 3


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"prefix": None, "regex": "a"}, "prefix and glob only"),
        ({"action": "allow"}, "only make decisions stricter"),
        ({"spec": {"network": {"mode": "host"}}}, "cannot say anything about the box"),
    ],
)
def test_project_files_may_only_tighten(tmp_path: Path, fields: dict[str, object], problem: str) -> None:
    path = write(tmp_path / "project.json", json.dumps({"rules": [rule(**fields)]}))
    assert problem in problems(path, "project")[0]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.toml", b"rules = [", "it is no TOML"),
        ("x.json", b"{", "it is no JSON"),
        ("x.json", b"[]", "type list, not a table"),
        ("x.json", b"[" * 100_000, "it is no JSON"),
        ("x.json", b'{"rules": [], "rules": []}', "line 1: rules: it is given twice"),
        ("x.toml", b"\xff", "not UTF-8"),
        ("x.toml", b"#" * 1_048_577, "larger than"),
        ("x.toml", b"version = 2", "version: 2 is not known"),
        ("x.toml", b"version = true", "version: True is not known"),
        ("x.toml", b'default = "maybe"', "default: 'maybe' is no action"),
        ("x.toml", b"default = 1", "default:"),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert problem in problems(path)[0]


def test_a_missing_file_is_no_empty_file(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in problems(tmp_path / "none.toml")[0]
    assert "cannot be read" in problems(tmp_path)[0]


def test_mistakes_of_several_files_are_reported_together(tmp_path: Path) -> None:
    one = write(tmp_path / "one.toml", "a = 1")
    two = write(tmp_path / "two.json", '{"rules": [{}]}')
    with pytest.raises(PolicyError) as caught:
        ExecPolicy.from_files(organisation=one, project=two)
    assert len([problem for problem in caught.value.problems if problem.startswith(f"{one}: ")]) == 1
    assert len([problem for problem in caught.value.problems if problem.startswith(f"{two}: rules[0] (line 1): ")]) == 2


def test_from_dict_takes_rules_as_values() -> None:
    given = PolicyRule(id="a", prefix=("a",), action=PolicyAction.DENY)
    policy = ExecPolicy.from_dict({"rules": [given], "default": PolicyAction.DENY})
    assert policy.rules(Level.USER) == (given,)
    assert policy.default_action is PolicyAction.DENY


LINES = """\
note = '''
[[rules]]
id = "none"
'''

[[rules]]
id = "one"
prefix = [
  "a",
  ["b", "b"],
]
action = "ask"
constraints = { denied_arguments = [
  "x",
], max_timeout = 0 }

[[rules]]
id = "two"
prefix = ["a"]
action = "ask"
match = [
  "a",
  "b",
]
[rules.constraints]
denied_arguments = [
  "**" ]
[rules.spec.network]
mode = "wide"

[[tests]]
command = "a"
action = "maybe"
"""


def test_lines_are_those_of_the_keys_wherever_they_stand(tmp_path: Path) -> None:
    found = problems(write(tmp_path / "rules.toml", LINES))
    assert [problem.split(": ")[0:2] for problem in found] == [
        ["line 1", "note"],
        ["rules[0] 'one' (line 10)", "prefix.1"],
        ["rules[0] 'one' (line 15)", "constraints.max_timeout"],
        ["rules[1] 'two' (line 29)", "spec.network.mode"],
        ["tests[0] (line 33)", "action"],
    ]


def test_lines_of_json(tmp_path: Path) -> None:
    text = '{"rules": [\n {"id": "a",\n  "glob": "x",\n  "action": "ask", "action": "no",\n "match": ["x",\n"y"]}]}'
    found = problems(write(tmp_path / "rules.json", text))
    assert [problem.split(": ")[0] for problem in found] == ["line 4", "rules[0] 'a' (line 4)"]
    found = problems(write(tmp_path / "other.json", text.replace('"action": "no",', "")))
    assert found == ("rules[0] 'a' (line 6): match.1: 'y': the rule does not match it",)


def test_commands_with_an_expected_action_are_read_and_not_run(tmp_path: Path) -> None:
    text = '[[tests]]\ncommand = "rm -rf /"\naction = "allow"\n[[tests]]\ncommand = ["a", "b c"]\naction = "ask"\nrule = "x"'
    assert ExecPolicy.from_files(user=write(tmp_path / "rules.toml", text)).rules(Level.USER) == ()


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"action": "ask"}, "command: Field required"),
        ({"command": "", "action": "ask"}, "command"),
        ({"command": [], "action": "ask"}, "command"),
        ({"command": "a"}, "action: Field required"),
        ({"command": "a", "action": "ask", "result": 1}, "result: there is no such key"),
        ("a", "valid dictionary"),
    ],
)
def test_mistakes_in_tests(row: object, problem: str) -> None:
    with pytest.raises(PolicyError) as caught:
        ExecPolicy.from_dict({"tests": [row]})
    assert any(found.startswith("tests[0]: ") and problem in found for found in caught.value.problems)
