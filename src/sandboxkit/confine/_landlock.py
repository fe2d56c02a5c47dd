"""
Which Landlock rights a box gets: paths and the kernel's ABI to `LandlockRules`.

Pure. The rights are numbers of the kernel's interface, as a table by ABI; the child
in the box hands them to the kernel. The `landlock` package has the same names for the
file rights (a test compares them), no TCP rights and no scopes, and loads ctypes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from sandboxkit.model import LandlockRules

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ABI", "AbiLevel", "FsAccess", "NetAccess", "Scope", "landlock_rules"]


class FsAccess(IntFlag):
    """
    LANDLOCK_ACCESS_FS_*: what may be done with files.

    Source: include/uapi/linux/landlock.h.
    """

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15
    RESOLVE_UNIX = 1 << 16


class NetAccess(IntFlag):
    """
    LANDLOCK_ACCESS_NET_*: what may be done with TCP.

    Source: include/uapi/linux/landlock.h.
    """

    BIND_TCP = 1 << 0
    CONNECT_TCP = 1 << 1


class Scope(IntFlag):
    """
    LANDLOCK_SCOPE_*: what may not reach out of the box.

    Source: include/uapi/linux/landlock.h.
    """

    ABSTRACT_UNIX_SOCKET = 1 << 0
    SIGNAL = 1 << 1


@dataclass(frozen=True, slots=True)
class AbiLevel:
    """
    What one Landlock ABI added.

    Attributes:
        abi: The number landlock_create_ruleset(2) reports.
        kernel: The kernel it came with.
        fs: New file rights, bits of `FsAccess`.
        net: New TCP rights, bits of `NetAccess`.
        scoped: New scopes, bits of `Scope`.
    """

    abi: int
    kernel: str
    fs: int = 0
    net: int = 0
    scoped: int = 0


ABI = (
    AbiLevel(1, "5.13", fs=FsAccess.REFER - 1),
    AbiLevel(2, "5.19", fs=FsAccess.REFER),  # before, nothing can be moved between directories
    AbiLevel(3, "6.2", fs=FsAccess.TRUNCATE),  # before, truncate(2) is not held back at all
    AbiLevel(4, "6.7", net=NetAccess.BIND_TCP | NetAccess.CONNECT_TCP),
    AbiLevel(5, "6.10", fs=FsAccess.IOCTL_DEV),
    AbiLevel(6, "6.12", scoped=Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL),
    AbiLevel(7, "6.15"),  # flags for the audit log
    AbiLevel(8, "7.0"),  # restricts all threads at once; the child has one
    AbiLevel(9, "7.1", fs=FsAccess.RESOLVE_UNIX),  # before, any visible socket can be connected to
)
"""
Landlock by ABI. A kernel with a newer one is used as the last row.

Source: Documentation/userspace-api/landlock.rst, "Previous limitations".
"""

_READ = FsAccess.EXECUTE | FsAccess.READ_FILE | FsAccess.READ_DIR
_DEVICE = FsAccess.READ_FILE | FsAccess.READ_DIR | FsAccess.WRITE_FILE | FsAccess.TRUNCATE | FsAccess.IOCTL_DEV
# Everything but device nodes, which a box cannot make anyway, and ioctl on them.
_WRITE = ~(FsAccess.MAKE_CHAR | FsAccess.MAKE_BLOCK | FsAccess.IOCTL_DEV)


def landlock_rules(
    abi: int,
    *,
    readable: Iterable[str] = (),
    writable: Iterable[str] = (),
    devices: Iterable[str] = (),
    handle_tcp: bool = False,
) -> LandlockRules | None:
    """
    The domain for a box on a kernel with *abi*; None for 0, a kernel without Landlock.

    Rights add up: a writable directory in a readable one is writable, and nothing in
    a writable one can be taken away again. What no path covers answers EACCES.
    Signals and abstract sockets do not leave the box from ABI 6 on. Every right a
    directory can have is given; for a path that turns out to be a file, whoever
    applies the rule leaves out those of directories, which the kernel refuses there.

    It does not hold back stat, chmod, chown, utime, xattrs or chdir. `ABI` says what
    older kernels do not hold back either.

    Args:
        abi: What landlock_create_ruleset(2) reports.
        readable: Read, list and execute. Paths in the box.
        writable: Also write, create, remove and rename within and between them, and
            connect to sockets.
        devices: Read and write what is there, with ioctl; create nothing. For /dev,
            and for /proc, where programs write their own settings.
        handle_tcp: Refuses bind and connect on every TCP port, loopback too, from
            ABI 4 on. Not for a box with a network namespace of its own, where
            loopback is to work.

    Source: landlock(7).
    """
    known = [level for level in ABI if level.abi <= abi]
    if not known:
        return None
    handled = reduce(or_, (level.fs for level in known))
    granted: dict[str, int] = {}
    for paths, rights in ((readable, _READ), (writable, _WRITE), (devices, _DEVICE)):
        for path in paths:
            granted[path] = granted.get(path, 0) | rights & handled
    # Plain integers: an IntFlag is not one to marshal, which carries them to the child.
    return LandlockRules(
        handled_fs=int(handled),
        handled_net=int(reduce(or_, (level.net for level in known))) if handle_tcp else 0,
        scoped=int(reduce(or_, (level.scoped for level in known))),
        paths=tuple((path, int(granted[path])) for path in sorted(granted)),
    )
