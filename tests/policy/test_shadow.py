"""
Rules that can never fire are refused, and only those.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from sandboxkit.errors import PolicyError
from sandboxkit.model import Level, PolicyAction
from sandboxkit.policy import ExecPolicy, PolicyRule
from sandboxkit.policy._canonical import can_match
from sandboxkit.policy._problems import set_problems
from sandboxkit.policy._shadow import shadows
from sandboxkit.shell import quote


def rules(*given: dict[str, Any]) -> list[PolicyRule]:
    return [PolicyRule.model_validate({"id": f"r{number}", **row}) for number, row in enumerate(given)]


def shadowed(*given: dict[str, Any], level: Level = Level.USER) -> list[tuple[int, tuple[int, ...]]]:
    return [(shadow.index, shadow.by) for shadow in shadows(rules(*given), level)]


def row(action: str, priority: Any = None, **fields: Any) -> dict[str, Any]:
    return {"action": action, **({} if priority is None else {"priority": priority}), **fields}


GIT, PUSH = {"prefix": ["git"]}, {"prefix": ["git", "push"]}


@pytest.mark.parametrize(
    "given",
    [
        [row("deny", 5, **GIT), row("ask", **PUSH)],
        [row("deny", 2, **GIT), row("ask", **PUSH)],
        [row("ask", 5, **GIT), row("deny", **PUSH)],
        [row("ask", 5, **GIT), row("allow", **PUSH)],
        [row("sandbox", 5, **GIT), row("allow", **PUSH)],
        [row("deny", 5, prefix=[["git", "hg"], ["push", "pull"]]), row("ask", prefix=["git", ["pull", "push"], "x"])],
        [row("deny", 5, prefix=["R"]), row("ask", prefix=["R", "x"])],
        [row("deny", 5, glob="*"), row("ask", **PUSH)],
        [row("deny", 5, glob="**"), row("allow", regex="git .*")],
        [row("deny", 5, regex=".*"), row("allow", glob="git ?")],
        [row("allow", 5, glob="*"), row("allow", 1, glob="git *")],
        [row("deny", 5, glob="git *"), row("ask", glob="git push *")],
        [row("deny", 5, glob="git *x?"), row("ask", glob="git *yx?")],
        [row("deny", 5, glob="git p*"), row("ask", **PUSH)],
        [row("deny", 5, glob="git*"), row("ask", **GIT)],
        [row("deny", 5, regex="a|b"), row("ask", 1, regex="a|b")],
        [
            row("deny", 5, **PUSH, constraints={"denied_arguments": ["-n"]}),
            row("ask", **PUSH, constraints={"denied_arguments": ["-n"], "max_timeout": 3}),
        ],
        [row("deny", 5, **PUSH), row("ask", **PUSH, constraints={"denied_arguments": ["-n"]})],
    ],
)
def test_a_rule_below_one_that_takes_all_it_takes(given: list[dict[str, Any]]) -> None:
    assert shadowed(*given) == [(1, (0,))]
    assert shadowed(*reversed(given)) == [(0, (1,))]


@pytest.mark.parametrize(
    "given",
    [
        [row("deny", **GIT), row("ask", **PUSH)],  # the longer prefix comes first
        [row("ask", 2, **GIT), row("ask", **PUSH)],  # they decide together
        [row("allow", 2, **GIT), row("ask", **PUSH)],  # the stricter of equals
        [row("allow", 5, **GIT), row("ask", **PUSH)],  # ./git push is only taken by the strict one
        [row("deny", 5, **GIT), row("ask", prefix=[["git", "hg"], "push"])],
        [row("deny", 5, prefix=["git", "push"]), row("ask", **GIT)],
        [row("deny", 5, **GIT, enabled=False), row("ask", **PUSH)],
        [row("deny", 5, **GIT), row("ask", **PUSH, enabled=False)],
        [row("deny", 5, **GIT, constraints={"denied_arguments": ["-n"]}), row("ask", **GIT)],
        [
            row("deny", 5, **GIT, constraints={"denied_arguments": ["-n"]}),
            row("ask", **PUSH, constraints={"denied_arguments": ["-n"]}),
        ],
        [row("deny", 5, glob="git *"), row("ask", **GIT)],  # git alone
        [row("deny", 5, glob="git ?*"), row("ask", glob="git *")],
        [row("deny", 5, glob="g?t"), row("ask", glob="g*")],
        [row("deny", 5, glob="R *"), row("ask", prefix=["R", "x"])],  # /tmp/r x
        [row("deny", 5, glob="a b *"), row("ask", prefix=["a b"])],  # 'a b'
        [row("allow", 5, glob="*"), row("allow", 1, **GIT)],
        [row("deny", 5, regex="git .*"), row("ask", **PUSH)],  # not looked into
    ],
)
def test_a_rule_that_may_decide_is_taken(given: list[dict[str, Any]]) -> None:
    assert shadowed(*given) == []


def test_several_rules_may_take_the_programs_of_one() -> None:
    given = [row("deny", 5, prefix=["a"]), row("deny", 5, prefix=["b"]), row("ask", prefix=[["a", "b"], "x"])]
    assert shadowed(*given) == [(2, (0, 1))]
    found = list(set_problems(rules(*given)))
    assert found == [
        (
            2,
            "priority",
            "it never decides: rule 'r0' and rule 'r1' match all that it matches and come first; change or remove one of them",
        )
    ]
    assert shadowed(*given[1:]) == []


def test_of_the_projects_rules_the_strictest_counts_whatever_its_priority() -> None:
    assert shadowed(row("ask", 9, **GIT), row("deny", 1, **PUSH), level=Level.PROJECT) == []
    assert shadowed(row("ask", 9, **PUSH), row("deny", 1, **GIT), level=Level.PROJECT) == [(0, (1,))]


def test_what_is_shadowed_really_never_decides() -> None:
    chance = random.Random(7)
    words = ("a", "b", "c")

    def one(number: int) -> dict[str, Any]:
        action = chance.choice(("allow", "sandbox", "ask", "deny"))
        matcher: dict[str, Any] = chance.choice(
            (
                {"prefix": [chance.sample(words, 2), *chance.sample(words, chance.randint(0, 2))]},
                {"prefix": chance.choices(words, k=chance.randint(1, 3))},
                {"glob": "".join(chance.choices(("a", "b", " ", "*", "?"), k=4)).strip() or "a"},
            )
        )
        return {"id": f"r{number}", **row(action, chance.choice((None, 0, 2, 5)), **matcher)}

    checked = 0
    while checked < 60:
        given = [PolicyRule.model_validate(one(number)) for number in range(4)]
        found = list(shadows(given, Level.USER))
        if not found:
            continue
        policy = ExecPolicy.default()
        kept = [rule for number, rule in enumerate(given) if number not in {shadow.index for shadow in found}]
        try:
            for rule in kept:
                policy.add_rule(rule)
        except PolicyError:
            continue
        commands = [chance.choices((*words, "/x/a", "A", "a b"), k=chance.randint(1, 4)) for _ in range(60)]
        full = _unchecked(given)
        for command in commands:
            assert full.evaluate(command).action is policy.evaluate(command).action, (given, command)
        checked += 1


def _unchecked(given: list[PolicyRule]) -> ExecPolicy:
    policy = ExecPolicy.default()
    policy._rules = policy._rules.with_user(given)
    return policy


def test_very_many_rules_are_looked_at_in_bounded_time() -> None:
    given = rules(*(row("ask", prefix=["git", f"x{number}"]) for number in range(5000)))
    assert list(shadows(given, Level.USER)) == []


@pytest.mark.timeout(30)
@pytest.mark.parametrize("glob", ["*;" * 60 + "{}*", "*a" * 240 + "{}", "a" * 480 + "{}", "*" + "?a" * 100 + "{}"])
def test_a_file_that_keeps_busy_is_read_in_bounded_time(glob: str) -> None:
    rows = [{"id": f"r{number}", "action": "ask", "glob": glob.format(number)} for number in range(1500)]
    assert len(ExecPolicy.from_dict({"rules": rows}).rules(Level.USER)) == 1500


@pytest.mark.parametrize(
    "matcher",
    [
        {"glob": "ls  -l"},
        {"glob": "cd x && ls"},
        {"glob": "a|b"},
        {"glob": "echo $HOME"},
        {"glob": "* "},
        {"regex": " ls"},
        {"regex": "ls( )"},
        {"regex": "()"},
        {"regex": "a?b? "},
        {"regex": "\\|sh|x;.*"},
        {"regex": "[;|&]+"},
        {"regex": "ls \\$[A-Z]+"},
        {"regex": "echo ''x"},
    ],
)
def test_patterns_no_command_can_match(matcher: dict[str, str]) -> None:
    assert not can_match(rules(row("ask", **matcher))[0])
    with pytest.raises(PolicyError, match="no command matches it"):
        ExecPolicy.from_dict({"rules": [{"id": "r", **row("ask", **matcher)}]})


@pytest.mark.parametrize(
    "words",
    [
        ("ls",),
        ("ls", ""),
        ("a b",),
        ("it's", "'"),
        ("curl", "x|y"),
        ("é", "…"),
        ("a", "\n"),
        ("echo", "$HOME", "'x'"),
        ("\x01",),
    ],
)
def test_every_canonical_line_can_be_matched(words: tuple[str, ...]) -> None:
    line = quote(words)
    pattern = "".join(
        f"\\{char}" if not char.isalnum() and char.isascii() and char.isprintable() and char != "_" else char
        for char in line
    )
    assert can_match(rules(row("ask", regex=pattern))[0])
    assert can_match(rules(row("ask", glob=line))[0])


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({**GIT, "constraints": {"denied_arguments": ["-x", "**"]}}, "constraints.denied_arguments"),
        ({"glob": "git push x", "constraints": {"allowed_arguments": ["push"]}}, "constraints.allowed_arguments"),
        (
            {"glob": "git a b", "constraints": {"allowed_arguments": ["*"], "max_operands": 1}},
            "constraints.allowed_arguments",
        ),
        (
            {
                **GIT,
                "action": "allow",
                "constraints": {"allowed_directories": ["~/src/a", "/srv"], "denied_directories": ["~/src", "/srv/"]},
            },
            "constraints.denied_directories",
        ),
    ],
)
def test_conditions_that_contradict(fields: dict[str, Any], key: str) -> None:
    with pytest.raises(PolicyError, match=rf"{key}: .*never applies"):
        ExecPolicy.from_dict({"rules": [{"id": "r", "action": "ask", **fields}]})


@pytest.mark.parametrize(
    "fields",
    [
        {**GIT, "constraints": {"denied_arguments": ["*"]}},
        {"glob": "git push *", "constraints": {"allowed_arguments": ["push", "x"]}},
        {**GIT, "constraints": {"allowed_directories": ["~/src"], "denied_directories": ["~"]}},
        {
            **GIT,
            "action": "allow",
            "constraints": {"allowed_directories": ["/a"], "denied_directories": ["~/a", "/a/b"]},
        },
        {**GIT, "action": "allow", "constraints": {"allowed_arguments": [], "max_operands": 0}},
    ],
)
def test_conditions_that_may_hold(fields: dict[str, Any]) -> None:
    ExecPolicy.from_dict({"rules": [{"id": "r", "action": "ask", **fields}]})


def test_the_built_in_table_has_no_rule_in_vain() -> None:
    built_in = ExecPolicy.default().rules(Level.BUILTIN)
    assert list(shadows(built_in, Level.BUILTIN)) == []
    assert [rule.id for rule in built_in if not can_match(rule)] == []


def test_a_user_rule_for_each_action_is_fine() -> None:
    actions = [str(action) for action in PolicyAction]
    assert shadowed(*(row(action, prefix=["tool", action]) for action in actions)) == []
