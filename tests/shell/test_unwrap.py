"""
What a command starts: the words behind each wrapper, and the text handed to each shell.
"""

from __future__ import annotations

import pytest
from tests.shell.lines import started

from sandboxkit.model import Doubt, Setting
from sandboxkit.shell import parse, starts_others
from sandboxkit.shell._run_tables import CODE_OPTIONS
from sandboxkit.shell._wrappers import SHELLS, WRAPPERS

OPTIONS = [
    ("env a b", ["a b"]),
    ("env -i A=1 B=2 a b", ["export A=1 export B=2 a b"]),
    ("env -u X -C /d a", ["a at /d"]),
    ("env -uX -C/d --unset=Y --chdir=/e a", ["a at /e"]),
    ("env --unset Y --chd /e a", ["a at /e"]),
    ("env -S 'a b c' d", ["a b c d"]),
    ("env -S'a b' d", ["a b d"]),
    ("env --split-string='a b' d", ["a b d"]),
    ("env -iS 'a b'", ["a b"]),
    ("env -S \"A=1 a 'b c'\"", ["<…:words>", "export A=1 a 'b c' [suspect]"]),
    ("env -- a", ["a"]),
    ("env - a", ["a"]),
    ("env", ["printenv"]),
    ("env A=1", ["export A=1 printenv"]),
    ("env --foo a b", ["<…:words>", "a b [suspect]", "b [suspect]"]),
    ("env -x a", ["<…:words>", "a [suspect]"]),
    ("env $x a b", ["<…:words>", "<…:words> a b [suspect]", "a b [suspect]", "b [suspect]"]),
    ('env -i "$x" a', ["<…:words>", "<:value> a [suspect]", "a [suspect]"]),
    ('env -i ./"$x" a', ["<./:value:./> a"]),
    ("env --help a", []),
    ("sudo a b", ["a b"]),
    ("sudo -u root -E a", ["a"]),
    ("sudo -uroot A=1 a", ["export A=1 a"]),
    ("sudo --user=root --preserve-env a", ["a"]),
    ("sudo --preserve-env=A,B a", ["a"]),
    ("sudo -n -- a", ["a"]),
    ("sudo -l a", []),
    ("sudo -s", []),
    ("sudo -i a", ["a"]),
    ("sudo -s a b", ["a b"]),
    ("sudo -- A=1 a", ["export A=1 a"]),
    ("sudo -D /d a", ["a at /d"]),
    ("sudo --us root a", ["a"]),
    ("sudo -Eu root a", ["a"]),
    ("sudo -e f", []),
    ("sudo -h host a", ["a"]),
    ("doas -u root a", ["a"]),
    ("doas -n a", ["a"]),
    ("timeout 5 a b", ["a b"]),
    ("timeout -s KILL 5 a", ["a"]),
    ("timeout --signal=KILL -k 3 5s a", ["a"]),
    ("timeout -sKILL 5 a", ["a"]),
    ("timeout --kill-after 3 5 a", ["a"]),
    ("timeout --foreg 5 a", ["a"]),
    ("timeout -k 5", []),
    ("nice a", ["a"]),
    ("nice -n 5 a", ["a"]),
    ("nice -5 a", ["a"]),
    ("nice -n5 a", ["a"]),
    ("nice --adjustment=5 a", ["a"]),
    ("nice --5 a", ["a"]),
    ("nohup a b", ["a b"]),
    ("nohup -- a", ["a"]),
    ("setsid -f a", ["a"]),
    ("setsid --fork a", ["a"]),
    ("setsid -fw a", ["a"]),
    ("stdbuf -oL -e0 a", ["a"]),
    ("stdbuf --output=L a", ["a"]),
    ("stdbuf -o L a", ["a"]),
    ("ionice -c 3 a", ["a"]),
    ("ionice -c3 -n 7 a", ["a"]),
    ("ionice -p 1", []),
    ("chrt -f 10 a", ["a"]),
    ("chrt -m", []),
    ("chrt -p 10 123", []),
    ("taskset 0x1 a", ["a"]),
    ("taskset -c 0,1 a", ["a"]),
    ("taskset -p 123", []),
    ("chroot /r a b", ["a b [remote]"]),
    ("chroot --userspec=u /r a", ["a [remote]"]),
    ("unshare -rn a", ["a"]),
    ("unshare --map-root-user --net=/x a", ["a"]),
    ("unshare -r --fork --pid a", ["a"]),
    ("nsenter -t 1 -m a", ["a [remote]"]),
    ("nsenter --target 1 --mount a", ["a [remote]"]),
    ("nsenter -m/x a", ["a [remote]"]),
    ("setpriv --reuid=1 --no-new-privs a", ["a"]),
    ("setpriv --reuid 1 a", ["a"]),
    ("flock /l a b", ["a b"]),
    ("flock -n /l -c 'a; b'", ["a", "b"]),
    ("flock -w 5 /l a", ["a"]),
    ("flock /l -c 'a b'", ["a b"]),
    ("flock 9", []),
    ("flock -n 9", []),
    ("watch a b", ["a b"]),
    ("watch -n 1 'a | b'", ["a", "b"]),
    ("watch -n1 -d a", ["a"]),
    ("watch --interval=1 a", ["a"]),
    ("watch -x a b", ["a b"]),
    ("script -c 'a b' f", ["a b"]),
    ("script -qc 'a b' /dev/null", ["a b"]),
    ("script -q f", []),
    ("script --command 'a b'", ["a b"]),
    ("script --command='a b'", ["a b"]),
    ("command a b", ["a b"]),
    ("command -p a", ["a"]),
    ("command -v a", []),
    ("builtin a b", ["a b"]),
    ("exec a b", ["a b"]),
    ("exec -a n a b", ["a b"]),
    ("exec -cl a", ["a"]),
    ("exec", []),
    ("exec > f", []),
    ("time a", ["a"]),
    ("/usr/bin/time -f %e a", ["a"]),
    ("/usr/bin/time -o f -v a", ["a"]),
    ("busybox rm x", ["rm x"]),
    ("busybox sh -c 'a b'", ["sh -c 'a b'", "a b [foreign]"]),
    ("toybox a", ["a"]),
    ("su -c 'a b'", ["a b"]),
    ("su -c'a b'", ["a b"]),
    ("su - root -c 'a b'", ["a b"]),
    ("su root", []),
    ("su --command='a b' u", ["a b"]),
    ("runuser -u u a b", ["a b"]),
    ("runuser -l u -c 'a b'", ["a b"]),
    ("pkexec a", ["a"]),
    ("gosu u a", ["a"]),
    ("sg g 'a b'", ["a b"]),
    ("sg g -c 'a b'", ["a b"]),
    ("strace -f -o f a", ["a"]),
    ("strace -e trace=open a", ["a"]),
    ("ltrace -S a", ["a"]),
    ("unbuffer a", ["a"]),
    ("caffeinate -i a", ["a"]),
    ("systemd-run --user a", ["a"]),
    ("systemd-run --unit=x -p A=b a", ["a"]),
    ("dbus-run-session -- a", ["a"]),
    ("fakeroot a", ["a"]),
    ("proot -0 a", ["a"]),
    ("winpty a", ["a"]),
    ("tini -- a", ["a"]),
    ("env --s='a b'", ["a b"]),
    ("env --default-signal=PIPE a", ["a"]),
    ("env -u A B=1 -- a -x", ["export B=1 a -x"]),
    ("time A=1 $x a", ["export A=1 <…:words> a"]),
    ("sudo -A -k --user root a", ["a"]),
    ("setarch x86_64 -R a", ["a"]),
    ("setarch -R a", ["a"]),
    ("linux32 a", ["a"]),
    ("watch -x sh -c 'a; b'", ["sh -c 'a; b'", "a [foreign]", "b [foreign]"]),
    ("script --command='a b' f", ["a b"]),
    ("runuser - u -c 'a b'", ["a b"]),
    ("strace -X raw -A a", ["a"]),
    ("xargs --replace a {}", ["a <…:value>"]),
    ("timeout $t a", ["<…:words>", "<…:words> a [suspect]", "a [suspect]"]),
    ('timeout "$t" a', ["a"]),
]

