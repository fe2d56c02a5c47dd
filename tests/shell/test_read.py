"""
Every construct of the shell: which commands run, how they stand, and what they are given.
"""

from __future__ import annotations

import pytest
from tests.shell.lines import lines

from sandboxkit.model import Assignment, Redirect, Setting
from sandboxkit.shell import parse

LISTS = [
    ("a | b |& c", ["a [pipeline]", "b [pipeline] from 0", "c [pipeline] from 1"]),
    ("a; b & c && d || e", ["a", "b [background]", "c", "d [conditional]", "e [conditional]"]),
    ("a\nb\n", ["a", "b"]),
    ("a & b &", ["a [background]", "b [background]"]),
    ("! a | b", ["a [pipeline]", "b [pipeline] from 0"]),
    ("time a | b", ["time a [pipeline]", "a [pipeline wrapped] by 0", "b [pipeline] from 0"]),
    ("time -p a", ["time -p a", "a [wrapped] by 0"]),
]

COMPOUND = [
    (
        "if a; then b; elif c; then d; else e; fi",
        ["a [conditional]", "b [conditional]", "c [conditional]", "d [conditional]", "e [conditional]"],
    ),
    ("if a; then b & c; fi", ["a [conditional]", "b [background conditional]", "c [conditional]"]),
    ("while a; do b; done", ["a [loop]", "b [loop]"]),
    ("until a; do b; done", ["a [loop]", "b [loop]"]),
    ("for x in a b; do c $x; done", ["x='a b'? [loop]", "c <a:words> <b:words> [loop]"]),
    ("for x; do c $x; done", ["x=''? [loop]", "c <…:words> [loop]"]),
    (
        'for x in $(a) *.py; do b "$x"; done',
        ["x='… *.py'? [loop]", "a [substitution] in 0", "b <…:value> <*.py:value> [loop]"],
    ),
    ("select x in a b; do c; done", ["x='a b'? [loop]", "c [loop]"]),
    (
        "for ((i=$(nproc); i<`nproc`; i++)); do c; done",
        ["i='…'? [loop]", "nproc [substitution] in 0", "nproc [substitution] in 0", "c [loop]"],
    ),
    ("for ((;;)) { a; }", ["[loop]", "a [loop]"]),
    (
        'case $(a) in x) b;; $(c)|"y z") d;& *) e;; esac',
        [
            "-",
            "a [substitution] in 0",
            "b [conditional]",
            "c [substitution] in 0",
            "d [conditional]",
            "e [conditional]",
        ],
    ),
    ("case x in (a) b; c & esac", ["-", "b [conditional]", "c [background conditional]"]),
    ("case x in a) b c\\\\ ;; esac", ["-", "b 'c\\' [conditional]"]),
    ("(a; b) | c", ["a [pipeline subshell]", "b [pipeline subshell]", "c [pipeline] from 0 1"]),
    ("( (a); b )", ["a [subshell]", "b [subshell]"]),
    ("{ a; b; } | c", ["a [pipeline]", "b [pipeline]", "c [pipeline] from 0 1"]),
    ("(a; b) > f", [">f", "a [subshell]", "b [subshell]"]),
    ("{ a; } 2>&1 | b", ["[pipeline]", "a [pipeline]", "b [pipeline] from 1"]),
    ("if a; then b; fi > f", [">f", "a [conditional]", "b [conditional]"]),
    ("while read x; do a $x; done < f", ["<f", "x='…'? read x [loop] from 0", "a <…:words> [loop] from 0"]),
    ("a | { b; } < f", ["a [pipeline]", "<f [pipeline] from 0", "b [pipeline] from 0 1"]),
    ("{ a; } < f | b", ["<f [pipeline]", "a [pipeline] from 0", "b [pipeline] from 1"]),
    ("{ a; } > f", [">f", "a"]),
    ("while read x; do a $x; done <<< b", ["<<<'b\n'", "x='…'? read x [loop]", "a <b:words> [loop]"]),
    (
        'a | while read x; do b "$x"; done',
        ["a [pipeline]", "x='…'? read x [pipeline loop] from 0", "b <…:value> [pipeline loop] from 0"],
    ),
    ("(( a = $(nproc) )) && c", ["a='…'? '((' a = '$(nproc)' '))'", "nproc [substitution] in 0", "c [conditional]"]),
    (
        "[[ -f $(a) && b == $(c) || ! d ]]",
        ["'[[' -f <…:words> '&&' b == <…:words> '||' '!' d ']]'", "a [substitution] in 0", "c [substitution] in 0"],
    ),
    ("[[ $x =~ ^$(a)$ ]]", ["'[[' <…:words> '=~' <^…$:words:^> ']]'", "a [substitution] in 0"]),
    ('[ "$(a)" = b ]', ["'[' <…:value> = b ']'", "a [substitution] in 0"]),
    ("coproc a b", ["coproc a b", "a b [background subshell wrapped] by 0"]),
    ("time { a; }", ["a"]),
    ("! (a)", ["a [subshell]"]),
    ("(time (a))", ["a [subshell]"]),
    ("(! (a); b)", ["a [subshell]", "b [subshell]"]),
]

