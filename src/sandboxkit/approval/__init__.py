"""
Who says yes, and to what exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit._lazy import lazy
from sandboxkit.model import Executable, Grant

if TYPE_CHECKING:
    from sandboxkit.approval._approvers import CallbackApprover, DenyApprover
    from sandboxkit.approval._decide import decide
    from sandboxkit.approval._grant import find_executable, grant_for
    from sandboxkit.approval._limits import why_not_always
    from sandboxkit.approval._remembering import RememberingApprover
    from sandboxkit.approval._store import GrantStore, RememberedGrant, default_folder
    from sandboxkit.approval._terminal import TerminalApprover
    from sandboxkit.approval._tool import permit, permits

__all__ = [
    "CallbackApprover",
    "DenyApprover",
    "Executable",
    "Grant",
    "GrantStore",
    "RememberedGrant",
    "RememberingApprover",
    "TerminalApprover",
    "decide",
    "default_folder",
    "find_executable",
    "grant_for",
    "permit",
    "permits",
    "why_not_always",
]

__getattr__ = lazy(
    __name__,
    {
        "_approvers": (
            "CallbackApprover",
            "DenyApprover",
        ),
        "_decide": ("decide",),
        "_grant": (
            "find_executable",
            "grant_for",
        ),
        "_limits": ("why_not_always",),
        "_remembering": ("RememberingApprover",),
        "_store": (
            "GrantStore",
            "RememberedGrant",
            "default_folder",
        ),
        "_terminal": ("TerminalApprover",),
        "_tool": (
            "permit",
            "permits",
        ),
    },
)
