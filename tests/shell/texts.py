"""
Shell text to try a reader with: valid bash from a grammar, and what is left of it after
some damage. Everything comes from one `random.Random`, so that hypothesis (which shrinks)
and the soak tests (which are fast) write the same texts.

The programs are `p1` to `p9` and a few harmless wrappers, the files `f1` to `f3`, all
relative, so that a text may really run in a box whose PATH holds nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

__all__ = [
    "AROUND",
    "JOINS",
    "PIECES",
    "PROGRAMS",
    "WRAPPERS",
    "abut",
    "bash_texts",
    "broken_texts",
    "damage",
    "jumble",
    "together",
    "write",
]

PROGRAMS = tuple(f"p{number}" for number in range(1, 10))
WRAPPERS = ("env", "nice", "nohup", "setsid", "timeout", "xargs", "bash", "sh", "stdbuf")
DEEPEST = 3

PIECES = (
    *"ls rm -rf / ~ $HOME sudo env A=1 sh -c bash eval xargs find -exec {} + curl http://x/ git status python3".split(),
    *"cat /etc/shadow . .. * ? [a-z] {a,b} é \u202e ' \" \\ ; & && || | |& > >> < <<< 2>&1 <( >( $( ) ` $(( ))".split(),
    *"${ } $' \\x41 ( ! # [[ ]] ~root %1 = : [ ] ;; ;& ;;& ${x:- @P} $\" $[ esac done".split(),
    *("\n", "\t", " ", "<<EOF\n", "EOF\n", "<<'E'\n", "<<-E\n", "E\n", "{ ", "; }", "if ", "; then ", "; fi"),
    *("for i in ", "do ", "case ", " in ", "function f ", "\r", "coproc ", "time ", "\\\n", "exec ", "f() "),
    *("while ", "select ", "declare ", "a[", "]=", "\x01", "((", "))"),
)
"""Tokens that mean something to a shell, to be thrown together."""

ARGUMENTS = (
    *("a", "-x", "--y=z", "b1", "./q", "é", "a#b", "%", "a=b", "+", "{}", "{a", "a}", "]", "!", "-", "--", "^", "a,b"),
    *("''", '""', "'a b'", "'$v1'", "'`p1`'", "'\\'", "'a\"b'", "'a\nb'", "'#'", "'$(p1)'", "'*'"),
    *('"a b"', '"$v1"', '"a\\"b"', '"\\$v1"', '"\\`p1\\`"', '"a\\b"', '"\'"', '"a\nb"', '"\\\\"', '"a\\\nb"'),
    *("$'a\\tb'", "$'\\x41'", "$'\\''", "$'\\u00e9'", "$'\\101\\n'", "$'a\\cA'", "$'\\\\'", "$'\"'", '$"a"'),
    *("\\a", "\\ ", "\\\\", "\\$v1", "\\'", '\\"', "\\#", "\\;", "\\*", "a\\\nb", "\\~", "\\{a,b}", "\\`"),
    *("$v1", "${v1}", "${v1:-a}", "${#v1}", "${v1#a}", "${v1%%a*}", "${v1/a/b}", "${v1:1:2}", "${v1@Q}", "${!v1}"),
    *('"${v2[@]}"', "${v2[0]}", "$((1+1))", "$[1+1]", "$?", "$#", "$@", "$*", '"$@"', "$-", "$0", "$1", "${v1^^}"),
    *("$", "a$", '"$"', "{a,b}", "{1..3}", "x{a,b}y", "{a,b", "*", "f?", "[ab]*", "~", "a=~", "@(a|b)", '"a"{b,c}'),
)
HOLE = "…"
PLACES = (  # where a list of commands stands inside of a word
    *("$(…)", '"$(…)"', "a$(…)b", "`…`", '"`…`"', "${v9:-$(…)}", '"${v9:-$(…)}"', "$(( $(…)1 ))", "${v2[$(…)0]}"),
    *("${v9:-<(…)}", "${v9-a>(…)b}", '"${v9:-<(…)}"', "${v9=${v8-<(…)}}", "${v9:?'a'<(…)}", "${v1/a/<(…)}"),
    *("<(…)", ">(…)", "${v1/a/$(…)}", "${v1:$(…)0}", "$[ $(…)1 ]", "${v9-'a'$(…)}", "${v9+a}$(…)", "\"a'$(…)'b\""),
    *("\"${v9:-'$(…)'}\"", '"${v9:-"$(…)"}"', "${v9:-${v8:-$(…)}}", "x={a,$(…)}", "${v1/$(…)/a}", "${v1#$(…)}"),
    # In double quotes, single quotes behind `:-` and its like are no quotes.
    *(
        "\"${v9:+'$(…)'}\"",
        "\"${v8='$(…)'}\"",
        "${v9:-'$(…)'}",
        "\"${v1#'$(…)'}\"",
        "\"${v1/a/'$(…)'}\"",
        "\"${v9:-a'`…`'b}\"",
    ),
    *(
        '"${v9:-\\"$(…)\\"}"',
        "\"${v9:-${v8:-'$(…)'}}\"",
        "$'$(…)'",
        '$"$(…)"',
        '"${v9-\\$(…)}"',
        "\"${v1%'$(…)'}\"",
        "${v9:-\\'$(…)\\'}",
    ),
)
TOUCHING = (  # what another word or command may touch, and bash then tells whose it is
    *("v2=(a b)", "v2=()", "v2+=(p7)", "v2[1]=a", "v2=([1]=a)", "v1=", "v1=a", "v1+=a", "v1=$(p1)", "v1=`p1`"),
    *("(p1)", "{ p1; }", "((1))", "[[ a ]]", "f1() { p1; }", "f1() (p1)", "case a in a) p1;; esac", "! p1", "time p1"),
    *("if p1; then p2; fi", "for v1 in a; do p1; done", "while p5; do p1; done", "coproc p1", "declare v2=(a)"),
    *(">f1", "2>f1", "<f1", "2>&1", ">&2", "&>f1", "<<<a", "{v1}>f1", "<(p1)", ">(p1)", "$(p1)", "`p1`", "$((1))"),
    *("?(a)", "+(a|b)", "{a,b}", "~", "%", "=", "[", "]", "{", "}", "(", ")", "!", ":", "\\", "\\\n", "'", '"', "`"),
    *("if ", "then ", "do ", "in ", "esac", "fi", "case ", "function ", "select ", "let ", "eval ", "exec ", "export "),
)
HALVES = (
    *(
        "{v2[",
        "]}>f1",
        "]}<f1",
        "v2[",
        "]=",
        "]",
        "${v2[",
        "${v1:",
        "${v1-",
        "${v1/",
        "}",
        "$((",
        "))",
        "$[",
        "((",
        "[[ ",
    ),
    *(" ]]", "[ ", "$(", ")", ">&", "<&", "<>", "<<<", "v2=(", "declare ", "'$(p1)'", "'`p7`'", '"\\$(p1)"', "\\$"),
)
ENDINGS = (
    "#",
    "#",
    ";",
    "; ",
    "\n",
    " ",
    " #",
    "|",
    "&",
    "&&",
    "||",
    ";;",
    "\t",
    "\r",
    "#'",
    "#)",
    "p7",
    "; p7",
    "\np7",
)
HEADS = (  # forms of a program's name
    *(
        "…",
        "…",
        "…",
        "…",
        "…",
        "\\…",
        '"…"',
        "'…'",
        "$'…'",
        "''…",
        '…""',
        "p\\\n…",
        "${v9:-…}",
        "${v9-…}",
        "${v9}…",
        "…$v9",
    ),
)
IDIOMS = (  # ways to a program by a variable, or past what looks like one
    *(
        "$\n… a",
        "v1=$\n… a",
        'p1 "$\na"; …',
        "p1 $#a $$; …",
        "p1 a$$''; …",
        "! ! …",
        "… | p1 | p2\np3 a > f1",
        "export v1=$\n…",
    ),
    *(
        "v1=…; $v1",
        'v1=…; "$v1"',
        "v1=…; ${v1}",
        "v1=p; $v1…",
        "v2=(… a); ${v2[@]}",
        'set -- … a; "$@"',
        "set -- …; $1",
    ),
    *(
        "printf -v v1 …; $v1",
        "read v1 <<< …; $v1",
        "v1=…a; ${v1%a}",
        "v1=…; v2=v1; ${!v2}",
        "v1=X…; ${v1#X}",
        "v1='… a'; $v1",
    ),
    *(
        "f1() { $1 a; }; f1 …",
        "f1() { … $1; }; f1",
        "for v1 in … …; do $v1 a; done;",
        "v1=…; v1+=; $v1",
        "IFS=,; v1=…,a; $v1",
    ),
    *(
        ": ${v7:=…}; $v7",
        "v1=$(echo …); $v1",
        "declare v1=…; $v1",
        "declare -n v6=v1; v1=…; $v6",
        "v1=(…); $v1",
        "unset v1; v1=…; $v1",
    ),
    *(
        "v1=a; v1=… p1 $v1;",
        "v1=a; (v1=…; $v1)",
        "v1=…; p1 | read v1; $v1",
        "if p1; then v1=…; fi; $v1",
        "v1=a; f1() { v1=…; }; f1; $v1",
    ),
)
FRONTS = (  # what may stand in front of a program
    *(
        "env",
        "env v1=a",
        "env -i",
        "env -u v1 --",
        "nice",
        "nice -n 1",
        "nohup",
        "setsid",
        "timeout 5",
        "timeout -k 1 5",
    ),
    *("command", "command -p", "builtin command", "exec", "exec -a x", "time", "time -p", "coproc", "stdbuf -o0"),
    *("xargs", "xargs -n 1", "env nice timeout 5", "command env", "eval", "builtin eval", "env -S", "nice -1"),
    *("echo a | xargs", "echo a b | xargs -n1", "xargs -I% ", "command eval", "trap -- 'p1' EXIT;", "! ", "env --"),
)
WHOLES = (  # ways to run a short literal list of commands
    *("eval '…'", 'eval "…"', "bash -c '…'", "sh -c '…'", "bash -lc '…' a b", "env bash -c '…'"),
    *("bash <<'E'\n…\nE\n", "bash <<E\n…\nE\n", "bash <<< '…'", "echo '…' | bash", "source <(echo '…')"),
    *(". /dev/stdin <<< '…'", "trap '…' EXIT", "timeout 5 bash -c '…'", "eval \"$(echo '…')\"", "echo … | xargs env"),
    *(
        "shopt -s expand_aliases\nalias z='…'\nz",
        "bash -c 'eval \"…\"'",
        "xargs -I% bash -c '…' <<< a",
        "v1='…'; eval $v1",
    ),
    *(
        "bash -c \"bash -c '…'\"",
        "echo '…' > f1; . ./f1",
        "v1='…'; eval \"$v1\"",
        "bash -s <<'E'\n…\nE\n",
        "bash /dev/fd/3 3<<< '…'",
    ),
    *(
        "bash -xc '…'",
        "bash -c -- '…'",
        "bash --norc -o pipefail -c '…'",
        "env -S \"bash -c '…'\"",
        "v1='…' bash -c '$v1'",
    ),
    *("f1() { …; }; export -f f1; bash -c f1", "trap '…' DEBUG; :", "PROMPT_COMMAND='…'", "PS4='$(…)'; set -x; :"),
    *(
        "v1='a[$(…)]'; (( v1 ))",
        "[[ 'a[$(…)]' -eq 0 ]]",
        "v1='$(…)'; echo ${v1@P}",
        "declare 'v3[$(…)]=1'",
        "let 'v3[$(…)]=1'",
    ),
    *(
        "test -v 'v3[$(…)0]'",
        "unset 'v3[$(…)0]'",
        "read 'v3[$(…)0]' <<< a",
        "printf -v 'v3[$(…)0]' a",
        "mapfile -C '… #' -c 1 <<< a",
    ),
)
# Ways to put a text, {b}, beside another, {a}, or into larger text.
JOINS = (
    "{a}; {b}",
    "{a} && {b}",
    "{a} || {b}",
    "{a} | {b}",
    "{a}\n{b}",
    "{a} & {b}",
    "{b}; {a}",
    "{b} | {a}",
    "{b}\n{a}",
)
AROUND = (
    *(
        "echo $({b}\n)",
        "( {b}\n)",
        "{{ {b}\n}}",
        "if {b}\nthen :; fi",
        "if :; then {b}\nfi",
        "f() {{ {b}\n}}; f",
        "! {b}",
    ),
    *(
        "while {b}\ndo break; done",
        "for x in a; do {b}\ndone",
        "case a in a) {b}\nesac",
        'echo "$({b}\n)"',
        "coproc {{ {b}\n}}",
    ),
    *(
        "cat <({b}\n)",
        "x=$({b}\n)",
        "echo ${{x:-$({b}\n)}}",
        "[[ $({b}\n) ]]",
        "(( $({b}\n) ))",
        "a[$({b}\n)]=1",
        "time {b}",
    ),
    *(
        "cat <<E\n$({b}\n)\nE",
        "function f {{ {b}\n}}; f",
        "select x in a; do {b}\ndone",
        "until {b}\ndo break; done",
        "{b} > f1",
    ),
    *("x=1\n{b}", "{{ :; {b}\n}} 2>&1", "{b} 2>/dev/null", "{b} # all", "echo $[ $({b}\n) ]", "ls ${{x/$({b}\n)/}}"),
)
ENDS = ("\n", "\n", "\n\n", " # it's a (comment\n", '\n# `$( "\n', " #\n", "\n \t\n")


ONCE_WRONG = (  # what a grammar reads otherwise than bash
    *(
        "! v1=$v2 \\\ntime -p \\\np7",
        "time time -p\\\n p7",
        "time ti\\\nme -\\\np\\\n p7",
        "time -p\\\n ! p7; ! time -\\\np p7",
        "time -p\\\nx p7",
        "time time -p\\\n p7 a",
        "time -p\\\n ! time -\\\np p7 a",
        "ti\\\nme ! time\\\n -p { p7 a; }",
        "co\\\nproc v1\\\n { p7 a; }; wait",
        "v1=a \\\n! p7; v1=b \\\ntime -p { p7; }",
        "p1 | \\\n! p7",
        "p1 $(\\\ntime p7)",
        "coproc v1=$",
        "coproc v1=$v2 p7",
        "p1 <>(p7 a)",
        "! { t{ time p1 'p7; p8 b'; }\n",
        "time v1=a -i p7",
        "env -=-- 'p#' 5",
        'p1 "${v9-$([ a -a b > f1 ])}"',
        'p1 "${v9-$([ a >f1 ])}"; p2 $(( $([ a >f2 ]; p3 1) ))',
        'p1 "${v9-$([ a < f1 ])}" "${v9-$([[ a < b ]] && p2)}" "${v9-$(p3 > f2)}"',
        "case a in; a) p1 ;; esac",
        "[ a | p7 ]",
        "[ a || p7 b ]",
        "[ \"a \"|'p7' ] | p2",
        "case a in & a) p1 ;; esac",
        "for v1 in a & do p1; done",
        "select v1 & do p1; done",
        "time \\-p p7",
        'time "--" p7 | p1',
        "p1 >& time -p p7 a; ! { p2; }",
        "p1 <<<(p7 a)",
        "p1 <>\\\n(p7 a)",
    ),
    *(
        "echo $'\\\\' ; p7 \\'",
        "v1=$\np7 a",
        "$\np7 a",
        "p1 $'a\\\\' ;p7; p2 'b\\'",
        "p1 | p2 | p3\np7 a > f1",
        "\"ab\"'b'\"${v9-'$(p7)'}\"",
    ),
    *(
        "''\\p7\n",
        "p1 }\\p",
        "\\ ''\n",
        "p1 '' \\ $'\\'' \"'\"",
        "p1 $ a",
        "p1 '' $",
        'p1 \\"  \\ #\n',
        "p1 {v4}>f1 a",
        "p1 {,} ]",
        "p1 -$ a",
    ),
    *(
        "time v1=a p7 b",
        "time -p v1= $v9",
        "time -pp p1",
        "time bash <<< 'p7 a'",
        "env bash <<< p7",
        "exec bash <<< p7",
        "bash 0<<< p7",
    ),
    *(
        "v2=(a)#; p7",
        "declare v2=()#a; p7 b",
        "v2=([3\\]=a)",
        "p1 >&'$(p7)'",
        'p1 2>&2"\\`p7\\`"',
        "p1 {v2['$(p7)']}>f1",
        "p1 {v2['$(p7 a)']}<<<x b",
    ),
    *(
        "p1 <<E\n\\x$(p7)\nE",
        "p1 <<E\n\\\\`p7 a`\nE\n",
        "p1 <<E\n\\\n$(p7)\nE\n",
        "v1=a; p1 ${v1/\\x$(p7)}",
        'v1=a; p1 "${v1%%\\x$(p7)}"',
        "p1 `p2 <<E\n\\$(p7)\nE\n`",
        'p1 "$(p2 <<E\nE<(p7)\nE\n)"',
        "p1 $(p2 <<E\nE p7 )",
        "p1 $(p2 <<E\nEa<(p7)\nE\n)",
        "p1 <(p2 <<''\np7;p8 )\n\n)",
        "((${v1/a/))\np7\n}))",
        "v1=a; p1 $((${v1:-))\np7\n}))",
        "v1=a; p1 $[${v1:-]\np7\n}]",
        "v1=a; p1 ${v1/'$(p1 '$(p7)')'}",
    ),
    *(
        "[ a > f1 ]",
        "if [ -f x >f2 ]; then p7; fi",
        "p1 -2>f1 a",
        "p1 a$$'' b",
        "p1 $#a",
        "! ! p7",
        "p1 2 \\ 2>f1 x",
        "p1 3&>f1",
        "[ y\\ ]",
    ),
    *(
        "<<E\\\na\nE\np7",
        "p1 a$(\\ \\\n b c)",
        "p1 \"${v9:-'`p7`'}\"",
        "[[x - p ]]",
        "p1 '' ''\\p8\n",
        "p2 *''$0 f?\n",
        "mapfile -C'p7 a #' -c 1 <<< a",
    ),
)


class _Writer:
    """
    Writes nested commands; keeps the bodies of heredocs until the line ends.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._depth = 0
        self._bodies: list[str] = []

    def chance(self, percent: int) -> bool:
        return self._rng.randrange(100) >= 100 - percent

    def choice(self, *options: str) -> str:
        return options[self._rng.randrange(len(options))]

    def nested(self) -> str:
        """
        A list of commands that ends within its parentheses, heredocs and comments too.
        """
        bodies, self._bodies = self._bodies, []
        self._depth += 1
        text = self.commands()
        if self._bodies or self.chance(10):
            text += self.end()
        self._depth -= 1
        self._bodies = bodies
        return text

    def end(self) -> str:
        bodies, self._bodies = self._bodies, []
        return self.choice(*ENDS) + "".join(bodies) if not bodies else "\n" + "".join(bodies)

    def blank(self) -> str:
        return " " if not self.chance(8) else self.choice("  ", "\t", " \\\n", "\\\n ")

    def commands(self) -> str:
        text = self.pipeline()
        while self.chance(35):
            glue = self.choice("; ", " && ", " || ", ";", " & ", "\n", "&&", " &&\n")
            text += self.end() if glue == "\n" else glue
            text += self.pipeline()
        return text

    def pipeline(self) -> str:
        text = self.choice(*[""] * 8, "! ", "time ", "time -p ", "time -p\\\n ") + self.command()
        while self.chance(20):
            text += self.choice(" | ", "|", " |& ", " | \\\n") + self.command()
        return text

    def command(self) -> str:
        if self._depth >= DEEPEST or self.chance(55):
            return self.simple()
        if self.chance(25):
            return filled(self.choice(*WHOLES), self.choice("p7 a", "p8", "p7; p8 b"))
        return self.compound()

    def simple(self) -> str:
        if self.chance(15):
            return self.choice("", ": ; ", "p1 && ") + filled(self.choice(*IDIOMS), self.choice(*PROGRAMS))
        parts = [self.choice("v1=a", "v1=$v2", "v2+=b", "v1=", "v1='a b'", "v1=" + self.word()) for _ in self.some(12)]
        parts += [self.redirect() for _ in self.some(5)]
        if self.chance(20):
            parts.append(self.choice(*FRONTS))
        head = self.choice(*HEADS)
        program = self.choice(*PROGRAMS)
        parts.append(filled(head, program[1:] if head[0] == "p" else program))
        parts += [self.word() if not self.chance(12) else self.redirect() for _ in self.some(50)]
        return self.blank().join(parts)

    def some(self, percent: int) -> range:
        return range(next((count for count in range(4) if not self.chance(percent)), 4))

    def word(self) -> str:
        text = self.choice(*ARGUMENTS) if self._depth >= DEEPEST or not self.chance(25) else self.substitution()
        return text + self.word() if self.chance(10) else text

    def substitution(self) -> str:
        place, inner = self.choice(*PLACES), self.nested()
        if "`" in place:
            inner = inner.replace("\\", "\\\\").replace("`", "\\`")
        return filled(place, inner)

    def redirect(self) -> str:
        if self.chance(30):
            return self.heredoc()
        file = self.choice("f1", "f2", "f3", "'f1'", "f$v9", "$'f2'", '"f$v9"1')
        return self.choice(">", ">>", "2>", "> ", "<>", "&>", ">|", "2>&1 >", "{v3}>", ">& ", "< /dev/null 3>") + file

    def heredoc(self) -> str:
        if self.chance(25):
            return "<<<" + self.choice("a", " 'a b'", '"$v1"', " $(p1)", "$'a\\n'")
        end = self.choice("E", "END", "X")
        quoted = self.chance(40)
        tag = self.choice(f"'{end}'", f'"{end}"', f"\\{end}", f"{end[0]}'{end[1:]}'") if quoted else end
        lines = ["text it's", 'rm -rf "', "$v1", "\\$(p9) \\`", "# a", "a \\\\", "", f" {end}", f"{end} "]
        body = [self.choice(*lines) for _ in self.some(50)]
        if self._depth < DEEPEST and self.chance(40):
            body.append(f"a $({self.nested()}) b" if not quoted else "$(p9) `p9`")
        dash = self.choice("", "", "-")
        tab = "\t" if dash else ""
        self._bodies.append("".join(f"{tab}{line}\n" for line in (*body, end)))
        return f"<<{dash}{self.choice('', ' ')}{tag}"

    def compound(self) -> str:
        self._depth += 1
        writers: tuple[Callable[[], str], ...] = (
            lambda: f"({self.choice('', ' ')}{self.nested()})",
            lambda: f"{{ {self.commands()}{self.stop()}}}",
            self._if,
            lambda: (
                f"{self.choice('while', 'until')} {self.commands()}{self.stop()}do {self.commands()}{self.stop()}break; done"
            ),
            lambda: f"for v1 in {self.word()}{self.choice('; ', ' ; ')}do {self.commands()}{self.stop()}done",
            lambda: f"for ((v3=0; v3<1; v3++)); do {self.commands()}{self.stop()}done",
            self._case,
            lambda: f"select v1 in {self.word()}; do {self.commands()}{self.stop()}break; done <<< 1",
            self._function,
            lambda: f"[ {self.word()} {self.choice('', self.redirect())} ]",
            lambda: f"[[ {self.word()} {self.choice('==', '!=', '=~', '<', '-nt')} {self.word()} ]]",
            lambda: f"(( $({self.nested()})1 + v3 ))",
            lambda: f"coproc {{ {self.commands()}{self.stop()}}}",
            lambda: f"v2=({self.word()} {self.word()} [3]={self.word()})",
            lambda: f"v2[$({self.nested()})0]={self.word()}",
            lambda: f"{self.choice('declare', 'export', 'local', 'readonly', 'typeset -i')} v3={self.word()}",
            lambda: f"let v3=$({self.nested()})1",
        )
        text = writers[self._rng.randrange(len(writers))]()
        self._depth -= 1
        return text + (" " + self.redirect() if self.chance(10) and text[-1] in ")}enci" else "")

    def stop(self) -> str:
        """
        What may stand in front of a closing word.
        """
        return self.end() if self._bodies or self.chance(25) else self.choice("; ", ";")

    def _if(self) -> str:
        text = f"if {self.commands()}{self.stop()}then {self.commands()}{self.stop()}"
        if self.chance(20):
            text += f"elif {self.commands()}{self.stop()}then {self.commands()}{self.stop()}"
        return text + (f"else {self.commands()}{self.stop()}fi" if self.chance(30) else "fi")

    def _case(self) -> str:
        first = f"{self.choice('', '(')}{self.choice('a', '*', 'a|b', '$v1', 'esac2', '[ab]')}) {self.commands()}{self.stop()}"
        more = f"{self.choice(';; ', ';& ', ';;& ')}*) {self.commands()}{self.stop()}" if self.chance(40) else ""
        # A semicolon in front of `;;` or `esac` would be one too many.
        first, more = (part.rstrip("; ") if part.endswith(("; ", ";")) else part for part in (first, more))
        return f"case {self.word()} in {first} {more} ;; esac"

    def _function(self) -> str:
        head = self.choice("f1() { …}", "function f1 { …}", "function f1() { …}", "f1 ( )\n{ …}", "f1() (…)")
        return f"{filled(head, self.commands() + self.stop())}; f1"


