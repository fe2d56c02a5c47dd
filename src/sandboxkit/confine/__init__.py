"""
How a Linux process gives up its own rights: tables, and the planning of seccomp,
Landlock and resource limits. `_child.py` applies them, inside the box.
"""

from sandboxkit.confine._alone_filter import AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, alone_filter
from sandboxkit.confine._code import child_code
from sandboxkit.confine._landlock import ABI, AbiLevel, FsAccess, NetAccess, Scope, landlock_rules
from sandboxkit.confine._narrow import CONVERSATION_FD, narrow_filters
from sandboxkit.confine._profile import seccomp_profile
from sandboxkit.confine._rlimits import rlimits
from sandboxkit.confine._rules import calls
from sandboxkit.confine._seccomp import ARCHITECTURES, seccomp_filter
from sandboxkit.confine._verdict import filter_allows, filter_refuses

__all__ = [
    "ABI",
    "AF_INET",
    "AF_INET6",
    "AF_NETLINK",
    "AF_UNIX",
    "ARCHITECTURES",
    "CONVERSATION_FD",
    "AbiLevel",
    "FsAccess",
    "NetAccess",
    "Scope",
    "alone_filter",
    "calls",
    "child_code",
    "filter_allows",
    "filter_refuses",
    "landlock_rules",
    "narrow_filters",
    "rlimits",
    "seccomp_filter",
    "seccomp_profile",
]
