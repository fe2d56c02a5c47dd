"""
Resource limits of a box: `Limits` to numbers for setrlimit(2).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sandboxkit.model import Control

if TYPE_CHECKING:
    from collections.abc import Collection

    from sandboxkit.model import Limits

__all__ = ["rlimits"]

# asm-generic/resource.h; the same on x86_64 and aarch64. The `resource` module has
# those of the machine that plans, which need not be Linux.
_CPU, _FSIZE, _DATA, _CORE, _NPROC, _NOFILE, _MEMLOCK, _MSGQUEUE = 0, 1, 2, 4, 6, 7, 8, 12

_NO_HANDLER = 1
_SUPERVISORS = 1
_UNUSED_BYTES = 16 * 1024 * 1024
_LOCKED_BYTES = 8 * 1024 * 1024
_QUEUED_BYTES = 819_200


def rlimits(limits: Limits, *, grouped: Collection[Control] = ()) -> tuple[tuple[int, int], ...]:
    """
    (resource, limit) pairs, soft and hard alike, in the order of the numbers.

    Each is a ceiling: where the launcher already runs under less, that stays.

    They bound one process, not the box, except the number of processes, which counts
    all of the box's user namespace, and holds for no process whose uid is the host's
    root. Memory is RLIMIT_DATA, private writable memory: RLIMIT_AS also counts
    reserved addresses, of which WebAssembly and Go take far more than they use.
    Shared memory and files in memory count nowhere here. A process at its limit of
    processor time is killed.

    Always: no core dumps; 8 MiB of locked memory, as Linux 5.16 gives everyone; 800 KiB
    in message queues, its default too.

    The limit of a core dump is 1 byte and not 0. Both are less than a dump can be, so no
    file is written. But where kernel.core_pattern is a pipe, the kernel starts that
    program of the host, as root and with what the process wrote into its memory, under
    any limit except 1. A process may still lower its own to 0 and have the program
    started, and a launcher that runs under 0 leaves it at that; and a pattern that names
    a socket (Linux 6.16) heeds no limit. On a host for commands nobody trusts, the
    pattern should be a file.

    Args:
        limits: The spec's.
        grouped: Controls that a control group holds for the whole tree. Their limits here
            are a little wider and stand behind the group's: it counts what it refuses or
            ends, while nobody hears of what these refuse.

    Source: getrlimit(2), core(5), fs/coredump.c (coredump_pipe).
    """
    wanted = {
        _CPU: None if limits.cpu is None else math.ceil(limits.cpu),
        _FSIZE: limits.file_size_bytes,
        _DATA: _data(limits.memory_bytes, is_grouped=Control.LIMITS_MEMORY in grouped),
        _CORE: _NO_HANDLER,
        # The child that starts the command and waits for it is a process of the box too. It
        # is the first one (bwrap --as-pid-1): an init of bwrap's own would count as well.
        _NPROC: None
        if limits.processes is None
        else limits.processes + _SUPERVISORS + (Control.LIMITS_PROCESSES in grouped),
        _NOFILE: limits.open_files,
        _MEMLOCK: _LOCKED_BYTES,
        _MSGQUEUE: _QUEUED_BYTES,
    }
    return tuple((resource, limit) for resource, limit in wanted.items() if limit is not None)


def _data(bound: int | None, *, is_grouped: bool) -> int | None:
    # Also behind a group: memory that is asked for and not used would count nowhere.
    return bound + bound // 4 + _UNUSED_BYTES if bound is not None and is_grouped else bound
