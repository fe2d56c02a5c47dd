"""
What a mount holds, and a program outside replaced meanwhile: the kernel takes a mount away
when, in another mount namespace, what it stands on is removed or renamed over. Editors and
git save files like that.

Source: rename(2); "vfs: Lazily remove mounts on unlinked files and directories", Linux 3.18.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from sandboxkit.backends._quarantine import opened
from sandboxkit.model import Access, Violation, access_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["REPLACED", "anchors", "node_of", "replaced", "replacements"]

REPLACED = "protected-path-replaced"
_STUB_MODE = 0o444
_WHY = (
    "a program outside replaced it during the run, and from then on it was not held: "
    "the run may have read it where that was denied, or written it"
)


def anchors(paths: Iterable[str], tree: Mapping[str, Access]) -> dict[str, tuple[int, int]]:
    """
    (device, inode) of those of *paths* that exist in a directory *tree* shows: without the
    mount that holds it, the box could do more with such a path.
    """
    found = {}
    for path in paths:
        if access_of(os.path.dirname(path), tree) >= Access.READ and (node := node_of(path)) is not None:
            found[path] = node
    return found


def node_of(path: str) -> tuple[int, int] | None:
    """
    (device, inode) of *path*, of a link its own; None where nothing is there.
    """
    try:
        seen = os.lstat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def replaced(before: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """
    The paths of *before* at which something else stands by now.
    """
    return (path for path, node in before.items() if node_of(path) not in (node, None))


def replacements(before: Mapping[str, tuple[int, int]]) -> tuple[Violation, ...]:
    """
    One for each of them. What stands there may well be the user's own, so it stays; not so an
    empty file that bwrap made for a mount, because what it was to hold had just gone.
    """
    return tuple(Violation(REPLACED, path, _WHY) for path in replaced(before) if not _removed_as_a_stub(path))


def _removed_as_a_stub(path: str) -> bool:
    """
    Whether a file that bwrap makes for a mount stood at *path*; it is gone now.

    Source: bubblewrap.c, `ensure_file (dest, 0444)`.
    """
    directory, name = os.path.split(path)
    try:
        with opened(directory) as folder:
            seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
            is_stub = seen.st_mode == stat.S_IFREG | _STUB_MODE and not seen.st_size
            if is_stub:
                os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    return is_stub
