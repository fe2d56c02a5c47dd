"""
Which text is plain words, which is opaque, and what is no command at all.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxkit.errors import CommandError
from sandboxkit.model import Command, SimpleCommand
from sandboxkit.shell import MAX_TEXT, parse, quote

PLAIN = [
    ("ls", ("ls",)),
    ("ls -la", ("ls", "-la")),
    ("  ls\t-la ", ("ls", "-la")),
    ("echo 'a b' c", ("echo", "a b", "c")),
    ('echo "a b"', ("echo", "a b")),
    ("echo 'it'\"'\"'s'", ("echo", "it's")),
    (r"echo a\ b \$HOME \\", ("echo", "a b", "$HOME", "\\")),
    (r'echo "a\$b\"c\\d\e"', ("echo", 'a$b"c\\d\\e')),
    ("echo '' \"\"", ("echo", "", "")),
    ("r''m -rf /", ("rm", "-rf", "/")),
    (r"\rm x", ("rm", "x")),
    ("git show HEAD~1 HEAD^", ("git", "show", "HEAD~1", "HEAD^")),
    ("find . -name '*.py' -exec wc {} +", ("find", ".", "-name", "*.py", "-exec", "wc", "{}", "+")),
    ("[ -f setup.py ]", ("[", "-f", "setup.py", "]")),
    ("dd of=x bs=1", ("dd", "of=x", "bs=1")),
    ("echo a#b", ("echo", "a#b")),
    ("echo 'two\nlines'", ("echo", "two\nlines")),
    ("echo 'naïve ☃'", ("echo", "naïve ☃")),
    ("'git status'", ("git status",)),
    ("'' ls", ("", "ls")),
    ("git commit -m 'remove rm -rf / from docs'", ("git", "commit", "-m", "remove rm -rf / from docs")),
]

OPAQUE = [
    ("ls; id", "operator"),
    ("ls | wc", "operator"),
    ("ls & ", "operator"),
    ("ls && id", "operator"),
    ("ls\nid", "several lines"),
    ("ls\n", "several lines"),
    ("echo $HOME", "expansion"),
    ('echo "$HOME"', "expansion"),
    ("echo $'a'", "expansion"),
    ("echo `id`", "substitution"),
    ('echo "`id`"', "substitution"),
    ("ls *.py", "pattern"),
    ("ls ?", "pattern"),
    ("ls [ab]", "pattern"),
    ("ls ~", "home"),
    ("ls x:~", "home"),
    ("dd of=~/x", "home"),
    ("echo {a,b}", "braces"),
    ("echo a}", "braces"),
    ("{} x", "braces"),
    ("ls > x", "redirection"),
    ("ls 2>&1", "redirection"),
    ("cat < x", "redirection"),
    ("(ls)", "subshell"),
    ("f() ls", "subshell"),
    ("ls # all", "comment"),
    ("A=1 ls", "assignment"),
    ("A+=1", "assignment"),
    ("a[1]=2 ls", "pattern"),
    ("'A'=1 ls", "assignment"),
    ("if ls", "reserved"),
    ("time ls", "reserved"),
    ("! ls", "reserved"),
    ("[[ -f x ]]", "pattern"),
    ("'[[' x", "reserved"),
    ("cd src", "builtin"),
    ("'ev'al x", "builtin"),
    (". ./x", "builtin"),
    (": x", "builtin"),
    ("%1", "job"),
    ("echo 'a", "not closed"),
    ('echo "a', "not closed"),
    ("echo a\\", "backslash"),
    ("echo a\\\nb", "continuation"),
    ('echo "a\\\nb"', "continuation"),
    ("ls\rid", "invisible"),
    ("echo '\x1b[2J'", "invisible"),
    ("echo a\u200bb", "invisible"),
    ("echo 'a\u202eb'", "invisible"),
    ("echo a\u00a0b", "invisible"),
    ("сat x", "ASCII"),
    ("echo 'a\udc80'", "invisible"),
]


@pytest.mark.parametrize(("text", "argv"), PLAIN)
def test_plain_words(text: str, argv: tuple[str, ...]) -> None:
    command = parse(text)
    assert command.opaque is None
    assert command.is_plain
    assert [part.argv for part in command.parts] == [argv]
    assert command.source == text


@pytest.mark.parametrize(("text", "reason"), OPAQUE)
def test_opaque_text_says_why(text: str, reason: str) -> None:
    command = parse(text)
    assert command.parts == ()
    assert command.opaque is not None
    assert reason in command.opaque
    assert not command.unread


def test_span_covers_the_words() -> None:
    assert parse("  ls -la ").parts[0].span == (2, 8)


@pytest.mark.parametrize("program", ["echo", "printf", "pwd", "true", "false", "test", "kill"])
def test_builtins_that_are_programs_too_are_plain(program: str) -> None:
    assert parse(f"{program} x").is_plain


@pytest.mark.parametrize("argv", [["ls", "*; rm -rf /"], ("cd", "$HOME"), ["", "x"], ["a", "b\udc80", "\x1b\n"]])
def test_a_list_is_never_read_as_shell(argv: list[str]) -> None:
    assert parse(argv) == Command(source=None, parts=(SimpleCommand(tuple(argv)),), argv=tuple(argv))


def test_longer_text_is_not_read() -> None:
    assert parse("a" * MAX_TEXT).is_plain
    command = parse("ls " + "a" * MAX_TEXT)
    assert command.unread
    assert command.opaque == f"it is longer than {MAX_TEXT} characters"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("", "empty"),
        (" \t\n", "empty"),
        ([], "empty"),
        ("ls\0", "NUL"),
        (["ls", "a\0b"], "item 1 holds a NUL"),
        ("ls \ud800", "surrogate"),
        (["ls\ud800"], "surrogate"),
        (["ls", 1], "item 1 is of type int"),
        (["ls", b"x"], "item 1 is of type bytes"),
        (b"ls", "type bytes"),
        (None, "type NoneType"),
        ({"ls": 1}, "type dict"),
        (["ls", "a" * 131_072], "131072 bytes"),
        (["a" * 100_000] * 12, "limit is 1048576"),
    ],
)
def test_what_is_no_command_is_refused(command: object, problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        parse(command)  # type: ignore[arg-type]  # the wrong types are the subject


def test_the_largest_word_is_taken() -> None:
    assert parse(["ls", "a" * 131_071]).is_plain


@given(st.one_of(st.text(max_size=60), st.text(alphabet="ab '\"\\\\\n\t$`*?[]{}()<>|&;#~!=%-", max_size=40)))
def test_the_reader_is_total(text: str) -> None:
    try:
        command = parse(text)
    except CommandError:
        return
    if command.opaque is not None:
        assert command.parts == ()
        return
    (part,) = command.parts
    assert part.argv
    assert part.span
    assert 0 <= part.span[0] < part.span[1] <= len(text)


@given(
    st.lists(
        st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10),
        min_size=1,
        max_size=5,
    )
)
def test_quoted_words_read_back(words: list[str]) -> None:
    command = parse(quote(words))
    if command.opaque is None:
        assert command.parts[0].argv == tuple(words)
    else:
        printable = all(char.isprintable() or char in "\t\n" for word in words for char in word)
        assert (
            not printable
            or not words[0].isascii()
            or "builtin" in command.opaque
            or "reserved" in command.opaque
            or "begins" in command.opaque
        )
