"""
What each allowed tool may be told, and what takes it out of its row: every option that
writes, runs or reaches out, in every way it can be spelled.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxkit.model import Doubt, EvaluationContext, Level, PolicyAction, Unknown
from sandboxkit.policy import ExecPolicy
from sandboxkit.policy._arguments import ArgumentSet

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.policy import PolicyRule

POLICY = ExecPolicy.default()
CONTEXT = EvaluationContext(cwd="/home/dev/project", home="/home/dev", workspace_roots=("/home/dev/project",))
LISTS = [
    rule
    for rule in POLICY.rules(Level.BUILTIN)
    if rule.action is PolicyAction.ALLOW and rule.constraints.allowed_arguments is not None
]


def action(line: str) -> PolicyAction:
    return POLICY.evaluate(tuple(shlex.split(line)), context=CONTEXT).action


ALLOWED = """
ls -la --color=auto --group-directories-first src
ls -lhS --time-style=long-iso -I '*.o' -- -odd
cat -n a b
tac a
head -n 5 a
head -5 a
head -c1K a
head --lines=5 -q a b
tail -n +5 -f a
tail -F --pid=1 a
tail -20f a
wc -lwc a b
nl -ba -w3 a
cut -d: -f1,3 --output-delimiter=, a
paste -sd, a
comm -12 a b
join -t, -1 1 -2 2 a b
tr -cd a-z
fold -sw 80 a
column -t -s, a
diff -u --color=never a b
diff -rq -x '*.o' a b
diff -u5 a b
cmp -s a b
od -An -tx1 -N16 a
hexdump -C -n 32 a
strings -n 8 -t x a
sha256sum -c --quiet SUMS
stat -c %s --dereference a
readlink -f a
realpath --relative-to=. a
grep -rnE --include='*.py' -A2 -B 2 -m 5 -e foo .
grep -c3 foo a
egrep -v '^#' a
rg -n -tpy -g '!x' --hidden -C3 foo src
rg --files --sort path
ag -il --python foo
sort -t, -k2,2nr -k 1 -u -S1K a
sort -rn --parallel=2 a
uniq -c -f 1 a
xxd -l 64 -g 1 a
xxd -p a
file -bi a
file --mime-type --brief a
find . -type f ( -name '*.py' -o -iname x ) -not -path './.git/*' -mtime -7 -size +1k -print0
find -L src -maxdepth 2 -newermt 2024-01-01 -printf '%p\\n'
fd -H -e py -t f foo src
tree -aL 2 -I 'a|b' --dirsfirst
less -RFXN a
bat -pn -r 1:5 a
jq -rc --arg x 1 '.a[] | select(.b == $x)' a.json
yq -r .a.b f.yaml
base64 -w0 a
base64 -d a
zcat a.gz
gzip -dc a.gz
tar tzf a.tgz
tar --list --file=a.tar --wildcards '*.py'
unzip -l a.zip
zipinfo -1 a.zip
man 3 printf
man -k socket
df -hT .
du -sh --exclude=.git a
du -h -d 1 .
ps -eo pid,ppid,cmd --sort=-rss
ps auxww
pgrep -fl node
lscpu --json
lsblk -o NAME,SIZE
top -b -n 1
date -d '2 days ago' +%F
date -Iseconds -u
id -un
uname -srm
seq -w 1 2 10
seq 10 -1 1
printf '%s\\n' -v
test -f a -a ! -d b
[ a = b ]
[ 1 -lt 2 ]
[ -n = x -a ! -z y ]
sed -n 10,20p a
sed -n '5p;10q' a
sed '/^#/d' a
sed 's/a b/c/g' a
sed -E 's#/usr#/opt#' a
git status -sb
git log --oneline --graph --all -n 20 --since='2 weeks ago' --author=me -- src
git log -5 -p -S foo --stat --pretty=format:%h
git log -L 1,5:a.py
git diff --stat --cached -M HEAD~3..HEAD -- a
git diff -w --word-diff=color
git show --name-only HEAD
git show -s --format=%B HEAD
git blame -L 1,5 -w a
git branch -avv --sort=-committerdate
git branch --merged main
git branch --list 'f/*'
git tag -l 'v*' --sort=-v:refname
git tag
git remote -v
git remote get-url origin
git stash list
git stash show -p stash@{0}
git worktree list --porcelain
git config --get user.name
git config user.email
git config -l --show-origin
git rev-parse --abbrev-ref HEAD
git rev-parse --short HEAD main
git ls-files -mo --exclude-standard
git ls-tree -r --name-only HEAD src
git cat-file -p HEAD:a
git grep -niE foo -- '*.py'
git shortlog -sne --since=2024-01-01
git reflog -n 10
git describe --tags --always --dirty
git for-each-ref --sort=-creatordate --format='%(refname)' refs/tags
git merge-base --is-ancestor a b
git --no-pager log -3
git --no-optional-locks status
git symbolic-ref --short HEAD
git clean -nd
git help log
cd src
pushd src
exit 1
type -a ls
command -v git
read -r line
mapfile -t lines
getopts ab: o
set -euo pipefail
set +x
set -- a b
trap - EXIT
ulimit -c 0
umask 022
unset x
readonly x
help cd
hash -r
sleep 1
python3 --version
python3 -V
node -v
npm --version
gcc --version
java -version
make --version
""".strip().splitlines()

REFUSED = """
sort -o out a
sort -oout a
sort -uo out a
sort a -o out
sort --output=out a
sort --output out a
sort --outp=out a
sort --compress-program=sh -S1K a
sort --compress-program sh a
sort --compress-prog sh a
sort --comp=sh a
sort -T /tmp a
sort --temporary-directory=/tmp a
sort --files0-from=list
sort --no-such a
wc --files0-from=list
wc --files0=list
du --files0-from=list
uniq a out
uniq -c a out
uniq -- a out
uniq -f 1 a out
xxd -r a out
xxd -rp a
xxd -pr a
xxd a out
xxd -ps a out
xxd -c 16 a out
xxd -revert a
xxd -- a out
base64 -o out a
base64 --output=out a
file -C -m a
file -Cm a
file -m a b
file -bm a b
file --magic-file=a b
file --magic a b
file -f list
file --files-from=list
file -z a
file -bz a
file -Z a
file --uncompress a
file --uncomp a
file -p a
find . -delete
find . -exec id {} +
find . -execdir id {} ;
find . -ok id {} ;
find . -okdir id {} ;
find . -fprint out
find . -fprint0 out
find . -fprintf out %p
find . -fls out
find -files0-from list
find -- . -delete
find . -- -delete
find . -name x -delete
find . -name x -o -delete
find . -no-such
fd -x id
fd -Hx id
fd -X id
fd --exec id
fd --exec=id
fd -xid
fd -Hxid
fd --exec-batch id
fd a -x id
fd -l
fd --list-details
rg --pre sh foo
rg --pre=sh foo
rg foo --pre sh
rg --pre-glob '*' foo
rg --hostname-bin sh foo
rg --hostname-bin=sh foo
rg -z foo
rg -nz foo
rg --search-zip foo
ag --pager sh foo
ag --pager=sh foo
ag -A --pager=sh foo
ag -z foo
tree -o out
tree -ao out
tree -Lo 2 out
tree -R
tree --fromfile a
tree --output=out
less -o out a
less -oout a
less -Nooout a
less -O out a
less --log-file=out a
less --LOG-FILE=out a
less -k keys a
less --lesskey-file=keys a
less --lesskey-src=keys a
less -t tag
less -T tags a
less -p 'x$-oout' a
less +!id a
less '+|id' a
more +!id a
bat --pager sh a
bat --pager=sh a
bat cache --build
man -P sh ls
man -Psh ls
man --pager=sh ls
man --pag sh ls
man -H ls
man -Hsh ls
man --html ls
man --html=sh ls
man --htm=sh ls
man -X ls
man -p x ls
man -C x ls
man -M x ls
man -l x
man ./evil.1
date -s 2001-01-01
date -us 2001-01-01
date --set=2001-01-01
date --se 2001-01-01
date 010203042026
date -f list
date -- 010203042026
hostname newname
hostname -F list
hostname -b newname
diff -l a b
diff --paginate a b
diff --pag a b
diff --to-file=a b
ps auxe
ps eww
jq -n env
jq -n '$ENV'
jq -L evil x
yq -i .a=1 a
yq --inplace .a=1 a
yq -s x a
tar xf a
tar tf host:a
tar tf a -I sh
tar tf a --to-command=sh
tar tf a --checkpoint=1 --checkpoint-action=exec=id
tar --list -F sh -f a
tar --list --info-script=sh -f a
tar --list --rsh-command=sh -f a
gzip a
gunzip a.gz
unzip a.zip
unzip -l a.zip -d out
top
sed -i s/a/b/ a
sed -n -i 1p a
sed -n 1p -i a
sed -n 1p --in-place a
sed -n 1e a
sed '1e id' a
sed -n '1p;2e id' a
sed 's/a/id/e' a
sed s/a/id/e a
sed 's/a/b/w out' a
sed 's/a/b/gw out' a
sed '1w out' a
sed '1r x' a
sed -f script a
sed -e "1w b" a
sed 's|a|b|e' a
sed '/x/e id' a
sed '/x/p;w out' a
test -v x
test -R x
test -- -v x
test a = a -a -v x
test -v = x -a -v y
[ -v a = ]x
[ x -a -v a ]
[ -v x ]
printf -v x y
printf -vx y
jobs -x id
wait -p x
read PATH
read -a x
read 'a[1]'
mapfile -C id x
set -a
set -k
set -o posix
set -p
trap id EXIT
export -f f
declare -n r=c
declare -i n=1
declare 'a[1]=1'
unset 'a[1]'
unset -n r
hash -p /tmp/x ls
command -pv ls
git diff --output=out
git diff --output out
git diff --outp=out
git log -1 --output=.git/hooks/pre-commit
git show --output=out
git stash show --output=out
git diff --ext-diff
git log -p --ext-diff
git diff --ext
git log --textconv
git show --textconv
git grep --textconv x
git cat-file --textconv HEAD:a
git cat-file --filters HEAD:a
git cat-file --batch-command
git log --show-signature
git diff --no-index a b
git grep --no-index x
git grep -O x
git grep -Osh x
git grep -nO x
git grep --open-files-in-pager=sh x
git grep --open=sh x
git blame --contents x a
git -c core.pager=sh log
git -p log
git --paginate log
git -C /x status
git --git-dir=x status
git --work-tree=x status
git --exec-path=x status
git --config-env=a=b log
git --no-pager push
git --no-pager diff --output=out
git --no-pager stash
git --no-pager branch x
git branch x
git branch -D x
git branch -aD x
git branch --delete x
git branch --list -D x
git branch -m x
git branch --edit-description
git branch -u x
git tag v1
git tag -l -d v1
git tag -d v1
git tag -l --delete v1
git remote add x y
git remote set-url x y
git remote show origin
git remote update
git stash
git stash drop
git stash push
git worktree add x
git config a.b c
git config --get -e
git config -e
git config --unset a.b
git config -f x -l
git config --file=x --list
git config --get a.b --blob=x
git config edit
git config set a.b c
git config --add a.b c
git config --global a.b c
git symbolic-ref HEAD refs/heads/x
git symbolic-ref -d HEAD
git reflog expire --all
git reflog delete x
git notes add
git submodule update
git bisect start
git clean -fd
git help -w log
git ls-remote .
git archive HEAD
python3 -v
python3 --version x.py
node -v x.js
make --version -f x
java -version -jar x
npm --version install
yarn --version
rustc --version
gradle --version
bash
bash x
sh -c ls
bash -ic ls
env
env -u X
env -0
xargs ls
find . -exec cat {} +
parallel ls
watch ls
time -o x ls
nohup ls
flock x ls
script -c ls
busybox ls
""".strip().splitlines()


@pytest.mark.parametrize("line", ALLOWED)
def test_allowed(line: str) -> None:
    evaluation = POLICY.evaluate(tuple(shlex.split(line)), context=CONTEXT)
    assert evaluation.action is PolicyAction.ALLOW, evaluation.reason


@pytest.mark.parametrize("line", REFUSED)
def test_refused(line: str) -> None:
    evaluation = POLICY.evaluate(tuple(shlex.split(line)), context=CONTEXT)
    assert evaluation.action > PolicyAction.ALLOW, evaluation.reason


@pytest.mark.parametrize("rule", LISTS, ids=lambda rule: rule.id)
def test_an_option_nobody_listed_is_refused_wherever_it_stands(rule: PolicyRule) -> None:
    constraints = rule.constraints
    allowed = ArgumentSet.of(constraints.allowed_arguments or (), takes_unknown=constraints.unknown_arguments)
    ends_early = any(pattern.endswith(" **") for pattern in constraints.allowed_arguments or ())
    for option in ("--no-such-option", "--no-such-option=x", "-\N{SNOWMAN}"):
        assert not allowed.admits([option])
        assert ends_early or not allowed.admits(["x", option])


NAMES = st.from_regex(r"[a-z]{1,3}(-[a-z]{1,3})?", fullmatch=True)
OPTIONS = st.one_of(
    st.builds(lambda name, end: f"--{name}{end}", NAMES, st.sampled_from(["", "=", "[=]"])),
    st.builds(lambda letter, end: f"-{letter}{end}", st.sampled_from("abc1"), st.sampled_from(["", "=", "[=]"])),
)
PATTERNS = st.lists(st.one_of(OPTIONS, st.sampled_from(["*", "-#", "x*", "a.py"])), max_size=6)
WORDS = st.lists(
    st.one_of(
        st.builds(lambda name, end: f"--{name}{end}", NAMES, st.sampled_from(["", "=v"])),
        st.from_regex(r"-?[abc1xz]{1,3}", fullmatch=True),
        st.sampled_from(["--", "-", "a.py", "-0"]),
    ),
    max_size=5,
)


@given(patterns=PATTERNS, words=WORDS, place=st.integers(0, 5))
def test_adding_an_option_that_is_not_listed_never_helps(patterns: list[str], words: list[str], place: int) -> None:
    allowed = ArgumentSet.of(patterns)
    longer = [*words[:place], "--zzzz", *words[place:]]
    if not allowed.admits(words) and allowed.admits(longer):
        # It can only be admitted as a value, or as an operand behind `--`.
        before = longer[: longer.index("--zzzz")]
        assert "--" in before or any(pattern.endswith("=") for pattern in patterns)


@given(patterns=PATTERNS, words=WORDS)
def test_a_shorter_list_never_admits_more(patterns: list[str], words: list[str]) -> None:
    flags = [pattern for pattern in patterns if not pattern.endswith(("=", "=]"))]
    if ArgumentSet.of(flags[1:]).admits(words):
        assert ArgumentSet.of(flags).admits(words)


@given(patterns=PATTERNS, words=WORDS)
def test_abbreviations_never_admit_more_than_full_names(patterns: list[str], words: list[str]) -> None:
    if not ArgumentSet.of(patterns).admits(words):
        return
    listed = {pattern.removesuffix("[=]").removesuffix("=") for pattern in patterns}
    values = sum(pattern.endswith("=") for pattern in patterns)
    named = [word.partition("=")[0] for word in words[: words.index("--") if "--" in words else None]]
    assert values or all(name in listed for name in named if name.startswith("--"))


UNKNOWNS = st.builds(
    Unknown, st.sampled_from(list(Doubt)), st.sampled_from(["", "x", "src/", "-", "--a=", "-a"]), st.booleans()
)


@given(patterns=PATTERNS, words=WORDS, unknown=UNKNOWNS, place=st.integers(0, 4))
def test_a_word_nobody_knows_is_admitted_only_where_every_word_it_may_be_is(
    patterns: list[str], words: list[str], unknown: Unknown, place: int
) -> None:
    allowed = ArgumentSet.of(patterns)
    if place >= len(words) or not allowed.admits(words, unknown=((place, unknown),)):
        return
    rests = ("", "b", "/x") if unknown.known else ("b", "-z", "--zzzz", "x.py", "--")
    for rest in rests:
        word = unknown.known + rest
        if unknown.doubt is Doubt.VALUE:
            assert allowed.admits([*words[:place], word, *words[place + 1 :]]), word
        else:
            assert allowed.admits([*words[:place], word, word, *words[place + 1 :]]), word


@pytest.mark.parametrize(
    ("patterns", "arguments", "unknown", "admitted"),
    [
        (["-n=", "*"], ["-n", "?"], (1, Unknown(Doubt.VALUE)), True),
        (["-n=", "*"], ["-n", "?"], (1, Unknown(Doubt.WORDS)), False),
        (["-n=", "*"], ["-n", "?"], (1, Unknown(Doubt.PATTERN, "src/")), True),
        (["-n=", "*"], ["-n", "?"], (1, Unknown(Doubt.PATTERN)), False),
        (["*"], ["?"], (0, Unknown(Doubt.VALUE)), False),
        (["*"], ["--", "?"], (1, Unknown(Doubt.WORDS)), True),
        (["*"], ["?"], (0, Unknown(Doubt.PATTERN, "src/")), True),
        (["*"], ["?"], (0, Unknown(Doubt.WORDS, "src/")), False),
        (["x*"], ["?"], (0, Unknown(Doubt.VALUE, "xy")), True),
        (["x*"], ["?"], (0, Unknown(Doubt.VALUE, "y")), False),
        (["*.py"], ["?"], (0, Unknown(Doubt.VALUE, "a.py")), False),
        (["--a="], ["?"], (0, Unknown(Doubt.VALUE, "--a=")), True),
        (["--a[=]"], ["?"], (0, Unknown(Doubt.PATTERN, "--a=x")), True),
        (["--a="], ["?"], (0, Unknown(Doubt.WORDS, "--a=")), False),
        (["--a="], ["?"], (0, Unknown(Doubt.VALUE, "--a")), False),
        (["-a", "-n="], ["?"], (0, Unknown(Doubt.VALUE, "-an")), True),
        (["-a", "-n="], ["?"], (0, Unknown(Doubt.VALUE, "-a")), False),
        (["* **"], ["f", "?", "-x"], (1, Unknown(Doubt.WORDS)), True),
        (["* **"], ["?", "-x"], (0, Unknown(Doubt.VALUE)), False),
        (["* **"], ["?", "-x"], (0, Unknown(Doubt.VALUE, "f")), True),
        (["-name=", "*"], [".", "-name", "?"], (2, Unknown(Doubt.VALUE)), True),
        (["-name=", "*"], ["?"], (0, Unknown(Doubt.VALUE)), False),
        (["* = *"], ["?", "=", "x"], (0, Unknown(Doubt.VALUE)), True),
        (["* = *"], ["x", "=", "?"], (2, Unknown(Doubt.VALUE)), True),
        (["* = *"], ["?", "=", "x"], (0, Unknown(Doubt.WORDS)), False),
        (["* = *"], ["x", "=", "?"], (2, Unknown(Doubt.PATTERN)), False),
        (["* = *", "*"], ["?", "x"], (0, Unknown(Doubt.VALUE)), False),
        (["* = *", "*"], ["x", "?", "x"], (1, Unknown(Doubt.VALUE)), False),
    ],
)
def test_unknown_words(patterns: list[str], arguments: list[str], unknown: tuple[int, Unknown], admitted: bool) -> None:
    assert ArgumentSet.of(patterns).admits(arguments, unknown=(unknown,)) is admitted


@pytest.mark.parametrize(
    ("known", "admitted"), [("", True), ("-", True), ("PATH=", True), ("PA", True), ("LD_X=", True), ("FOO=", False)]
)
def test_in_doubt_a_word_is_admitted_where_it_may_be(known: str, admitted: bool) -> None:
    names = ArgumentSet.of(["PATH=*", "LD_*"])
    assert names.admits(["?"], unknown=((0, Unknown(Doubt.VALUE, known)),), in_doubt=True) is admitted
    assert names.admits(["?"], unknown=((0, Unknown(Doubt.WORDS, known)),), in_doubt=True)
    assert ArgumentSet.of(["* **"]).admits(["?", "-x"], unknown=((0, Unknown(Doubt.VALUE, known)),), in_doubt=True)


@pytest.mark.parametrize("doubt", list(Doubt))
def test_unknown_arguments_may_be_anything_where_the_rule_says_so(doubt: Doubt) -> None:
    loose = ArgumentSet.of(["-a", "*"], takes_unknown=True)
    assert loose.admits(["-a", "?", "x"], unknown=((1, Unknown(doubt)),))
    assert not loose.admits(["-b", "?"], unknown=((1, Unknown(doubt)),))
    assert loose.admits(["?"], 1, unknown=((0, Unknown(doubt)),)) is (doubt is Doubt.VALUE)


def test_operands_are_counted_with_words_nobody_knows() -> None:
    one = ArgumentSet.of(["*"])
    assert one.admits(["?"], 1, unknown=((0, Unknown(Doubt.VALUE, "x")),))
    assert not one.admits(["?", "y"], 1, unknown=((0, Unknown(Doubt.VALUE, "x")),))
    assert not one.admits(["?"], 1, unknown=((0, Unknown(Doubt.PATTERN, "x")),))


@pytest.mark.parametrize(
    ("argument", "unknown", "touched"),
    [
        ("\N{HORIZONTAL ELLIPSIS}", Unknown(Doubt.VALUE), False),
        ("\N{HORIZONTAL ELLIPSIS}", Unknown(Doubt.VALUE, is_output=True), True),
        (".e*", Unknown(Doubt.PATTERN, ".e"), True),
        (".[e]nv", Unknown(Doubt.PATTERN, "."), True),
        ("*", Unknown(Doubt.PATTERN), False),
        ("*.md", Unknown(Doubt.PATTERN), False),
        ("src/*", Unknown(Doubt.PATTERN, "src/"), False),
        (".github/*.yml", Unknown(Doubt.PATTERN, ".github/"), False),
        ("*/.env", Unknown(Doubt.PATTERN), True),
        (".env", Unknown(Doubt.VALUE), True),
        ("src/.e", Unknown(Doubt.WORDS, "src/.e"), True),
        ("?env", Unknown(Doubt.PATTERN), False),
        ("\N{HORIZONTAL ELLIPSIS}env", Unknown(Doubt.VALUE), True),
        ("src/mem*", Unknown(Doubt.PATTERN, "src/mem"), False),
        ("/proc/1/envi*", Unknown(Doubt.PATTERN, "/proc/1/envi"), True),
    ],
)
def test_what_an_unknown_word_looks_like_counts_where_doubt_does(
    argument: str, unknown: Unknown, touched: bool
) -> None:
    denied = ArgumentSet.of([".env", "*/.env", ".env.*", "/proc/*/environ", "/proc/*/mem"])
    assert denied.touches([argument], ((0, unknown),), in_doubt=True) is touched
    assert not denied.touches([argument], ((0, unknown),))


def test_an_unknown_word_may_be_a_denied_option() -> None:
    denied = ArgumentSet.of(["--force"])
    assert denied.touches(["?"], ((0, Unknown(Doubt.VALUE)),), in_doubt=True)
    assert not denied.touches(["?"], ((0, Unknown(Doubt.VALUE, "x")),), in_doubt=True)
    assert denied.touches(["--fo"], ())


# What the table claims about the tools themselves, asked of those that every machine has.

HELPFUL = {
    "builtin.read.ls": ["ls"],
    "builtin.read.count": ["wc"],
    "builtin.read.number": ["nl"],
    "builtin.read.sort": ["sort"],
    "builtin.read.uniq": ["uniq"],
    "builtin.read.compare": ["diff", "cmp"],
    "builtin.read.search": ["grep"],
    "builtin.read.space": ["df", "du"],
    "builtin.read.ends": ["head", "tail"],
    "builtin.read.date": ["date"],
}
SYNONYMS = {"--colour", "--silent", "--quiet", "--universal", "--help", "--version", "--context", "--debug"}
LATER = {"--total", "--resolution"}


def run(*argv: str, **more: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False, env=env, **more)  # type: ignore[call-overload,no-any-return] # keywords of subprocess


def is_gnu(tool: str) -> bool:
    return "GNU" in run(tool, "--version").stdout


@pytest.mark.skipif(not is_gnu("ls"), reason="the tools of this system are not GNU's")
@pytest.mark.parametrize("rule_id", HELPFUL)
def test_the_long_options_are_those_of_the_tools(rule_id: str) -> None:
    rule = next(rule for rule in LISTS if rule.id == rule_id)
    text = "".join(run(tool, "--help").stdout for tool in HELPFUL[rule_id])
    for pattern in rule.constraints.allowed_arguments or ():
        name = pattern.removesuffix("[=]").removesuffix("=")
        if name.startswith("--") and name not in SYNONYMS | LATER:
            assert (
                name in text or name.replace("old", "LTYPE") in text or "group-format" in name or "line-format" in name
            )


@pytest.mark.skipif(not is_gnu("sort"), reason="only GNU sort runs a compressor")
def test_sort_runs_a_program_by_an_abbreviated_option(tmp_path: Path) -> None:
    program = tmp_path / "compress"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexec cat\n")
    program.chmod(0o755)
    numbers = tmp_path / "numbers"
    numbers.write_text("".join(f"{number * 7919 % 10_007}\n" for number in range(2000)))
    run("sort", "-S", "1K", "-T", str(tmp_path), str(numbers))
    assert not (tmp_path / "ran").exists()
    run("sort", "--compress-prog", str(program), "-S", "1K", "-T", str(tmp_path), str(numbers))
    assert (tmp_path / "ran").exists()


@pytest.mark.skipif(not is_gnu("find"), reason="only GNU find ends leading options by --")
def test_find_deletes_behind_two_dashes(tmp_path: Path) -> None:
    (tmp_path / "victim").touch()
    run("find", "--", str(tmp_path), "-name", "victim", "-delete")
    assert not (tmp_path / "victim").exists()


def test_uniq_writes_its_second_operand(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\na\n")
    run("uniq", str(tmp_path / "in"), str(tmp_path / "out"))
    assert (tmp_path / "out").read_text() == "a\n"


def test_find_takes_an_action_for_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "victim").touch()
    assert run("find", str(tmp_path), "-name", "-delete").returncode == 0
    assert (tmp_path / "victim").exists()


def test_test_evaluates_a_subscript_behind_two_dashes(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash
    text = f"test -- = -- -a -v 'a[$(touch {tmp_path}/ran)]'"
    run(bash, "-c", text)
    assert (tmp_path / "ran").exists()
    assert POLICY.evaluate(text, context=CONTEXT).action > PolicyAction.ALLOW


@pytest.mark.parametrize("name", ["-v", "!", "(", "-R", "-a"])
@pytest.mark.parametrize("more", ["", "-a b = b", "-o -n b"])
def test_what_an_operator_stands_behind_is_only_compared(tmp_path: Path, name: str, more: str) -> None:
    bash = shutil.which("bash")
    assert bash
    code = f"a[$(touch {tmp_path}/ran)]"
    run(bash, "-c", f'[ "$1" = "$2" {more} ]', "bash", name, code)
    run(bash, "-c", f'[ "$1" -nt "$2" {more} ]', "bash", name, code)
    assert not list(tmp_path.iterdir())


def test_git_writes_its_output_where_it_is_told(tmp_path: Path) -> None:
    run("git", "init", "-q", str(tmp_path))
    (tmp_path / "a").write_text("x\n")
    run("git", "-C", str(tmp_path), "add", "a")
    run("git", "diff", "--cached", "--output=out", cwd=tmp_path)
    assert "+x" in (tmp_path / "out").read_text()


SED_PIECES = (
    *(
        "p",
        "d",
        "q",
        "=",
        "n;",
        "N;",
        "D",
        "G",
        "h",
        "x",
        "e",
        "e id",
        "w out",
        "r /etc/hostname",
        "W out",
        "R in",
        "F",
        "z",
        "y/a/e/",
    ),
    *(
        "1",
        "$",
        "1,$",
        "2~3",
        "/a/",
        "/b/I",
        "/a/,/b/",
        "!",
        "{",
        "}",
        ";",
        " ",
        ",",
        "#",
        "a",
        "i",
        "c",
        "b",
        ":a",
        "\n",
    ),
    *(
        "s/a/b/",
        "s/a/b/g",
        "s/a/b/e",
        "s/a/b/w out",
        "s/a/id/2e",
        "s#a#b#",
        "s#/#e#",
        "s|a|w|",
        "s|/|e|p",
        "s,a,b,e",
        "s/",
        "/",
        "\\",
        "[",
        "]",
    ),
)
IN_A_SANDBOX = "e/r/w commands disabled in sandbox mode"


@pytest.mark.skipif(not is_gnu("sed"), reason="only GNU sed says itself what writes, reads and runs")
def test_no_script_of_sed_that_is_allowed_writes_reads_or_runs() -> None:
    rng = random.Random(7)
    allowed = refused = 0
    for _ in range(4_000):
        script = "".join(rng.choices(SED_PIECES, k=rng.randint(1, 6)))
        options = rng.choice([["-n"], [], ["-e"], ["-n", "-e", "1d", "-e"]])
        is_allowed = POLICY.evaluate(("sed", *options, script, "a"), context=CONTEXT).action is PolicyAction.ALLOW
        # A script that is nobody's business is not worth a process.
        if is_allowed or rng.random() < 0.01:
            result = run("sed", "--sandbox", *options, script, input="ab\nb\n")
            allowed += is_allowed and not result.returncode
            refused += IN_A_SANDBOX in result.stderr
            assert not (is_allowed and IN_A_SANDBOX in result.stderr), script
    assert allowed > 20
    assert refused > 5


def test_the_shapes_of_sed_that_are_allowed_only_print(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("id\nb a b\n# c\n")
    for line in ALLOWED:
        if line.startswith("sed "):
            argv = [*shlex.split(line)[:-1], str(source)]
            assert run(*argv, cwd=tmp_path).returncode == 0, line
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
