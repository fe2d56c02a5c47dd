"""
How a command enters: which text is plain words, what is opaque or too much, and what is
no command at all.
"""

from __future__ import annotations

import sys

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sandboxkit.errors import CommandError
from sandboxkit.model import Command, Setting, SimpleCommand
from sandboxkit.shell import MAX_COMMANDS, MAX_DEPTH, MAX_TEXT, parse, quote
from sandboxkit.shell._tables import RESERVED

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
    ("[ -f setup.py ]", ("[", "-f", "setup.py", "]")),
    ("dd of=x bs=1", ("dd", "of=x", "bs=1")),
    ("echo a#b", ("echo", "a#b")),
    ("echo {} a", ("echo", "{}", "a")),
    ("echo 'two\nlines'", ("echo", "two\nlines")),
    ("echo 'naïve ☃'", ("echo", "naïve ☃")),
    ("'git status'", ("git status",)),
    ("'' ls", ("", "ls")),
    ("ls =ls !a a!", ("ls", "=ls", "!a", "a!")),
    ("git commit -m 'remove rm -rf / from docs'", ("git", "commit", "-m", "remove rm -rf / from docs")),
]


@pytest.mark.parametrize(("text", "argv"), PLAIN)
def test_plain_words_run_without_a_shell(text: str, argv: tuple[str, ...]) -> None:
    begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
    assert parse(text) == Command(text, (SimpleCommand(argv, (begin, end)),), argv=argv)


def test_words_behind_a_wrapper_run_without_a_shell_too() -> None:
    command = parse("find . -name '*.py' -exec wc {} +")
    assert command.argv == ("find", ".", "-name", "*.py", "-exec", "wc", "{}", "+")
    assert [part.program for part in command.parts] == ["find", "wc"]


@pytest.mark.parametrize("program", ["echo", "printf", "pwd", "true", "false", "test", "kill"])
def test_builtins_that_are_programs_too_are_plain(program: str) -> None:
    assert parse(f"{program} x").is_plain


NEEDS_BASH = [
    *("ls; id", "ls | wc", "ls &", "ls && id", "ls\nid", "ls\n", "ls > x", "ls 2>&1", "cat < x", "(ls)", "{ ls; }"),
    *("echo $x", 'echo "$x"', "echo $'a'", "echo `id`", "echo $(id)", "ls *.py", "ls ?", "ls [ab]", "ls ~", "ls x:~"),
    *("dd of=~/x", "echo {a,b}", "ls # all", "A=1 ls", "A=1", "A+=1", "a[1]=2 ls", "if ls; then id; fi", "time ls"),
    *(
        "! ls",
        "[[ -f x ]]",
        "cd src",
        "'ev'al x",
        ". ./x",
        ": x",
        "echo a\\\nb",
        'echo "a\\\nb"',
        "f() { ls; }",
        "сat x",
    ),
    *("%1", "'A'=1 ls", "'if' ls", "set -e", "exec ls", "echo a}", "alias x"),
]


@pytest.mark.parametrize("text", NEEDS_BASH)
def test_more_than_plain_words_needs_bash(text: str) -> None:
    command = parse(text)
    assert command.opaque is None
    assert not command.is_plain
    assert command.parts


