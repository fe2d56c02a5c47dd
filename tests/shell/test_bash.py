"""
Text that is read as plain words is what bash itself would run: compared with bash.

No command runs: PATH leads nowhere, and bash hands the words of a program it cannot
find to the function `command_not_found_handle`, which prints them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from sandboxkit.shell import parse

BASH = shutil.which("bash")
CORPUS = Path(__file__).parent.parent / "corpus"
PRINT_WORDS = "command_not_found_handle() { printf '%s\\0' \"$@\"; }\n"
REAL_BUILTINS = {"[", "echo", "false", "kill", "printf", "pwd", "test", "true"}

pytestmark = pytest.mark.skipif(BASH is None, reason="bash is not installed")


def words_of_bash(text: str) -> tuple[str, ...]:
    assert BASH
    result = subprocess.run(
        [BASH, "--noprofile", "--norc", "-c", PRINT_WORDS + text],
        env={"PATH": "/nonexistent", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=10,
    )
    assert result.stderr == b"", (text, result.stderr)
    return tuple(result.stdout.decode().split("\0")[:-1])


def compare(text: str) -> None:
    argv = parse(text).argv
    if argv is None:
        return  # bash would do more than print words
    # A path would start a program, and a builtin would run instead of being printed.
    if "/" in argv[0] or argv[0] in REAL_BUILTINS or argv[0] == "":
        argv = ("word", *argv)
        text = "word " + text
    assert words_of_bash(text) == argv


FIRST = st.text(alphabet="ab!^%@:,.+-_=#~{}[]'\"\\ x", min_size=1, max_size=8)
REST = st.text(alphabet="ab!^%@:,.+-_=#~{}[]()'\"\\ \t\n/*?$`<>|&;é", max_size=25)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(FIRST, REST)
@example("ls", " HEAD~1")
@example("ls", " a'='~ b\"\"~ ''~ x=a~")
@example("]", "")
@example("!", "a")
@example("a", " {} } {")
@example("^a", "^b")
@example("a", " '!' \"!\" !a")
@example('"a"', " \"b\\\tc\" '\n'")
def test_generated_text(first: str, rest: str) -> None:
    text = first + rest
    assume(text.strip(" \t\n") and parse(text).is_plain)
    compare(text)


def corpus_texts() -> list[str]:
    rows = [
        json.loads(line)
        for name in ("policy_ok.jsonl", "policy_bypass.jsonl")
        for line in (CORPUS / name).read_text(encoding="utf-8").splitlines()
    ]
    return [row["command"] for row in rows if "command" in row]


def test_every_plain_row_of_the_corpus() -> None:
    plain = [text for text in corpus_texts() if parse(text).is_plain]
    assert len(plain) > 150
    for text in plain:
        compare(text)


def test_bash_s_own_list_of_builtins_is_known() -> None:
    listed = subprocess.run(
        [str(BASH), "--norc", "-c", "compgen -b; compgen -k"], capture_output=True, text=True, check=True, timeout=10
    ).stdout.split()
    for word in set(listed) - REAL_BUILTINS:
        assert not parse(f"{word} x").is_plain, word