FUNCTIONS = [
    ('f() { a "$1"; }; f b', ["a <:value> [function] of f", "f b", "a <b:value> [wrapped suspect] by 1 of f"]),
    ("f() (a)", ["a [subshell function] of f"]),
    ("f() if a; then b; fi", ["a [conditional function] of f", "b [conditional function] of f"]),
    ("function f { a; }", ["a [function] of f"]),
    ("function f() { a; } > b", [">b", "a [function] of f"]),
    (
        "f() { f | f & }; f",
        ["f [pipeline background function] of f", "f [pipeline background function] from 0 of f", "f"],
    ),
    ("f() { g() { a; }; }", ["a [function] of g"]),
]

SUBSTITUTIONS = [
    (
        'a $(b) `c` "$(d)" "x`e`"',
        [
            "a <…:words> <…:words> <…:value> <x…:value:x>",
            "b [substitution] in 0",
            "c [substitution] in 0",
            "d [substitution] in 0",
            "e [substitution] in 0",
        ],
    ),
    ("a `b \\`c\\``", ["a <…:words>", "b <…:words> [substitution] in 0", "c [substitution] in 1"]),
    ("a $(b $(c))", ["a <…:words>", "b <…:words> [substitution] in 0", "c [substitution] in 1"]),
    (
        'a ${x:-$(b)} "${x:=$(c)}" ${x+$(d)}',
        [
            "x='…'? a <…:words> <…:value> <…:words>",
            "b [substitution] in 0",
            "c [substitution] in 0",
            "d [substitution] in 0",
        ],
    ),
    (
        "a ${x/$(b)/$(c)} ${x%$(d)} ${x##$(e)}",
        [
            "a <……:words> <…:words> <…:words>",
            "b [substitution] in 0",
            "c [substitution] in 0",
            "d [substitution] in 0",
            "e [substitution] in 0",
        ],
    ),
    (
        "a ${x:$(nproc):$(nproc)} ${x[$(nproc)]}",
        ["a <…:words> <…:words>", *["nproc [substitution] in 0"] * 3],
    ),
    ("a $((1 + $(nproc))) $[$(nproc)]", ["a <…:value> <…:value>", *["nproc [substitution] in 0"] * 2]),
    (
        "a <(b) >(c; d)",
        [
            "a </dev/fd/…:value:/dev/fd/> </dev/fd/…:value:/dev/fd/>",
            "b [substitution] in 0",
            "c [substitution] in 0 from 0",
            "d [substitution] in 0 from 0",
        ],
    ),
    (
        "a < <(b) > >(c)",
        ["a <'/dev/fd/…'? >'/dev/fd/…'? from 1", "b [substitution] in 0", "c [substitution] in 0 from 0"],
    ),
    ('a > $(b) 2> "$(c)"', ["a >'…'? >'…'?", "b [substitution] in 0", "c [substitution] in 0"]),
    ('a <<< "$(b)"', ["a <<<'…\n'?", "b [substitution] in 0"]),
    ("a $(case x in y) b;; esac)", ["a <…:words>", "[substitution] in 0", "b [conditional substitution] in 0"]),
    ("$(a) b", ["<b:words>", "a [substitution] in 0"]),
    ('"$(a)" b', ["<…:value> b", "a [substitution] in 0"]),
    ("x=$(a) y=`b` c", ["export x='…'? export y='…'? c", "a [substitution] in 0", "b [substitution] in 0"]),
    ("x=(a $(b) `c`)", ["x='a … …'?", "b [substitution] in 0", "c [substitution] in 0"]),
    ("x[$(nproc)]=1", ["x=1?", "nproc [substitution] in 0"]),
    (
        "declare -A x=([$(a)]=$(b))",
        ["x='[…]=…'? declare -A <x=[…]=…:value:x=>", "a [substitution] in 0", "b [substitution] in 0"],
    ),
    ("export A=$(a)", ["export A='…'? export <A=…:value:A=>", "a [substitution] in 0"]),
    ("a ~/$(b) {c,$(d)}", ["a <~/…:words:~/> <c:words> <…:words>", "b [substitution] in 0", "d [substitution] in 0"]),
]

