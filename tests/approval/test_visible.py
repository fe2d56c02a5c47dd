"""
Foreign text obeys nobody on a terminal, and hides nothing.
"""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxkit.approval._visible import foreign_letters, marked, needs_escape, visible, width_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls -l", "ls -l"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("a\x00\x7f\x9b", r"a\x00\x7f\x9b"),
        ("\u202eevil\u202c", r"\u202eevil\u202c"),
        ("\u2066x\u2069\u200e\u200f\u061c", r"\u2066x\u2069\u200e\u200f\u061c"),
        ("a\u200b\u200c\u200d\u2060\ufeffb", r"a\u200b\u200c\u200d\u2060\ufeffb"),
        ("a\u00ad\u034f\u180e", r"a\xad\u034f\u180e"),
        ("\U000e0041\U000e007f", r"\U000e0041\U000e007f"),
        ("a\ufe0f\U000e0100", r"a\ufe0f\U000e0100"),
        ("e\u0301", r"e\u0301"),
        ("\u3164\u115f\u1160\uffa0\u2800", r"\u3164\u115f\u1160\uffa0\u2800"),
        ("\u00a0\u2003\u3000\u2028\u2029", r"\xa0\u2003\u3000\u2028\u2029"),
        ("\u05d0\u0627\u0661", r"\u05d0\u0627\u0661"),
        ("\ue000\ufffe\U0010ffff\udcff", r"\ue000\ufffe\U0010ffff\udcff"),
        ("grüße 漢字", "grüße 漢字"),
        (r"a\x1b", r"a\x1b"),  # nothing is escaped, so a backslash is one
        ("a\\x1b\x1b", r"a\\x1b\x1b"),  # something is, so it is told apart
    ],
)
def test_what_is_seen(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_nothing_is_left_that_acts(text: str) -> None:
    shown = visible(text)
    assert not any(needs_escape(char) for char in shown)
    assert all(unicodedata.category(char)[0] not in "CMZ" or char == " " for char in shown)


@given(st.text(), st.text())
def test_two_texts_never_look_the_same(one: str, other: str) -> None:
    # A text with escapes and one that only looks like it are told apart by the note of the question.
    if visible(one) == visible(other):
        assert one == other or (visible(one) == one) != (visible(other) == other)


@given(st.text(alphabet=st.sampled_from("ab \\\n\x1b…↩é漢"), max_size=60), st.integers(16, 40))
def test_lines_fit_and_lose_nothing(text: str, columns: int) -> None:
    lines = list(marked(text, [], columns=columns))
    assert all(width_of(line) <= columns for line in lines)
    joined = "".join(line[:-1] + ("\n" if line.endswith("↩") else "") for line in lines[:-1]) + lines[-1]
    assert joined == visible(text, keep="\n")


def test_carets_stand_under_what_was_seen() -> None:
    assert list(marked("ls; rm x", [(4, 8)], columns=40)) == ["ls; rm x", "    ^^^^"]
    assert list(marked("漢 rm", [(2, 4)], columns=40)) == ["漢 rm", "   ^^"]
    assert list(marked("\x1b rm", [(0, 1)], columns=40)) == [r"\x1b rm", "^^^^"]
    assert list(marked("a\nb c", [(4, 5)], columns=40)) == ["a↩", "b c", "  ^"]
    assert list(marked("abcdefghijklmnopqrst", [(14, 17)], columns=16)) == [
        "abcdefghijklmno…",
        "              ^",
        "pqrst",
        "^^",
    ]


def test_letters_that_look_like_others_are_named() -> None:
    assert foreign_letters("сat é") == [
        "с U+0441 cyrillic small letter es",
        "é U+00E9 latin small letter e with acute",
    ]
    assert foreign_letters("cat") == []
