"""
Programs that start another one somewhere among their words: package runners, debuggers,
terminals, containers.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

from sandboxkit.model import Setting, SimpleCommand
from sandboxkit.shell._carried import VERSION, Carried, Stdin, guesses, name_of, tail
from sandboxkit.shell._run_options import values_of
from sandboxkit.shell._run_tables import CODE_OPTIONS, TEXT_OPTIONS, TEXT_RUNNERS, VERB_RUNNERS, VERBS

__all__ = ["after_dashes", "container", "network_namespace", "runner"]

_LONG = re.compile(r"^--[\w-]+=")
_MAX_RUNNER = 24


def runner(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    A program that starts another one somewhere among its words: every tail that may be
    the command, and every word that may be text for a shell, is looked at.
    """
    argv, name = part.argv, name_of(part.argv[0])
    verb = next((at for at, word in enumerate(argv) if at and word in VERBS), 0)
    if name in VERB_RUNNERS and not verb:
        return None
    start = verb + 1 if name in VERB_RUNNERS else 1
    last = len(argv) - (stdin is None)  # one word alone does little, but may read what it is given
    tails = [tail(part, at, setting=Setting.SUSPECT) for at in range(start, min(last, _MAX_RUNNER))]
    words = values_of(argv, TEXT_OPTIONS)
    if words:
        words = values_of(argv[: _interpreter(argv)], TEXT_OPTIONS)
    if verb and any(" " in word for word in argv):
        words += [word for before, word in pairwise(argv[verb : _interpreter(argv)]) if before in VERBS]
    if name in TEXT_RUNNERS:
        words += [_LONG.sub("", word) for word in argv[1:_MAX_RUNNER]]
    texts = [word.removeprefix("!").removeprefix("shell ").removeprefix("spawn ") for word in words if " " in word]
    return Carried([*guesses(texts), *(tail for tail in tails if not tail.argv[0].startswith("-"))], None)


def _interpreter(argv: tuple[str, ...]) -> int:
    """
    The index of the first word that is an interpreter: options behind it are its own.
    """
    names = ((at, VERSION.sub("", name_of(word))) for at, word in enumerate(argv) if at)
    return next((at for at, name in names if name in CODE_OPTIONS), len(argv))


def container(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `docker run … IMAGE CMD`, `kubectl exec POD -- CMD`: options vary too much to be
    told from their values, so every tail that may be the command is looked at.
    """
    argv = part.argv
    verb = next((at for at, word in enumerate(argv) if word in ("run", "exec", "create", "debug", "unshare")), None)
    if verb is None:
        return None
    start = argv.index("--", verb) + 1 if "--" in argv[verb:] else verb + 1 + (argv[verb] != "unshare")
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
