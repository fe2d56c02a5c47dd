"""
The judges of the reader, judged: what they must see, and that a loss is noticed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.shell.judge import fits, uncovered
from tests.shell.oracle import BASH, SHFMT, Seen, is_bash, is_bash_all, seen, seen_all
from tests.shell.texts import damage, jumble, write
from tests.shell.traced import Trace, trace

from sandboxkit.model import UNKNOWN, Command, Doubt, Redirect, Setting, SimpleCommand, Unknown

if TYPE_CHECKING:
    from pathlib import Path

needs_bash = pytest.mark.skipif(BASH is None, reason="bash is not installed")
needs_shfmt = pytest.mark.skipif(SHFMT is None, reason="shfmt is not installed")

WORDS = [
    ('r\\\nm \\r"\\\\a\\$b"', ["rm", "r\\a$b"]),
    ("$'r\\x6d' $'\\xc3'$'\\xa9' $'\\u00e9' $'\\101\\'\\q'", ["rm", "é", "é", "A'\\q"]),
    ('\'a b\' "c d" $"e" é', ["a b", "c d", "e", "é"]),
    ("a {b,c} * '*' \\* {} a{b x=~ ~ [ ] [a]", ["a", None, None, "*", "*", "{}", "a{b", None, None, "[", "]", None]),
    ('$a "$b" ${c}d $((1)) <(:)', [None] * 5),
    ("$'a\\0b' $'\\cA'", [None, None]),
]
INNER = [
    "echo $(i)",
    'echo "$(i)"',
    "echo `i`",
    "echo `echo \\`i\\``",
    "echo ${x:-$(i)}",
    "echo ${x/$(i)/y} ",
    "echo ${x:$(i)}",
    "echo ${y[$(i)]}",
    "echo $((`i`))",
    "echo $[1+$(i)]",
    "x=$(i)",
    "x[$(i)]=1",
    "x=(a $(i))",
    "a <(i)",
    "a >(i)",
    "a > $(i)",
    "a <<< $(i)",
    "a <<E\n$(i)\nE",
    "a <<-E\n\t$(i)\n\tE",
    "[[ $(i) ]]",
    "(( $(i) ))",
    "declare -x A=$(i)",
    "let a=$(i)",
    "a; i",
    "a && i",
    "a || i",
    "a | i",
    "a |& i",
    "a & i",
    "a\ni",
    "! i",
    "time -p i",
    "coproc i",
    "coproc N { i; }",
    "(i)",
    "{ i; }",
    "if i; then a; fi",
    "if a; then a; elif i; then a; else a; fi",
    "while i; do a; done",
    "until a; do i; done",
    "for x in $(i); do a; done",
    "for ((x=$(i);;)); do a; done",
    "for ((;;)); do i; done",
    "select x in a; do i; done",
    "case $(i) in a) b;; esac",
    "case a in $(i)) b;; esac",
    "case a in a) i;; esac",
    "f() { i; }",
    "function f { i; }",
    "f() (i)",
]


@needs_bash
def test_bash_knows_bash() -> None:
    good = [text for text, _ in WORDS] + INNER + ["-x", "+x"]
    assert is_bash_all(good) == [True] * len(good)
    bad = ["ls &&", "echo $(", "'", "if a; then b", "ls ;; x", "a ( b", "done", "{ a }", "f() {", "((1)", "[[ a"]
    assert is_bash_all(bad) == [False] * len(bad)


@needs_bash
def test_asking_bash_runs_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert is_bash(f": > {made}; set +n; : > {made}\n: > {made}")
    assert not made.exists()


@needs_shfmt
@pytest.mark.parametrize(("text", "words"), WORDS)
def test_words_are_what_is_left_of_the_quotes(text: str, words: list[str | None]) -> None:
    found = seen(text)
    assert found
    assert found[0].words == tuple(words)


@needs_shfmt
def test_inner_commands_are_seen() -> None:
    for text, found in zip(INNER, seen_all(INNER), strict=True):
        assert found is not None, text
        assert ("i",) in [each.words for each in found], text


@needs_shfmt
def test_redirections_and_assignments() -> None:
    found = seen("A=1 B=$x a 2>&1 >& f &> 'g' >f$x 5<&- <<E <<< x\ntext\nE\n")
    redirects = ((">&", "f"), ("&>", "g"), (">", None), ("<<", None), ("<<<", None))
    assert found == [Seen(("a",), ("A", "B"), redirects)]
    assert seen("{ a; } >> f") == [Seen(redirects=((">>", "f"),)), Seen(("a",))]
    assert seen("a (") is None


@needs_shfmt
def test_a_coprocess_of_a_simple_command_has_no_name() -> None:
    assert seen("coproc p a | q") == [Seen(("p", "a")), Seen(("q",))]
    assert seen("coproc p A=1 b") == [Seen(("p", None, "b"))]
    assert seen("coproc p { a; }") == [Seen(("a",))]
    assert seen("coproc A=$") == [Seen((), ("A",))]
    assert seen("coproc A=1 B+=2 p C=3") == [Seen(("p", "C=3"), ("A", "B"))]


def part(*argv: str, doubts: dict[int, Unknown] | None = None, setting: Setting = Setting.NONE) -> SimpleCommand:
    return SimpleCommand(argv, unknown=tuple((doubts or {}).items()), setting=setting)


def test_words_fit_by_what_is_known_of_them() -> None:
    pattern, value, several = (Unknown(doubt, "a" * (doubt is Doubt.PATTERN)) for doubt in Doubt)
    one, two, none = part("p", UNKNOWN), part("p", UNKNOWN, "z"), part("p")
    assert fits(("p", "x"), part("p", UNKNOWN, doubts={1: value}))
    assert not fits(("p",), part("p", UNKNOWN, doubts={1: value}))
    assert not fits(("p", "x", "y"), part("p", UNKNOWN, doubts={1: value}))
    assert fits(("p",), part("p", UNKNOWN, doubts={1: several}))
    assert fits(("p", "x", "y", "z"), part("p", UNKNOWN, "z", doubts={1: several}))
    assert fits(("p", "ab", "ac"), part("p", UNKNOWN, doubts={1: pattern}))
    assert not fits(("p", "b"), part("p", UNKNOWN, doubts={1: pattern}))
    assert not fits(("p",), part("p", UNKNOWN, doubts={1: pattern}))
    assert fits(("p", None), none)
    assert fits(("p", None), two)
    assert fits((None, "z"), two)
    assert not fits(("p", "x"), one)
    assert not fits(("q", None), none)


def test_a_missing_command_is_noticed() -> None:
    theirs = [Seen(("a", "x")), Seen(("a", None)), Seen(("b",), ("A",), ((">", "f"),))]
    parts = (part("a", "x"), part("b"), part("a", "x", setting=Setting.TEXT))
    assert uncovered(theirs, Command("", parts)) == ["no part for 'a' …", "no assignment of A", "no redirection >f"]
    assert uncovered(theirs[:1], Command("", (SimpleCommand(("a", "x")),))) == []
    assert (
        uncovered([Seen((), (), ((">", "f"),))], Command("", (SimpleCommand((), redirects=(Redirect(">", "f"),)),)))
        == []
    )


@pytest.mark.requires("bubblewrap")
def test_a_trace_holds_what_ran(tmp_path: Path) -> None:
    texts = [
        "p1 'a b' \"\"; p5 || p2 > f1",
        "p5 && p2",
        'x=p3; env nice $x "$(p9)"',
        "p1; xargs p2 <<< $'a\\nb'",
        "exec -a x p4 é",
    ]
    assert trace(texts, tmp_path) == [
        Trace((("p1", "a b", ""), ("p5",), ("p2",)), ("f1",)),
        Trace((("p5",),), ()),
        Trace((("p9",), ("p3", "p8 z")), ()),
        Trace((("p1",), ("p2", "a", "b")), ()),
        Trace((("p4", "é"),), ()),
    ]


@needs_bash
def test_most_written_text_is_bash_and_most_damaged_text_is_not() -> None:
    rng = random.Random(1)
    written = [write(rng) for _ in range(100)]
    assert sum(is_bash_all(written)) > 80
    assert sum(is_bash_all([damage(rng, text) for text in written])) < 80
    assert sum(is_bash_all([jumble(rng) for _ in written])) < 50
