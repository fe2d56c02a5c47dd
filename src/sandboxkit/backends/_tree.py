"""
What a box shows of the host: the spec, the defaults and the protections as one tree. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from sandboxkit.backends._layouts import layouts
from sandboxkit.errors import SpecError
from sandboxkit.model import Access, access_of, is_inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sandboxkit.backends._survey import Survey
    from sandboxkit.model import SandboxSpec

__all__ = ["Node", "Tree", "box_tree", "depth", "working_directory"]


class Node(Enum):
    """
    What stands at a path of the box.
    """

    READ = auto()
    WRITE = auto()
    HIDDEN = auto()
    PRIVATE = auto()


@dataclass(frozen=True, slots=True)
class Tree:
    """
    What the box shows, by path: the deepest node above a path decides.

    Attributes:
        nodes: What stands where.
        named: Paths whose ownership is the spec's business: those it names and all
            that lie inside them.
    """

    nodes: Mapping[str, Node]
    named: frozenset[str]

    def at(self, path: str) -> Node | None:
        """
        What *path* is part of, or None where nothing of the host is shown.
        """
        return _at(self.nodes, path)


def _at(nodes: Mapping[str, Node], path: str) -> Node | None:
    while path not in nodes:
        if path == "/":
            return None
        path = _above(path)
    return nodes[path]


def _above(path: str) -> str:
    """
    The directory of *path*, which is absolute and in normal form.
    """
    return path[: path.rindex("/")] or "/"


def box_tree(spec: SandboxSpec, survey: Survey) -> Tree:
    """
    What a box under *spec* shows of the surveyed host.

    The strength of the layers, weakest first: the system, the tools and the empty home;
    what the spec names; the private directories and the credentials, unless the spec
    names exactly that path; what its patterns deny; the protection sets; and what this library runs from. The
    private directories are where a host's sockets lie: whoever names `/` would not
    expect a box to reach the container engine through one.

    Raises:
        SpecError: The spec makes something writable that this library runs from.
    """
    named = spec.filesystem.tree()
    nodes: dict[str, Node] = dict.fromkeys((*survey.system, *survey.tools), Node.READ)
    nodes[survey.box_home] = Node.PRIVATE
    nodes = {path: node for path, node in nodes.items() if access_of(path, named) is Access.UNLISTED}
    nodes.update({path: _NODES[access] for path, access in named.items() if path in survey.kinds})
    for path in layouts().private:
        if path not in named and (path in survey.kinds or _at(nodes, path) is None):
            nodes[path] = Node.PRIVATE  # a mount point missing in a directory of the host would be made there
    nodes.update({path: Node.HIDDEN for path in survey.denied if path not in named})
    _hide(nodes, survey.matched)
    _hold(nodes, survey.protected)
    if not spec.filesystem.allow_host_interpreter_writes:
        _refuse_inside(survey.launcher, spec.filesystem.write, _RUNS_FROM)
        _hold(nodes, survey.launcher)
    _refuse_inside(survey.kept, spec.filesystem.write, _NOTES)
    _hold(nodes, survey.kept)
    _pin(nodes)
    for path in survey.runtime:
        if _at(nodes, path) in (None, Node.PRIVATE, Node.HIDDEN):
            nodes[path] = Node.READ
    inside = frozenset(path for path in nodes if access_of(path, named) > Access.UNLISTED)
    return Tree(_needed(nodes), inside)


_NODES = {Access.DENY: Node.HIDDEN, Access.READ: Node.READ, Access.WRITE: Node.WRITE}


def _hide(nodes: dict[str, Node], paths: Iterable[str]) -> None:
    """
    Hides *paths* where they would be shown, with all that is named in them.
    """
    for path in paths:
        for inner in [inner for inner in nodes if inner != path and is_inside(inner, path)]:
            del nodes[inner]
        if _at(nodes, path) in (Node.READ, Node.WRITE):
            nodes[path] = Node.HIDDEN


def _hold(nodes: dict[str, Node], paths: Iterable[str]) -> None:
    """
    Makes *paths* read-only where they would be writable.
    """
    for path in paths:
        if _at(nodes, path) is Node.WRITE:
            nodes[path] = Node.READ


def _pin(nodes: dict[str, Node]) -> None:
    """
    Makes mount points of the writable directories that lead to another node: a mount
    point cannot be renamed. Otherwise the box could move a denied path's parent away on
    the host, and the next box would find the denied file under a name nobody denied.
    """
    for path in tuple(nodes):
        ancestor = _above(path)
        while ancestor not in nodes and _at(nodes, ancestor) is Node.WRITE:
            nodes[ancestor] = Node.WRITE
            ancestor = _above(ancestor)


_RUNS_FROM = (
    "this library itself runs from; run from another environment, or set filesystem.allow_host_interpreter_writes=true"
)
_NOTES = "this library keeps its notes in; write elsewhere"


def _refuse_inside(paths: Iterable[str], roots: Iterable[str], why: str) -> None:
    for root in roots:
        for path in paths:
            if is_inside(root, path):
                raise SpecError(f"filesystem.write: {root!r} lies in {path!r}, which {why}")


def _needed(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """
    *nodes* without those that change nothing: a readable path in a readable tree, and
    a hidden root directory, which is empty anyway.
    """
    kept: dict[str, Node] = {}
    for path in sorted(nodes, key=depth):
        above = _at(kept, _above(path)) if path != "/" else None
        if nodes[path] is Node.READ and above is Node.READ:
            continue
        if nodes[path] is Node.HIDDEN and path == "/":
            continue
        kept[path] = nodes[path]
    return kept


def depth(path: str) -> tuple[int, str]:
    """
    A key that sorts ancestors before what lies in them.
    """
    return (path.count("/") if path != "/" else 0, path)


def working_directory(
    asked: str | None, spec: SandboxSpec, survey: Survey, is_shown: Callable[[str], bool], home: str
) -> str:
    """
    Where a command starts: in *asked*, or where the spec says if that is None.

    Args:
        asked: The directory the caller names, or None.
        spec: For the places it names itself.
        survey: The surveyed host.
        is_shown: Whether the box shows a directory.
        home: The box's own home.

    Raises:
        SpecError: *asked* is not shown.
    """
    if asked is None:
        here = survey.working_directory
        places = (here, home, *(path for path, kind in survey.kinds.items() if kind == "directory"))
        return next((place for place in spec.starting_places(here, home) if place in places), home)
    if not is_shown(asked):
        raise SpecError(
            f"the working directory {asked!r} is not visible in the box; name it in filesystem.read or filesystem.write"
        )
    return asked


def private_environment(environment: Iterable[tuple[str, str]], scratch: str, home: str) -> dict[str, str]:
    """
    The command's variables in a box that mounts nothing, so that `HOME` and `TMPDIR` alone
    lead to its private places. An application that a system's service manager has started
    often has no `HOME`: programs would ask the user database, and find the user's.

    Args:
        environment: What the command is to have.
        scratch: The directory of the box.
        home: The user's own home, which is not in the box.
    """
    given = dict(environment)
    if given.setdefault("HOME", home) == home:
        given["HOME"] = f"{scratch}/home"
    given.setdefault("TMPDIR", f"{scratch}/tmp")
    return given
