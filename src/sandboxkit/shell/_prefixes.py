"""
Wrappers of the table: `env`, `sudo`, `timeout` and others that are written in front of a
command.
"""

from __future__ import annotations

import re
from dataclasses import replace

from sandboxkit.model import UNKNOWN, Setting, SimpleCommand
from sandboxkit.shell._carried import (
    ANYTHING,
    Carried,
    Inner,
    Stdin,
    guesses,
    option_text,
    read_input,
    tail,
    text_of,
    unsure,
)
from sandboxkit.shell._options import Options, read_options
from sandboxkit.shell._per_item import for_each_line, with_input
from sandboxkit.shell._run_options import words_that_run
from sandboxkit.shell._wrappers import STDIN_SHELLS, WRAPPERS, Wrapper

__all__ = ["behind_prefix"]

_TEXT_ONLY = frozenset(("su", "script"))


def behind_prefix(part: SimpleCommand, name: str, wrapper: Wrapper, stdin: Stdin | None) -> Carried | None:
    """
    What the wrapper *name* starts with its own words and those behind them.

    Args:
        part: The command.
        name, wrapper: Its name, and its row in the table.
        stdin: What it reads as standard input, as far as the text says it.
    """
    inner = _behind_options(part, name, wrapper, stdin)
    texts = words_that_run(name, part.argv[1:])
    if not texts:
        return inner
    # These run on this host.
    inner = inner or Carried([])
    return Carried([*guesses(texts), *inner.commands], inner.own)


def _behind_options(part: SimpleCommand, name: str, wrapper: Wrapper, stdin: Stdin | None) -> Carried | None:
    found = read_options(part, name, wrapper)
    if found is None:
        return unsure(part)
    if found.stops:
        return None
    if found.splits is not None:
        return _split(part, found)
    if found.texts:
        inner = [each for index, text in found.texts for each in option_text(part, index, text, wrapper.setting)]
        return Carried(inner, found.at)
    if name in _TEXT_ONLY and "--" in part.argv[1:-1]:
        return _behind_dashes(part, name, wrapper)
    if name in _TEXT_ONLY or found.at >= len(part.argv):
        return _default(part, name, found, wrapper, stdin)
    if wrapper.joins and not (name == "watch" and _executes(part.argv[1 : found.at])):
        inner = text_of(part, range(found.at, len(part.argv)), wrapper.setting)
        return Carried([*inner, *for_each_line(part, found, stdin)] if name == "parallel" else inner, found.at)
    inner_part = tail(part, found.at, assignments=tuple(found.assignments), setting=wrapper.setting, cwd=found.cwd)
    if name == "xargs":
        inner_part = with_input(inner_part, stdin, found)
    return Carried([inner_part], found.at)


def _behind_dashes(part: SimpleCommand, name: str, wrapper: Wrapper) -> Carried:
    """
    `su USER -- ARGUMENTS` hands them to the user's shell, `script FILE -- COMMAND` starts
    it. The user may stand behind the dashes as well.

    Source: su(1), script(1), util-linux 2.38 and 2.41.
    """
    at = part.argv.index("--") + 1
    if name == "script":
        return Carried([tail(part, at, setting=wrapper.setting)], at)
    at += not part.argv[at].startswith("-")
    inner = tail(part, at - 1, setting=wrapper.setting | Setting.FOREIGN)
    return Carried([replace(inner, argv=("bash", *inner.argv[1:]))] if at < len(part.argv) else [], at)


def _executes(options: tuple[str, ...]) -> bool:
    """
    Whether `watch` starts the command without a shell.
    """
    return any(re.match(r"-[a-zA-Z]*x|--exec$", option) for option in options)


def _default(part: SimpleCommand, name: str, found: Options, wrapper: Wrapper, stdin: Stdin | None) -> Carried | None:
    if stdin is not None and name == "parallel":
        return Carried(read_input(stdin, Setting.FOREIGN), None)
    if stdin is not None and name in STDIN_SHELLS:
        return Carried(read_input(stdin, wrapper.setting | Setting.FOREIGN), None)
    if name in ("env", "time", "command", "builtin", "exec", "coproc"):
        # Without a command env does the work of printenv.
        argv = ("printenv",) if name == "env" else ()
        bare = [Inner(argv, assignments=tuple(found.assignments))] if argv or found.assignments else []
        return Carried(bare, found.at)
    return None


def _split(part: SimpleCommand, found: Options) -> Carried:
    """
    `env -S`: one word holds several. Only plain words are read.
    """
    at = found.splits or 1
    word = part.argv[at]
    attached = word.partition("=")[2] if word.startswith("--") else word[word.index("S") + 1 :]
    start = at + 1 if attached else at + 2
    text = attached or (part.argv[at + 1] if at + 1 < len(part.argv) else "")
    if re.search(r"[\\'\"$#`]", text) or any(index <= start for index, _ in part.unknown):
        guess = Inner(text=text, start=at, setting=Setting.SUSPECT)
        return Carried([Inner((UNKNOWN,), ANYTHING, at), guess], at)
    argv = (part.argv[0], *text.split(), *part.argv[start:])
    inner = behind_prefix(SimpleCommand(argv), "env", WRAPPERS["env"], None)
    if inner is None:
        return Carried([], at)
    commands = [replace(each, start=at) for each in inner.commands]
    return Carried(commands, at)