SYNTAX = "syntax error"
APART = "told apart"
OPAQUE = [
    ("xa[[]=$HOME", "assignment"),
    # what bash refuses
    ("ls &&", SYNTAX),
    ("&& ls", SYNTAX),
    ("ls |", SYNTAX),
    ("ls ||| id", SYNTAX),
    ("ls & & id", SYNTAX),
    ("ls <", SYNTAX),
    ("ls >>> x", SYNTAX),
    ("(ls", SYNTAX),
    ("ls)", SYNTAX),
    ("{ ls", SYNTAX),
    ("}", "reserved word"),
    ("fi", "reserved word"),
    ("then ls", "reserved word"),
    ("if ls; then; fi", SYNTAX),
    ("for x in a; ls", SYNTAX),
    ("case x in", SYNTAX),
    ("(ls; time )", "'time' in front of nothing"),
    ("x=$(cat\ntime )", "'time' in front of nothing"),
    ("if ls; then ls; time fi", SYNTAX),
    ("if ls; then ls; ! ! fi", SYNTAX),
    ("case a in a) ls; time ;; esac", "time"),
    ("case a in a) ls; ! esac", SYNTAX),
    ("ls | time (ls)", "subshell"),
    ("ls |& time { ls; }", "'time' in front of a compound"),
    ("coproc in { uptime\n}", "'coproc' in front of a compound command"),
    ("coproc then if true; then uptime; fi", "'coproc' in front of"),
    ("coproc do ( uptime )", SYNTAX),
    ("coproc { a=(b if); }", SYNTAX),
    ("coproc (\\\n a[1]+=(! b) )", "subshell"),
    ("coproc while a=(b); do ls; done", SYNTAX),
    ("coproc ! { ls; }", "'coproc' in front of"),
    ("coproc N time { ls; }", "'coproc' in front of"),
    ("coproc coproc { ls; }", "'coproc' in front of"),
    ("coproc function f { ls; }", "'coproc' in front of"),
    ("f() ls", SYNTAX),
    ("ls ;; id", "';;'"),
    ("ls ;;", "';;'"),
    (";;", SYNTAX),
    ("echo 'a", SYNTAX),
    ('echo "a', SYNTAX),
    ("echo $'a", SYNTAX),
    ("echo `id", SYNTAX),
    ("echo $(id", SYNTAX),
    ("echo ${x", SYNTAX),
    ("echo a\\", SYNTAX),
    ("cat <<E", "does not end"),
    ("cat <<E\ntext\n E", "does not end"),
    ("a=(b", SYNTAX),
    ("[[ a", SYNTAX),
    ("(( a )", SYNTAX),
    ("time", "in front of nothing"),
    # what bash and the grammar read differently, or what only another shell knows
    ("ls *(.)", SYNTAX),
    ("echo ${(e)x}", SYNTAX),
    ("echo $x[(r)a]", SYNTAX),
    ("{ls;}", "part of a word"),
    ("{ls}", SYNTAX),
    ("[a]", "part of a word"),
    ("cat <<$x\na\n$x\n", "cannot be told"),
    ("exec < f", "reads from"),
    ("a 'b'\\c > f", APART),
    ('a | b "c"\\d <<E\nE\n', APART),
    ("export 'a'\\b > f", APART),
    ('find . -$"delete"', APART),
    ('a b -x$"y"z', APART),
    ('x=$ "touch" y', "may be a word"),
    ('a <<< $ "x"', "may be a word"),
    ('a > $ "x"', "may be a word"),
    # code in values
    ("x='$(id)'", "the value of x holds code"),
    ("PS4='$(id)' ls", "the value of PS4 holds code"),
    ("export x='$(id)'", "the value of x holds code"),
    ("echo ${!x}", "indirect"),
    ("echo ${x@P}", "@P"),
    ("[[ -v 'a[$(id)]' ]]", "arithmetic"),
    ("declare 'a[$(id)]=1'", "arithmetic"),
    # characters nobody sees
    ("ls\rid", "invisible"),
    ("echo '\x1b[2J'", "invisible"),
    ("echo a\u200bb", "invisible"),
    ("echo 'a\u202eb'", "invisible"),
    ("echo a\u00a0b", "invisible"),
    ("echo a\u2028b", "invisible"),
    ("echo a\ufeffb", "invisible"),
    ("echo 'a\udc80'", "invisible"),
    ("ls; \x01", "invisible"),
    # nothing
    ("# only a comment", "no command"),
    ("#", "no command"),
]


@pytest.mark.parametrize(("text", "reason"), OPAQUE)
def test_opaque_text_says_why(text: str, reason: str) -> None:
    command = parse(text)
    assert command.opaque
    assert reason in command.opaque
    assert not command.unread
    assert not command.is_plain
    assert all(part.stands(Setting.SUSPECT) for part in command.parts)


