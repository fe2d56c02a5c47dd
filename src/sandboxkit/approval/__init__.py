"""
Who says yes, and to what exactly.
"""

from sandboxkit.approval._approvers import CallbackApprover, DenyApprover
from sandboxkit.approval._decide import decide
from sandboxkit.approval._grant import Executable, Grant

__all__ = ["CallbackApprover", "DenyApprover", "Executable", "Grant", "decide"]
