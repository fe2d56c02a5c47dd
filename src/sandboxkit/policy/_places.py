"""
Classes of paths the floor speaks about, as a table of globs.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.model import is_inside
from sandboxkit.policy._path_globs import PathGlobs
from sandboxkit.policy._paths import homely, located, normal
from sandboxkit.policy._triggers import trigger_of

if TYPE_CHECKING:
    from sandboxkit.model import EvaluationContext
    from sandboxkit.policy._glob import Later

__all__ = ["PlaceRow", "Places"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRow:
    """
    One class of paths: a row of the floor's table.
    """

    name: str
    """How rows of the floor refer to it."""
    paths: tuple[str, ...]
    """Globs over normal paths: `**` is any depth, `*` one component; `~` is any home."""
    except_paths: tuple[str, ...] = ()
    """Globs that take paths out again."""
    parents: bool = False
    """Also every directory that contains the home or a workspace root."""
    whole_directory: bool = False
    """Also `*` on its own: everything in the directory the command starts in."""


_HIDDEN = re.compile(r"(?:\*\*|~)/(\.[^/*]+)(?:/\*\*)?")
_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Places:
    """
    One class of paths, ready to be asked.
    """

    inside: PathGlobs
    outside: PathGlobs
    literals: tuple[str, ...]
    listed: str
    hidden: tuple[str, ...]
    parents: bool
    whole_directory: bool
    trigger: Later | None

    @classmethod
    def of(cls, row: PlaceRow) -> Places:
        """
        *row* compiled.
        """
        literals = tuple(path for path in row.paths if "*" not in path)
        return cls(
            inside=PathGlobs(row.paths),
            outside=PathGlobs(row.except_paths),
            literals=literals,
            listed="\n" + "\n".join(literals),
            hidden=tuple(found[1] for path in row.paths if (found := _HIDDEN.fullmatch(path))),
            parents=row.parents,
            whole_directory=row.whole_directory,
            trigger=None if row.parents or row.whole_directory else trigger_of(row.paths),
        )

    def holds(self, argument: str, context: EvaluationContext, *, moved: bool = False) -> bool:
        """
        Whether *argument*, as a path, is in the class.

        Args:
            argument: A word of a command, without quotes; it may hold a glob.
            context: Where the command starts.
            moved: Whether the directory has changed since, so that `*` on its own
                no longer means everything the caller works on.
        """
        stem, is_everything = _without_star(argument)
        if is_everything and self.whole_directory and not moved and stem in (".", context.cwd):
            return True
        if stem[:1] == "~":
            return self._has(_in_home(stem), argument)
        path = located(stem, context)
        if path is None:
            path = posixpath.normpath(stem)
            return self._has(path, argument) or (self.parents and path.rpartition("/")[2] == "..")
        if self._has(path, argument):
            return True
        home = homely(path, context)
        if home is not None and self._has(home, argument):
            return True
        return self.parents and _is_parent(path, context)

    def _has(self, path: str, argument: str) -> bool:
        if self.inside.take(path):
            return not self.outside.take(path)
        wildcard = _WILDCARD.search(path)
        if wildcard is None or not _WILDCARD.search(argument) or self.outside.take(path):
            return False
        begun = path[: wildcard.start()]
        if f"\n{begun}" in self.listed and any(fnmatch.fnmatchcase(known, path) for known in self.literals):
            return True
        first = path.split("/", 2)[1] if path.startswith("~/.") else ""
        is_telling = bool(_WILDCARD.search(first) and first.strip(".*?"))
        return is_telling and any(fnmatch.fnmatchcase(name, first) for name in self.hidden)


def _without_star(argument: str) -> tuple[str, bool]:
    """
    The directory of `dir/*` and the like, and whether it was one.
    """
    directory, slash, last = argument.rpartition("/")
    if last in ("*", ".*", "{*,.*}"):
        return (directory or "/") if slash else ".", True
    return argument, False


def _in_home(argument: str) -> str:
    # ~user is a home too; ~+ and ~- are directories nobody can name here.
    user, slash, rest = argument.partition("/")
    return "~" + (normal("/" + rest).rstrip("/") if slash else "") if user not in ("~+", "~-") else "~"


def _is_parent(path: str, context: EvaluationContext) -> bool:
    """
    Whether the normal *path* holds the home or a workspace root.
    """
    if context.home and is_inside(normal(context.home), path):
        return True
    return any(root != path and is_inside(root, path) for root in map(normal, context.workspace_roots))