XARGS = [
    ("xargs", []),
    ("xargs a b", ["a b <…:words>"]),
    ("echo x y | xargs a", ["a <x:words> <y:words>"]),
    ("echo x y | xargs -n1 a -f", ["a -f <x:words> <y:words>"]),
    ("echo x | xargs -I{} a b{}c", ["a <bxc:value:b>"]),
    ("echo x | xargs -I % a %", ["a <x:value>"]),
    ("printf 'x\\0y' | xargs -0 a", ["a <xy:words>"]),
    ("find . | xargs -0r a", ["a <…:words>"]),
    ("xargs -a f a", ["a <…:words>"]),
    ("xargs -P 4 -n 1 a", ["a <…:words>"]),
    ("xargs sh -c 'a \"$@\"' _", ["sh -c 'a \"$@\"' _ <…:words>", "a <…:words> [foreign]"]),
    ("xargs -I{} sh -c 'a {}'", ["sh -c <a …:value:a >", "<…:words> [foreign]", "a '…' [foreign suspect]"]),
    ("xargs a < f", ["a <…:words>"]),
    ("xargs a <<< 'x y'", ["a <x:words> <y:words>"]),
]

FIND = [
    ("find . -exec a {} \\;", ["a <{}:words>"]),
    ("find . -exec a {} +", ["a <{}:words>"]),
    ("find . -exec a \\; -execdir b {} \\; -ok c \\;", ["a", "b <{}:words>", "c"]),
    ("find . -name x -delete", []),
    ("find . -exec sh -c 'a \"$1\"' _ {} \\;", ["sh -c 'a \"$1\"' _ <{}:words>", "a <{}:value> [foreign]"]),
    ("find . -exec", []),
    ("find . -exec a$x {} \\;", ["<a:words:a> <{}:words>"]),
    ("fd x -x a {}", ["a <{}:words>"]),
    ("fd x -X a", ["a <…:words>"]),
    ("fd -x a {} \\; -x b", ["a <{}:words>", "b <…:words>"]),
    ("fd x --exec=a", ["a <…:words>"]),
    ("fd x -xa", ["a <…:words>"]),
    ("find . -exec a + b {} \\;", ["a + b <{}:words>"]),
    ("find . -exec a {} + -exec b {} +", ["a <{}:words>", "b <{}:words>"]),
]

