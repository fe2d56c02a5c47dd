"""
Commands hidden in another program's words: each is seen to start what it hides, and is
denied where that is destructive.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from sandboxkit.model import EvaluationContext, PolicyAction
from sandboxkit.policy import ExecPolicy

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT = EvaluationContext(cwd="/home/dev/project", home="/home/dev", workspace_roots=("/home/dev/project",))
POLICY = ExecPolicy.default()

HIDING = [
    "env -iS 'bash -c \"PATH=/usr/bin:/bin; {}\"'",
    "env --split-string='{}'",
    "timeout --kill-a 5 10 {}",
    "nice --adj 5 {}",
    "nice -5 {}",
    "stdbuf --out=L {}",
    "setsid --for --wa {}",
    "xargs -0I% bash -c '{}' <<< x",
    "xargs --repl=% bash -c '{}' <<< x",
    "printf '%s\\n' '{}' | xargs -d '\\n' bash -c",
    "find . -maxdepth 0 -exec env nice {} \\;",
    "git --no-pager -c alias.x='!{}' x",
    "git ls-remote --upload-p='{};' .",
    "git ls-remote --exec '{};' .",
    "git -c protocol.ext.allow=always ls-remote 'ext::sh -c {words}'",
    "git init -q . && git grep --no-index --open-f='{};:' hay",
    "GIT_SSH_COMMAND='{};:' git ls-remote ssh://h.invalid/x",
    "tar cf x.tar hay && tar xf x.tar --to-c='{}'",
    "tar cf x.tar hay --checkpoint=1 --checkpoint-act='exec={}'",
    "tar cIf 'sh -c \"{}\"' x.tar hay",
    "tar -cf x.tar -I 'sh -c \"{}\"' hay",
    "awk -v x=1 'BEGIN{{system(\"{}\")}}'",
    'awk \'BEGIN{{print "{}" | "sh"}}\'',
    "awk '{{print | \"sh\"}}' <<< '{}'",
    "flock lock --command '{}'",
    "sed '1e {}' hay",
    "sed -n --expr='1e {}' hay",
    "sed 's/.*/{}/e' hay",
    "split --filt='{}' hay",
    "make -sf - <<< $'x:\\n\\t{}'",
    "make --ev='x:;{}' x",
    "python3 -Ic 'import os; os.system(\"{}\")'",
    "python3 -Bsc'import os; os.system(\"{}\")'",
    "perl -ne 'system(\"{}\")' hay",
    "perl -we 'qx({})'",
    "script -qec '{}' /dev/null",
    "sqlite3 x.db <<< '.sh {}'",
    "bash --norc -ceo pipefail '{}'",
    "dc -e '!{}'",
    "ed -s hay <<< '!{}'",
    "rsync -ae'sh -c \"{}\"' hay h.invalid:x",
    "ssh -4oProxyCommand='{}' h.invalid",
    "strace -o '|{}' true",
    "vim -es '+!{}' +q",
    "gdb -batch -ex='shell {}'",
]

PREFIXES = [
    "time time -p\\\n {}",
    "time -p\\\n time {}",
    "! time ! time -\\\np {}",
    "ti\\\nme -p time\\\n -p {}",
    "time -p -- time -\\\n- {}",
    "time time -- {}",
    "time -p\\\n {{ {}; }}",
    "{{ ! time time -p\\\n {}; }}",
    "true && time time -p\\\n {}",
    "co\\\nproc time -p {}; wait",
]
"""Reserved words, which need no program of their name."""


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_stands_behind_reserved_words_starts_and_is_denied(prefix: str, tmp_path: Path) -> None:
    harmless = prefix.format("touch here")
    assert POLICY.evaluate(prefix.format("rm -rf ~"), context=CONTEXT).action is PolicyAction.DENY
    assert POLICY.evaluate(harmless, context=CONTEXT).action < PolicyAction.DENY
    subprocess.run(["bash", "-c", harmless], cwd=tmp_path, capture_output=True, timeout=30, check=False)
    assert (tmp_path / "here").exists(), harmless


@pytest.mark.parametrize("hiding", HIDING)
def test_what_is_hidden_starts_and_is_denied(hiding: str, tmp_path: Path) -> None:
    (tmp_path / "hay").write_text("hay\n", encoding="utf-8")
    harmless = _filled(hiding, "touch here")
    assert POLICY.evaluate(_filled(hiding, "rm -rf ~"), context=CONTEXT).action is PolicyAction.DENY
    assert POLICY.evaluate(harmless, context=CONTEXT).action < PolicyAction.DENY
    program = next(word for word in hiding.split() if "=" not in word)
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed, so that it cannot be seen to start anything")
    subprocess.run(["bash", "-c", harmless], cwd=tmp_path, capture_output=True, timeout=30, check=False)
    assert (tmp_path / "here").exists(), harmless


def _filled(hiding: str, command: str) -> str:
    return hiding.format(command, words=command.replace(" ", "% "))
