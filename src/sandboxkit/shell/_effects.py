"""
What a command leaves to those behind it: variables, the directory, files.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from sandboxkit.model import UNKNOWN, Assignment, Doubt, Setting, SimpleCommand
from sandboxkit.shell._carried import Stdin
from sandboxkit.shell._escape import printed
from sandboxkit.shell._stdin import prints_number, stdin_of
from sandboxkit.shell._tables import DECLARES
from sandboxkit.shell._unsure import UnsureError
from sandboxkit.shell._variables import OUTPUT, SPLIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandboxkit.shell._found import Found
    from sandboxkit.shell._variables import Variables

__all__ = ["SETTERS", "directory", "note_files", "noted", "with_declared", "written_script"]

_NEEDS = {"printf": ("-v",), "wait": ("-p",)}
SETTERS = DECLARES | {"read", "mapfile", "readarray", "getopts", "unset", "let", "wait", "printf"}
"""
Builtins that may set a variable. Source: bash(1), "SHELL BUILTIN COMMANDS", version 5.2.
"""
_READS = {"read": "REPLY", "mapfile": "MAPFILE", "readarray": "MAPFILE"}
"""
Builtins that set variables to what they read, with the one they set where none is named.
"""
_KEEPERS = frozenset(("printf", "set", "shift", *_READS))
_NAMES = re.compile(r"[A-Za-z_]\w*")
_TOP = ("git", "rev-parse", "--show-toplevel")
_PRINTS = frozenset(("cat", "echo", "printf"))
_DIGITS = 9
"""
As many of a number count; Python refuses to read one of thousands of digits.
"""
_MOVES = frozenset(("cd", "pushd", "popd"))
_BEFORE_BUILTINS = frozenset(("command", "builtin", "time"))
_SAME_SHELL = _BEFORE_BUILTINS | {"eval"}
_APART = Setting.SUBSHELL | Setting.SUBSTITUTION | Setting.PIPELINE


def with_declared(part: SimpleCommand, variables: Variables) -> SimpleCommand:
    """
    *part*, one of `SETTERS`, with what it assigns where `export` and the like stand behind
    a keyword or wrapper, so that the grammar takes them for programs.
    """
    program = part.program
    if _NEEDS.get(program, part.argv[1:2]) != part.argv[1:2]:
        return part
    if program == "let" and (any(map(variables.is_output, _NAMES.findall(" ".join(part.argv)))) or _has_output(part)):
        variables.evaluates_output = True
    exported = program == "export" or any(word.startswith("-") and "x" in word for word in part.argv[1:])
    unknown = {index for index, _ in part.unknown}
    named = {assignment.name for assignment in part.assignments}
    assignments = list(part.assignments)
    if (name := _READS.get(program)) and all(word[:1] == "-" for word in part.argv[1:]):
        assignments.append(Assignment(name, UNKNOWN, is_known=False))
    for index, word in enumerate(part.argv[1:3] if program in _NEEDS else part.argv[1:], 1):
        name, assigned, value = word.partition("=")
        name = name.rstrip("+").partition("[")[0]
        if name.isidentifier() and name not in named and (assigned or program not in DECLARES or part.own is None):
            is_known = bool(assigned) and index not in unknown
            exports = exported and program in DECLARES
            assignments.append(Assignment(name, value if assigned else UNKNOWN, is_known, exports))
            if assigned:
                variables.set(name, value, appends=word.partition("=")[0].endswith("+"))
    if part.argv[1:2] == ("-n",) and program in DECLARES:
        variables.references.update((each.name, each.value) for each in assignments)
    return replace(part, assignments=tuple(assignments))


def _has_output(part: SimpleCommand) -> bool:
    return any(doubt.is_output for _, doubt in part.unknown)


def noted(part: SimpleCommand, found: Found, inherited: Stdin | None, cwd: str | None) -> str | None:
    """
    The directory behind *part*, which begins in *cwd*. Keeps what else later commands
    see of it.

    Raises:
        UnsureError: It changes where this shell itself reads from.
    """
    argv, variables = part.argv, found.variables
    if part.redirects:
        note_files(part, found, inherited)
    if argv == ("exec",) and any(redirect.operator.startswith("<") for redirect in part.redirects):
        raise UnsureError("it changes where everything behind it reads from")
    if argv[0] in _MOVES:
        variables.set("OLDPWD", cwd or ".")
        return cwd if cwd is None and _is_top_of_repository(part, found.parts) else directory(part, cwd)
    if argv[0] in _SAME_SHELL or argv[0] in found.functions:
        stdin = stdin_of(part, found.parts, inherited) if argv[0] in _BEFORE_BUILTINS else None
        for inner in _behind(part, found.parts):
            _note_variables(inner, found, stdin)
        return _followed(part, found, cwd)
    if argv[0] in _KEEPERS:
        _note_variables(part, found, inherited)
    return cwd


def _is_top_of_repository(part: SimpleCommand, parts: Sequence[SimpleCommand]) -> bool:
    """
    Whether *part* is `cd "$(git rev-parse --show-toplevel)"`. That is the repository which git
    takes from where the text begins, so git does nothing else there than it did before.
    """
    if part.argv != ("cd", UNKNOWN) or part.span is None:
        return False
    index = next(at for at, each in enumerate(parts) if each is part)
    inside = [each for each in parts if each.inside == index]
    if len(inside) != 1 or inside[0].argv != _TOP or inside[0].span is None:
        return False
    # Nothing else is in the word: no ${x:-…} around it, and no variable beside it.
    around = inside[0].span[0] - part.span[0], part.span[1] - inside[0].span[1]
    doubt = part.unknown[0][1]
    return doubt.is_output and around == ((6, 2) if doubt.doubt is Doubt.VALUE else (5, 1))


def _note_variables(part: SimpleCommand, found: Found, inherited: Stdin | None) -> None:
    """
    Keeps what *part*, a builtin, leaves in variables.
    """
    argv, variables = part.argv, found.variables
    if argv[0] == "set" and (arguments := _positional(argv)) is not None:
        variables.set_arguments(arguments)
    elif argv[:2] == ("printf", "-v") and len(argv) > 3:
        output = printed(("printf", *argv[3:]))
        variables.set(argv[2], output.text if output else UNKNOWN)
    elif argv[0] == "shift":
        variables.shift(int(argv[1][:_DIGITS]) if argv[1:] and argv[1].isdecimal() else 1)
    elif argv[0] in _READS:
        text = (stdin_of(part, found.parts, inherited) or Stdin(UNKNOWN)).text.strip()
        text = text if argv[0] == "read" else text.replace("\n", SPLIT)
        is_number = bool(part.reads_from) and all(prints_number(found.parts[at], found.parts) for at in part.reads_from)
        for name in (*argv[1:], _READS[argv[0]]):
            variables.set(name, text)
            if UNKNOWN in text and not is_number:
                variables.mark(name, OUTPUT)


def _behind(part: SimpleCommand, parts: Sequence[SimpleCommand]) -> Iterator[SimpleCommand]:
    """
    The command behind *part*, where that is a keyword or builtin behind which this shell
    runs a builtin itself.
    """
    if part.program not in _BEFORE_BUILTINS:
        return
    before: set[int] = set()
    for index, each in enumerate(parts):
        is_behind = each.outer in before
        if each.program in _BEFORE_BUILTINS and (is_behind or (each.span == part.span and each.argv == part.argv)):
            before.add(index)
        if is_behind and each.argv:
            yield each


def _followed(part: SimpleCommand, found: Found, cwd: str | None) -> str | None:
    """
    Where a function, or a command that this shell runs for *part*, leads.
    """
    parts = found.parts
    for moved in parts:
        if moved.argv and moved.program in _MOVES and not moved.stands(_APART):
            outer = None if moved.outer is None else parts[moved.outer]
            if moved.function == part.program or (outer and outer.span == part.span and outer.program in _SAME_SHELL):
                cwd = directory(moved, cwd)
    return cwd


def directory(part: SimpleCommand, before: str | None) -> str:
    """
    Where a `cd` leads, as it is written.
    """
    operands = [word for word in part.argv[1:] if not word.startswith("-") or word == "-"]
    target = operands[0] if operands else "~" if part.program == "cd" else "-"
    is_guess = bool(part.unknown) and not (target.startswith(("/", "~")) and UNKNOWN not in target)
    if is_guess or target == "-" or target.startswith("+") or part.program == "popd":
        return UNKNOWN
    if target.startswith(("/", "~")) or before is None:
        return target
    return f"{before}/{target}"


def _positional(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    """
    What `set` makes the positional parameters, or None where it leaves them.
    """
    at = 1
    while at < len(argv) and argv[at][:1] in ("-", "+"):
        if argv[at] in ("--", "-"):
            return argv[at + 1 :]
        at += 2 if argv[at][1:].endswith("o") else 1
    return argv[at:] or None


def note_files(part: SimpleCommand, found: Found, inherited: Stdin | None) -> None:
    """
    Keeps what *part* prints into files, which later commands may run.
    """
    if part.argv[0] in _PRINTS:
        output = stdin_of(part, found.parts, inherited) if part.argv[0] == "cat" else printed(part.argv)
        targets = [redirect.target for redirect in part.redirects if redirect.writes]
        found.files.update((_here(target), output.text) for target in targets if output)


def written_script(part: SimpleCommand, files: dict[str, str]) -> str | None:
    """
    The text of the script that *part* runs, where a command before has written it.
    """
    words = (part.argv[0], *(word for word in part.argv[1:] if not word.startswith("-")))
    names = words[:1] if "/" in words[0] and len(words) == 1 else words[1:2]
    return next((files[name] for name in map(_here, names) if name in files), None)


def _here(name: str) -> str:
    return name.removeprefix("./")