def filled(form: str, text: str) -> str:
    return form.replace(HOLE, text)


def write(rng: random.Random) -> str:
    """
    Text that is nearly always valid bash.
    """
    writer = _Writer(rng)
    text = writer.commands() + writer.end()
    if writer.chance(60):
        text = text.removesuffix("\n")
    if writer.chance(3):
        text = text.replace("\n", "\r\n")
    return text


def damage(rng: random.Random, text: str) -> str:
    """
    *text* with some characters lost, doubled, moved or put in.
    """
    for _ in range(rng.randrange(1, 4)):
        start = rng.randrange(len(text) + 1)
        stop = min(len(text), start + rng.randrange(1, 4))
        middle = (
            "",
            text[start:stop] * 2,
            PIECES[rng.randrange(len(PIECES))] + text[start:stop],
            "'\"`$(){}\\\n;&|<>#"[rng.randrange(15)] + text[start:stop],
            text[start:stop][::-1],
        )[rng.randrange(5)]
        text = text[:start] + middle + text[stop:]
    return text


def jumble(rng: random.Random) -> str:
    """
    Tokens thrown together.
    """
    glue = ("", " ")[rng.randrange(2)]
    return "x" + glue.join(PIECES[rng.randrange(len(PIECES))] for _ in range(rng.randrange(1, 40)))


