"""
The policy of the process, for programs that want only one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sandboxkit.errors import PolicyError
from sandboxkit.policy._policy import ExecPolicy

if TYPE_CHECKING:
    import os

__all__ = ["get_exec_policy", "initialize_exec_policy"]

_lock = threading.Lock()
_shared: list[ExecPolicy] = []


def get_exec_policy() -> ExecPolicy:
    """
    The policy of the process: the one `initialize_exec_policy()` set, or
    `ExecPolicy.default()`, made at the first call. Always the same object in between.
    """
    with _lock:
        if not _shared:
            _shared.append(ExecPolicy.default())
        return _shared[0]


def initialize_exec_policy(
    policy: ExecPolicy | None = None,
    *,
    organisation: str | os.PathLike[str] | None = None,
    user: str | os.PathLike[str] | None = None,
    project: str | os.PathLike[str] | None = None,
) -> ExecPolicy:
    """
    Sets the policy of the process, and returns it.

    Args:
        policy: The policy; without one, it is made of the files, as by
            `ExecPolicy.from_files()`. With neither it is the default again.
        organisation: File of the organisation's rules.
        user: File of the user's rules.
        project: File of the project's rules.

    Raises:
        PolicyError: A file is wrong, or both a policy and files are given; the policy
            of the process stays what it was.
    """
    files = {"organisation": organisation, "user": user, "project": project}
    if policy is not None and any(path is not None for path in files.values()):
        raise PolicyError("a policy and files cannot be given together; use ExecPolicy.from_files() to combine files")
    made = ExecPolicy.from_files(**files) if policy is None else policy
    with _lock:
        _shared[:] = [made]
    return made
