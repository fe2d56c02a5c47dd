"""
Words stay what they are wherever a command may stand: compared with bash.

Nothing runs but the function `w`, which prints its words: PATH leads nowhere, and no piece
of a word opens a file or starts a program.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandboxkit.errors import CommandError
from sandboxkit.shell import parse

BASH = shutil.which("bash")
PIECES = (
    *(
        "a",
        "b",
        "'c d'",
        '"e f"',
        "\\g",
        "\\ ",
        "$'h\\x41'",
        "\\\n",
        "{x,y}",
        "{1..2}",
        "=",
        "~",
        "~/",
        "#",
        "''",
        '""',
    ),
    *(
        "\\$v",
        "\\'",
        "'\"'",
        '"\'"',
        ":",
        "-",
        "--",
        "/",
        "%",
        "[",
        "]",
        "@",
        "!",
        "^",
        "$",
        "\\\\",
        "é",
        "\\{",
        "}",
        "{",
    ),
    *("'#'", '"\\$"', '$"t"', "+=", "x=", "\\~", "..", " ", "\t", " \\ ", '"$"', "\\;", "\\|", "';'", '"&"', "\\#"),
)
CONTEXTS = (
    *("w {}", "w {} > /dev/null", "{{ w {}; }} > /dev/null", "{{ w {}; }}", "(w {})", "w {}; w {}", "w {} && w {}"),
    *("w {}\nw {} > /dev/null", "w {} <<E\nq\nE\nw {}", "w {} <<E > /dev/null\nq\nE\nw {}", "x=1 w {}", "x={} w {}"),
    *("a=({} {}); w {}", "export y={} && w {}", "w < /dev/null {}", "w {} 2>&1", "w > /dev/null {}", "w <<< {} {}"),
    *("w 2>/dev/null {} 3>&1", "! w {}", "! w {} && w {}", "time w {}", "if w {}; then w {}; fi", "w {} | :"),
    *("while w {}; do w {}; break; done", "until w {}; do w {}; done", "for i in 1; do w {}; done", "w {} |& :"),
    *("for i in {}; do w {}; done", "case a in a) w {};; esac", "case {} in *) w {} ;; esac", "f() {{ w {}; }}; f"),
    *("function g {{ w {}; }}; g", "[[ a ]] && w {}", "(( 1 )); w {}", "w {} # c", "w {}\n# c\nw {}", "w {};#c"),
    *(
        "x={}; w {}",
        ": | : | w {}\nw {} > /dev/null",
        "w {} || w {} <<< q",
        ": $(w {})",
        ': "$(w {})" {}',
        ": `:` {}; w {}",
    ),
)
WORDS = st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join), min_size=1, max_size=3)
TEXTS = st.builds(
    lambda context, words: context.format(*(" ".join(each) for each in words[: context.count("{}")])),
    st.sampled_from(CONTEXTS),
    st.lists(WORDS, min_size=3, max_size=3),
)


def calls(text: str) -> tuple[list[tuple[str, ...]], bool]:
    """
    The words of every call of `w` in *text*, and whether bash refuses the text.
    """
    function = "w() { printf '%s\\0' w \"$@\" >&9; printf '%s\\0\\0' END >&9; }\nexec 9>&1\n"
    result = subprocess.run(
        [str(BASH), "--noprofile", "--norc", "-c", function + text],
        env={"PATH": "/nonexistent", "LC_ALL": "C.UTF-8", "HOME": "~"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=10,
    )
    found = os.fsdecode(result.stdout).split("\0END\0\0")[:-1]
    return [tuple(each.split("\0")) for each in found], b"syntax error" in result.stderr


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@settings(max_examples=300, deadline=None)
@given(TEXTS)
@example("w 'a'\\b > /dev/null")
@example(": | : | w a\nw b > /dev/null")
@example('w -$"t"')
@example('x=$ "w" y')
@example('w <<< $ "a" b')
@example("case a in a) w b\\ ;; esac")
@example("w $@{1..2}")
@example("(time (w a))")
def test_known_words_are_those_of_bash_in_every_place(text: str) -> None:
    try:
        command = parse(text)
    except CommandError:
        return
    if command.opaque is not None or any(part.unknown for part in command.parts):
        return
    found, is_refused = calls(text)
    assert not is_refused
    assert set(found) <= {part.argv for part in command.parts}


@pytest.mark.parametrize(
    "text",
    [
        "[ -f\nrm\n]",
        "[ a -o\nrm ]",
        "[ !\nrm ]",
        "[\nrm ]",
        "[ a =\nrm ]",
        "[ a\n-o b ]",
        "[ a \n]",
        "if [ -n\nrm ]; then :; fi",
    ],
)
def test_a_line_ends_within_single_brackets_as_anywhere(text: str) -> None:
    assert parse(text).opaque is not None


@pytest.mark.parametrize("text", ["[[ a\n&& b ]]", '[ "a\nb" ]', "[ a = b \\\n-o c ]", '[ -n "$(ls\n)" ]'])
def test_lines_within_words_and_double_brackets_go_on(text: str) -> None:
    assert parse(text).opaque is None


@pytest.mark.parametrize(
    "text", ["for i in\na\ndo ls; done", "for i in a\nb\ndo ls; done", "select i in \na; do ls; done"]
)
def test_the_words_of_a_loop_stand_on_one_line(text: str) -> None:
    assert parse(text).opaque is not None


@pytest.mark.parametrize("text", ["for i in a \\\n b; do ls; done", "for i in a b\n\ndo ls; done"])
def test_lines_around_them_do_not_matter(text: str) -> None:
    assert parse(text).opaque is None
