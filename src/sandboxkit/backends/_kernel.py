"""
What the running kernel says of itself.
"""

from __future__ import annotations

import ctypes
import platform

__all__ = ["landlock_abi"]

_SYS_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_CREATE_RULESET_VERSION = 1


def landlock_abi() -> int:
    """
    The Landlock ABI of the running kernel; 0 where it has none or it is switched off.

    Source: landlock_create_ruleset(2), LANDLOCK_CREATE_RULESET_VERSION.
    """
    if platform.system() != "Linux":
        return 0
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return max(
        0,
        int(
            call(
                ctypes.c_long(_SYS_LANDLOCK_CREATE_RULESET),
                None,
                ctypes.c_size_t(0),
                ctypes.c_uint32(_LANDLOCK_CREATE_RULESET_VERSION),
            )
        ),
    )