LOOPS = [
    ("while true; do a & done", ["true [loop]", "a [background loop endless]"]),
    (
        "while :; do a | b & done",
        [": [loop]", "a [pipeline background loop endless]", "b [pipeline background loop endless] from 1"],
    ),
    ("while [ 1 ]; do a & done", ["'[' 1 ']' [loop]", "a [background loop endless]"]),
    ("while true; do a; done", ["true [loop]", "a [loop]"]),
    ("while a; do b & done", ["a [loop]", "b [background loop]"]),
    ("until false; do a & done", ["false [loop]", "a [background loop endless]"]),
]

DIRECTORIES = [
    ("cd src && a; b", ["cd src", "a [conditional] at src", "b at src"]),
    ("cd; a", ["cd", "a at ~"]),
    ("cd -; a", ["cd -", "a at …"]),
    ("cd -- src; a", ["cd -- src", "a at src"]),
    ('cd "$x"; a', ["cd <:value>", "a at …"]),
    ("cd a; cd b; c", ["cd a", "cd b at a", "c at a/b"]),
    ("cd a; cd /b; c", ["cd a", "cd /b at a", "c at /b"]),
    ("(cd a; b); c", ["cd a [subshell]", "b [subshell] at a", "c"]),
    ("{ cd a; b; }; c", ["cd a", "b at a", "c at a"]),
    ("cd a & b", ["cd a [background]", "b"]),
    ("cd a | b; c", ["cd a [pipeline]", "b [pipeline] from 0", "c"]),
    ("a $(cd b; c); d", ["a <…:words>", "cd b [substitution] in 0", "c [substitution] in 0 at b", "d"]),
    ("pushd a; b; popd; c", ["pushd a", "b at a", "popd at a", "c at …"]),
    ("pushd; a", ["pushd", "a at …"]),
    (
        'cd "$(git rev-parse --show-toplevel)"; a',
        ["cd <…:value>", "git rev-parse --show-toplevel [substitution] in 0", "a"],
    ),
    (
        "cd $(git rev-parse --show-toplevel); a",
        ["cd <…:words>", "git rev-parse --show-toplevel [substitution] in 0", "a"],
    ),
    (
        'cd "${x-$(git rev-parse --show-toplevel)}"; a',
        ["cd <…:value>", "git rev-parse --show-toplevel [substitution] in 0", "a at …"],
    ),
    (
        'cd "$x$(git rev-parse --show-toplevel)"; a',
        ["cd <…:value>", "git rev-parse --show-toplevel [substitution] in 0", "a at …"],
    ),
    (
        'cd b; cd "$(git rev-parse --show-toplevel)"; a',
        ["cd b", "cd <…:value> at b", "git rev-parse --show-toplevel [substitution] in 1 at b", "a at …"],
    ),
    ("eval 'cd a'; b", ["eval 'cd a'", "cd a [wrapped text] by 0", "b at a"]),
    ("command cd a; b", ["command cd a", "cd a [wrapped] by 0", "b at a"]),
    ("bash -c 'cd a'; b", ["bash -c 'cd a'", "cd a [wrapped text] by 0", "b"]),
    ("f() { cd a; }; b; f; c", ["cd a [function] of f", "b", "f", "c at a"]),
]


