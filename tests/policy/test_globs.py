"""
Globs that are looked up say what one regular expression for all of them would.
"""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxkit.policy._arguments import ArgumentSet
from sandboxkit.policy._glob import glob_pattern
from sandboxkit.policy._path_globs import PathGlobs

NAMES = st.sampled_from(["a", ".ssh", "b.c", "*", "**", "x*", "*.y", "a*b"])
GLOBS = st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), min_size=1, max_size=4)
PATHS = st.lists(st.sampled_from(["a", ".ssh", "b.c", "x1", "z.y", "ab", "", "~", "\n"]), max_size=5).map("/".join)


def reference(glob: str) -> str:
    known = {"**/": "(?:.*/)?", "/**": "(?:/.*)?", "*": "[^/]*"}
    return "".join(known.get(piece) or re.escape(piece) for piece in re.split(r"(\*\*/|/\*\*|\*)", glob))


@settings(max_examples=500, deadline=None)
@given(GLOBS, PATHS)
def test_paths(globs: list[str], path: str) -> None:
    pattern = "|".join(reference(glob) for glob in globs)
    assert PathGlobs(globs).take(path) == bool(re.fullmatch(pattern, path, re.DOTALL))


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.text(alphabet="ab*?=", min_size=1, max_size=5).filter(lambda glob: glob != "**"), min_size=1, max_size=4
    ),
    st.text(alphabet="ab=\n", min_size=1, max_size=6),
)
def test_words(globs: list[str], word: str) -> None:
    # A name with "=" at its end is an option's only behind a dash.
    assert ArgumentSet.of(globs).admits([word]) == any(glob_pattern(glob).fullmatch(word) for glob in globs)
