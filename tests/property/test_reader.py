"""
What holds for the reading of every text, and for the decisions about texts put together.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tests.shell.oracle import BASH, is_bash
from tests.shell.texts import AROUND, JOINS, PIECES, bash_texts, broken_texts

from sandboxkit.errors import CommandError
from sandboxkit.model import Command, PolicyAction, Setting
from sandboxkit.policy import ExecPolicy
from sandboxkit.shell import MAX_TEXT, parse

CORPUS = Path(__file__).parent.parent / "corpus"
KNOWN = [
    row["command"]
    for name in ("policy_ok.jsonl", "policy_bypass.jsonl")
    for row in map(json.loads, (CORPUS / name).read_text(encoding="utf-8").splitlines())
    if "command" in row
]
POLICY = ExecPolicy.default()
SLOWEST_S = 1.0
"""Many times what the longest text takes, so that a busy machine does not matter."""

shell_text = st.one_of(bash_texts(), broken_texts(), st.sampled_from(KNOWN))
any_text = st.one_of(
    shell_text,
    st.text(max_size=80),
    st.text(st.characters(), max_size=80),  # with lone surrogates and NUL
    st.text("ab $(){}[]<>|&;`'\"\\\n\t\r#=~*?!-\0\udc80\ud800é", max_size=60),
)
quick = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
needs_bash = pytest.mark.skipif(BASH is None, reason="bash is not installed")


def read(text: str) -> Command:
    try:
        return parse(text)
    except CommandError:
        assume(False)
        raise


def decided(text: str) -> PolicyAction:
    try:
        return POLICY.evaluate(text).action
    except CommandError:
        assume(False)
        raise


# -- reading --------------------------------------------------------------------------


@settings(quick, max_examples=300)
@given(any_text)
@example("ls\0")
@example("ls \ud800")
@example("ls \udc80")
@example("\ufeffls")
def test_the_reader_is_total_and_sound(text: str) -> None:
    try:
        command = parse(text)
    except CommandError:
        return
    assert command.source == text
    assert command == parse(text)
    assert command.opaque is None or command.argv is None
    check_parts(text, command)


def check_parts(text: str, command: Command) -> None:
    for index, part in enumerate(command.parts):
        assert part.own is None or 0 < part.own <= len(part.argv)
        assert part.inside is None or (part.inside != index and 0 <= part.inside < len(command.parts))
        assert part.outer is None or (part.outer != index and 0 <= part.outer < len(command.parts))
        assert all(0 <= other < len(command.parts) and other != index for other in part.reads_from)
        places = [place for place, _ in part.unknown]
        assert places == sorted(set(places))
        for place, unknown in part.unknown:
            assert part.argv[place].startswith(unknown.known)
        if part.span is None:
            continue
        start, end = part.span
        assert 0 <= start < end <= len(text)
        if part.setting & (Setting.SUSPECT | Setting.TEXT) or part.is_dynamic:
            continue  # it stands near, or within what was handed over
        if part.argv == ("printenv",) and part.outer is not None:
            continue  # what env does without a command
        if part.program.isalnum() and not set(text[start:end]) & set("'\"\\$`{"):
            assert part.program in text[start:end]
    assert no_circle([part.inside if part.outer is None else part.outer for part in command.parts])


def no_circle(above: list[int | None]) -> bool:
    """
    Whether every way up through *above* ends.
    """
    for start in range(len(above)):
        place: int | None = start
        for _ in range(len(above) + 1):
            if place is None:
                break
            place = above[place]
        if place is not None:
            return False
    return True


def test_no_character_ends_the_process() -> None:
    """
    A grammar's scanner that looks characters up in a table of C would read far outside
    of it, and end the process that asks.
    """
    script = """if True:
        from sandboxkit.shell import parse
        for place in ("{", "echo a{", "{1..", "${", "$", "<<", "[", "~", "a=", "$((", "a["):
            for code in (0xFF, 0x100, 0x2028, 0xFFFD, *range(0x10000, 0x110000, 0x1000)):
                parse(place + chr(code))
    """
    for _ in range(4):  # where memory begins and ends is another each time
        child = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, timeout=30)
        assert (child.returncode, child.stderr) == (0, b"")


DEEP = [
    *(
        "(",
        "$(",
        "{ ",
        "`",
        '"$(',
        "$((",
        "${x:-",
        "[[ ( ",
        "if ",
        "while ",
        "case a in a) ",
        "f() { ",
        "<(",
        "! ",
        "a[",
    ),
    *(
        "{a,",
        "'",
        '"',
        "\\",
        "\\\n",
        "$'",
        "a;",
        "a|",
        "a&",
        "a&&",
        "a\n",
        "<<E ",
        "<<E\n",
        "<<-'E' $(",
        ">a ",
        "a=b ",
        "a ",
    ),
    *(
        "for x in ",
        "$[",
        "((",
        "${x[",
        "${!",
        "time ",
        "coproc ",
        "env ",
        "eval ",
        "bash -c '",
        'bash -c "',
        "*",
        "?",
        "[a",
    ),
    *(
        "\u202e",
        "é",
        "#",
        "#\n",
        "$",
        "~",
        "=(",
        "x=( ",
        "; ;",
        ")",
        "}",
        "]]",
        "fi ",
        "\t",
        "\r\n",
        "sudo ",
        "timeout 5 ",
    ),
    *('eval "$(', "x=$x$x;", "x=$(", "${x/a/", "@(", "!(a|", "a{1..9}", "{1..99999999}", "$x", '"$@" ', "find -exec "),
]


@pytest.mark.parametrize("size", [MAX_TEXT, 10 * MAX_TEXT])
def test_deep_and_long_text_is_read_or_given_up_quickly(size: int) -> None:
    slow = {}
    for piece in (*DEEP, *PIECES):
        for text in (piece * (size // len(piece)), (piece * (size // len(piece)))[: size - 3] + " ls"):
            start = time.process_time()
            try:
                command = parse("x" + text[:-1])
            except CommandError:
                continue
            if (took := time.process_time() - start) > SLOWEST_S:
                slow[piece] = took
            assert size <= MAX_TEXT or command.unread
            assert len(command.parts) <= MAX_TEXT
    assert slow == {}


# -- deciding -------------------------------------------------------------------------


@settings(quick, max_examples=300)
@given(any_text)
def test_what_cannot_be_read_is_never_allowed(text: str) -> None:
    try:
        evaluation = POLICY.evaluate(text)
    except CommandError:
        return
    if evaluation.command.opaque is not None:
        assert evaluation.action > PolicyAction.ALLOW
    if evaluation.command.unread:
        assert evaluation.action is PolicyAction.DENY


@needs_bash
@settings(quick, max_examples=300)
@given(
    st.one_of(
        broken_texts(),
        st.sampled_from(KNOWN).flatmap(lambda text: st.integers(0, len(text)).map(lambda end: text[:end])),
    )
)
def test_what_bash_refuses_is_never_allowed(text: str) -> None:
    if decided(text) is PolicyAction.ALLOW:
        assert is_bash(text)


ORDINARY = [
    "ls",
    "pwd",
    "git status",
    "echo hi",
    "true",
    "cat README.md | wc -l",
    "make -j2",
    "grep -rn x src > f1",
    "(date)",
]
WRAPPED = [
    *(
        "env {b}",
        "timeout 5 {b}",
        "nohup {b}",
        "nice {b}",
        "nice -n 5 {b}",
        "setsid {b}",
        "command {b}",
        "exec {b}",
        "sudo {b}",
    ),
    *(
        "env A=1 {b}",
        "env -i {b}",
        "time -p {b}",
        "stdbuf -o0 {b}",
        "xargs {b}",
        "env -u A timeout 5 {b}",
        "eval {b}",
        "doas {b}",
    ),
    *(
        "bash -c '{b}'",
        "sh -c '{b}'",
        "env bash -c '{b}'",
        "eval '{b}'",
        "timeout -s KILL 5 bash -c '{b}'",
        "bash <<< '{b}'",
    ),
    *(
        "exec -a x {b}",
        "ionice -c 3 {b}",
        "watch {b}",
        "flock f1 {b}",
        "env -- {b}",
        "busybox {b}",
        "command -p {b}",
        "unshare {b}",
    ),
    *(
        "find . -exec {b} \\;",
        "parallel {b}",
        "script -c '{b}'",
        "trap '{b}' EXIT",
    ),
]


def closed(text: str) -> bool:
    """
    Whether *text* ends where it ends: nothing put behind it becomes a part of it.
    """
    return is_bash(text) and is_bash(f"{text}\n)") is False and not text.endswith("\\") and "<<" not in text


def is_strict_after(whole: str, *parts: str) -> None:
    assume(is_bash(whole))
    before, after = max(map(decided, parts)), decided(whole)
    assert after >= before, [(each, str(decided(each))) for each in (whole, *parts)]


@needs_bash
@settings(quick, max_examples=200)
@given(st.sampled_from(JOINS), st.sampled_from(ORDINARY), st.one_of(st.sampled_from(KNOWN), bash_texts()))
def test_joining_never_loosens(join: str, one: str, other: str) -> None:
    assume(closed(other) and ("{b}\n" in join or "#" not in other))
    is_strict_after(join.format(a=one, b=other), one, other)


@needs_bash
@settings(quick, max_examples=200)
@given(st.sampled_from(AROUND), st.one_of(st.sampled_from(KNOWN), bash_texts()))
def test_putting_into_a_construct_never_loosens(around: str, text: str) -> None:
    assume(closed(text) and ("{b}\n" in around or "#" not in text))
    # Behind `time` the grammar sees words where it sees a test else, and can read more.
    assume("time" not in around or not text.lstrip().startswith("["))
    is_strict_after(around.format(b=text), text)


PLAIN = [text for text in KNOWN if parse(text).is_plain and not set(text) & set("'\\")]


@needs_bash
@settings(quick, max_examples=200)
@given(st.sampled_from(WRAPPED), st.sampled_from(PLAIN))
def test_wrapping_never_loosens(wrapped: str, text: str) -> None:
    is_strict_after(wrapped.format(b=text), text)


def quotings(word: str) -> st.SearchStrategy[str]:
    """
    Other ways to write the plain *word*.
    """
    middle = len(word) // 2
    return st.sampled_from(
        [
            *(f"'{word}'", f'"{word}"', f"{word}''", f'{word[:middle]}""{word[middle:]}', f"$'{word}'", f'$"{word}"'),
            *(
                f"{word[:middle]}\\\n{word[middle:]}",
                f"'{word[:middle]}'{word[middle:]}",
                "".join(f"\\{char}" for char in word),
            ),
            *(
                "$'" + "".join(f"\\x{ord(char):02x}" for char in word) + "'",
                "$'" + "".join(f"\\{ord(char):o}" for char in word) + "'",
            ),
            *(
                "$'" + "".join(f"\\u{ord(char):04x}" for char in word) + "'",
                f"\\{word}",
                "''" + word,
                f"{word[:1]}$'{word[1:]}'",
            ),
        ]
    )


@needs_bash
@settings(quick, max_examples=200)
@given(st.data(), st.sampled_from([text for text in PLAIN if text.isascii()]))
def test_quoting_a_word_never_loosens(data: st.DataObject, text: str) -> None:
    words = parse(text).argv
    assert words
    place = data.draw(st.integers(0, len(words) - 1))
    word = words[place]
    assume(word and word.isascii() and text.split().count(word) == 1)
    quoted = text.replace(word, data.draw(quotings(word)), 1)
    is_strict_after(quoted, text)