@pytest.mark.parametrize(("text", "found"), [*LISTS, *COMPOUND, *FUNCTIONS, *SUBSTITUTIONS, *LOOPS, *DIRECTORIES])
def test_every_command_is_found(text: str, found: list[str]) -> None:
    assert lines(text) == found


SPANS = [
    ("a | b 2>&1", ["a", "b 2>&1"]),
    ("  a x ; b  ", ["a x", "b"]),
    ("a x > f; b", ["a x > f", "b"]),
    ("a && b y || c", ["a", "b y", "c"]),
    ("A=1 a 'x y' & b", ["A=1 a 'x y'", "b"]),
    ('a "$(b c)" d', ['a "$(b c)" d', "b c"]),
    ("{ a; } > f", ["{ a; } > f", "a"]),
    ("for x in $(a); do b; done", ["for x in $(a); do b; done", "a", "b"]),
    ("a \\\n -b; c \\\n d", ["a \\\n -b", "c \\\n d"]),
    ("cat <<E; b\nx\nE\nc", ["cat <<E", "b", "c"]),
    ("cat <<< x | b", ["cat <<< x", "b"]),
    ("cat <<E\n$(b c)\nE\n", ["cat <<E", "$(b c)\n"]),
    ("echo é; b ☃; c", ["echo é", "b ☃", "c"]),
    ("sudo -u x a b; c", ["sudo -u x a b", "a b", "c"]),
    ("bash -c 'a; b'; c", ["bash -c 'a; b'", "'a; b'", "'a; b'", "c"]),
    ("echo a | sh", ["echo a", "sh", "sh"]),
    ("x=$(a); b", ["x=$(a)", "a", "b"]),
    ("! a; time b", ["a", "time b", "b"]),
    ("sudo a 1&b", ["sudo a 1", "a 1", "b"]),
    ("sudo a 1 2&>f&b", ["sudo a 1 2&>f", "a 1 2&>f", "b"]),
    ("A=1 sudo 2>>f 'a b'c 1 \"d\"* 3>&1|b", ["A=1 sudo 2>>f 'a b'c 1 \"d\"* 3>&1", "'a b'c 1 \"d\"* 3>&1", "b"]),
    ("A=1 sudo 2>>f a 1 *.c 3>&1|b", ["A=1 sudo 2>>f a 1 *.c 3>&1", "a 1 *.c 3>&1", "b"]),
    ("timeout 1&x & timeout 1 2&y", ["timeout 1", "x", "timeout 1 2", "2", "y"]),
]


@pytest.mark.parametrize(("text", "shown"), SPANS)
def test_spans_show_the_commands(text: str, shown: list[str]) -> None:
    spans = [part.span for part in parse(text).parts]
    assert [text[span[0] : span[1]] for span in spans if span] == shown


