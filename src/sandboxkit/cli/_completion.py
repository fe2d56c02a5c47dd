"""
`sandboxkit completion`: scripts that complete the command line, made from its parser.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.cli._exit import Exit
from sandboxkit.cli._options import parser
from sandboxkit.cli._output import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sandboxkit.cli._report import Report

__all__ = ["Node", "Taken", "completion", "script", "tree"]

_FILES = ("FILE", "LOG", "PATH")


@dataclass(frozen=True, slots=True)
class Taken:
    """
    An option, or what stands behind the options.

    Attributes:
        names: The spellings of the option; empty for what stands behind.
        summary: What it is, on one line.
        kind: `flag` takes nothing, `choice` one of `choices`, `file` a file name,
            `command` a whole command line, `value` anything else.
        choices: The values of a choice.
    """

    names: tuple[str, ...]
    summary: str
    kind: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """
    A verb with what it takes, or the command itself.

    Attributes:
        path: The verbs that lead to it.
        summary: What it does, on one line.
        taken: Its options, and what stands behind them.
        verbs: The verbs below it.
    """

    path: tuple[str, ...]
    summary: str
    taken: tuple[Taken, ...]
    verbs: tuple[Node, ...]

    @property
    def options(self) -> tuple[Taken, ...]:
        """
        What begins with a dash.
        """
        return tuple(one for one in self.taken if one.names)

    @property
    def operand(self) -> Taken | None:
        """
        What stands behind the options, or None.
        """
        return next((one for one in self.taken if not one.names), None)

    def all(self) -> Iterator[Node]:
        """
        This one and every one below it.
        """
        yield self
        for verb in self.verbs:
            yield from verb.all()


def completion(options: argparse.Namespace, report: Report) -> int:
    """
    Prints the script for a shell.
    """
    say(script(options.shell).rstrip("\n"))
    return Exit.DONE


def script(shell: str) -> str:
    """
    The script for *shell*: `bash`, `zsh` or `fish`.
    """
    root = tree(parser())
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](root)


def tree(of: argparse.ArgumentParser, path: tuple[str, ...] = (), summary: str = "") -> Node:
    """
    What the parser *of* takes, and all verbs below it.
    """
    taken: list[Taken] = []
    verbs: list[Node] = []
    for action in of._actions:  # argparse has no public way to look into a parser
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            verbs += (tree(sub, (*path, name), helps.get(name, "")) for name, sub in action.choices.items())
        elif action.help is not argparse.SUPPRESS:
            taken.append(_taken(action))
    return Node(path, summary, tuple(taken), tuple(verbs))


def _taken(action: argparse.Action) -> Taken:
    names = tuple(action.option_strings)
    summary = " ".join((action.help or "").split())
    if names and action.nargs == 0:
        return Taken(names, summary, "flag")
    if action.choices is not None:
        return Taken(names, summary, "choice", tuple(map(str, action.choices)))
    if action.nargs == argparse.REMAINDER:
        return Taken(names, summary, "command")
    is_file = str(action.metavar or "").endswith(_FILES)
    return Taken(names, summary, "file" if is_file else "value")


def _words(node: Node) -> list[str]:
    operand = node.operand
    choices = operand.choices if operand else ()
    return [*(verb.path[-1] for verb in node.verbs), *choices, *(name for one in node.options for name in one.names)]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# bash

_CASES = """\
        case "$verb %(word)s" in
            %(verbs)s) verb="$verb %(word)s" ;;
        esac
    done
    case "$verb $previous" in
%(values)s
    esac
    case "$verb" in
%(words)s
    esac
}
"""
"""How bash and zsh alike find the verb, and what may come behind it."""

_BASH = """\
# Completes sandboxkit in bash: source this file, or write it to
# ${XDG_DATA_HOME:-~/.local/share}/bash-completion/completions/sandboxkit

_sandboxkit_offer() {
    local found
    while IFS= read -r found; do COMPREPLY+=("$found"); done < <(compgen "$@" -- "$current")
}

_sandboxkit_files() {
    compopt -o filenames 2>/dev/null
    _sandboxkit_offer -f
}

_sandboxkit_command() {
    if [[ $1 -eq $COMP_CWORD ]]; then _sandboxkit_offer -c
    elif declare -F _command_offset >/dev/null; then _command_offset "$1"
    else _sandboxkit_files; fi
}

_sandboxkit() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} verb= place
    COMPREPLY=()
    for ((place = 1; place < COMP_CWORD; place++)); do
        if [[ ${COMP_WORDS[place]} == -- ]]; then
            _sandboxkit_command $((place + 1))
            return
        fi