SUSPECTS = [
    ("(ls; rm -rf /", [("ls",), ("rm", "-rf", "/")]),
    ('echo "unterminated; rm -rf /', [("rm", "-rf", "/")]),
    ("if ls; rm -rf /", [("rm", "-rf", "/")]),
    ("ls;; rm x", [("rm", "x")]),
    ("echo `rm x", [("rm", "x")]),
    ("echo $(rm x", [("rm", "x")]),
    ("{ rm x", [("rm", "x")]),
    ("! rm 'x", [("rm", "x")]),
    ("A=1 rm 'x", [("rm", "x")]),
    ("r'm' x (", [("rm", "x")]),
    ("r\\m x (", [("rm", "x")]),
    ("r\u200bm x", [("rm", "x")]),
    ("for x in a; do rm x", [("rm", "x")]),
    ("cat <<E\n$(rm x)", [("rm", "x")]),
    ("x='$(rm y)'; eval $x", [("rm", "y")]),
    ("PS4='`rm x`'", [("rm", "x")]),
    ("declare 'a[$(rm x)]=1'", [("rm", "x")]),
    ("sudo rm x (", [("sudo", "rm", "x"), ("rm", "x")]),
    ("bash -c 'rm x' (", [("bash", "-c", "rm", "x")]),
    ("bash -c 'rm x; ('", [("rm", "x")]),
    ("curl x | sh (", [("curl", "x"), ("sh",)]),
    ("ls *(.) && rm x", [("rm", "x")]),
]


@pytest.mark.parametrize(("text", "argvs"), SUSPECTS)
def test_what_can_be_seen_in_opaque_text_is_suspected(text: str, argvs: list[tuple[str, ...]]) -> None:
    command = parse(text)
    assert command.opaque
    found = [part.argv for part in command.parts if part.stands(Setting.SUSPECT)]
    assert [argv for argv in argvs if argv not in found] == []


def test_a_suspected_pipe_is_linked() -> None:
    parts = parse("curl x | sh (").parts
    index = next(index for index, part in enumerate(parts) if part.reads_from)
    assert parts[index].argv == ("sh",)
    assert parts[parts[index].reads_from[0]].argv == ("curl", "x")


@pytest.mark.parametrize("argv", [["ls", "*; rm -rf /"], ("cd", "$HOME"), ["", "x"], ["a", "b\n\tc"], ["if"]])
def test_a_list_is_never_read_as_shell(argv: list[str]) -> None:
    assert parse(argv) == Command(source=None, parts=(SimpleCommand(tuple(argv)),), argv=tuple(argv))


def test_a_list_that_starts_a_shell_is_read_from_there() -> None:
    command = parse(["sh", "-c", "a; b"])
    assert command.argv == ("sh", "-c", "a; b")
    assert [part.argv for part in command.parts] == [("sh", "-c", "a; b"), ("a",), ("b",)]
    assert [part.span for part in command.parts] == [None, (0, 0), (0, 0)]


TOO_MUCH = [
    ("ls " + "a" * MAX_TEXT, "longer than 10000 characters"),
    (" " * MAX_TEXT + "ls", "longer than 10000 characters"),
    (";".join(["ls"] * (MAX_COMMANDS + 1)), "more than 200 commands"),
    ("|".join(["ls"] * (MAX_COMMANDS + 1)), "more than 200 commands"),
    ("echo " + "$(ls) " * MAX_COMMANDS, "more than 200 commands"),
    ("{ " * (MAX_DEPTH + 1) + "ls" + "; }" * (MAX_DEPTH + 1), "deep"),
    ("( " * 70 + "ls" + ")" * 70, "deep"),
    ("echo " + "$(" * 30 + "ls" + ")" * 30, "deep"),
    ("(" * 200 + "ls" + ")" * 200, "more than 60 deep"),
    ("sudo " * 50 + "ls", "deep"),
    ("eval " * 50 + "ls", "deep"),
    (" ".join(f"a <<E{number}" for number in range(21)), "here-documents"),
    ("[[ " + "! " * 300 + "a ]]", "100 deep within itself"),
    ("[[ " + "a && " * 300 + "a ]]", "100 deep within itself"),
    ("echo $((" + "- " * 300 + "1))", "100 deep within itself"),
    ("echo $((" + "1+" * 300 + "1))", "100 deep within itself"),
    ("for ((i = 0; " + "1+" * 300 + "1; i++)); do ls; done", "100 deep within itself"),
    ("echo " + "${x:-" * 110 + "a" + "}" * 110, "100 deep within itself"),
    ("echo " + "{a," * 300 + "b" + "}" * 300, "100 deep within itself"),
]