TEXTS = [
    ("bash -c 'a; b'", ["a", "b"]),
    ("sh -c 'a b'", ["a b [foreign]"]),
    ("bash -lc 'a'", ["a"]),
    ("bash -euo pipefail -c 'a \"$1\"' x y", ["a <y:value>"]),
    ("bash -c 'a \"$0\" $1' x y", ["a <x:value> <y:words>"]),
    ("bash -ic a", ["a"]),
    ("bash --norc -c a", ["a"]),
    ("bash --rcfile f -c a", ["a"]),
    ("bash -O extglob -c 'a'", ["a"]),
    ("bash +x -c a", ["a"]),
    ("bash -c -- a", ["a"]),
    ("bash -c", []),
    ('bash -c "$x"', ["<…:words>"]),
    ('bash -c "a $x"', ["<…:words>", "a [suspect]"]),
    ("bash f", []),
    ("bash -s < f", []),
    ("bash <<'E'\na b\nE", ["a b"]),
    ("sh <<< 'a b'", ["a b [foreign]"]),
    ("echo 'a b' | bash", ["a b"]),
    ("echo a | sh -s -- x", ["a [foreign]"]),
    ("cat <<E | bash\na b\nE", ["a b"]),
    ("cat f | bash", []),
    ("curl x | sh", []),
    ("bash < f", []),
    ("bash -x f a", []),
    ("bash -", []),
    ("bash /dev/stdin <<< a", ["a"]),
    ("zsh -c 'a b'", ["a b [foreign]"]),
    ("fish -c a", ["a [foreign]"]),
    ("dash -c 'a'", ["a [foreign]"]),
    ("csh -c a", ["a [foreign]"]),
    ("/bin/sh -c a", ["a [foreign]"]),
    ("SH -c a", ["a [foreign]"]),
    ("bash.exe -c a", ["a"]),
    ('bash -c "$(a)"', ["<…:words>", "'…' [suspect]"]),
    ("sh -c 'a' <<< b", ["a [foreign]"]),
    ("bash <(echo a b)", ["<…:words>", "a b [suspect]"]),
    ("bash <(a)", ["<…:words>", "'…' [suspect]"]),
    ("printf '%s\\n' a | sh", ["a [foreign]"]),
    ("printf 'a %s;' b c | bash", ["a b", "a c"]),
    ("echo '\\ra b' | bash", ["ra b"]),
    ("echo -e 'a\\x20b' | bash", ["a b"]),
    ("cat <<< a | cat | bash", ["a"]),
    ("{ echo a; echo b; } | sh", ["a [foreign]", "b [foreign]"]),
    ("(echo a) | bash", ["a"]),
]

