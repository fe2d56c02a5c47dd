"""
Where it is written down what was decided and what came of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit._lazy import lazy

if TYPE_CHECKING:
    from sandboxkit.audit._anchor import FileAnchor, read_anchors
    from sandboxkit.audit._chain import Head
    from sandboxkit.audit._jsonl import JsonlAudit
    from sandboxkit.audit._key import AuditKey
    from sandboxkit.audit._memory import MemoryAudit
    from sandboxkit.audit._read import AuditRecord, read_records
    from sandboxkit.audit._rotation import Rotation
    from sandboxkit.audit._schema import record_schema
    from sandboxkit.audit._verify import FileCheck, Problem, Tear, Verification, examine, verify

__all__ = [
    "AuditKey",
    "AuditRecord",
    "FileAnchor",
    "FileCheck",
    "Head",
    "JsonlAudit",
    "MemoryAudit",
    "Problem",
    "Rotation",
    "Tear",
    "Verification",
    "examine",
    "read_anchors",
    "read_records",
    "record_schema",
    "verify",
]

__getattr__ = lazy(
    __name__,
    {
        "_anchor": (
            "FileAnchor",
            "read_anchors",
        ),
        "_chain": ("Head",),
        "_jsonl": ("JsonlAudit",),
        "_key": ("AuditKey",),
        "_memory": ("MemoryAudit",),
        "_read": (
            "AuditRecord",
            "read_records",
        ),
        "_rotation": ("Rotation",),
        "_schema": ("record_schema",),
        "_verify": (
            "FileCheck",
            "Problem",
            "Tear",
            "Verification",
            "examine",
            "verify",
        ),
    },
)
