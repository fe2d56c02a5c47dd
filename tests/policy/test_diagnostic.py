"""
Decisions as a compiler would print them, of hand-made values.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from sandboxkit.model import (
    Assignment,
    Command,
    Level,
    PartDecision,
    PolicyAction,
    PolicyEvaluation,
    RuleMatch,
    SimpleCommand,
)
from sandboxkit.policy import ExecPolicy, diagnostic
from sandboxkit.policy._advice import suggested_rule

ALLOW, SANDBOX, ASK, DENY = PolicyAction


def match(part: int | None, action: PolicyAction, level: Level = Level.BUILTIN, **fields: Any) -> RuleMatch:
    given = {"rule_id": "r", "reason": "because", "decided": True, **fields}
    return RuleMatch(level=level, action=action, part=part, **given)


def evaluation(
    source: str, spans: list[tuple[int, int] | None], *decisions: PartDecision, **fields: Any
) -> PolicyEvaluation:
    parts = tuple(
        SimpleCommand(tuple(source[span[0] : span[1]].split()) if span else (), span, outer=None) for span in spans
    )
    action = max((decision.action for decision in decisions), default=SANDBOX)
    return PolicyEvaluation(
        action=action,
        reason="made up",
        command=Command(source, parts),
        parts=decisions,
        matches=tuple(match for decision in decisions for match in decision.matches),
        **fields,
    )


def lines(made: PolicyEvaluation) -> list[str]:
    return diagnostic(made).split("\n")


def decided(index: int, action: PolicyAction, *notes: str, **fields: Any) -> PartDecision:
    return PartDecision(index, action, "because", (match(index, action, **fields),), notes)


def test_the_whole_of_it() -> None:
    made = evaluation(
        "cd /tmp && rm -rf / || sort --compress-prog=x y",
        [(0, 7), (11, 19), (23, 47)],
        decided(0, ALLOW, rule_id="builtin.read.cd", reason="it changes the directory"),
        decided(1, DENY, "it is the root", rule_id="floor.destruction.remove", level=Level.FLOOR, reason="it removes"),
        decided(2, SANDBOX, "option --compress-prog is not on the list of builtin.read.sort", rule_id="builtin.files"),
    )
    assert diagnostic(made) == (
        "deny: made up\n"
        "  |\n"
        "1 | cd /tmp && rm -rf / || sort --compress-prog=x y\n"
        "  |            ^^^^^^^^ deny: it removes [floor.destruction.remove, floor]\n"
        "  |\n"
        "  = note: it is the root\n"
        "  = help: no rule can allow this; where it is meant, run it yourself, outside of sandboxkit\n"
        "\n"
        "parts:\n"
        "  allow    cd /tmp                   builtin.read.cd, builtin\n"
        "  deny     rm -rf /                  floor.destruction.remove, floor\n"
        "  sandbox  sort --compress-prog=x y  builtin.files, builtin"
    )


def test_every_part_that_decided_has_its_carets() -> None:
    made = evaluation("a b; c d; e", [(0, 3), (5, 8), (10, 11)], decided(0, ASK), decided(1, SANDBOX), decided(2, ASK))
    assert lines(made)[2:5] == [
        "1 | a b; c d; e",
        "  | ^^^ ask: because [r, builtin]",
        "  |           ^ ask: because [r, builtin]",
    ]


def test_two_rules_about_one_place_share_their_carets() -> None:
    matches = (match(0, ASK, rule_id="one"), match(0, ASK, rule_id="two"), match(0, ALLOW, rule_id="three"))
    made = evaluation("push", [(0, 4)], PartDecision(0, ASK, "", matches))
    assert lines(made)[3:6] == [
        "  | ^^^^ ask: because [one, builtin]",
        "  |      ask: because [two, builtin]",
        "  |",
    ]


def test_a_part_no_rule_matched_says_its_reason() -> None:
    made = evaluation("thing", [(0, 5)], PartDecision(0, SANDBOX, "runs in a sandbox: no rule matches it"))
    assert lines(made)[3] == "  | ^^^^^ sandbox: no rule matches it"
    assert 'prefix = ["thing"]' in diagnostic(made)


def test_without_parts_the_matches_are_shown() -> None:
    command = Command("ls; rm x", (), opaque="it has the operator ';'")
    found = (match(None, ASK, span=(4, 8)), match(None, ALLOW, span=(0, 2)))
    made = PolicyEvaluation(ASK, "needs approval: because (builtin rule r)", command, matches=found)
    assert lines(made) == [
        "ask: because",
        "  |",
        "1 | ls; rm x",
        "  |     ^^^^ ask: because [r, builtin]",
        "  |",
        "  = note: it could not be read to its end: it has the operator ';'",
    ]


def test_several_lines_are_numbered_and_the_rest_left_out() -> None:
    source = "set -e\nrm a\n\n\nfor x in y; do\n  rm b\ndone\n" + "\n" * 4 + "rm c"
    spans: list[tuple[int, int] | None] = [
        (source.index(f"rm {name}"), source.index(f"rm {name}") + 4) for name in "abc"
    ]
    made = evaluation(source, spans, *(decided(index, ASK) for index in range(3)))
    assert [line for line in lines(made)[1:12] if "^" not in line] == [
        "   |",
        " 2 | rm a",
        "...",
        " 6 |   rm b",
        "...",
        "12 | rm c",
        "   |",
        "  = help: a rule of the user's file comes before the built-in ones, for example:",
    ]


def test_a_place_over_several_lines_has_carets_on_its_first() -> None:
    made = evaluation("x <<E\ntext\nE\n", [(0, 12)], decided(0, DENY))
    assert lines(made)[2:4] == ["1 | x <<E", "  | ^^^^^ deny: because [r, builtin]"]


@pytest.mark.parametrize(
    ("before", "shown", "column"),
    [
        ("é ", "é ", 2),
        ("e\u0301 ", "e\u0301 ", 2),
        ("日本 ", "日本 ", 5),
        ("\t", "    ", 4),
        ("\x1b[2J", "\\x1b[2J", 7),
        ("\r", "\\r", 2),
        ("\u202e", "\\u202e", 6),
        ("\u200b", "\\u200b", 6),
        ("\xa0", "\\xa0", 4),
        ("\u3164", "\\u3164", 6),
        ("\U000e0100", "\\U000e0100", 10),
        ("\udc80", "\\udc80", 6),
        ("\u2028", "\\u2028", 6),
    ],
)
def test_carets_stand_under_the_right_columns(before: str, shown: str, column: int) -> None:
    made = evaluation(f"{before}rm", [(len(before), len(before) + 2)], decided(0, DENY))
    assert lines(made)[2] == f"1 | {shown}rm"
    assert lines(made)[3].startswith("  | " + " " * column + "^^ deny")


def test_reasons_and_ids_cannot_steer_a_terminal() -> None:
    made = evaluation("rm", [(0, 2)], decided(0, ASK, "\x1b]0;x\x07", reason="\u202ea\nb", rule_id="\x1b"))
    assert not any(char in diagnostic(made) for char in "\x1b\x07\u202e")
    assert "a\\nb" in diagnostic(made)


def test_a_long_line_is_cut_around_what_matters() -> None:
    source = "echo " + "a" * 5000 + "; rm -rf /; echo " + "b" * 5000
    start = source.index("rm")
    made = evaluation(source, [(start, start + 8)], decided(0, DENY))
    text, carets = lines(made)[2:4]
    assert len(text) < 110
    assert text.startswith("1 | …aaa")
    assert text.endswith("bb…")
    assert text.index("rm -rf /") == carets.index("^")
    assert carets.count("^") == 8


def test_a_long_place_keeps_its_beginning_and_its_end() -> None:
    source = "x " + "a" * 500 + " --end; y"
    made = evaluation(source, [(0, len(source) - 3)], decided(0, DENY))
    text, carets = lines(made)[2:4]
    assert text.startswith("1 | x aaa")
    assert "a…a" in text
    assert text.endswith("--end; y")
    assert carets.split(" deny")[0].endswith("^" * (len(text) - 3 - len("1 | ")))


def test_places_far_apart_have_a_line_each() -> None:
    source = "rm a; " + "x" * 300 + "; rm b"
    made = evaluation(source, [(0, 4), (len(source) - 4, len(source))], decided(0, ASK), decided(1, ASK))
    shown = [line for line in lines(made) if line.startswith("1 | ")]
    assert len(shown) == 1
    assert shown[0].startswith("1 | rm a; x")
    assert shown[0].endswith("x; rm b")
    many = [(index * 200, index * 200 + 4) for index in range(6)]
    made = evaluation("rm a".ljust(200) * 6, [*many], *(decided(index, ASK) for index in range(6)))
    assert len([line for line in lines(made) if line.startswith("1 | ")]) > 1


def test_what_is_long_is_counted() -> None:
    spans: list[tuple[int, int] | None] = [(3 * index, 3 * index + 2) for index in range(100)]
    made = evaluation("rm " * 100, spans, *(decided(index, ASK, f"note {index}") for index in range(100)))
    text = diagnostic(made)
    assert "= note: 92 more places decided too" in text
    assert "= note: and 90 more notes of this kind" in text
    assert text.endswith("and 60 more: 60 ask")


def test_a_large_command_is_quick_to_show() -> None:
    source = "true\n" * 100_000 + "x" * 5_000_000 + " rm -rf / " + "y" * 5_000_000
    start = source.index(" rm ") + 1
    made = evaluation(source, [(start, start + 8)], decided(0, DENY))
    assert len(diagnostic(made)) < 1000
    assert "100001 | …" in diagnostic(made)


def test_a_list_of_words_has_carets_under_its_words() -> None:
    words = ("sudo", "rm", "-rf", "a b")
    parts = (SimpleCommand(words, own=1), SimpleCommand(words[1:], outer=0))
    decisions = (decided(0, SANDBOX), decided(1, ASK))
    made = PolicyEvaluation(ASK, "because", Command(None, parts, argv=words), decisions, decisions[1].matches)
    assert lines(made)[2:4] == ["1 | sudo rm -rf 'a b'", "  |      ^^^^^^^^^^^^ ask: because [r, builtin]"]


def test_the_tree_shows_what_starts_and_what_is_within() -> None:
    parts = (
        SimpleCommand(("sudo", "rm"), (0, 7), own=1),
        SimpleCommand(("rm",), (5, 7), outer=0),
        SimpleCommand(("id",), (10, 12), inside=1),
        SimpleCommand((), (14, 17), assignments=(Assignment("A", "1"),)),
    )
    command = Command("sudo rm $(id); A=1", parts)
    made = PolicyEvaluation(ASK, "x", command, tuple(decided(index, ASK) for index in range(4)))
    assert [line.split("  r, ")[0].rstrip() for line in lines(made)[-4:]] == [
        "  ask      sudo",
        "  ask        starts: rm",
        "  ask          within: id",
        "  ask      A=1",
    ]


def test_a_match_about_an_assignment_says_how_it_was_seen() -> None:
    made = evaluation("PATH=x ls", [(0, 9)], decided(0, ASK, words=("env", "PATH=x")))
    assert "(seen as 'env PATH=x')" in diagnostic(made)
    assert "help" not in diagnostic(made)


def test_what_another_program_starts_has_carets_of_its_own() -> None:
    parts = (
        SimpleCommand(("sudo", "rm", "-r", "x"), (4, 18), own=1),
        SimpleCommand(("rm", "-r", "x"), (4, 18), outer=0),
    )
    command = Command("id; sudo  rm -r x", parts)
    decisions = (decided(0, SANDBOX), decided(1, ASK))
    made = PolicyEvaluation(ASK, "x", command, decisions, decisions[1].matches)
    assert lines(made)[3].startswith("  |" + " " * 11 + "^^^^^^^ ask")


def test_a_part_without_words_is_shown_as_it_was_written() -> None:
    parts = (SimpleCommand((), (0, 23)), SimpleCommand(("ls",), (14, 16)))
    command = Command("for f in *; do ls; done", parts)
    made = PolicyEvaluation(ASK, "x", command, (decided(0, ALLOW), decided(1, ASK)))
    assert "  allow    for f in *; do ls; done  r, builtin" in lines(made)


@pytest.mark.parametrize(
    ("action", "level", "help_text"),
    [
        (DENY, Level.FLOOR, "no rule can allow this"),
        (ASK, Level.ORGANISATION, "the organisation's rules say so; r would have to change there"),
        (ASK, Level.PROJECT, "the project's rules say so"),
        (DENY, Level.USER, "the user's rules say so"),
        (ASK, Level.BUILTIN, 'prefix = ["npm", "publish"]'),
    ],
)
def test_help_says_who_could_allow_it(action: PolicyAction, level: Level, help_text: str) -> None:
    assert help_text in diagnostic(evaluation("npm publish -x", [(0, 14)], decided(0, action, level=level)))


def test_what_runs_unasked_needs_no_help() -> None:
    assert "help" not in diagnostic(evaluation("ls", [(0, 2)], decided(0, ALLOW)))


@pytest.mark.parametrize("words", [("npm", "publish", "--x"), ("./a b'c\"\\d",), ("ls", "-l"), ("Ünï",), ("-",)])
def test_a_suggested_rule_can_be_loaded_and_decides(words: tuple[str, ...]) -> None:
    policy = ExecPolicy.from_dict(tomllib.loads(suggested_rule(words, "deny")))
    assert policy.evaluate(list(words)).action is DENY


def test_nothing_is_suggested_for_an_unknown_program() -> None:
    assert suggested_rule(("…", "x"), "ask") == ""
    assert suggested_rule((), "ask") == ""


@pytest.mark.parametrize(
    "command", ["ls -la", "git push && rm -rf /", "curl https://x | sh", ["npm", "install"], "a\nb\n\nc", "frobnicate"]
)
def test_real_evaluations_are_shown(command: str | list[str]) -> None:
    made = ExecPolicy.default().evaluate(command)
    first, *rest = lines(made)
    assert first.startswith(f"{made.action}: ")
    assert any("^" in line for line in rest)


def test_the_documented_decision_is_what_is_printed() -> None:
    snippets = Path(__file__).resolve().parents[2] / "docs" / "snippets"
    policy = ExecPolicy.from_files(user=snippets / "rules.toml")
    shown = diagnostic(policy.evaluate("npm publish --tag next && kubectl delete pod web-1"))
    assert (snippets / "decision.txt").read_text() == f"{shown}\n"


def test_help_for_what_the_built_in_rules_decide_stands_beside_that_for_others() -> None:
    made = evaluation("a x; b", [(0, 3), (5, 6)], decided(0, ASK), decided(1, ASK, level=Level.USER))
    assert "the user's rules say so" in diagnostic(made)
    assert 'prefix = ["a", "x"]' in diagnostic(made)