BUILTINS = [
    ("eval a b", ["a b"]),
    ("eval 'a; b'", ["a", "b"]),
    ("eval -- 'a'", ["a"]),
    ('eval "$x"', ["<…:words>"]),
    ('eval "a $x"', ["<…:words>", "a [suspect]"]),
    ("eval", []),
    ("trap 'a b' EXIT", ["a b [function]"]),
    ("trap -- 'a' INT TERM", ["a [function]"]),
    ("trap - EXIT", []),
    ("trap '' INT", []),
    ("trap", []),
    ("alias x='a b' y=c", ["a b [suspect]", "c [suspect]"]),
    ("alias", []),
    ("source f", []),
    (". f a", []),
    ("source <(echo a)", ["<…:words>", "a [suspect]"]),
    (". /dev/stdin <<< 'a b'", ["a b"]),
    ("complete -C 'a b' c", ["a b [function]"]),
    ("complete -F f c", ["f [function]"]),
    ("printf -v 'a[$(x)]' y", ["<…:words>", "x [suspect]"]),
    ("printf -v a y", []),
    ("read 'a[$(x)]'", ["<…:words>", "x [suspect]"]),
    ("let 'a[$(x)]=1'", ["<…:words>", "x [suspect]"]),
    ("test -v 'a[$(x)]'", ["<…:words>", "x [suspect]"]),
    ("[ -v 'a[`x`]' ]", ["<…:words>", "x [suspect]"]),
    ("mapfile -C 'a b' x", ["a b"]),
]

REMOTE = [
    ("ssh h a b", ["a b [remote]"]),
    ("ssh -p 22 u@h 'a; b'", ["a [remote]", "b [remote]"]),
    ("ssh h", []),
    ("ssh -o ProxyCommand='a b' h", ["a b [suspect]"]),
    ("ssh -oProxyCommand=a h b", ["a [suspect]", "b [remote]"]),
    ("docker run -it --rm i a b", ["i a b [remote suspect]", "a b [remote suspect]", "b [remote suspect]"]),
    (
        "docker exec c sh -c 'a b'",
        ["sh -c 'a b' [remote suspect]", "a b [foreign remote suspect]", "'a b' [remote suspect]"],
    ),
    ("docker run -v /:/h i", ["/:/h i [remote suspect]", "i [remote suspect]"]),
    ("docker ps", []),
    ("podman run i a", ["a [remote suspect]"]),
    ("kubectl exec p -- a b", ["a b [remote suspect]", "b [remote suspect]"]),
    (
        "kubectl exec -it p -c c -- sh -c 'a'",
        ["sh -c a [remote suspect]", "a [foreign remote suspect]", "a [remote suspect]"],
    ),
    ("docker compose exec s a b", ["a b [remote suspect]", "b [remote suspect]"]),
    ("docker-compose run s a", ["a [remote suspect]"]),
]

GIT = [
    ("git -c core.pager='a b' log", ["a b [suspect]"]),
    ("git -c core.pager=a log", []),
    ("git -c alias.x='!a b' x", ["a b [suspect]"]),
    ("git config alias.x '!a b'", ["a b [suspect]"]),
    ("git clone 'ext::sh -c a'", ["sh -c a [suspect]", "a [foreign suspect]"]),
    ("git rebase -x 'a b'", ["a b [suspect]"]),
    ("git rebase --exec 'a b' main", ["a b [suspect]"]),
    ("git rebase --exec='a b'", ["a b [suspect]"]),
    ("git bisect run a b", ["a b"]),
    ("git submodule foreach 'a b'", ["a b [suspect]"]),
    ("git filter-branch --tree-filter 'a b'", ["a b [suspect]"]),
    ("git fetch --upload-pack='a b' r", ["a b [suspect]"]),
    ("git grep -Oless x", []),
    ("git grep --open-files-in-pager=a x", ["a [suspect]"]),
    ("git status", []),
    ("git commit -m 'a = b'", []),
]

