"""
Which paths other mounts show a second time: a mount over one of them leaves the other.

Source: proc_pid_mountinfo(5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sandboxkit.model import Access, access_of, is_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["shown_elsewhere"]

_MOUNTS = "/proc/self/mountinfo"
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class _Mounted:
    """
    One mount.

    Attributes:
        device: The file system, as major:minor.
        root: What of it is shown.
        place: Where.
    """

    device: str
    root: str
    place: str

    def inner(self, path: str) -> str:
        """
        Where *path*, at or below `place`, is in the file system.
        """
        return _joined(self.root, path[len(self.place.rstrip("/")) :])

    def shows(self, inner: str) -> str | None:
        """
        Where *inner* of the file system, or a part of it, is shown; None where it is not.
        """
        if is_inside(inner, self.root):
            return _joined(self.place, inner[len(self.root.rstrip("/")) :])
        return self.place if is_inside(self.root, inner) else None


def _joined(above: str, below: str) -> str:
    return (above.rstrip("/") + below) or "/"


def shown_elsewhere(
    paths: Iterable[str], tree: Mapping[str, Access], least: Access, mountinfo: str = _MOUNTS
) -> Iterator[str]:
    """
    Why each of *paths* is reached by another mount, too.

    Args:
        paths: What is denied or protected.
        tree: What the spec names.
        least: The access to the other place that matters.
        mountinfo: The kernel's list, for tests.
    """
    held, roots = list(paths), [path for path, access in tree.items() if access >= least]
    if not held or not roots:
        return
    mounts = _mounts(mountinfo)
    own = {_of(root, mounts) for root in roots}
    shown = [mount for mount in mounts if mount in own or any(is_inside(mount.place, root) for root in roots)]
    if len(shown) < 2 and own == {_of(path, mounts) for path in tree}:
        return
    for path in held:
        mounted = _of(path, mounts)
        for other in shown:
            place = other.shows(mounted.inner(path)) if mounted and other.device == mounted.device else None
            if place not in (None, path) and _of(place, mounts) == other and access_of(place, tree) >= least:
                yield f"{path!r} is also shown at {place!r} by another mount, where it is not held"


def _of(path: str, mounts: Sequence[_Mounted]) -> _Mounted | None:
    """
    The mount that *path* lies on: the last of the deepest.
    """
    above = [mount for mount in mounts if is_inside(path, mount.place)]
    return max(reversed(above), key=lambda mount: len(mount.place), default=None)


def _mounts(mountinfo: str) -> list[_Mounted]:
    try:
        lines = Path(mountinfo).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []  # no Linux, or no /proc
    rows = (line.split(" ", 5) for line in lines)
    return [_Mounted(row[2], _plain(row[3]), _plain(row[4])) for row in rows if len(row) > 5]


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text) if "\\" in text else text
