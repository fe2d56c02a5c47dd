"""
Paths as a command writes them, judged by their text alone.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from sandboxkit.policy._arguments import is_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandboxkit.model import EvaluationContext

__all__ = ["homely", "located", "normal", "path_candidates"]

_SAME_ROOT = re.compile(
    r"(?:/proc/(?:self|thread-self|\d+)/root|/proc/\d+/task/\d+/root|/private(?=/(?:etc|tmp|var)(?:/|$)))+(?=/|$)"
)
"""
Prefixes that lead back to the root. Source: proc(5), /proc/pid/root; on macOS /etc,
/tmp and /var are links into /private.
"""
_MAX_DETOUR = 5
_SEPARATORS = re.compile("[=@:]")
_HOMES = re.compile(r"(?:/home/[^/]+|/Users/[^/]+|/root|/var/root)(?=/|$)")


@lru_cache(maxsize=1024)
def normal(path: str) -> str:
    """
    The absolute *path* without dots, doubled slashes and detours to the root.
    """
    if "/root" in path and ".." in path:
        path = _from_root(path)
    path = "/" + posixpath.normpath(path).lstrip("/")
    found = _SAME_ROOT.match(path)
    return normal(path[found.end() :] or "/") if found else path


def _from_root(path: str) -> str:
    """
    *path* walked as the kernel does where it leads back to the root: what is above is the
    root again, not the directory the link is in.

    Source: path_resolution(7), ". and .."; proc(5), /proc/pid/root.
    """
    walked: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del walked[-1:]
        elif name not in ("", "."):
            walked.append(name)
            if name == "root" and len(walked) <= _MAX_DETOUR and _SAME_ROOT.fullmatch("/" + "/".join(walked)):
                walked.clear()
    return "/" + "/".join(walked)


def located(argument: str, context: EvaluationContext) -> str | None:
    """
    Where *argument* is as a path, or None where that needs a directory nobody named.
    """
    if argument.startswith("/"):
        return normal(argument)
    if argument == "~" or argument.startswith("~/"):
        return normal(context.home + argument[1:]) if context.home else None
    return normal(f"{context.cwd}/{argument}") if context.cwd else None


def homely(path: str, context: EvaluationContext) -> str | None:
    """
    The normal *path* written from the home it lies in, as `~` or `~/…`; the home of
    the context or any directory homes are usually in. None outside of homes.
    """
    if context.home and (path == context.home or path.startswith(context.home + "/")):
        return "~" + path[len(context.home) :]
    found = _HOMES.match(path)
    return "~" + path[found.end() :] if found else None


def path_candidates(arguments: Iterable[str]) -> Iterator[str]:
    """
    Everything in *arguments* that may name a file: operands, values of options, and
    what follows ``=``, ``@`` or ``:`` in them.
    """
    for argument in arguments:
        if not is_option(argument):
            yield argument
        elif not argument.startswith("--"):
            yield from _attached(argument)
        if "=" in argument or "@" in argument or ":" in argument:
            yield from _inner(argument)


def _attached(argument: str) -> Iterator[str]:
    starts = [place for place in (argument.find("/"), argument.find("~")) if place > 1]
    if starts:
        yield argument[min(starts) :]
    elif len(argument) > 2:
        yield argument[2:]


def _inner(argument: str) -> Iterator[str]:
    for piece in _SEPARATORS.split(argument)[1:]:
        # What follows "://" is a host, not a path.
        if piece and not piece.startswith("//"):
            yield piece
