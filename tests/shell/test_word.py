"""
Words: what is left when quotes are taken away and expansions guessed, and what is known of it.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest
from tests.shell.lines import lines

from sandboxkit.model import Doubt, Unknown
from sandboxkit.shell import parse

QUOTES = [
    ("w 'a b' \"c d\" e\\ f g'h'\"i\"\\j", ["w 'a b' 'c d' 'e f' ghij"]),
    ('w "a\\$b\\"c\\\\d\\e" \'a\\b\' "a\\\nb" a\\\nb', ["w 'a$b\"c\\d\\e' 'a\\b' ab ab"]),
    ("w '' \"\" a''", ["w '' '' a"]),
    ("w $'a\\tb\\x41\\u00e9\\'' $'\\x{72}m' $'a\\0b'c", ["w 'a\tbAé'\"'\"'' rm ac"]),
    ('w $"a b"', ["w 'a b'"]),
    ('w "it\'s" \'say "a"\' $ a$', ["w 'it'\"'\"'s' 'say \"a\"' '$' 'a$'"]),
]

BRACES = [
    ("w {a,b} x{1..3}y {01..03} {a,b}{c,d}", ["w a b x1y x2y x3y 01 02 03 ac ad bc bd"]),
    ('w {} {a} {a {a..} "{a,b}" \\{a,b} {a,"b,c"}', ["w '{}' '{a}' '{a' '{a..}' '{a,b}' '{a,b}' a b,c"]),
    ("w {,a} x{,y}", ["w a x xy"]),
]

PATTERNS = [
    ("w * a*b? *.[ch] [!a]*", ["w <*:pattern> <a*b?:pattern:a> <*.[ch]:pattern> <[!a]*:pattern>"]),
    ("w \"*\" \\* '[a]' [", ["w '*' '*' '[a]' '['"]),
    ('w src/*.py "a b"*', ["w <src/*.py:pattern:src/> <a b*:pattern:a b>"]),
]

PLACES = [
    ('w ~ ~/a ~root a~ "~"', ["w '~' '~/a' <~root:value:~> 'a~' '~'"]),
    ('w $HOME "$HOME/a" "${HOME}" $PWD "$PWD/a"', ["w '~' '~/a' '~' . ./a"]),
    ("w $HOME.bak a$HOME", ["w <~.bak:value> <a~:words:a>"]),
    ("HOME=/x; w $HOME ~ ~/a", ["HOME=/x", "w </x:words> </x:value> </x/a:value>"]),
    ("w ~+ ~+/a ~-/a", ["w . ./a <…/a:value>"]),
    ("OLDPWD=/x; w ~-/a", ["OLDPWD=/x", "w </x/a:value>"]),
    ("for HOME in /x; do w ~/a; done", ["HOME=/x? [loop]", "w </x/a:value> [loop]"]),
]

VARIABLES = [
    ('w $x "$x" a$x "a${x}b"', ["w <…:words> <:value> <a:words:a> <ab:value:a>"]),
    ('x=1; w $x "$x" a$x', ["x=1", "w <1:words> <1:value> <a1:words:a>"]),
    ("x='a b'; w $x \"$x\" c$x", ["x='a b'", "w <a:words> <b:words> <a b:value> <ca:words:c> <b:words>"]),
    ('x=a:b; IFS=:; w $x "$x"', ["x=a:b", "IFS=:", "w <a:words> <b:words> <a:b:value>"]),
    ("x=a; x+=b; w $x", ["x=a", "x=b", "w <ab:words>"]),
    ('x=a y=$x; w "$y"', ["x=a y=a?", "w <a:value>"]),
    ('x=(a \'b c\'); w "${x[@]}" "${x[1]}"', ["x='a b c'?", "w <a:words> <b:words> <c:words> <a:value> <b c:value>"]),
    ('set -- a \'b c\'; w "$@" "$2"', ["set -- a 'b c'", "w <a:words> <b:words> <c:words> <b c:value>"]),
    ("set a; w $1", ["set a", "w <a:words>"]),
    ("set -e -o pipefail a; w $1", ["set -e -o pipefail a", "w <a:words>"]),
    ('w "$@" $* "$#" $? $$', ["w <:words> <…:words> <:value> <…:value> <…:value>"]),
    ("read x <<< a; w $x", ["x='…'? read x <<<'a\n'", "w <a:words>"]),
    ("printf -v x '%s' a; w $x", ["x='…'? printf -v x %s a", "w <a:words>"]),
    ("declare -n r=v; v=a; w $r", ["r=v declare -n r=v", "v=a", "w <a:words>"]),
    ("export x=a; w $x", ["export x=a export x=a", "w <a:words>"]),
]

EXPANSIONS = [
    ('w ${x:-a} "${x:-a b}" ${x:-a b} ${x-}', ["w <a:words> <a b:value> <a:words> <b:words> <…:words>"]),
    ("w ${x:=a} $x", ["x='…'? w <a:words> <a:words>"]),
    ("x=a; w ${x:-b} ${x:+c} ${x%b} ${x^^} ${x:0:1}", ["x=a", "w <a:words> <c:words> <a:words> <A:words> <a:words>"]),
    ('x=a; w ${x/a/b} ${#x} "${x@Q}"', ["x=a", "w <b:words> <…:words> <a:value>"]),
    ('w $((1 + 1)) "$[2]"', ["w <…:value> <…:value>"]),
]

OUTPUT = [
    (
        "w $(echo a b) \"$(echo a b)\" `printf '%s' a`",
        [
            "w <a:words> <b:words> <a b:value> <a:words>",
            "echo a b [substitution] in 0",
            "echo a b [substitution] in 0",
            "printf %s a [substitution] in 0",
        ],
    ),
    (
        "w $(printf 'a\\x62%s' c) x$(echo a)",
        ["w <abc:words> <xa:words:x>", "printf 'a\\x62%s' c [substitution] in 0", "echo a [substitution] in 0"],
    ),
    (
        'w $(a) "$(a)" x$(a) "x$(a)"',
        [
            "w <…:words> <…:value> <x…:words:x> <x…:value:x>",
            "a [substitution] in 0",
            "a [substitution] in 0",
            "a [substitution] in 0",
            "a [substitution] in 0",
        ],
    ),
    ("w <(echo a)", ["w </dev/fd/…:value:/dev/fd/>", "echo a [substitution] in 0"]),
]

PROGRAMS = [
    ("x=a; $x b", ["x=a", "<a:words> b"]),
    ("$x b", ["<b:words>"]),
    ('"$x" b', ["<:value> b"]),
    ("$(echo a) b", ["<a:words> b", "echo a [substitution] in 0"]),
    ('"a" b', ["a b"]),
    ("\\a b", ["a b"]),
    ("a''b c", ["ab c"]),
    ("*/a b", ["<*/a:pattern> b"]),
]


@pytest.mark.parametrize(
    ("text", "found"), [*QUOTES, *BRACES, *PATTERNS, *PLACES, *VARIABLES, *EXPANSIONS, *OUTPUT, *PROGRAMS]
)
def test_words(text: str, found: list[str]) -> None:
    assert lines(text) == found


KNOWN = [text for text, _ in [*QUOTES, *BRACES] if "{a}" not in text] + [
    "w \\* '*' \"?\" '[a]' \\~ '~' \"~\"",
    "w a#b a=b a: @ % + . /a ] ^ , -- -x --y=z",
    "w 'é' é $'\\xc3\\xa9' \"☃\"",
    "w \"'\" '\"' \\' \\\" \"\\$x\" '$x' \\$x",
    "w a\\\nb 'a\\\nb' \"a\\\nb\"",
    "w '' \"\" $''",
    "w a'b'\"c\"d$'e'",
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("text", KNOWN)
def test_known_words_are_those_of_bash(text: str) -> None:
    (part,) = parse(text).parts
    assert not part.unknown
    script = f"w() {{ printf '%s\\0' w \"$@\"; }}\n{text}"
    result = subprocess.run(
        [str(shutil.which("bash")), "--noprofile", "--norc", "-c", script],
        env={"PATH": "/nonexistent", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=True,
        timeout=10,
    )
    assert tuple(result.stdout.decode().split("\0")[:-1]) == part.argv


DOUBTS = [
    ("w *", Unknown(Doubt.PATTERN)),
    ("w a*", Unknown(Doubt.PATTERN, "a")),
    ("w a'*'b?", Unknown(Doubt.PATTERN, "a*b")),
    ("w ~root/a", Unknown(Doubt.VALUE, "~")),
    ('w "$x"', Unknown(Doubt.VALUE)),
    ('w "a$x"', Unknown(Doubt.VALUE, "a")),
    ("w $x", Unknown(Doubt.WORDS)),
    ("w a$x", Unknown(Doubt.WORDS, "a")),
    ("w a$x*", Unknown(Doubt.WORDS, "a")),
    ("w a*$x", Unknown(Doubt.WORDS, "a")),
    ('w --a="$x"', Unknown(Doubt.VALUE, "--a=")),
    ('w ./"$x"', Unknown(Doubt.VALUE, "./")),
    ('w "$@"', Unknown(Doubt.WORDS)),
    ("w $#", Unknown(Doubt.VALUE)),
    ("w $?", Unknown(Doubt.VALUE)),
    ("w $((1))", Unknown(Doubt.VALUE)),
    ("w $(a)", Unknown(Doubt.WORDS, is_output=True)),
    ('w "$(a)"', Unknown(Doubt.VALUE, is_output=True)),
    ("w b$(a)", Unknown(Doubt.WORDS, "b", is_output=True)),
    ("w $(echo a)", Unknown(Doubt.WORDS, is_output=True, printed="a")),
    ("w $(a; b)", Unknown(Doubt.WORDS, is_output=True)),
    ("w <(a)", Unknown(Doubt.VALUE, "/dev/fd/")),
    ("w <(echo a b)", Unknown(Doubt.VALUE, "/dev/fd/", printed="a b")),
    ("w {$x,b}", Unknown(Doubt.WORDS)),
]


@pytest.mark.parametrize(("text", "doubt"), DOUBTS)
def test_what_is_not_known_of_a_word(text: str, doubt: Unknown) -> None:
    assert parse(text).parts[0].unknown[0] == (1, doubt)


def test_a_known_beginning_is_no_option() -> None:
    """
    Doubt about the first letters must not look like knowledge of them.
    """
    for text in ("w $x-a", 'w "$x"/a', "w {-a,b}$x", "w $HOME.x", "w ${x}a"):
        assert not parse(text).parts[0].unknown[0][1].known


UNREAD = [
    ("echo ${!x}", "indirect"),
    ("echo ${!x@Q}", "indirect"),
    ("echo ${x@P}", "@P"),
    ("echo ${x[0]@P}", "@P"),
    ("echo ${x@Z}", "syntax"),
    ("x='$(a)'", "holds code"),
    ("x=`a`'$(b)'", "holds code"),
    ("x=a; x+='$(b)'", "holds code"),
    ("x=\\$\\(a\\)", "holds code"),
    ("x=('a[$(b)]')", "holds code"),
    ("(( x['$(a)'] ))", ""),
    ("[[ 'x[$(a)]' -eq 1 ]]", "arithmetic"),
    ("[[ -v 'x[$(a)]' ]]", "arithmetic"),
    ("unset 'x[$(a)]'", "arithmetic"),
    ("echo {1..100000}", "more than 200 words"),
    ("echo {a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "more than 200 words"),
    ("echo {Z..a}", "no letters"),
    ("echo $@{1..2}", "braces"),
]


@pytest.mark.parametrize(("text", "reason"), UNREAD)
def test_words_that_are_not_read(text: str, reason: str) -> None:
    command = parse(text)
    assert command.opaque
    assert reason in command.opaque
