"""
Programs that start another one somewhere among their words: package runners, debuggers,
terminals, containers.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from sandboxkit.model import Setting, SimpleCommand
from sandboxkit.shell._carried import Carried, Stdin, guesses, name_of, tail

__all__ = ["RUNNERS", "after_dashes", "container", "network_namespace", "runner"]

_MAX_RUNNER = 12
_RUNNER_VERBS = frozenset(("run", "exec", "x", "dlx", "develop", "stat", "record", "shell", "--"))
_VERB_RUNNERS = frozenset(
    """
    poetry uv pipenv hatch pdm rye npm yarn pnpm bun bundle conda mamba micromamba pixi mise asdf rbenv pyenv nodenv direnv aws-vault
    op doppler nix nvm perf
    """.split()
)
_TEXT_RUNNERS = frozenset(("tmux", "screen", "hyperfine", "sem"))
_TEXT_OPTIONS = frozenset(("-c", "--call", "--run", "--command", "-ex", "--eval-command", "--eval"))
RUNNERS = frozenset(
    """
    poetry uv pipenv hatch pdm rye npx npm yarn pnpm pnpx bun bunx bundle conda mamba micromamba pixi mise asdf rbenv pyenv nodenv
    direnv aws-vault op doppler dotenv hyperfine perf valgrind rlwrap torsocks torify proxychains proxychains4 dbus-launch xvfb-run
    sem nocache chpst start-stop-daemon daemonize daemon cpulimit prlimit choom firejail bwrap gdb lldb tmux screen nix nix-shell
    nix-env nvm expect rr ld.so ld-linux.so ld-linux-x86-64.so ld-linux-aarch64.so numactl chronic ts tsp pueue runcon sandbox-exec
    sshpass vim nvim vi ex
    """.split()
)


def runner(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    A program that starts another one somewhere among its words: every tail that may be
    the command, and every word that may be text for a shell, is looked at.
    """
    argv, name = part.argv, name_of(part.argv[0])
    verb = next((at for at, word in enumerate(argv) if word in _RUNNER_VERBS), 0)
    if name in _VERB_RUNNERS and not verb:
        return None
    start = verb + 1 if name in _VERB_RUNNERS else 1
    tails = [tail(part, at, setting=Setting.SUSPECT) for at in range(start, min(len(argv) - 1, _MAX_RUNNER))]
    takes_text = name in _TEXT_RUNNERS
    words = [
        word.removeprefix("!").removeprefix("shell ").removeprefix("spawn ")
        for before, word in pairwise(argv[:_MAX_RUNNER])
        if " " in word and (takes_text or before in _TEXT_OPTIONS)
    ]
    return Carried([*guesses(words), *(tail for tail in tails if not tail.argv[0].startswith("-"))], None)


def container(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `docker run … IMAGE CMD`, `kubectl exec POD -- CMD`: options vary too much to be
    told from their values, so every tail that may be the command is looked at.
    """
    argv = part.argv
    verb = next((at for at, word in enumerate(argv) if word in ("run", "exec", "create")), None)
    if verb is None:
        return None
    start = argv.index("--", verb) + 1 if "--" in argv[verb:] else verb + 2
    tails = [
        tail(part, at, setting=Setting.SUSPECT | Setting.REMOTE) for at in range(start, min(len(argv), start + 16))
    ]
    return Carried([tail for tail in tails if not tail.argv[0].startswith("-")], None)


def after_dashes(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `capsh -- ARGUMENTS` hands them to bash.
    """
    if "--" not in part.argv:
        return None
    inner = tail(part, part.argv.index("--"), setting=Setting.SUSPECT)
    return Carried([replace(inner, argv=("bash", *inner.argv[1:]))])


def network_namespace(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `ip netns exec NAME COMMAND`.
    """
    at = part.argv.index("exec") + 2 if "exec" in part.argv else len(part.argv)
    return Carried([tail(part, at, setting=Setting.SUSPECT)]) if at < len(part.argv) else None
