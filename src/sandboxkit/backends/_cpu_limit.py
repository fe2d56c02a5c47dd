"""
Whether it was the limit of processor time that ended a command. Pure.

Source: setrlimit(2), RLIMIT_CPU.
"""

from __future__ import annotations

import math

__all__ = ["is_of_cpu_limit"]

_SIGKILL, _SIGXCPU = 9, 24
_REPORTED = 0.5
"""
The share of its limit, in the whole seconds that the kernel takes, which a command must have
used for its end to be the limit's. The kernel compares the limit with what it samples by
ticks, and reports what it measured: on a busy machine a command was ended by a limit of 1 s
after 0.7.
"""


def is_of_cpu_limit(number: int | None, used: float, limit: float | None) -> bool:
    """
    Whether the usage read back proves *limit* behind the end of a command by signal *number*.

    Args:
        number: The signal, or None.
        used: Seconds of processor time, of the command and its descendants.
        limit: That of the spec, in seconds, or None.
    """
    return limit is not None and number in (_SIGKILL, _SIGXCPU) and used >= math.ceil(limit) * _REPORTED