REDIRECTS = [
    ("a > f >> g < h <> i >| j &> k &>> l", ">f >>g <h <>i >|j &>k &>>l"),
    ("a 2> f 3<g 12>>h {fd}> i", ">f <g >>h >i"),
    ("a >& f", ">&f"),
    ("a 2>&1 >&2 3<&0", ""),
    ("a {fd}>&1", ""),
    ("a 3>&1-", ""),
    ("a <&-", ""),
    ("a 2>&-", ""),
    ("> f", ">f"),
    (">f a b >g", ">f >g"),
    ("a>f", ">f"),
    ("a > 'f g'", ">f g"),
    ("a > ~/f", ">~/f"),
    ("a > $x", ">…?"),
    ('a > "$x"', ">?"),
    ('x=f; a > "$x" < $x.b', ">f? <f.b?"),
    ("a > *", ">*?"),
    ("a > f{1,2}", ">f1 f2?"),
    ("a > $(b)", ">…?"),
    ("a > >(b)", ">/dev/fd/…?"),
    ("a <<< x", "<<<x\n"),
    ("a <<< 'x y' <<< $z", "<<<x y\n <<<…\n?"),
]


@pytest.mark.parametrize(("text", "redirects"), REDIRECTS)
def test_redirections(text: str, redirects: str) -> None:
    part = next(part for part in reversed(parse(text).parts) if part.setting == Setting.NONE)
    shown = [f"{each.operator}{each.target}{'' if each.is_known else '?'}" for each in part.redirects]
    assert " ".join(shown) == redirects


def test_which_redirections_write() -> None:
    (part,) = parse("a > f >> g <> h &> i < j <<< k").parts
    assert [each.operator for each in part.redirects if each.writes] == [">", ">>", "<>", "&>"]
    assert [each.operator for each in part.redirects if each.is_text] == ["<<<"]


DOCUMENTS = [
    ("a <<E\nx y\nE", Redirect("<<", "x y\n")),
    ("a <<E\n'x' \"y\"\nE\n", Redirect("<<", "'x' \"y\"\n")),
    ("a <<'E'\n$(b) `c` \\$x\nE", Redirect("<<", "$(b) `c` \\$x\n")),
    ('a <<"E"\n$(b)\nE', Redirect("<<", "$(b)\n")),
    ("a <<\\E\n$(b)\nE", Redirect("<<", "$(b)\n")),
    ("a <<-E\n\tx\n\t\ty\n\tE\n", Redirect("<<", "x\ny\n")),
    ("a << E\nE", Redirect("<<", "")),
    ("a <<E\n$x\nE", Redirect("<<", "$x\n", is_known=False)),
    ("a <<E\n x E\nE \nE", Redirect("<<", " x E\nE \n")),
    ("a <<'E F'\nx\nE F", Redirect("<<", "x\n")),
]


@pytest.mark.parametrize(("text", "redirect"), DOCUMENTS)
def test_here_documents(text: str, redirect: Redirect) -> None:
    (part,) = parse(text).parts
    assert part.argv == ("a",)
    assert part.redirects == (redirect,)


EXPANDING_DOCUMENTS = [
    ("a <<E\n$(b)\nE", ["b"]),
    ("a <<E\n'$(b)' \"$(c)\"\nE", ["b", "c"]),
    ("a <<E\n${x:-$(b)}\nE", ["b"]),
    ("a <<-E\n\t$(b)\n\tE", ["b"]),
    ("a <<'E'\n$(b)\nE", []),
    ("a <<E <<'F' <<G; h\n$(b)\nE\n$(c)\nF\n$(d)\nG\n", ["b", "d"]),
]


@pytest.mark.parametrize(("text", "inside"), EXPANDING_DOCUMENTS)
def test_what_runs_within_a_here_document(text: str, inside: list[str]) -> None:
    parts = parse(text).parts
    assert [part.program for part in parts if part.stands(Setting.SUBSTITUTION)] == inside
    assert {part.inside for part in parts if part.stands(Setting.SUBSTITUTION)} <= {0}


