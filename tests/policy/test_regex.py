"""
The linear regex dialect: it means what Python's does, and is never slow.
"""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxkit.policy._glob import glob_pattern
from sandboxkit.policy._regex import LinearRegex, RegexError

CASES = [
    "",
    "a",
    "a*",
    "a+b?",
    "(ab|c)*d",
    "[a-c]+",
    "[^a-c]x",
    r"\d+\.\w*\s",
    r"\D\S\W",
    "a{2}",
    "a{1,3}",
    "a{2,}",
    "(a|b){0,2}c",
    "(?:a|)b",
    ".*x.*",
    "[]a]",
    "[a-]",
    r"[\d-]+",
    r"[\]\\]",
    "(a*)*",
    "(a|a)*b",
    "((a+)+)+",
    "a{0}b",
    "|a",
    r"\(\)\[\]\{\}",
    r"\n\t",
]


@pytest.mark.parametrize("pattern", CASES)
def test_same_language_as_python(pattern: str) -> None:
    linear, reference = LinearRegex(pattern), re.compile(pattern, re.DOTALL | re.ASCII)
    texts = [
        "",
        "a",
        "b",
        "aa",
        "ab",
        "aab",
        "abd",
        "ccd",
        "d",
        "ax",
        "x",
        "xx",
        "1.x ",
        "12._\t",
        "z!",
        "aaa",
        "aaaa",
        "c",
        "bc",
        "abc",
        "]",
        "a]",
        "-",
        "5-5",
        "\\",
        "()[]{}",
        "\n\t",
        "é",
        "é x",
    ]
    for text in texts:
        assert linear.fullmatch(text) == bool(reference.fullmatch(text)), text


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\.", "(?:ab)"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}"])).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


@settings(max_examples=300, deadline=None)
@given(st.recursive(atoms, grown, max_leaves=6), st.text(alphabet="ab.!", max_size=8))
def test_same_language_as_python_generated(pattern: str, text: str) -> None:
    assert LinearRegex(pattern).fullmatch(text) == bool(re.fullmatch(pattern, text, re.DOTALL | re.ASCII))


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*)(.*)(.*)(.*)x", ".*.*.*.*=", "(a?){50}b"])
def test_never_slow(pattern: str) -> None:
    started = time.process_time()
    assert not LinearRegex(pattern).fullmatch("a" * 50_000)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("^a", "not needed"),
        ("a$", "not needed"),
        ("(?=a)", "look-around"),
        ("(?<n>a)", "look-around"),
        ("(?i)a", "flags"),
        (r"(a)\1", "no meaning"),
        (r"\bx", "no meaning"),
        ("a**", "cannot follow"),
        ("a*?", "cannot follow"),
        ("a++", "cannot follow"),
        ("*a", "nothing to repeat"),
        ("(", "too early"),
        (")", "without"),
        ("[a", "too early"),
        ("[z-a]", "empty"),
        ("[[a]]", "within a class"),
        ("a{", "begins no"),
        ("a{x}", "begins no"),
        ("a{3,1}", "at most"),
        ("a{101}", "at most"),
        ("\\", "too early"),
        ("(a{100}){100}", "too large"),
        ("(" * 51 + ")" * 51, "nested"),
        ("a" * 501, "limit"),
    ],
)
def test_refused(pattern: str, problem: str) -> None:
    with pytest.raises(RegexError, match=re.escape(problem)):
        LinearRegex(pattern)


@pytest.mark.parametrize(
    ("glob", "text", "matches"),
    [
        ("a*b", "ab", True),
        ("a*b", "a/x b", True),
        ("a*b", "abc", False),
        ("*", "", True),
        ("?", "", False),
        ("a?c", "a\nc", True),
        ("a.c", "abc", False),
        ("*a*b*", "xaxbx", True),
        ("*ab*ba*", "xabax", False),
        ("[a]", "a", False),
        ("a**b", "ab", True),
        ("*x", "axbx", True),
    ],
)
def test_globs(glob: str, text: str, matches: bool) -> None:
    assert bool(glob_pattern(glob).fullmatch(text)) is matches


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab*?", max_size=8), st.text(alphabet="ab", max_size=10))
def test_globs_mean_what_a_simple_translation_means(glob: str, text: str) -> None:
    simple = "".join({"*": ".*", "?": "."}.get(char, char) for char in glob)
    assert bool(glob_pattern(glob).fullmatch(text)) == bool(re.fullmatch(simple, text, re.DOTALL))
