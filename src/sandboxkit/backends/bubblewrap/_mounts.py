"""
The order in which a box's file tree is built. Pure.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from sandboxkit.backends._layouts import layouts
from sandboxkit.errors import SpecError
from sandboxkit.model import Access, Mount, access_of, is_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sandboxkit.backends._survey import Survey
    from sandboxkit.model import SandboxSpec

__all__ = ["Node", "Tree", "box_tree", "mounts"]

_DEV_BYTES = 1 << 20
_NOTHING = 0o000
_PASS_THROUGH = 0o111
_PRIVATE_MODE = 0o700
_SHARED_MODE = 0o1777
_FILE_MODE = 0o644
_FEWEST_INODES = 1024
_BYTES_PER_INODE = 4096


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
        while path not in self.nodes:
            if path == "/":
                return None
            path = posixpath.dirname(path)
        return self.nodes[path]


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
        if path not in named and (path in survey.kinds or Tree(nodes, frozenset()).at(path) is None):
            nodes[path] = Node.PRIVATE  # a mount point missing in a directory of the host would be made there
    nodes.update({path: Node.HIDDEN for path in survey.denied if path not in named})
    _hide(nodes, survey.matched)
    _hold(nodes, survey.protected)
    if not spec.filesystem.allow_host_interpreter_writes:
        _refuse_inside(survey.launcher, spec.filesystem.write)
        _hold(nodes, survey.launcher)
    _pin(nodes)
    for path in survey.runtime:
        if Tree(nodes, frozenset()).at(path) in (None, Node.PRIVATE, Node.HIDDEN):
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
        if Tree(nodes, frozenset()).at(path) in (Node.READ, Node.WRITE):
            nodes[path] = Node.HIDDEN


def _hold(nodes: dict[str, Node], paths: Iterable[str]) -> None:
    """
    Makes *paths* read-only where they would be writable.
    """
    for path in paths:
        if Tree(nodes, frozenset()).at(path) is Node.WRITE:
            nodes[path] = Node.READ


def _pin(nodes: dict[str, Node]) -> None:
    """
    Makes mount points of the writable directories that lead to another node: a mount
    point cannot be renamed. Otherwise the box could move a denied path's parent away on
    the host, and the next box would find the denied file under a name nobody denied.
    """
    for path in tuple(nodes):
        ancestor = posixpath.dirname(path)
        while ancestor not in nodes and Tree(nodes, frozenset()).at(ancestor) is Node.WRITE:
            nodes[ancestor] = Node.WRITE
            ancestor = posixpath.dirname(ancestor)


def _refuse_inside(launcher: Iterable[str], roots: Iterable[str]) -> None:
    for root in roots:
        for path in launcher:
            if is_inside(root, path):
                raise SpecError(
                    f"filesystem.write: {root!r} lies in {path!r}, which this library itself runs from; "
                    "run from another environment, or set filesystem.allow_host_interpreter_writes=true"
                )


def _needed(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """
    *nodes* without those that change nothing: a readable path in a readable tree, and
    a hidden root directory, which is empty anyway.
    """
    kept: dict[str, Node] = {}
    for path in sorted(nodes, key=_depth):
        above = Tree(kept, frozenset()).at(posixpath.dirname(path)) if path != "/" else None
        if nodes[path] is Node.READ and above is Node.READ:
            continue
        if nodes[path] is Node.HIDDEN and path == "/":
            continue
        kept[path] = nodes[path]
    return kept


def _depth(path: str) -> tuple[int, str]:
    return (path.count("/") if path != "/" else 0, path)


def mounts(tree: Tree, spec: SandboxSpec, survey: Survey, *, data: Mapping[str, int]) -> tuple[Mount, ...]:
    """
    The steps that build the box, in the order they must be done.

    1. links of the system (`/bin` -> `usr/bin`);
    2. every node of the tree, ancestors first, because a later mount covers an earlier
       one below it: that makes the order in which a spec was written meaningless;
    3. files with other content than the host's;
    4. `/proc` and a small `/dev`, with a sized `/dev/shm`;
    5. read-only remounts, last because mount points are still made in them: `/proc`
       (a root caller's child could write `/proc/sys`), `/dev` and `/` (both are memory
       without a bound), and the hidden directories (their owner could open them).

    Args:
        tree: What the box shows.
        spec: For the sizes.
        survey: The surveyed host.
        data: For each hidden file and each file with other content, the descriptor
            that holds it.

    Source: bwrap(1), "Filesystem related options".
    """
    steps = [Mount("symlink", path, text) for path, text in survey.links if tree.at(path) is None]
    steps += [
        _mount(path, node, tree, spec, survey, data)
        for path, node in sorted(tree.nodes.items(), key=lambda item: _depth(item[0]))
    ]
    steps += [_content(path, fd, tree) for path, fd in sorted(data.items()) if tree.nodes.get(path) is not Node.HIDDEN]
    steps += [
        Mount("proc", "/proc"),
        Mount("dev", "/dev"),
        _memory("/dev/shm", _SHARED_MODE, spec, survey),
    ]
    hidden = [
        path for path, node in tree.nodes.items() if node is Node.HIDDEN and survey.kinds.get(path) == "directory"
    ]
    own = ("/proc", "/dev", *sorted(hidden), *(["/"] if "/" not in tree.nodes else []))
    return (*steps, *(Mount("remount-ro", path) for path in own))


def _mount(path: str, node: Node, tree: Tree, spec: SandboxSpec, survey: Survey, data: Mapping[str, int]) -> Mount:
    owner = _owner(path, survey) if path in tree.named else None
    match node:
        case Node.READ:
            return Mount("ro-bind", path, path, owner=owner)
        case Node.WRITE:
            return Mount("bind", path, path, owner=owner)
        case Node.PRIVATE:
            mode = _PRIVATE_MODE if path == survey.box_home else _SHARED_MODE
            return _memory(path, mode, spec, survey)
        case Node.HIDDEN if survey.kinds.get(path) == "file":
            return Mount("data", path, perms=_NOTHING, fd=data[path])
        case Node.HIDDEN:
            opens = any(other != path and is_inside(other, path) for other in tree.nodes)
            return Mount("tmpfs", path, size=_DEV_BYTES, perms=_PASS_THROUGH if opens else _NOTHING)


def _memory(path: str, mode: int, spec: SandboxSpec, survey: Survey) -> Mount:
    """
    A file system of the box's own. bwrap can bound its bytes, but not how many files it
    holds, each of which takes a KiB of the kernel's memory: only a root caller's is made
    outside, where that can be bounded.
    """
    size = spec.filesystem.tmp_bytes
    is_staged = survey.identity.is_root and not survey.identity.keeps_root
    inodes = max(_FEWEST_INODES, size // _BYTES_PER_INODE) if is_staged else None
    return Mount("tmpfs", path, size=size, inodes=inodes, perms=mode)


def _content(path: str, fd: int, tree: Tree) -> Mount:
    """
    A file with other content than the host's: the box's own in a private directory.
    """
    if tree.at(path) is Node.PRIVATE:
        return Mount("file", path, fd=fd, perms=_FILE_MODE)
    return Mount("data", path, fd=fd, perms=0o444)


def _owner(path: str, survey: Survey) -> tuple[int, int] | None:
    """
    Whose files a root caller's command sees as its own: those of the owner of the
    named path it lies in. None where the command runs as that owner anyway.
    """
    if not survey.identity.is_root or survey.identity.keeps_root:
        return None
    while path not in survey.owners:
        path = posixpath.dirname(path)
    owner = survey.owners[path]
    return None if owner == (survey.identity.uid, survey.identity.gid) else owner
