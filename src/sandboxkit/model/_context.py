"""
Where a command would run, as plain values: what the policy needs to read paths.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TRUSTED_PATH", "EvaluationContext"]

TRUSTED_PATH: tuple[str, ...] = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""
The directories a bare program name may come from when it is to run outside a box.
"""


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """
    The place a command is judged for. Every path is absolute and host side.

    Paths are judged lexically; nothing is looked up. With no context, relative and
    home paths count as unknown.

    Attributes:
        cwd: The working directory, or None where unknown.
        home: The user's home directory, or None where unknown.
        workspace_roots: The directories the caller lets the command write.
        trusted_directories: Where a bare program name may be found.
        user: The user's name, or None.
        platform: As `sys.platform`.
        numbers: What the caller counted, by name, for the rules that have
            `more_than`. They come before the built-in `urls`, `arguments` and `parts`.
    """

    cwd: str | None = None
    home: str | None = None
    workspace_roots: tuple[str, ...] = ()
    trusted_directories: tuple[str, ...] = TRUSTED_PATH
    user: str | None = None
    platform: str = "linux"
    numbers: Mapping[str, float] = field(default_factory=dict, hash=False)
