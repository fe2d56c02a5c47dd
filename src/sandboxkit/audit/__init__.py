"""
Where it is written down what was decided and what came of it.
"""

from sandboxkit.audit._jsonl import JsonlAudit, verify
from sandboxkit.audit._memory import MemoryAudit

__all__ = ["JsonlAudit", "MemoryAudit", "verify"]
