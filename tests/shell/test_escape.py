"""
Backslash escapes, byte for byte as bash decodes them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxkit.shell._escape import Output, printed, unescape

BASH = shutil.which("bash")

VALUES = [
    ("plain", "plain"),
    (r"\a\b\e\E\f\n\r\t\v", "\a\b\x1b\x1b\f\n\r\t\v"),
    (r"\\ \' \" \?", "\\ ' \" ?"),
    (r"\q\.\{", r"\q\.\{"),
    (r"\x72\155", "rm"),
    (r"\x4", "\x04"),
    (r"\x414", "A4"),
    (r"\x{72}m", "rm"),
    (r"\x{4172}", "r"),
    (r"\x{72", "r"),
    (r"\x\xg", r"\x\xg"),
    (r"\1011", "A1"),
    (r"\0101", "\x081"),
    (r"\8\9", r"\8\9"),
    (r"\501", "A"),
    (r"\u72\u0072m", "rrm"),
    (r"\u00e9\U1F600", "é😀"),
    (r"\u\U", r"\u\U"),
    (r"\xc3\xa9", "é"),
    (r"\xff", "\udcff"),
    (r"\cA\ca\c[\c?", "\x01\x01\x1b\x7f"),
    (r"\c\\a", "\x1ca"),
    (r"a\0b", "a"),
    (r"a\x00b", "a"),
    (r"a\c@b", "a"),
    (r"a\x{}b", "a"),
    ("\\", "\\"),
    ("é\\n☃", "é\n☃"),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_ansi_c_strings(text: str, value: str) -> None:
    assert unescape(text) == value


PRINTED = [
    (["echo", "a", "b c"], Output("a b c", is_known=True)),
    (["echo"], Output("", is_known=True)),
    (["echo", "-n", "a"], Output("a", is_known=True)),
    (["echo", r"\x41\n"], Output(r"\x41\n", is_known=True)),
    (["echo", "-e", r"\x41\0101\101"], Output(r"AA\101", is_known=True)),
    (["echo", "-ne", r"a\tb"], Output("a\tb", is_known=True)),
    (["echo", "-eE", r"a\tb"], Output(r"a\tb", is_known=True)),
    (["echo", "-e", r"a\cb", "c"], Output("a", is_known=True)),
    (["echo", "-x", "a"], Output("-x a", is_known=True)),
    (["echo", "--", "a"], Output("-- a", is_known=True)),
    (["echo", "-e", r"a\0b"], Output("ab", is_known=False)),
    (["printf", "a"], Output("a", is_known=True)),
    (["printf", r"\x41\101\0101\n"], Output("AA\x081\n", is_known=True)),
    (["printf", "%s", r"\x41"], Output(r"\x41", is_known=True)),
    (["printf", "%b", r"\x41\101\0101"], Output("AAA", is_known=True)),
    (["printf", "%s %s;", "a", "b", "c"], Output("a b;c ;", is_known=True)),
    (["printf", "a%%"], Output("a%", is_known=True)),
    (["printf", r"\x25s", "a"], Output("%s", is_known=True)),
    (["printf", "--", "a"], Output("a", is_known=True)),
    (["printf", "-v", "x", "a"], Output("", is_known=True)),
    (["printf"], Output("", is_known=True)),
    (["printf", "%d", "5"], Output("5", is_known=False)),
    (["printf", "%5s", "a"], Output("a", is_known=False)),
    (["printf", "%b", r"a\cb"], Output("a", is_known=False)),
    (["printf", "%"], Output("%", is_known=False)),
    (["cat", "a"], None),
    ([], None),
]


@pytest.mark.parametrize(("argv", "output"), PRINTED)
def test_what_echo_and_printf_print(argv: list[str], output: Output | None) -> None:
    assert printed(tuple(argv)) == output


def test_a_format_is_used_a_bounded_number_of_times() -> None:
    output = printed(("printf", "%s", *["a"] * 10_000))
    assert output == Output("a" * 50, is_known=False)


ESCAPED = st.lists(
    st.sampled_from(["\\", "\\", "\\", "\\", *"01278xuUc{}abnrtefv?\"E@G %[s'"]), min_size=1, max_size=12
).map("".join)


def run(script: str) -> list[str]:
    result = subprocess.run(
        [str(BASH), "--norc"],
        input=script.encode(),
        env={"LC_ALL": "C.UTF-8", "PATH": "/nonexistent"},
        capture_output=True,
        check=False,
        timeout=20,
    )
    return os.fsdecode(result.stdout).split("\0")[:-1]


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@settings(max_examples=10, deadline=None)
@given(st.lists(ESCAPED, min_size=40, max_size=40))
def test_bash_decodes_strings_so_too(texts: list[str]) -> None:
    # A quote within ends the string, and a backslash before the last one goes on.
    texts = [text for text in texts if "'" not in text and not (len(text) - len(text.rstrip("\\"))) % 2]
    values = run("".join(f"printf '%s\\0' $'{text}'\n" for text in texts))
    assert values == [unescape(text) for text in texts]


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@pytest.mark.parametrize("command", ["echo", "echo -e", "printf --", "printf %b", "printf '%s|%b %%' a"])
@settings(max_examples=3, deadline=None)
@given(st.lists(ESCAPED, min_size=40, max_size=40))
def test_what_is_known_to_be_printed_is_printed(command: str, texts: list[str]) -> None:
    line = "x=$({} {} 2>/dev/null; builtin printf x); builtin printf '%s\\0' \"${{x%x}}\"\n"
    outputs = run("".join(line.format(command, shlex.quote(text)) for text in texts))
    for text, output in zip(texts, outputs, strict=True):
        ours = printed((*shlex.split(command), text))
        assert ours
        if ours.is_known:
            assert output in (ours.text, f"{ours.text}\n"), text
