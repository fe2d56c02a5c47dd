"""
Brace expansion, word for word as bash does it.
"""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxkit.shell._braces import braces
from sandboxkit.shell._unsure import UnsureError

BASH = shutil.which("bash")

WORDS = [
    ("a", ["a"]),
    ("", [""]),
    ("{a,b}", ["a", "b"]),
    ("x{a,b}y", ["xay", "xby"]),
    ("{a,b}{c,d}", ["ac", "ad", "bc", "bd"]),
    ("{a,{b,c}d}", ["a", "bd", "cd"]),
    ("{,a}", ["", "a"]),
    ("{a,}", ["a", ""]),
    ("{,}", ["", ""]),
    ("{}", ["{}"]),
    ("{a}", ["{a}"]),
    ("{a", ["{a"]),
    ("a}", ["a}"]),
    ("{a,b", ["{a,b"]),
    ("a{},b}", ["a}", "ab"]),
    ("{},b}", ["{},b}"]),
    ("{a},b}", ["a}", "b"]),
    ("{{a,b}", ["{a", "{b"]),
    ("{a,b}}", ["a}", "b}"]),
    ("{1..3}", ["1", "2", "3"]),
    ("{3..1}", ["3", "2", "1"]),
    ("{1..7..3}", ["1", "4", "7"]),
    ("{7..1..-3}", ["7", "4", "1"]),
    ("{-1..1}", ["-1", "0", "1"]),
    ("{+1..2}", ["1", "2"]),
    ("{01..3}", ["01", "02", "03"]),
    ("{-01..1}", ["-01", "000", "001"]),
    ("{1..010..9}", ["001", "010"]),
    ("{a..c}", ["a", "b", "c"]),
    ("{c..a..2}", ["c", "a"]),
    ("{1..1}", ["1"]),
    ("{1..2..0}", ["1", "2"]),
    ("{a..1}", ["{a..1}"]),
    ("{1..a}", ["{1..a}"]),
    ("{1..}", ["{1..}"]),
    ("{..1}", ["{..1}"]),
    ("{1.5..2}", ["{1.5..2}"]),
    ("{1..3..a}", ["{1..3..a}"]),
    ("{..{a,b}}", ["..a", "..b"]),
    ("{..{1..2}}", ["{..{1..2}}"]),
    ("{9999999999..10000000000}", ["9999999999", "10000000000"]),
]


@pytest.mark.parametrize(("word", "expanded"), WORDS)
def test_expansion(word: str, expanded: list[str]) -> None:
    assert list(braces(word)) == expanded


@pytest.mark.parametrize(
    "word",
    [
        "{1..100000}",
        "{1..201}",
        "{a,b}" * 8,
        "{" * 30 + "a,b" + "}" * 30 + "{a,b}" * 8,
        "{1..99999999999999999999}",
        "{A..z}",
        "{Z..a}",
    ],
)
def test_too_much_or_unclear_is_not_expanded(word: str) -> None:
    with pytest.raises(UnsureError):
        braces(word)


PIECES = st.sampled_from(
    ["{", "{", "}", "}", ",", ",", "..", "a", "b", "1", "0", "-", "+", "{1..3}", "{a..c}", "10", "."]
)


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(PIECES, min_size=1, max_size=9).map("".join), min_size=40, max_size=40))
def test_bash_expands_them_so_too(words: list[str]) -> None:
    # The letter in front keeps a word that expands to nothing.
    script = "".join(f"printf '%s\\0' w{word} END\n" for word in words)
    printed = subprocess.run([str(BASH), "--norc"], input=script.encode(), capture_output=True, check=True, timeout=20)
    lists = printed.stdout.decode().split("\0END\0")[:-1]
    for word, row in zip(words, lists, strict=True):
        with suppress(UnsureError):
            assert list(braces(f"w{word}")) == row.split("\0"), word
