"""
What the patterns a spec denies match on the host, now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.errors import SpecError
from sandboxkit.model import (
    PATTERN_DEPTH,
    PATTERN_DIRECTORIES,
    Access,
    Walk,
    access_of,
    fixed_part,
    is_inside,
    real_now,
)

if TYPE_CHECKING:
    from sandboxkit.model import SandboxSpec

__all__ = ["MAX_MATCHES", "denied_by_patterns"]

MAX_MATCHES = 64
"""Each takes a mount, and a denied file one open file; see `MAX_MOUNT_POINTS`."""


def denied_by_patterns(spec: SandboxSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """
    The existing paths that *spec*'s patterns deny, and why some may be missed. A
    symbolic link is not denied itself: what it leads to is, where the spec shows that.

    Raises:
        SpecError: A pattern starts at a symbolic link, or matches more than can be held.
    """
    tree = spec.filesystem.tree()
    found: dict[str, None] = {}
    gaps = []
    shown = (*spec.filesystem.write, *spec.filesystem.read)
    for pattern in spec.filesystem.denied_patterns():
        start, parts = fixed_part(pattern)
        if real_now(start) != start:
            raise SpecError(f"filesystem.deny: {start!r} is reached through a symbolic link; name its real path")
        walk = Walk(start, max_depth=PATTERN_DEPTH, max_directories=PATTERN_DIRECTORIES)
        for path in walk.matches(start.rstrip("/"), parts):
            real = real_now(path)
            if real == path or access_of(real, tree) >= Access.READ:
                found[real] = None
        if walk.unseen:
            gaps.append(f"{walk.unseen}, so 'glob:{pattern}' may match more than is denied")
        if any(is_inside(start, root) or is_inside(root, start) for root in shown):
            gaps.append(f"what 'glob:{pattern}' matches only later is not denied")
    outermost = tuple(path for path in found if not any(path != other and is_inside(path, other) for other in found))
    if len(outermost) > MAX_MATCHES:
        raise SpecError(
            f"filesystem.deny: its patterns match {len(outermost)} paths, and at most {MAX_MATCHES} can be held; "
            "deny the directories they lie in"
        )
    return outermost, tuple(gaps)
