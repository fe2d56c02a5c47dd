"""
`sandboxkit policy`: rules checked, tried and looked over.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.conftest import Cli, record

from sandboxkit.audit import JsonlAudit
from sandboxkit.model import AuditEvent
from sandboxkit.policy import ExecPolicy, rules_schema
from sandboxkit.policy._lint import CHECKS

if TYPE_CHECKING:
    from collections.abc import Sequence

GOOD = """\
default = "ask"

[[rules]]
id = "publish"
prefix = ["npm", "publish"]
action = "deny"
reason = "by people only"
match = ["npm publish"]
not_match = ["npm install"]

[[tests]]
command = "cd package && npm publish"
action = "deny"
rule = "publish"

[[tests]]
command = ["frobnicate", "a b"]
action = "ask"
"""
BAD = """\
[[rules]]
id = "a"
prefix = ["x"]
action = "permit"

[[rules]]
id = "b"
glob = "cd x && y"
action = "ask"
"""
DOUBTFUL = '[[rules]]\nid = "a"\nprefix = ["x"]\naction = "ask"\n'


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(GOOD)
    return path


# lint


def test_lint_finds_nothing(cli: Cli, rules: Path) -> None:
    done = cli("policy", "lint", "--strict", "rules.toml")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"1 file: nothing wrong, nothing doubtful\n"


def test_lint_reports_all_files_at_once(cli: Cli, tmp_path: Path, rules: Path) -> None:
    (tmp_path / "bad.toml").write_text(BAD)
    (tmp_path / "worse.json").write_text('{"rules": [\n{"id": "a" "b"}]}')
    done = cli("policy", "lint", "rules.toml", "bad.toml", "worse.json", "none.toml")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 1
    assert [line.split(": ")[:3] for line in lines[:-1] if ": error: " in line] == [
        ["bad.toml:4", "error", "'a'"],
        ["bad.toml:8", "error", "'b'"],
        ["worse.json:2", "error", "it is no JSON"],
        ["none.toml", "error", "it cannot be read"],
    ]
    assert lines[-1].startswith("4 files: 4 mistakes, ")


def test_lint_says_what_would_make_a_file_readable(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "circle").symlink_to("circle")
    found = {
        "none.toml": f"it cannot be read: No such file or directory; check the name: {tmp_path} holds no 'none.toml'",
        "no/a.toml": f"it cannot be read: No such file or directory; check the name: {tmp_path}/no is not there either",
        "directory": "it cannot be read: Is a directory; give a file in it",
        "file/a": f"it cannot be read: Not a directory; {tmp_path}/file is to be a directory, and it or one above it is a file; check the name",
        "circle": "it cannot be read: Too many levels of symbolic links; its symbolic links lead in a circle; give the file itself",
        "pipe": "it is a pipe, which may keep whoever reads it waiting; give a file",
        "link": "it is a pipe, which may keep whoever reads it waiting; give a file",
    }
    done = cli("policy", "lint", *found)
    assert done.returncode == 1
    assert done.stdout.decode().splitlines()[:-1] == [f"{name}: error: {said}" for name, said in found.items()]


def test_lint_reads_what_the_shell_hands_over(cli: Cli) -> None:
    done = cli("policy", "lint", "/dev/stdin", input=b'default = "ask"\n')
    assert (done.returncode, done.stdout) == (0, b"1 file: nothing wrong, nothing doubtful\n")


def test_an_empty_file_is_doubtful_and_nothing_to_test(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.toml").touch()
    done = cli("policy", "lint", "--strict", "empty.toml")
    assert done.returncode == 1
    assert b"empty.toml: warning[empty]: it says nothing; give it rules" in done.stdout
    done = cli("policy", "test", "empty.toml")
    assert (done.returncode, done.stdout) == (119, b"")
    assert b"empty.toml are wrong: there is nothing to try in it; give its rules match" in done.stderr


def test_lint_warns(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "doubtful.toml").write_text(DOUBTFUL)
    done = cli("policy", "lint", "doubtful.toml")
    assert done.returncode == 0
    assert b"doubtful.toml:1: warning[no-reason]: 'a': it has no reason" in done.stdout
    assert cli("policy", "lint", "--strict", "doubtful.toml").returncode == 1
    found = record(cli("policy", "lint", "--json", "doubtful.toml"))
    assert (found["status"], found["mistakes"], found["warnings"]) == ("linted", 0, 2)
    assert found["problems"][0] == {
        "file": "doubtful.toml",
        "line": 1,
        "rules": 0,
        "id": "a",
        "key": "",
        "message": "it has no reason; whoever reads the decision wants to know why",
        "check": "no-reason",
    }


def test_lint_knows_what_a_project_may_not_say(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "project.toml").write_text(DOUBTFUL.replace("ask", "allow"))
    assert cli("policy", "lint", "project.toml").returncode == 0
    done = cli("policy", "lint", "--level", "project", "project.toml")
    assert done.returncode == 1
    assert b"project.toml:4: error: 'a': action: project files can only make decisions stricter" in done.stdout


def test_lint_cannot_be_steered_by_a_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('"\\u001b[2J\\u202e" = 1\n[[rules]]\nid = "\\u001b"\naction = "\\n"')
    out = cli("policy", "lint", "x.toml").stdout
    assert b"\x1b" not in out
    assert "\u202e".encode() not in out
    assert b"\\x1b[2J\\u202e" in out


# test


def test_test_tries_examples_and_tests(cli: Cli, rules: Path) -> None:
    done = cli("policy", "test", "rules.toml")
    assert done.stdout == b"4 commands tried (1 match, 1 not_match, 2 tests): 4 as expected, 0 not\n"
    assert done.returncode == 0


def test_test_shows_what_came_out_otherwise(cli: Cli, rules: Path) -> None:
    rules.write_text(GOOD + '\n[[tests]]\ncommand = "npm publish"\naction = "ask"\nreason = "it was so"\n')
    done = cli("policy", "test", "rules.toml")
    out = done.stdout.decode()
    assert done.returncode == 1
    assert "FAILED tests[2]: npm publish\n  expected ask, found deny by publish\n  it was so\n  deny: " in out
    assert "1 | npm publish" in out
    assert out.endswith("5 commands tried (1 match, 1 not_match, 3 tests): 4 as expected, 1 not\n")
    found = record(cli("policy", "test", "--json", "rules.toml"))
    assert (found["tried"], found["failed"]) == (5, 1)
    assert found["outcomes"][-1] == {
        "kind": "tests",
        "subject": "2",
        "command": "npm publish",
        "expected": "ask",
        "found": "deny by publish",
        "right": False,
    }


def test_an_example_that_another_file_decides_is_a_failure(cli: Cli, tmp_path: Path, rules: Path) -> None:
    (tmp_path / "company.toml").write_text('[[rules]]\nid = "c"\nprefix = ["npm"]\naction = "sandbox"\n')
    done = cli("policy", "test", "rules.toml", "--policy", "organisation=company.toml")
    assert done.returncode == 1
    assert b"FAILED publish, match: npm publish\n  expected deny by it, found sandbox by c\n" in done.stdout


def test_a_file_that_cannot_be_loaded_is_wrong_use(cli: Cli, tmp_path: Path, rules: Path) -> None:
    (tmp_path / "bad.toml").write_text(BAD)
    done = cli("policy", "test", "bad.toml")
    assert done.returncode == 119
    assert b"line 4" in done.stderr
    assert cli("policy", "test", "rules.toml", "--policy", "rules.toml").returncode == 119
    assert cli("policy", "test", "rules.toml", "--policy", "project=").returncode == 119


# show


def test_show_has_every_rule(cli: Cli, rules: Path) -> None:
    done = cli("policy", "show", "--policy", "rules.toml")
    out = done.stdout.decode()
    assert done.returncode == 0
    assert out == ExecPolicy.from_files(user=rules).describe() + "\n"


@pytest.mark.parametrize(
    ("options", "inside", "outside"),
    [
        (["--level", "user"], ["publish"], ["builtin.read", "floor.dest"]),
        (["--level", "floor"], ["floor.dest"], ["builtin.read", "publish "]),
        (["--program", "npm"], ["publish"], ["builtin.read.ls"]),
        (["--program", "rm"], ["floor.destruction.remove"], ["builtin.read.ls", "  publish"]),
        (["--action", "allow"], ["builtin.read"], ["floor.dest", "  publish"]),
    ],
)
def test_show_can_be_narrowed(cli: Cli, rules: Path, options: list[str], inside: list[str], outside: list[str]) -> None:
    out = cli("policy", "show", "--policy", "rules.toml", *options).stdout.decode()
    assert [text for text in inside if text not in out] == []
    assert [text for text in outside if text in out] == []


def test_show_one_rule(cli: Cli, rules: Path) -> None:
    done = cli("policy", "show", "--policy", "rules.toml", "publish")
    assert done.returncode == 0
    written = tomllib.loads(done.stdout.decode())
    assert written == {"rules": tomllib.loads(GOOD)["rules"]}
    assert b"floor.destruction.remove" in cli("policy", "show", "floor.destruction.remove").stdout
    found = record(cli("policy", "show", "--json", "--policy", "rules.toml", "publish"))
    assert (found["rules"][0]["level"], found["rules"][0]["rank"]) == ("user", 2)


def test_show_says_which_rules_are_near(cli: Cli) -> None:
    done = cli("policy", "show", "destruction.rem")
    assert done.returncode == 1
    assert b"no rule has the id 'destruction.rem'; near it are floor.destruction.remove" in done.stderr
    assert b"lists all" in cli("policy", "show", "zzz").stderr


def test_show_as_json(cli: Cli, rules: Path) -> None:
    found = record(cli("policy", "show", "--json", "--policy", "rules.toml"))
    policy = ExecPolicy.from_files(user=rules)
    assert (found["default"], found["rules_digest"]) == ("ask", policy.rules_digest)
    assert len(found["rules"]) == len(policy.rules())
    assert len(found["floor"]) == len(policy.floor())


# replay


def log(path: Path, *events: tuple[str, dict[str, Any]]) -> Path:
    sink = JsonlAudit(path)
    for number, (kind, fields) in enumerate(events):
        place = {"cwd": "/home/user/project", "home": "/home/user", "workspace_roots": ["/home/user/project"]}
        sink.write(AuditEvent(kind, f"run{number}", 1.0 + number, {**place, **fields}))  # type: ignore[arg-type]  # only the two kinds
    return path


@pytest.fixture
def records(tmp_path: Path) -> Path:
    publish = ("decided", {"command": "npm publish", "argv": ["npm", "publish"], "action": "sandbox"})
    return log(
        tmp_path / "audit.jsonl",
        publish,
        ("finished", {"outcome": "finished"}),
        publish,
        ("decided", {"command": "ls", "action": "allow"}),
        ("decided", {"command": "frobnicate", "action": "deny"}),
        ("decided", {"command": "x" * 100_000, "action": "ask"}),
        ("decided", {"command": "ls", "cwd": None, "action": "allow"}),
    )


def test_replay_says_what_would_change(cli: Cli, rules: Path, records: Path) -> None:
    done = cli("policy", "replay", "audit.jsonl", "--policy", "rules.toml")
    assert (done.returncode, done.stderr) == (0, b"")
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert lines[:2] == [
        "5 decisions judged again, 3 would change".split(),
        "left out: 1 masked, cut or without their place".split(),
    ]
    assert lines[3:6] == [["before", "after", "decisions"], ["deny", "ask", "1"], ["sandbox", "deny", "2"]]
    assert lines[7][:4] == ["before", "after", "times", "command"]
    assert lines[8][:5] == ["sandbox", "deny", "2", '["npm",', '"publish"]']
    assert lines[9][:4] == ["deny", "ask", "1", "frobnicate"]


@pytest.mark.parametrize(("fail_on", "code"), [("change", 1), ("looser", 1), ("stricter", 1)])
def test_replay_can_fail(cli: Cli, rules: Path, records: Path, fail_on: str, code: int) -> None:
    options = ("policy", "replay", "audit.jsonl", "--policy", "rules.toml", "--fail-on", fail_on)
    assert cli(*options).returncode == code


def test_replay_fails_only_on_what_it_is_asked_for(cli: Cli, tmp_path: Path, rules: Path) -> None:
    log(tmp_path / "audit.jsonl", ("decided", {"command": "npm publish", "action": "ask"}))
    options = ("policy", "replay", "audit.jsonl", "--policy", "rules.toml", "--fail-on")
    assert [cli(*options, kind).returncode for kind in ("change", "looser", "stricter")] == [1, 0, 1]


def test_replay_as_json(cli: Cli, rules: Path, records: Path) -> None:
    found = record(cli("policy", "replay", "--json", "audit.jsonl", "--policy", "rules.toml"))
    assert (found["decisions"], found["changed"]) == (5, 3)
    assert found["left_out"] == {"masked, cut or without their place": 1}
    first = found["changes"][0]
    assert (first["command"], first["before"], first["after"]) == (["npm", "publish"], "sandbox", "deny")


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ((), "it holds no record yet"),
        ((("finished", {"outcome": "finished"}),), "it holds 1 record and no decision"),
        (
            (("decided", {"command": "x" * 100_000, "action": "ask"}),),
            "none of its decisions can be judged again (1 masked, cut or without their place)",
        ),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",), ("--fail-on", "change")])
def test_replay_needs_a_decision(
    cli: Cli, tmp_path: Path, events: Sequence[tuple[str, dict[str, Any]]], said: str, options: tuple[str, ...]
) -> None:
    log(tmp_path / "audit.jsonl", *events)
    done = cli("policy", "replay", "audit.jsonl", *options)
    assert done.returncode == 119
    message = record(done)["error"]["message"] if "--json" in options else done.stderr.decode().strip()
    assert f"{tmp_path}/audit.jsonl: {said}" in message
    assert message.endswith("; name a log in which commands were decided")


@pytest.mark.parametrize("content", ["hello\n", '{"kind": "decided"}\n', "\x00\xff" * 5000])
def test_replay_needs_records(cli: Cli, tmp_path: Path, content: str) -> None:
    (tmp_path / "audit.jsonl").write_text(content)
    done = cli("policy", "replay", "audit.jsonl")
    assert (done.returncode, done.stdout) == (119, b"")
    assert b"it holds no record of an audit log; name the file that JsonlAudit writes" in done.stderr


def test_replay_judges_for_the_place_it_was_judged_for(cli: Cli, tmp_path: Path) -> None:
    rule = {
        "id": "r",
        "prefix": ["frobnicate"],
        "action": "allow",
        "constraints": {"allowed_directories": ["~/project"]},
    }
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [rule]}))
    log(
        tmp_path / "audit.jsonl",
        ("decided", {"command": "frobnicate", "action": "allow"}),
        ("decided", {"command": "frobnicate", "action": "allow", "cwd": "/srv"}),
    )
    found = record(cli("policy", "replay", "--json", "audit.jsonl", "--policy", "rules.json"))
    assert [(change["cwd"], change["after"]) for change in found["changes"]] == [("/srv", "sandbox")]


def test_replay_counts_what_was_counted(cli: Cli, tmp_path: Path) -> None:
    rule = {"id": "r", "prefix": ["scrape"], "action": "deny", "constraints": {"more_than": {"pages": 25}}}
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [rule]}))
    few, many = ({"command": "scrape", "action": "sandbox", "numbers": {"pages": pages}} for pages in (3, 26))
    log(tmp_path / "audit.jsonl", ("decided", few), ("decided", many))
    found = record(cli("policy", "replay", "--json", "audit.jsonl", "--policy", "rules.json"))
    assert (found["decisions"], found["changed"]) == (2, 1)


def test_replay_without_a_log_is_wrong_use(cli: Cli) -> None:
    done = cli("policy", "replay", "none.jsonl")
    assert done.returncode == 119
    assert b"none.jsonl" in done.stderr


# the rest


def test_schema_is_the_published_one(cli: Cli) -> None:
    assert json.loads(cli("policy", "schema").stdout) == rules_schema()


def test_a_verb_is_needed(cli: Cli) -> None:
    done = cli("policy")
    assert done.returncode == 119
    assert b"usage: sandboxkit policy VERB [options]" in done.stderr


def test_other_verbs_decide_by_the_same_files(cli: Cli, rules: Path) -> None:
    done = cli("check", "--policy", "rules.toml", "--", "npm publish")
    assert done.returncode == 120
    assert b"[publish, user]" in done.stdout
    assert cli("explain", "--policy", "rules.toml", "--", "npm publish").returncode == 120
    assert cli("run", "--policy", "rules.toml", "--", "npm publish").returncode == 120
    assert cli("check", "--policy", "none.toml", "--", "ls").returncode == 119


@pytest.mark.parametrize("verb", [("lint", "--strict"), ("test",)])
def test_the_documented_example_is_fine(cli: Cli, verb: tuple[str, ...]) -> None:
    example = Path(__file__).resolve().parents[2] / "docs" / "snippets" / "rules.toml"
    done = cli("policy", *verb, str(example))
    assert done.returncode == 0, done.stdout.decode()


def test_the_reference_has_every_check() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "rule-file.md").read_text()
    listed = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", page, re.MULTILINE))
    assert {check: listed.get(check) for check in CHECKS if check != "mistake"} == {
        check: meaning for check, meaning in CHECKS.items() if check != "mistake"
    }