%(cases)s
complete -F _sandboxkit sandboxkit
"""


def _bash(root: Node) -> str:
    return _BASH % {"cases": _cases(root, "${COMP_WORDS[place]}", _bash_value, _bash_words)}


def _cases(root: Node, word: str, value: Callable[[Taken], str], words: Callable[[Node], Iterator[str]]) -> str:
    """
    The cases for every verb, where the shell calls the word that is looked at *word*.
    """
    nodes = list(root.all())
    return _CASES % {
        "word": word,
        "verbs": "|".join(f'"{_called(node)}"' for node in nodes[1:]),
        "values": "\n".join(line for node in nodes for line in _values(node, value)),
        "words": "\n".join(line for node in nodes for line in words(node)),
    }


def _values(node: Node, value: Callable[[Taken], str]) -> Iterator[str]:
    for option in node.options:
        if option.kind == "flag":
            continue
        pattern = "|".join(f'"{_called(node)} {name}"' for name in option.names)
        yield f"        {pattern}) {value(option)}return ;;"


def _called(node: Node) -> str:
    return "".join(f" {verb}" for verb in node.path)


def _bash_value(taken: Taken) -> str:
    if taken.kind == "file":
        return "_sandboxkit_files; "
    return f"_sandboxkit_offer -W {_quoted(' '.join(taken.choices))}; " if taken.kind == "choice" else ""


def _bash_words(node: Node) -> Iterator[str]:
    operand = node.operand
    offered = f"_sandboxkit_offer -W {_quoted(' '.join(_words(node)))}"
    if operand and operand.kind in ("file", "command"):
        other = "_sandboxkit_files" if operand.kind == "file" else "_sandboxkit_offer -c"
        offered = f"if [[ $current == -* ]]; then {offered}; else {other}; fi"
    yield f'        "{_called(node)}") {offered} ;;'


# zsh

_ZSH = """\
#compdef sandboxkit
# Completes sandboxkit in zsh: write this file as _sandboxkit to a directory of $fpath.

_sandboxkit() {
    local current=$words[CURRENT] previous=$words[CURRENT-1] verb= place
    local -a offered
    for ((place = 2; place < CURRENT; place++)); do
        if [[ $words[place] == -- ]]; then
            shift $place words
            ((CURRENT -= place))
            _normal
            return
        fi
%(cases)s
if [[ $funcstack[1] == _sandboxkit ]]; then _sandboxkit "$@"; else compdef _sandboxkit sandboxkit; fi
"""


def _zsh(root: Node) -> str:
    return _ZSH % {"cases": _cases(root, "$words[place]", _zsh_value, _zsh_words)}


def _zsh_value(taken: Taken) -> str:
    offer = {"file": "_files; ", "choice": f"compadd -- {' '.join(map(_quoted, taken.choices))}; "}
    return offer.get(taken.kind, "")


def _zsh_words(node: Node) -> Iterator[str]:
    pairs = [(verb.path[-1], verb.summary) for verb in node.verbs]
    pairs += [(choice, "") for choice in (node.operand.choices if node.operand else ())]
    options = [(name, option.summary) for option in node.options for name in option.names]
    yield f'        "{_called(node)}")'
    yield from _zsh_described(pairs, "verb") if pairs else ()
    yield "            if [[ $current == -* ]]; then"
    yield from (f"    {line}" for line in _zsh_described(options, "option"))
    if node.operand and node.operand.kind in ("file", "command"):
        yield f"            else {'_files' if node.operand.kind == 'file' else '_normal -P'}"
    yield "            fi ;;"


def _zsh_described(pairs: Iterable[tuple[str, str]], kind: str) -> Iterator[str]:
    described = " ".join(_quoted(f"{name}:{summary}" if summary else name) for name, summary in pairs)
    yield f"            offered=({described})"
    yield f"            _describe {kind} offered"


# fish

_FISH_HEAD = """\
# Completes sandboxkit in fish: write this file to
# ~/.config/fish/completions/sandboxkit.fish

complete -c sandboxkit -f
"""


def _fish(root: Node) -> str:
    return _FISH_HEAD + "".join(f"{line}\n" for node in root.all() for line in _fish_lines(node))


def _fish_lines(node: Node) -> Iterator[str]:
    condition = _fish_condition(node)
    start = f"complete -c sandboxkit -n {_fish_quoted(condition)}"
    for verb in node.verbs:
        yield f"{start} -a {_fish_quoted(verb.path[-1])} -d {_fish_quoted(verb.summary)}"
    for option in node.options:
        names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
        yield f"{start} {' '.join(names)}{_fish_value(option)} -d {_fish_quoted(option.summary)}"
    if node.operand and node.operand.kind in ("file", "command"):
        yield f"{start} -F"
    elif node.operand and node.operand.choices:
        yield f"{start} -a {_fish_quoted(' '.join(node.operand.choices))}"


def _fish_value(option: Taken) -> str:
    match option.kind:
        case "flag":
            return ""
        case "file":
            return " -r -F"
        case "choice":
            return f" -x -a {_fish_quoted(' '.join(option.choices))}"
        case _:
            return " -x"


def _fish_condition(node: Node) -> str:
    """
    When this verb is the last one that was given.
    """
    seen = [f"__fish_seen_subcommand_from {verb}" for verb in node.path]
    if node.verbs:
        seen.append(f"not __fish_seen_subcommand_from {' '.join(verb.path[-1] for verb in node.verbs)}")
    return "; and ".join(seen) or "true"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
