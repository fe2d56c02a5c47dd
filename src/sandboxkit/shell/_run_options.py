"""
Programs that do other work, with an option whose value is a command: `tar --to-command`,
`rsync -e`, `ssh -o ProxyCommand=`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxkit.shell._carried import MAX_STRINGS, NEEDS_SHELL, Carried, Stdin, guesses, name_of
from sandboxkit.shell._wrappers import RUN_OPTIONS, RUN_WORDS

if TYPE_CHECKING:
    from sandboxkit.model import SimpleCommand

__all__ = ["options_that_run", "ssh_commands"]

_SSH_COMMANDS = re.compile(r"(?:-o)?\s*(?:Proxy|Local|KnownHosts)Command\s*[= ]\s*(.*)", re.DOTALL | re.IGNORECASE)
_COPIERS = frozenset(("scp", "sftp"))


def options_that_run(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    Commands in options of a program that does other work. A program's name alone says
    nothing that the options do not.
    """
    argv, name = part.argv, name_of(part.argv[0])
    options = RUN_OPTIONS.get(name)
    texts = _values(argv, options) if options else []
    texts += ssh_commands(argv) if name in _COPIERS else []
    if pattern := RUN_WORDS.get(name):
        matches = [each for word in argv[1:] for each in pattern.finditer(word)]
        texts += [re.sub(r"\\(.)", r"\1", each[each.lastindex or 0]) for each in matches]
    inner = guesses(text for text in texts[:MAX_STRINGS] if NEEDS_SHELL.search(text.strip()))
    return Carried(inner) if inner else None


def ssh_commands(argv: tuple[str, ...]) -> list[str]:
    """
    The commands in options of ssh that it runs on this host.

    Source: ssh_config(5), OpenSSH 9.2.
    """
    return [found[1] for word in argv if (found := _SSH_COMMANDS.fullmatch(word))]


def _values(argv: tuple[str, ...], options: tuple[str, ...]) -> list[str]:
    """
    The values of *options* among the words of a program, however they are written.
    """
    texts: list[str] = []
    for at, word in enumerate(argv[1:], 1):
        option, attached, value = word.partition("=")
        following = argv[at + 1] if at + 1 < len(argv) else ""
        if word in options:
            texts.append(following)
        elif word.startswith("--"):
            if len(option) > 2 and any(each.startswith(option) for each in options):
                texts.append(value if attached else following)
        elif word[:1] == "-" and len(word) > 2:
            texts += [word[2:]] if word[:2] in options else [following] if f"-{word[-1]}" in options else []
    return [text.removeprefix("exec=").lstrip("| ") for text in texts]