def abut(rng: random.Random) -> str:
    """
    Words, lists and commands, most of them right as they are, that touch each other.
    """
    kinds = (ARGUMENTS, TOUCHING, TOUCHING, PROGRAMS, ENDINGS, ENDINGS, HALVES)
    text = ""
    for _ in range(rng.randrange(2, 9)):
        kind = kinds[rng.randrange(len(kinds))]
        text += kind[rng.randrange(len(kind))] + ("", "", "", " ")[rng.randrange(4)]
    return text


def together(rng: random.Random, texts: Sequence[str]) -> str:
    """
    Some of *texts*, put together.
    """
    forms = (*JOINS, *AROUND)
    text = texts[rng.randrange(len(texts))]
    for _ in range(rng.randrange(1, 3)):
        text = forms[rng.randrange(len(forms))].format(a=texts[rng.randrange(len(texts))], b=text)
    return text


def bash_texts() -> st.SearchStrategy[str]:
    """
    `write`, for hypothesis.
    """
    return st.randoms(use_true_random=False).map(write)


def broken_texts() -> st.SearchStrategy[str]:
    """
    `damage` and `jumble`, for hypothesis.
    """
    randoms = st.randoms(use_true_random=False)
    return st.one_of(randoms.map(lambda rng: damage(rng, write(rng))), randoms.map(jumble))
