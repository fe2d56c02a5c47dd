"""
Texts in which a program hides: behind odd characters, in every place where bash expands something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

__all__ = ["hide"]

HIDDEN = (
    *("$(p8 z)", "`p8 z`", "<(p8 z)", "$(p8 z\n)", "$(p1;p8 z)", "${v9:-$(p8 z)}", "$((v1[$(p8 z)]))", '"$(p8 z)"'),
    *(
        '"`p8 z`"',
        '$(p8 "z")',
        "$( (p8 z) )",
        "$(\np8 z)",
        "$[`p8 z`]",
        ";p8 z;",
        "\np8 z\n",
        "|p8 z",
        "&p8 z",
        "&&p8 z",
    ),
)
AROUND = (
    *(
        "\\",
        "\\\\",
        "\\x",
        "\\$",
        "\\`",
        '\\"',
        "\\\n",
        "'",
        '"',
        "$",
        "$$",
        "${",
        "}",
        "#",
        "##",
        "\n",
        "\t",
        " ",
        "  ",
    ),
    *(
        "*",
        "?",
        "[",
        "]",
        "{",
        "}",
        "~",
        "!",
        "@",
        "(",
        ")",
        "((",
        "))",
        "<",
        "<<",
        ">",
        "&",
        "|",
        ";",
        "`",
        "``",
        "$(",
    ),
    *(
        "$((",
        "''",
        '""',
        "$''",
        '$""',
        "=",
        "+=",
        "+",
        "-",
        "/",
        "//",
        "%",
        "^",
        ",",
        ":",
        ".",
        "0",
        "1",
        "a",
        "v1",
        "$v1",
    ),
    *(
        "${v1}",
        "$1",
        "$#",
        "$-",
        "${v1",
        "é",
        "\u00a0",
        "\r",
        "\x01",
        "E",
        "\nE\n",
        "\tE",
        "v1=",
        "[0]=",
        "]=",
        "${v1#",
    ),
    *(
        "${v1/",
        "in",
        "do",
        "done",
        "\\\\\n",
        "\\\\$",
        "$'\\''",
        '"\\"',
        "\"'",
        "'\"",
        "$'",
        '$"',
        "'$('",
        "'$(p1 '",
        "')'",
        "'`'",
    ),
)
OPERATORS = (
    *(":-@", "-@", ":=@", "=@", ":?@", "?@", ":+@", "+@", "#@", "##@", "%@", "%%@", "/a/@", "/@/b", "/@", "//@/b"),
    *("//a/@", "/#@/b", "/%@/b", "^@", "^^@", ",@", ",,@", ":@", ":@:1", ":0:@", "[@]", "[@]:-a", "[@]/a/b", "@Q"),
    *("[*]#@", "[*]/@/b"),
)
WORDS = (
    *(
        "@",
        '"@"',
        "a@",
        'a"@"b',
        '$"@"',
        "$'@'",
        "'@'",
        "$((@))",
        "$[@]",
        "$(p2 @)",
        "`p2 @`",
        '"$(p2 "@")"',
        "<(p2 @)",
    ),
    *("{@,b}", "{a,@}", "~@", "${#v1@}", "${!v1@}", "$@@", "$v1@", "\\@", "!(@)", "@(@)", "$(<@)", "\\\n@"),
    *("$(( v1[@] ))", "${v1[@]}", '"${v1[@]}"', *(f"${{v1{each}}}" for each in OPERATORS)),
    *(f'"${{v1{each}}}"' for each in OPERATORS),
    *(f"${{v9:-${{v1{each}}}}}" for each in OPERATORS),
)
LINES = (
    *("p1 @", "v1=@", "v1=@ p1", "v1=(@)", "v1=([@]=1)", "v1[@]=1", "v1+=(@)", "p1 >@", "p1 <@", "p1 <<<@", "((@))"),
    *(
        "[[ @ ]]",
        "[[ a == @ ]]",
        "[[ a =~ @ ]]",
        "[[ -n @ ]]",
        "[[ -v @ ]]",
        "[ @ ]",
        "test @",
        "let @",
        "declare v1=@",
    ),
    *("case @ in a) p1;; esac", "case a in @) p1;; esac", "for v1 in @; do p1; done", "for ((@;;)); do break; done"),
    *("export v1=@", "local v1=@", "declare -a v1=(@)", "readonly v1=@", "p1 # @", "f() { p1 @; }; f", "p1 a@"),
    *("if p1 @; then p2; fi", "{ p1 @; }", "( p1 @ )", "p1 @ | p2", "p1 | p2 @", "p1 && p2 @", "p1 @ & wait", "! p1 @"),
    *("time time -p@ p1", "time -p@ ! p1"),
    *("time p1 @", "while p1 @; do break; done", "eval p1 @", "trap @ EXIT", "printf -v v1 @", "read v1 @", "unset @"),
    *("coproc p1 @", "select v1 in @; do break; done", "p1 {v1}>@", "p1 2>@", "p1 &>@", "exec p1 @", "set -- @; p1"),
    *("shopt -s extglob; p1 @", "v1=a@; p1 $v1", "p1 $(p2 @)", "bash -c @"),
)
DOCUMENTS = (
    *("p1 <<E\n@\nE", "p1 <<E\n@\nE\n", "p1 <<-E\n\t@\n\tE", "p1 <<-E\n@\nE", "p1 <<E >f\n@\nE", "p1 <<E | p2\n@\nE"),
    *("p1 <<E; p2 <<F\na\nE\n@\nF", "p1 <<E <<F\na\nE\n@\nF", "p1 $(p2 <<E\n@\nE\n)", 'p1 "$(p2 <<E\n@\nE\n)"'),
    *(
        "p1 `p2 <<E\n@\nE\n`",
        "{ p1 <<E\n@\nE\n}",
        "( p1 <<E\n@\nE\n)",
        "if p1 <<E\n@\nE\nthen p2; fi",
        "exec <<E\n@\nE",
    ),
    *(
        "f() { p1 <<E\n@\nE\n}; f",
        "p1 <<'E'\n@\nE",
        "p1 <<\\E\n@\nE",
        'p1 <<"E"\n@\nE',
        "p1 <<E && p2\n@\nE",
        "<<E\n@\nE",
    ),
    *("while p1 <<E\n@\nE\ndo break; done", "case a in a) p1 <<E\n@\nE\n;; esac", "<<E p1\n@\nE", "v1=a p1 <<E\n@\nE"),
    *("p1 <<E | bash\n@\nE", "p1 <<E # c\n@\nE", "p1 <<$v1\n@\n$v1", "p1 <<E$v1\n@\nE$v1", "p1 <<E\\\n\n@\nE"),
    *("p1 <<''\n@\n\n", "p1 <<E\n@", "p1 <<E\n@E\nE", "p1 <<E <(p2)\n@\nE", "p1 >f <<E\n@\nE\np2", "bash <<E\n@\nE"),
)


def hide(rng: random.Random) -> str:
    """
    A text that may run `p8 z`, and most often would do it if it were not for what stands around it.
    """

    def one(of: Sequence[str]) -> str:
        return of[rng.randrange(len(of))]

    def some(*counts: int) -> str:
        return "".join(one(AROUND) for _ in range(counts[rng.randrange(len(counts))]))

    text = some(0, 1, 1, 1, 2, 3) + one(HIDDEN) + some(0, 0, 1, 1, 2)
    if rng.randrange(10) < 3:
        text = one(DOCUMENTS).replace("@", text, 1)
    else:
        for kinds in (WORDS, *((WORDS,) if rng.randrange(4) == 0 else ()), LINES):
            text = one(kinds).replace("@", text, 1)
        if rng.randrange(10) == 0:
            text = one(DOCUMENTS).replace("@", text, 1)
    return one(("", "", "", "", "", "v1=abc; ", "v1=abc; ", "v1=abc; ", "v1=(a b); ")) + text
