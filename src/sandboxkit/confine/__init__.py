"""
How a Linux process gives up its own rights: tables, and the planning of seccomp,
Landlock and resource limits. `_child.py` applies them, inside the box.
"""

from sandboxkit.confine._landlock import ABI, AbiLevel, FsAccess, NetAccess, Scope, landlock_rules
from sandboxkit.confine._narrow import CONVERSATION_FD, narrow_filters
from sandboxkit.confine._rlimits import rlimits
from sandboxkit.confine._seccomp import ARCHITECTURES, seccomp_filter

__all__ = [
    "ABI",
    "ARCHITECTURES",
    "CONVERSATION_FD",
    "AbiLevel",
    "FsAccess",
    "NetAccess",
    "Scope",
    "landlock_rules",
    "narrow_filters",
    "rlimits",
    "seccomp_filter",
]
