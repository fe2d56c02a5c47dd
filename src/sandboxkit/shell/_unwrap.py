"""
What a command starts: which module reads its words.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sandboxkit.shell._builtins import alias, callback, complete, subscripts, trap
from sandboxkit.shell._carried import VERSION, name_of
from sandboxkit.shell._git import git
from sandboxkit.shell._interpreters import code
from sandboxkit.shell._makefiles import make
from sandboxkit.shell._per_item import fd, find
from sandboxkit.shell._prefixes import behind_prefix
from sandboxkit.shell._run_options import options_that_run
from sandboxkit.shell._runners import RUNNERS, after_dashes, container, network_namespace, runner
from sandboxkit.shell._shells import evaluated, shell, source, stdin_text
from sandboxkit.shell._wrappers import CODE_OPTIONS, RUN_OPTIONS, RUN_WORDS, SHELLS, WRAPPERS, Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxkit.model import SimpleCommand
    from sandboxkit.shell._carried import Carried, Stdin

    _Carrier = Callable[[SimpleCommand, Stdin | None], Carried | None]

__all__ = ["carried", "starts_others"]

_CONTAINERS = ("docker", "podman", "nerdctl", "kubectl", "oc", "docker-compose", "lxc", "crictl")
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
        return behind_prefix(part, name, wrapper, stdin)
    return reader(part, stdin) if reader else None


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


_READERS: dict[str, _Carrier] = {
    **dict.fromkeys(SHELLS, shell),
    **dict.fromkeys(CODE_OPTIONS, code),
    **dict.fromkeys(("at", "batch"), stdin_text),
    **dict.fromkeys(_SUBSCRIPT_TAKERS, subscripts),
    **dict.fromkeys(RUNNERS, runner),
    **dict.fromkeys(_CONTAINERS, container),
    **dict.fromkeys((*RUN_OPTIONS, *RUN_WORDS), options_that_run),
    **dict.fromkeys(("make", "gmake", "bmake"), make),
    **dict.fromkeys(("mapfile", "readarray"), callback),
    **dict.fromkeys(("source", "."), source),
    **dict.fromkeys(("fd", "fdfind"), fd),
    "alias": alias,
    "capsh": after_dashes,
    "complete": complete,
    "eval": evaluated,
    "find": find,
    "git": git,
    "ip": network_namespace,
    "trap": trap,
}
"""
Who reads a program that is not in the table of wrappers. A name stands once in effect: of
two rows for it the later one holds.
"""
