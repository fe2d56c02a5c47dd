"""
The plan of a command that needs no box.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.model import LaunchPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["direct_plan"]


def direct_plan(
    argv: Sequence[str], *, environment: Mapping[str, str], cwd: str, rlimits: Sequence[tuple[int, int]] = ()
) -> LaunchPlan:
    """
    A plan that runs *argv* on the host as it is: own session, closed descriptors,
    exactly *environment*, *rlimits*.

    Args:
        argv: The program by absolute path, and its arguments.
        environment: Its whole environment.
        cwd: Its working directory.
        rlimits: (resource number, limit), soft and hard alike.
    """
    return LaunchPlan(
        backend="direct", argv=tuple(argv), environment=tuple(environment.items()), cwd=cwd, rlimits=tuple(rlimits)
    )
