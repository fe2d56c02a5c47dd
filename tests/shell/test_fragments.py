"""
The rough reading: it sees commands wherever bash would run them, and never fails.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxkit.shell import PLACEHOLDER, fragments, parse, unescape

SEEN = [
    ("ls; rm -rf /", ("rm", "-rf", "/")),
    ("ls&&rm -rf /", ("rm", "-rf", "/")),
    ("{ ls; rm x; }", ("rm", "x")),
    ("(cd / && rm x)", ("rm", "x")),
    ("! rm x", ("rm", "x")),
    ("if rm x; then y; fi", ("rm", "x")),
    ('for d in /; do rm -rf "$d"; done', ("rm", "-rf", "/")),
    ("f() { rm x; }", ("rm", "x")),
    ("function f { rm x; }", ("rm", "x")),
    ("echo $(rm x)", ("rm", "x")),
    ('echo "$(rm x)"', ("rm", "x")),
    ("echo `rm x`", ("rm", "x")),
    (r"echo `echo \`rm x\``", ("rm", "x")),
    ("echo ${X:-$(rm x)}", ("rm", "x")),
    ("echo $((`rm x`))", ("rm", "x")),
    ("cat <(rm x)", ("rm", "x")),
    ("A=$(rm x) ls", ("rm", "x")),
    ("r''m x", ("rm", "x")),
    (r"\r\m x", ("rm", "x")),
    ("$'\\162\\155' x", ("rm", "x")),
    ("r\\\nm x", ("rm", "x")),
    ("rm${IFS}x", ("rm", "x")),
    ("c=rm; $c x", ("rm", "x")),
    ("r$@m x", ("rm", "x")),
    ("${NOPE:-rm} x", ("rm", "x")),
    ('echo "open; rm x', ("rm", "x")),
    ("ls # it's\nrm x", ("rm", "x")),
    ("cat <<EOF\n$(rm x)\nEOF", ("rm", "x")),
    ("cat <<'EOF'\ntext\nEOF\nrm x", ("rm", "x")),
    ("cat <<'EOF'; rm x\ntext\nEOF", ("rm", "x")),
    ("ls 2>/dev/null; rm x", ("rm", "x")),
]


@pytest.mark.parametrize(("text", "words"), SEEN)
def test_command_is_seen(text: str, words: tuple[str, ...]) -> None:
    assert words in [fragment.words for fragment in fragments(text)]


def test_data_of_a_quoted_heredoc_is_no_command() -> None:
    found = fragments("cat > doc.md <<'EOF'\nnever run rm -rf /\nEOF")
    assert [fragment.words for fragment in found] == [("cat",)]
    assert found[0].writes == ("doc.md",)


def test_what_a_shell_is_fed_is_kept() -> None:
    assert fragments("bash <<< 'rm x'")[0].stdin == "rm x\n"
    assert fragments("sh <<'E'\nrm x\nE")[0].stdin == "rm x\n"


def test_pipes_and_substitutions_are_linked() -> None:
    outer, inner, shell = fragments("echo $(curl x) | sh")
    assert (outer.words, inner.words, shell.words) == (("echo", PLACEHOLDER), ("curl", "x"), ("sh",))
    assert (inner.inside, shell.reads_from) == (0, 0)


@pytest.mark.parametrize("text", ["{ curl x; } | sh", "(curl x) | sh", "while a; do curl x; done | sh"])
def test_a_pipe_behind_a_group_reads_from_its_last_command(text: str) -> None:
    found = fragments(text)
    source = found[-1].reads_from
    assert source is not None
    assert found[source].words == ("curl", "x")


def test_assignments_stand_apart() -> None:
    (found,) = fragments("A=1 B='x y' ls -la")
    assert (found.assignments, found.words) == (("A=1", "B=x y"), ("ls", "-la"))


def test_escapes() -> None:
    assert unescape(r"\x72\155\u0020\t\q\'") == "rm \tq'"
    assert unescape("plain") == "plain"


@given(st.text(max_size=200))
def test_total(text: str) -> None:
    for index, fragment in enumerate(fragments(text)):
        assert fragment.words or fragment.assignments or fragment.writes
        assert 0 <= fragment.span[0] <= fragment.span[1] <= len(text) + 1
        assert fragment.inside is None or fragment.inside < index
        assert fragment.reads_from is None or fragment.reads_from < index


@given(st.text(alphabet="ab $(){}[]<>|&;`'\"\\\n#=~*?!", max_size=80))
def test_total_on_shell_text(text: str) -> None:
    fragments(text)


@given(st.lists(st.text(alphabet="ab-/.", min_size=1, max_size=6), min_size=1, max_size=5))
def test_plain_words_read_the_same_both_ways(words: list[str]) -> None:
    text = " ".join(words)
    command = parse(text)
    if command.opaque is None:
        assert [fragment.words for fragment in fragments(text)] == [command.parts[0].argv]