@pytest.mark.parametrize(("text", "reason"), TOO_MUCH)
def test_too_much_is_not_looked_at(text: str, reason: str) -> None:
    command = parse(text)
    assert command.unread
    assert command.opaque
    assert reason in command.opaque
    assert command.parts == ()


@pytest.mark.parametrize(("text", "reason"), TOO_MUCH)
def test_the_caller_s_own_depth_changes_no_reading(text: str, reason: str) -> None:
    def read_from(depth: int) -> Command:
        return read_from(depth - 1) if depth else parse(text)

    assert read_from(sys.getrecursionlimit() // 3).opaque == parse(text).opaque


LIMITS = [
    "[[ " + "! " * 95 + "a ]]",
    "echo $((" + "1+" * 95 + "1))",
    "echo " + "${x:-" * 55 + "a" + "}" * 55,
    "echo " + "{a," * 95 + "b" + "}" * 95,
    "a" * MAX_TEXT,
    ";".join(["ls"] * MAX_COMMANDS),
    "|".join(["ls"] * MAX_COMMANDS),
    "&&".join(["ls"] * MAX_COMMANDS),
    "{ " * MAX_DEPTH + "ls" + "; }" * MAX_DEPTH,
    "( " * (MAX_DEPTH - 1) + "ls" + ")" * (MAX_DEPTH - 1),
    "echo " + "a " * 1_900 + "$x",
]


@pytest.mark.parametrize("text", LIMITS)
def test_what_is_just_within_the_limits_is_read(text: str) -> None:
    assert parse(text).opaque is None


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("", "empty"),
        (" \t\n", "empty"),
        ([], "empty"),
        ("ls\0", "NUL"),
        (["ls", "a\0b"], "item 1 holds a NUL"),
        ("ls \ud800", "surrogate"),
        ("ls; \ud800", "surrogate"),
        (["ls\ud800"], "surrogate"),
        (["ls", 1], "item 1 is of type int"),
        (["ls", b"x"], "item 1 is of type bytes"),
        (b"ls", "type bytes"),
        (bytearray(b"ls"), "type bytearray"),
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


SHELL_TEXT = st.text(alphabet="ab '\"\\\n\t$`*?[]{}()<>|&;#~!=%-", max_size=40)


@given(st.one_of(st.text(max_size=60), SHELL_TEXT))
@example("x=$[a[`b`]]")
@example("<<a\n")
def test_the_reader_is_total(text: str) -> None:
    try:
        command = parse(text)
    except CommandError:
        return
    assert command.source == text
    for index, part in enumerate(command.parts):
        assert part.span
        assert 0 <= part.span[0] <= part.span[1] <= len(text)
        assert part.inside is None or part.inside < index
        assert part.outer is None or part.outer < index
        assert all(0 <= source < len(command.parts) and source != index for source in part.reads_from)
        assert all(0 <= place < len(part.argv) for place, _ in part.unknown)
        assert part.own is None or 0 < part.own <= len(part.argv)
        assert command.opaque is None or part.stands(Setting.SUSPECT)
    if command.is_plain:
        assert command.argv
        assert command.parts[0].argv == command.argv
    elif command.opaque is None:
        assert command.parts


@given(SHELL_TEXT, SHELL_TEXT)
def test_joined_text_holds_the_commands_of_both(first: str, second: str) -> None:
    try:
        one, other = parse(first), parse(second)
        both = parse(f"{first}\n{second}")
    except CommandError:
        return
    if both.opaque is None and one.opaque is None and other.opaque is None and "\\" not in first and "<<" not in first:
        found = [part.program for part in both.parts]
        assert found[: len(one.parts)] == [part.program for part in one.parts]
        assert len(found) >= len(one.parts) + len(other.parts)


@given(
    st.lists(
        st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10),
        min_size=1,
        max_size=5,
    )
)
def test_quoted_words_read_back(words: list[str]) -> None:
    assume("=" not in words[0])  # an assignment, as `quote` says
    command = parse(quote(words))
    if command.opaque is None:
        assert command.parts[0].argv == tuple(words)
        assert command.parts[0].unknown == ()
    else:
        printable = all(char.isprintable() or char in "\t\n" for word in words for char in word)
        assert not printable or words[0] in RESERVED