CODE = [
    ("python -c 'import os; os.system(\"a b\")'", ["a b [suspect]"]),
    ("python3.11 -c \"__import__('subprocess').run(['a','b'])\"", ["subprocess a b [suspect]", "a b [suspect]"]),
    ("perl -e 'system(\"a b\")'", ["a b [suspect]"]),
    ("perl -E'system \"a b\"'", ["a b [suspect]"]),
    ("ruby -e '`a b`'", ["a b [suspect]"]),
    ('node -e \'require("child_process").exec("a b")\'', ["a b [suspect]", "child_process 'a b' [suspect]"]),
    ("node --eval='x(\"a b\")'", ["a b [suspect]"]),
    ("php -r 'exec(\"a b\");'", ["a b [suspect]"]),
    ("awk 'BEGIN { system(\"a b\") }'", ["a b [suspect]"]),
    ("awk -f x 'y'", []),
    ("gawk -F: '{ print | \"a b\" }' f", ["a b [suspect]"]),
    ("python f.py", []),
    ("python - <<< 'x(\"a b\")'", ["a b [suspect]"]),
    ("echo 'x(\"a b\")' | python", ["a b [suspect]"]),
    ("deno eval 'x(\"a b\")'", ["a b [suspect]"]),
]

OTHERS = [
    ("at now <<< 'a b'", ["a b [foreign]"]),
    ("echo a | batch", ["a [foreign]"]),
    ("parallel a b", ["a b"]),
    ("parallel -j 4 --jobs 4 'a {}' ::: x", ["a '{}' ::: x"]),
    ("entr -c a", ["a"]),
]

NESTED = [
    ("command eval 'a b'", ["eval 'a b'", "a b"]),
    ("sudo env A=1 sh -c 'a b'", ["env A=1 sh -c 'a b'", "export A=1 sh -c 'a b'", "a b [foreign]"]),
    ('env -i bash -c "sudo a"', ["bash -c 'sudo a'", "sudo a", "a"]),
    ("coproc sh -c 'a b'", ["sh -c 'a b' [background subshell]", "a b [background subshell foreign]"]),
    ("exec bash -c 'a'", ["bash -c a", "a"]),
    ("nohup sh -c 'a &' &", ["sh -c 'a &' [background]", "a [background foreign]"]),
    ('timeout 5 bash -c "$(a)"', ["bash -c <…:value>", "<…:words>", "'…' [suspect]"]),
]


