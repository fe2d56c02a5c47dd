"""
What a command starts: which module reads its words.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from sandboxkit.shell._builtins import alias, callback, complete, subscripts, trap
from sandboxkit.shell._carried import VERSION, Carried, guesses, name_of
from sandboxkit.shell._git import git
from sandboxkit.shell._interpreters import code
from sandboxkit.shell._makefiles import make
from sandboxkit.shell._per_item import fd, find
from sandboxkit.shell._prefixes import behind_prefix
from sandboxkit.shell._run_options import options_that_run
from sandboxkit.shell._run_tables import CODE_OPTIONS, RUN_OPTIONS, RUN_WORDS, RUNNERS
from sandboxkit.shell._runners import after_dashes, container, network_namespace, runner
from sandboxkit.shell._shells import evaluated, schedule, shell, source, stdin_text
from sandboxkit.shell._wrappers import SHELLS, WRAPPERS, Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sandboxkit.model import SimpleCommand
    from sandboxkit.shell._carried import Stdin

    _Carrier = Callable[[SimpleCommand, Stdin | None], Carried | None]

__all__ = ["carried", "starts_others"]

_CONTAINERS = ("docker", "podman", "nerdctl", "kubectl", "oc", "docker-compose", "lxc", "crictl")
_COMMANDS = re.compile(
    r"(?:PAGER|EDITOR|VISUAL|COMMAND|WRAPPER|BROWSER|RSH|EXTERNAL_DIFF|ASKPASS)$|^LESS(?:OPEN|CLOSE)$"
)
"""
How the names of variables end whose value is run. Sources: git(1), man(1), less(1),
rsync(1), environ(7).
"""
_MAKES = frozenset(("make", "gmake", "bmake"))
_SUBSCRIPT_TAKERS = (
    *("let", "read", "unset", "declare", "typeset", "local", "readonly", "export"),
    *("printf", "test", "[", "[[", "wait", "getopts"),
)


def carried(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    What *part* starts, or None where it starts nothing that its words tell.

    Args:
        part: The command.
        stdin: What it reads as standard input, as far as the text says it.
    """
    name, wrapper, reader = _known(part.argv[0])
    if wrapper is not None:
        found = behind_prefix(part, name, wrapper, stdin)
    else:
        found = reader(part, stdin) if reader else None
    return _with_variables(part, found) if part.assignments else found


def _with_variables(part: SimpleCommand, found: Carried | None) -> Carried | None:
    """
    *found*, and the commands in variables that programs take one from.
    """
    inner = guesses(each.value for each in part.assignments if _COMMANDS.search(each.name) and " " in each.value)
    if not inner:
        return found
    return Carried([*found.commands, *inner], found.own) if found else Carried(inner)


def starts_others(program: str) -> bool:
    """
    Whether *program* may start something that its words tell.
    """
    _, wrapper, reader = _known(program)
    return wrapper is not None or reader is not None


@lru_cache(maxsize=1024)
def _known(program: str) -> tuple[str, Wrapper | None, _Carrier | None]:
    """
    The name of *program*, its row in the table of wrappers, and who reads it else.
    """
    name = name_of(program)
    return name, WRAPPERS.get(name), _READERS.get(name) or _READERS.get(VERSION.sub("", name))


def _all_of(readers: tuple[_Carrier, ...]) -> _Carrier:
    """
    One reader for what any of *readers* finds; how many words are the outer command's own
    is told by the first that finds something.
    """
    if len(readers) == 1:
        return readers[0]

    def read(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
        found = [each for reader in readers if (each := reader(part, stdin))]
        return Carried([inner for each in found for inner in each.commands], found[0].own) if found else None

    return read


def _readers(*rows: tuple[Iterable[str], _Carrier]) -> dict[str, _Carrier]:
    """
    The reader of each name, from rows of names and who reads them.
    """
    found: dict[str, tuple[_Carrier, ...]] = {}
    for names, reader in rows:
        for name in names:
            found[name] = (*found.get(name, ()), reader)
    return {name: _all_of(readers) for name, readers in found.items()}


_READERS = _readers(
    (SHELLS, shell),
    (CODE_OPTIONS, code),
    (RUNNERS, runner),
    (frozenset((*RUN_OPTIONS, *RUN_WORDS)) - _MAKES, options_that_run),
    (_MAKES, make),
    (_CONTAINERS, container),
    (_SUBSCRIPT_TAKERS, subscripts),
    (("at", "batch"), stdin_text),
    (("crontab",), schedule),
    (("mapfile", "readarray"), callback),
    (("source", "."), source),
    (("fd", "fdfind"), fd),
    (("alias",), alias),
    (("capsh",), after_dashes),
    (("complete", "compgen"), complete),
    (("eval",), evaluated),
    (("find",), find),
    (("git",), git),
    (("ip",), network_namespace),
    (("trap",), trap),
)
"""
Who reads a program that is not in the table of wrappers.
"""