ASSIGNMENTS = [
    ("x=1", [Assignment("x", "1")]),
    ("x=", [Assignment("x", "")]),
    ("x='a b' y=\"c\"", [Assignment("x", "a b"), Assignment("y", "c")]),
    ("x+=1", [Assignment("x", "1")]),
    ("x=* y={a,b}", [Assignment("x", "*"), Assignment("y", "{a,b}")]),
    ("x=~/a", [Assignment("x", "~/a")]),
    ("x=$y", [Assignment("x", "", is_known=False)]),
    ("x=$(a)", [Assignment("x", "…", is_known=False)]),
    ("x[1]=a", [Assignment("x", "a", is_known=False)]),
    ("x=(a 'b c' $d)", [Assignment("x", "a b c …", is_known=False)]),
    ("x=1 a", [Assignment("x", "1", is_exported=True)]),
    ("export x=1 y", [Assignment("x", "1", is_exported=True), Assignment("y", "…", is_known=False, is_exported=True)]),
    ("declare x=1", [Assignment("x", "1")]),
    ("declare -x x=1", [Assignment("x", "1", is_exported=True)]),
    ("declare -rx x=1", [Assignment("x", "1", is_exported=True)]),
    ("typeset -i x=1", [Assignment("x", "1")]),
    ("readonly x=1", [Assignment("x", "1")]),
    ("local x=1", [Assignment("x", "1")]),
    ("for x in a b; do :; done", [Assignment("x", "a b", is_known=False)]),
    ("declare -n r=x", [Assignment("r", "x")]),
]


@pytest.mark.parametrize(("text", "assignments"), ASSIGNMENTS)
def test_assignments(text: str, assignments: list[Assignment]) -> None:
    assert list(parse(text).parts[0].assignments) == assignments


def test_what_a_reference_sets_is_what_it_refers_to() -> None:
    _, part = parse("declare -n r=PATH; r=.").parts
    assert part.assignments == (Assignment("PATH", "."),)
    assert parse("declare -n r=PATH; for r in .; do :; done").parts[1].assignments[0].name == "PATH"


def test_an_assignment_has_no_words() -> None:
    assert parse("x=1").parts[0].argv == ()
    assert parse("unset x y").parts[0].argv == ("unset", "x", "y")
    assert parse("export x=1 -n y").parts[0].argv == ("export", "x=1", "-n", "y")


def test_names_of_functions_are_kept() -> None:
    assert parse("f() { a; }; function g { b; }; f-h() (c)").functions == {"f", "g", "f-h"}
    assert parse("bash -c 'f() { a; }; f'").functions == {"f"}


@pytest.mark.parametrize(
    "text",
    ["while true; do a & done", "while :; do a | a & done", "while true; do sleep 0; a & done"],
)
def test_what_is_started_without_end_is_marked(text: str) -> None:
    assert any(part.stands(Setting.ENDLESS) for part in parse(text).parts)


@pytest.mark.parametrize("text", ["while true; do a; done", "while a; do b & done", "for x in a; do b & done"])
def test_what_ends_or_waits_is_not(text: str) -> None:
    assert not any(part.stands(Setting.ENDLESS) for part in parse(text).parts)


@pytest.mark.parametrize(
    ("text", "last", "cwd"),
    [
        ("cd ..; time { cat x; }", ("cat", "x"), ".."),
        ("cd a; ! (coproc { ls; })", ("ls",), "a"),
        ("x+=r; x+=m; time { $x -rf /; }", ("rm", "-rf", "/"), None),
        ("x=`y+=a; time { echo; }`; z=b; rm $z", ("rm", "b"), None),
    ],
)
def test_a_second_reading_knows_nothing_of_the_first(text: str, last: tuple[str, ...], cwd: str | None) -> None:
    # The grammar does not know what stands behind `time` there, so it is read once more.
    part = parse(text).parts[-1]
    assert (part.argv, part.cwd) == (last, cwd)


@pytest.mark.parametrize(
    "text", ["shift N", "set a; shift N", "echo ${@:N}", "x=a; echo ${x:N:-N}", "echo {N..3}", "echo {1..3..N}"]
)
def test_numbers_of_any_length_are_read(text: str) -> None:
    # Python refuses to convert more than 4300 digits.
    command = parse(text.replace("N", "9" * 4500))
    assert command.parts
