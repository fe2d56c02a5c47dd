"""
Where rules apply: arguments by name, directories by path.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sandboxkit.model import EvaluationContext, PolicyAction
from sandboxkit.policy import ExecPolicy
from sandboxkit.policy._arguments import ArgumentSet
from sandboxkit.policy._paths import homely, located, path_candidates

CONTEXT = EvaluationContext(cwd="/home/dev/project", home="/home/dev")


def applies(
    constraints: dict[str, object],
    command: str | list[str],
    action: str = "allow",
    context: EvaluationContext | None = CONTEXT,
) -> bool:
    policy = ExecPolicy.from_dict(
        {"rules": [{"id": "r", "prefix": ["tool"], "action": action, "constraints": constraints}]}
    )
    return any(match.rule_id == "r" for match in policy.evaluate(command, context=context).matches)


@pytest.mark.parametrize(
    ("patterns", "arguments", "admitted"),
    [
        ([], [], True),
        ([], ["x"], False),
        (["**"], ["-x", "--y", "z"], True),
        (["*"], ["x", "y"], True),
        (["*"], ["-x"], False),
        (["*"], ["--", "-x"], True),
        (["*"], ["-"], True),
        (["-a", "-b"], ["-ab", "-b"], True),
        (["-a"], ["-ab"], False),
        (["-n=", "*"], ["-n", "5", "x"], True),
        (["-n="], ["-n", "5"], True),
        (["-n="], ["-n5"], True),
        (["-n="], ["-n"], False),
        (["-a", "-n="], ["-an5"], True),
        (["--all"], ["--all"], True),
        (["--all"], ["--al"], False),
        (["--color"], ["--color=auto"], False),
        (["--color[=]"], ["--color=auto"], True),
        (["--color[=]"], ["--color"], True),
        (["--color[=]"], ["--color", "auto"], False),
        (["--date="], ["--date", "now"], True),
        (["--date="], ["--date=now"], True),
        (["--date="], ["--date"], False),
        (["-eq", "*"], ["1", "-eq", "2"], True),
        (["+*"], ["+%s"], True),
        (["+*"], ["%s"], False),
        (["-W*"], ["-Wall"], True),
        (["*.py"], ["a.py"], True),
        (["*.py"], ["a.txt"], False),
    ],
)
def test_allowed_arguments(patterns: list[str], arguments: list[str], admitted: bool) -> None:
    assert ArgumentSet.of(patterns).admits(arguments) is admitted


@pytest.mark.parametrize(
    ("patterns", "arguments", "touched"),
    [
        (["-o"], ["-o", "x"], True),
        (["-o"], ["-oout"], True),
        (["-o"], ["-ro"], True),
        (["-o"], ["--o"], False),
        (["-o"], ["o"], False),
        (["--output"], ["--output=x"], True),
        (["--output"], ["--out", "x"], True),
        (["--output"], ["--o=x"], True),
        (["--output"], ["--outputs"], False),
        (["--output"], ["--"], False),
        (["-exec"], ["-exec"], True),
        (["-exec"], ["-e"], False),
        (["*.env"], ["x/.env"], True),
        (["+*"], ["+!id"], True),
        (["**"], ["x"], True),
        ([], ["x"], False),
    ],
)
def test_denied_arguments(patterns: list[str], arguments: list[str], touched: bool) -> None:
    assert ArgumentSet.of(patterns).touches(arguments) is touched


def test_operands_are_counted_without_the_values_of_options() -> None:
    constraints = {"allowed_arguments": ["-n=", "*"], "max_operands": 1}
    assert applies(constraints, "tool -n 5 x")
    assert not applies(constraints, "tool -n 5 x y")


@pytest.mark.parametrize(
    ("constraints", "command", "expected"),
    [
        ({"allowed_directories": ["/home/dev/project"]}, "tool src", True),
        ({"allowed_directories": ["~/project"]}, "tool src/../x", True),
        ({"allowed_directories": ["/home/dev/project"]}, "tool ../x", False),
        ({"allowed_directories": ["/home/dev/project"]}, "tool /home/dev/project2", False),
        ({"allowed_directories": ["/home/dev/project"]}, "tool --out=/tmp/x", False),
        ({"allowed_directories": ["/home/dev/project"]}, "tool -o/tmp/x", False),
        ({"allowed_directories": ["/srv"]}, "tool /srv/x", False),
        ({"denied_directories": ["/home/dev/project/secret"]}, "tool src", True),
        ({"denied_directories": ["/home/dev/project/secret"]}, "tool secret/x", False),
        ({"denied_directories": ["/home/dev/project/secret"]}, "tool secret2", True),
        ({"denied_directories": ["/home/dev/project/secret"]}, "tool .", False),
        ({"denied_directories": ["/home/dev/project/secret"]}, "tool src/../secret", False),
        ({"denied_directories": ["/home/dev/project/secret"]}, "tool /proc/self/root/home/dev/project/secret", False),
        ({"denied_directories": ["~"]}, "tool", False),
    ],
)
def test_directories_are_compared_as_paths(constraints: dict[str, object], command: str, expected: bool) -> None:
    assert applies(constraints, command) is expected


@pytest.mark.parametrize(
    "constraints", [{"allowed_directories": ["/home/dev/project"]}, {"denied_directories": ["/etc"]}]
)
def test_the_unknown_counts_against_the_command(constraints: dict[str, object]) -> None:
    assert not applies(constraints, "tool x", "allow", context=None)
    assert not applies(constraints, "tool x", "sandbox", context=None)
    assert applies(constraints, "tool x", "ask", context=None)
    assert applies(constraints, "tool x", "deny", context=None)


def test_words_of_the_prefix_are_no_arguments() -> None:
    rule = {"id": "r", "prefix": ["tool", "run"], "action": "allow", "constraints": {"allowed_arguments": ["-q"]}}
    policy = ExecPolicy.from_dict({"rules": [rule]})
    assert policy.is_allowed("tool run -q")
    assert not policy.is_allowed("tool run x")


@pytest.mark.parametrize(
    ("argument", "path"),
    [
        ("/a/./b//c/../d", "/a/b/d"),
        ("//a", "/a"),
        ("/proc/self/root/etc/shadow", "/etc/shadow"),
        ("/proc/1/root/proc/self/root/x", "/x"),
        ("/proc/self/root", "/"),
        ("/proc/self/rootfs", "/proc/self/rootfs"),
        ("/proc/self/root/../etc/shadow", "/etc/shadow"),
        ("/proc/./self//root/.././../etc/x", "/etc/x"),
        ("/proc/1/task/1/root/../proc/self/root/../etc/x", "/etc/x"),
        ("/proc/self/fd/../root/../etc/x", "/etc/x"),
        ("/srv/proc/self/root/../x", "/srv/proc/self/x"),
        ("/root/../etc/x", "/etc/x"),
        ("/private/etc/x", "/etc/x"),
        ("/private/home", "/private/home"),
        ("~", "/home/dev"),
        ("~/x", "/home/dev/x"),
        ("x/../../y", "/home/dev/y"),
        ("", "/home/dev/project"),
    ],
)
def test_located(argument: str, path: str) -> None:
    assert located(argument, CONTEXT) == path


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_above_a_link_to_the_root_the_kernel_finds_the_root() -> None:
    path = "/proc/self/root/../etc/passwd"
    assert os.path.samefile(path, "/etc/passwd")
    assert located(path, CONTEXT) == "/etc/passwd"
    assert not Path("/proc/self/etc/passwd").exists()  # what the text alone seems to say


def test_homely() -> None:
    context = EvaluationContext(home="/data/me")
    assert homely("/data/me/x", context) == "~/x"
    assert homely("/home/other/x", context) == "~/x"
    assert homely("/root", context) == "~"
    assert homely("/data/me2", context) is None
    assert located("x", EvaluationContext()) is None
    assert located("~/x", EvaluationContext()) is None


def test_path_candidates() -> None:
    words = ["a", "-x", "-o/b", "--file=/c", "of=d", "@e", "host:/f", "https://h/p", "-ifile"]
    assert set(path_candidates(words)) >= {"a", "/b", "/c", "d", "e", "/f", "file"}
    assert "//h/p" not in set(path_candidates(words))


def test_max_timeout_alone_never_keeps_a_rule_from_applying() -> None:
    assert applies({"max_timeout": 1}, "tool anything -x")


def test_a_glob_takes_blanks_and_matches_the_whole_command() -> None:
    policy = ExecPolicy.from_dict({"rules": [{"id": "r", "glob": "tool *x?", "action": "deny"}]})
    for command, denied in (
        ("tool a xy", True),
        ("tool xy", True),
        ("tool x", False),
        ("tool xyz", False),
        ("/bin/tool xy", True),
        ("mytool xy", False),
    ):
        assert (policy.evaluate(command).action is PolicyAction.DENY) is denied, command