SPELLINGS = [
    ("unshare -Ur --wd=/d a", ["a at /d"]),
    ("systemd-run --working-directory /d a", ["a at /d"]),
    ("su root -- -c 'a b'", ["bash -c 'a b' [foreign]", "a b [foreign]"]),
    ("su -- root -c 'a b'", ["bash -c 'a b' [foreign]", "a b [foreign]"]),
    ("script -q f -- a b", ["a b"]),
    ("ls | entr -rs 'a b'", ["a b"]),
    ("xargs -0I{} a {}", ["a <…:value>"]),
    ("xargs --repl=% a %", ["a <…:value>"]),
    ("printf 'a b' | xargs -d '\\n' c", ["c <a b:words>"]),
    ("parallel ::: 'a b' 'c d'", ["::: a b c d", "a b [suspect]", "c d [suspect]"]),
    ("git clone 'ext::a -c b% c' d", ["a -c 'b c' [suspect]"]),
    ("git submodule foreach --recursive a b", ["a b [suspect]"]),
    ("git --no-pager bisect run a b", ["git bisect run a b", "a b"]),
    ("git config core.pager 'a b'", ["a b [suspect]"]),
    ("git config user.name 'a b'", []),
    ("git rebase -ix 'a b' c", ["a b [suspect]"]),
    ("git clone -u 'a b' c", ["a b [suspect]"]),
    ("git push -u 'a b'", []),
    ("git grep -O'a b' c", ["a b [suspect]"]),
    ("git commit -am 'a b'", []),
    ("GIT_PAGER='a b' git log", ["a b [suspect]"]),
    ("X='a b' git log", []),
    ("python3 -Ic 'os.system(\"a b\")'", ["a b [suspect]"]),
    ("perl -ne 'qx(a b)'", ["a b [suspect]"]),
    ("awk -v x=1 'BEGIN{system(\"a b\")}'", ["a b [suspect]"]),
    ("awk '{print | \"sh\"}' <<< 'a b'", ["a b [suspect]"]),
    ("R -e 'system(\"a b\")'", ["a b [suspect]"]),
    ("sed '1e a b' f", ["a b [suspect]"]),
    ("sed 's/x/a b/e' f", ["a b [suspect]"]),
    ("sed 's/x/a b/' f", []),
    ("sort --compress-p='a b' f", ["a b [suspect]"]),
    ("rg --pre 'a b' f", ["a b [suspect]"]),
    ("less '+!a b' f", ["a b [suspect]"]),
    ("less '+/a b' f", []),
    ("vim -c ':!a b' f", ["a b [suspect]"]),
    ("vim '+!a b' f", ["a b [suspect]"]),
    ("man -lP 'a b' f", ["a b [suspect]"]),
    ("rsync -ae'a b' c d", ["a b [suspect]"]),
    ("ssh -4oProxyCommand='a b' h", ["a b [suspect]"]),
    ("strace -o '|a b' c", ["a b [suspect]", "c"]),
    ("tar cIf 'a b' f .", ["a b [suspect]"]),
    ("make --ev='x:;a b'", ["a b [suspect]"]),
    ("make CC='a b'", ["a b [suspect]"]),
    ("psql -c \"copy t from program 'a b'\"", ["a b [suspect]"]),
    ("sqlite3 x <<< '.shell a b'", ["a b [suspect]"]),
    ("crontab - <<< '1 2 * * * a b'", ["a b [suspect]"]),
    ("env --strange 'a b'", ["<…:words>", "'a b' [suspect]", "a b [suspect]"]),
    ("uv run python -c 'a b'", ["python -c 'a b' [suspect]"]),
    ("hatch -e x run 'a b'", ["a b [suspect]", "x run 'a b' [suspect]", "run 'a b' [suspect]"]),
    ("npx --call='a b'", ["a b [suspect]"]),
    ("gdb -ex='shell a b'", ["a b [suspect]", "a b [suspect]"]),
    ("ansible all -a 'a b'", ["a b [suspect]"]),
    ("fish --command='a b'", ["a b [suspect]"]),
]
"""
Commands in options that are joined, shortened or attached, in the input, and in variables.
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [*OPTIONS, *XARGS, *FIND, *TEXTS, *BUILTINS, *REMOTE, *GIT, *CODE, *OTHERS, *NESTED, *SPELLINGS],
)
def test_what_is_started(text: str, found: list[str]) -> None:
    assert started(text) == found


@pytest.mark.parametrize("name", sorted({*WRAPPERS, *SHELLS, *CODE_OPTIONS}))
def test_every_wrapper_is_known_by_any_name(name: str) -> None:
    assert starts_others(name)
    assert starts_others(f"/usr/bin/{name}")
    assert starts_others(name.upper())
    assert starts_others(f"{name}.exe")


@pytest.mark.parametrize("name", ["ls", "cat", "sudoedit", "envsubst", "bashful", "findmnt", ""])
def test_others_start_nothing(name: str) -> None:
    assert not starts_others(name)


@pytest.mark.parametrize("name", ["python3", "python3.11", "perl5.36", "bash-5.2", "lua5.4"])
def test_a_version_is_no_part_of_the_name(name: str) -> None:
    assert starts_others(name)


@pytest.mark.parametrize(
    "name", sorted(name for name, wrapper in WRAPPERS.items() if not wrapper.text and not wrapper.joins)
)
def test_a_strange_option_ends_the_reading_of_a_wrapper(name: str) -> None:
    """
    What it means is not guessed: some program is started, and it may be any of the words.
    """
    parts = parse([name, "--no-such-option", "a", "rm", "x"]).parts
    assert parts[1].is_dynamic
    assert parts[1].unknown[0][1].doubt is Doubt.WORDS
    assert not parts[1].stands(Setting.SUSPECT)
    suspects = [part.argv for part in parts[2:] if part.stands(Setting.SUSPECT)]
    assert ("rm", "x") in suspects


@pytest.mark.parametrize("name", sorted({*WRAPPERS, *SHELLS, *CODE_OPTIONS} | {"eval", "trap", "find", "git", "."}))
def test_words_of_any_number_are_taken(name: str) -> None:
    for words in ([], ["-"], ["--"], ["-x"], ["-c"], ["--"] * 3, ["a"] * 40, [""], ["-", "", "--x=", "-y"]):
        command = parse([name, *words])
        parts = command.parts
        assert parts[0].argv == (name, *words)
        assert command.opaque or all(
            part.outer is not None and part.outer < index for index, part in enumerate(parts[1:], 1)
        )


OWN = [
    ("sudo -u x a b", 3),
    ("env -i A=1 a", 3),
    ("timeout -k 1 5 a", 4),
    ("env A=1", 2),
    ("bash -ec 'a' b", 2),
    ("eval a b", 1),
    ("find . -exec a {} +", 3),
    ("flock f -c 'a'", 4),
    ("xargs -n 1 a", 3),
    ("git bisect run a b", 3),
    ("ssh h a", 2),
    ("docker run i a", None),
    ("python -c a", None),
    ("git status", None),
    ("ls a", None),
    ("bash f", None),
]


@pytest.mark.parametrize(("text", "own"), OWN)
def test_which_words_are_the_wrappers_own(text: str, own: int | None) -> None:
    assert parse(text).parts[0].own == own


def test_wrappers_within_wrappers_are_a_chain() -> None:
    parts = parse("sudo -u x env A=1 nice -n 5 timeout 3 a b").parts
    assert [part.program for part in parts] == ["sudo", "env", "nice", "timeout", "a"]
    assert [part.outer for part in parts] == [None, 0, 1, 2, 3]
    assert [part.own for part in parts] == [3, 2, 3, 2, None]
    assert [each.name for each in parts[2].assignments] == ["A"]
    assert all(part.stands(Setting.WRAPPED) for part in parts[1:])


def test_what_is_started_stands_as_its_starter_does() -> None:
    parts = parse("a | sudo b & echo $(env c)").parts
    assert [part.program for part in parts] == ["a", "sudo", "b", "echo", "env", "c"]
    assert parts[2].setting == parts[1].setting | Setting.WRAPPED
    assert parts[2].reads_from == parts[1].reads_from == (0,)
    assert parts[5].inside == parts[4].inside == 3


def test_a_directory_is_kept_and_changed() -> None:
    parts = parse("cd d; sudo a; env -C e b; ssh h c").parts
    assert [(part.program, part.cwd) for part in parts if part.outer is not None] == [
        ("a", "d"),
        ("b", "e"),
        ("c", None),
    ]


def test_only_so_deep() -> None:
    assert parse("sudo " * 15 + "a").opaque is None
    command = parse("sudo " * 100 + "a")
    assert command.unread
    assert command.opaque
    assert "deep" in command.opaque


def test_text_of_a_list_is_read_as_the_shell_would() -> None:
    command = parse(["bash", "-c", 'a; b "$1"', "x", "y"])
    assert command.argv == ("bash", "-c", 'a; b "$1"', "x", "y")
    assert [part.argv for part in command.parts[1:]] == [("a",), ("b", "y")]
    assert parse(["ls", "$(a)", ";", "b"]).parts[1:] == ()


@pytest.mark.parametrize("text", ["bash -c 'ls;; '", "sh -c 'if a'", "eval 'a ('", "sudo bash -c 'a && '"])
def test_text_for_a_shell_that_it_would_refuse_is_opaque(text: str) -> None:
    command = parse(text)
    assert command.opaque
    assert all(part.stands(Setting.SUSPECT) for part in command.parts)
