"""
Lines of plain words read the same by their tokens as by the grammar.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandboxkit.shell._found import Found
from sandboxkit.shell._lines import pieces
from sandboxkit.shell._read import read, read_pieces
from sandboxkit.shell._unsure import TooMuchError, UnsureError

if TYPE_CHECKING:
    from sandboxkit.model import SimpleCommand

CORPUS = Path(__file__).parent.parent / "corpus"
WORDS = (
    "ls -la echo 'a b' \"c d\" ./x /bin/true a=1 x2 2 10 cat grep -n 'x;y' \"p|q\" env timeout 5 sh -c 'rm x' xargs cd src .. "
    "sudo find . -exec rm {} nohup bash python3 -c 'print(1)' foo,bar a:b a+b a@b %1 -- - '' \"\" é "
    "*.py src/* a? ~ ~/x ~/'a' *'x' ~u A=1 B='x' C= x=a.* #c # ~/*.d PATH=. time export D=$x"
).split(" ")
OPERATORS = ["&&", "||", "|", "|&", ";", "&", "\n", " "]
REDIRECTS = ["> f", ">> f", "< f", "2> f", "2>&1", ">&2", "&> f", ">| 'g h'", "2>f", ">f", "3<f", "1>&2"]


def by_tokens(text: str) -> list[SimpleCommand] | str | None:
    found, line = Found(), pieces(text)
    if line is None:
        return None
    try:
        read_pieces(text, line, found)
    except (UnsureError, TooMuchError) as problem:
        return type(problem).__name__
    return found.parts


def by_grammar(text: str) -> list[SimpleCommand] | str:
    found = Found()
    try:
        read(text, found)
    except (UnsureError, TooMuchError) as problem:
        return type(problem).__name__
    return found.parts


def corpus() -> list[str]:
    rows = [
        json.loads(line)
        for path in sorted(CORPUS.glob("policy_*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    return [row["command"] for row in rows if "command" in row]


def made(source: random.Random) -> str:
    tokens: list[str] = []
    for _ in range(source.randint(1, 14)):
        kind = source.random()
        tokens.append(source.choice(WORDS) if kind < 0.6 else source.choice(OPERATORS if kind < 0.85 else REDIRECTS))
    return source.choice([" ", " ", "  ", "\t", ""]).join(tokens)


def is_mixed(text: str) -> bool:
    # The grammar gives a list behind a pipe the pipe's input, all of it.
    return "|" in text.replace("||", "") and ("&&" in text or "||" in text)


def test_every_line_of_the_corpora() -> None:
    texts = corpus()
    read_so = [text for text in texts if pieces(text) is not None]
    assert len(read_so) > len(texts) / 2
    assert [text for text in read_so if by_tokens(text) != by_grammar(text) and not is_mixed(text)] == []


@pytest.mark.parametrize("seed", range(10))
def test_made_up_lines(seed: int) -> None:
    source = random.Random(seed)
    compared = 0
    for _ in range(1500):
        text = made(source)
        found = by_tokens(text)
        if found is None or is_mixed(text):
            continue
        expected = by_grammar(text)
        if expected != "UnsureError":  # the grammar may be less sure
            assert found == expected, text
            compared += 1
    assert compared > 100


def test_a_list_behind_a_pipe_reads_nothing() -> None:
    parts = by_tokens("a | b && c")
    assert isinstance(parts, list)
    assert [part.reads_from for part in parts] == [(), (0,), ()]


def test_a_list_in_the_background_has_a_directory_of_its_own() -> None:
    parts = by_tokens("cd a && b & c; cd d | e; f")
    assert isinstance(parts, list)
    assert [part.cwd for part in parts] == [None, "a", None, None, None, None]


@pytest.mark.parametrize(
    "text",
    [
        "echo $x", "a `b`", "a (b)", "{ a; }", "* a", "a [b]*", "a ~u", "A=~/x b", "A=* b", "A+=1 b", "A=1 > f", "HOME=/x a ~", "if a", "! a", "time a",
        "a <<E", "a <<< b", "a <(b)", "a >(b)", "a <> b", "a {fd}> b", "a >& b", "a 2>&-", "a &&", "a ||", "| a", "a ; ; b",
        "a 'b", 'a "b', "a \\b", "a > ", "> f", "a &| b", "export A=1", "eval x", "set -e", "[ a ]", "a \"$b\"", "a !b",
        "read x; b", "printf -v x y; b", "a\\\nb", "a 12>f", "a;;b", "a>b>", "a\r", "a &< b", "-a b", "a | | b", "a & & b",
    ],
)  # fmt: skip
def test_what_needs_the_grammar(text: str) -> None:
    assert pieces(text) is None


@pytest.mark.parametrize(
    "text", ["a" * 5000 + "(", "a'b'" * 1500 + "(", "x " + "ab" * 4000 + "\\", "a > " + "b'c'" * 1000 + "("]
)
def test_long_words_are_told_at_once(text: str) -> None:
    # Without possessive repetitions the expression would try every way to cut the word.
    assert pieces(text) is None
