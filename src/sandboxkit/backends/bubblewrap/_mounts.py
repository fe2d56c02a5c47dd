"""
The order in which a box's file tree is built. Pure.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from sandboxkit.backends._proxied import AUTHORITY_FILE
from sandboxkit.backends._tree import Node, Tree, depth
from sandboxkit.model import Mount, is_inside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.backends._survey import Survey
    from sandboxkit.model import SandboxSpec

__all__ = ["mounts"]

_DEV_BYTES = 1 << 20
_NOTHING = 0o000
_PASS_THROUGH = 0o111
_PRIVATE_MODE = 0o700
_SHARED_MODE = 0o1777
_FILE_MODE = 0o644
_READABLE = 0o444
_FEWEST_INODES = 1024
_BYTES_PER_INODE = 4096


def mounts(
    tree: Tree,
    spec: SandboxSpec,
    survey: Survey,
    *,
    data: Mapping[str, int],
    instead: Mapping[str, str],
    authority: int | None = None,
) -> tuple[Mount, ...]:
    """
    The steps that build the box, in the order they must be done.

    1. links of the system (`/bin` -> `usr/bin`);
    2. every node of the tree, ancestors first, because a later mount covers an earlier
       one below it: that makes the order in which a spec was written meaningless;
    3. files with other content than the host's;
    4. `/proc`, without the lists of the user's keys (a device is bound there, which
       cannot be opened in the box), and a small `/dev`, with a sized `/dev/shm` and the
       certificate of a proxy that looks into TLS;
    5. read-only remounts, last because mount points are still made in them: `/proc`
       (a root caller's child could write `/proc/sys`), `/dev` and `/` (both are memory
       without a bound), and the hidden directories (their owner could open them).

    Args:
        tree: What the box shows.
        spec: For the sizes.
        survey: The surveyed host.
        data: For each hidden file and each file with other content, the descriptor
            that holds it.
        instead: For each writable path that is not shown itself, what is shown there.
        authority: The descriptor that holds that certificate, or None.

    Source: bwrap(1), "Filesystem related options".
    """
    steps = [Mount("symlink", path, text) for path, text in survey.links if tree.at(path) is None]
    steps += [
        _mount(path, node, tree, spec, survey, data, instead)
        for path, node in sorted(tree.nodes.items(), key=lambda item: depth(item[0]))
    ]
    steps += [_content(path, fd, tree) for path, fd in sorted(data.items()) if tree.nodes.get(path) is not Node.HIDDEN]
    steps += [
        Mount("proc", "/proc"),
        *(Mount("ro-bind", path, "/dev/null") for path in survey.key_lists),
        Mount("dev", "/dev"),
        _memory("/dev/shm", _SHARED_MODE, spec, survey),
        *([] if authority is None else [Mount("file", AUTHORITY_FILE, fd=authority, perms=_READABLE)]),
    ]
    hidden = [
        path for path, node in tree.nodes.items() if node is Node.HIDDEN and survey.kinds.get(path) == "directory"
    ]
    own = ("/proc", "/dev", *sorted(hidden), *(["/"] if "/" not in tree.nodes else []))
    return (*steps, *(Mount("remount-ro", path) for path in own))


def _mount(
    path: str,
    node: Node,
    tree: Tree,
    spec: SandboxSpec,
    survey: Survey,
    data: Mapping[str, int],
    instead: Mapping[str, str],
) -> Mount:
    owner = _owner(path, survey) if path in tree.named else None
    match node:
        case Node.READ:
            return Mount("ro-bind", path, path, owner=owner)
        case Node.WRITE:
            return Mount("bind", path, _shown(path, instead), owner=owner)
        case Node.PRIVATE:
            mode = _PRIVATE_MODE if path == survey.box_home else _SHARED_MODE
            return _memory(path, mode, spec, survey)
        case Node.HIDDEN if survey.kinds.get(path) == "file":
            return Mount("data", path, perms=_NOTHING, fd=data[path])
        case Node.HIDDEN:
            opens = any(other != path and is_inside(other, path) for other in tree.nodes)
            return Mount("tmpfs", path, size=_DEV_BYTES, perms=_PASS_THROUGH if opens else _NOTHING)


def _shown(path: str, instead: Mapping[str, str]) -> str:
    """
    What is shown at *path*: a part of what stands in for it or for a directory it lies in.
    """
    for root in sorted(instead, key=depth, reverse=True):
        if is_inside(path, root):
            return instead[root] + path.removeprefix(root)
    return path


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
    return Mount("data", path, fd=fd, perms=_READABLE)


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
