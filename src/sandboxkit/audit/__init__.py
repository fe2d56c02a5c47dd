"""
Where it is written down what was decided and what came of it.
"""

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
