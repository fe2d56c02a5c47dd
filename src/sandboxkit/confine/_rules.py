"""
What a box may ask of the kernel: the table of system calls turned into filter rules.

Pure: from `data/syscalls.toml` and two switches to a list of rules. `_bake` compiles
them, `_seccomp` hands out the result.
"""

from __future__ import annotations

import errno
import pkgutil
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from sandboxkit.confine._seccomp import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

__all__ = ["ALLOW", "DEFAULT", "KILL", "Call", "Rule", "Test", "calls", "refuse", "rules"]

ALLOW = 0x7FFF0000
KILL = 0x80000000
"""
What a call of another architecture, or of x32, gets: SIGSYS for the whole process.
Killing only the thread would leave the others waiting for it.
"""


def refuse(number: int) -> int:
    """
    The action that answers with error *number*.

    Source: seccomp(2), SECCOMP_RET_ERRNO.
    """
    return 0x00050000 | number


DEFAULT = refuse(errno.ENOSYS)
_REFUSED = refuse(errno.EPERM)


@dataclass(frozen=True, slots=True)
class Call:
    """
    A row of the table.

    Attributes:
        name: The call, as the kernel's tables spell it.
        number: Its number on one architecture.
        since: The kernel it came with.
        rule: What is done with it; the table's head lists the words.
    """

    name: str
    number: int
    since: tuple[int, ...]
    rule: str


@dataclass(frozen=True, slots=True)
class Test:
    """
    Whether the low 32 bits of an argument, under *mask*, equal *value*.

    Every argument that is tested is an `int` in the kernel, or shorter. The upper half
    of its register means nothing there, and a filter that compared it could be passed
    by setting a bit in it.
    """

    argument: int
    mask: int
    value: int


@dataclass(frozen=True, slots=True)
class Rule:
    """
    What is done with a call when all *tests* hold. Rules of one call never overlap
    with different actions, so their order does not matter.
    """

    call: Call
    action: int
    tests: tuple[Test, ...] = ()


@cache
def calls(arch: str) -> tuple[Call, ...]:
    """
    The table's rows for *arch*, by number; none for an architecture it does not have.
    """
    table = tomllib.loads((pkgutil.get_data(__package__, TABLE) or b"").decode())
    rows = (
        Call(name, row[arch], tuple(int(part) for part in row["since"].split(".")), row.get("rule", "allow"))
        for name, row in table.items()
        if arch in row
    )
    return tuple(sorted(rows, key=lambda call: call.number))


def rules(arch: str, *, allow_ptrace: bool, allow_nested_userns: bool) -> tuple[Rule, ...]:
    """
    Every rule of a filter for *arch*. A call without one gets `DEFAULT`.

    Raises:
        LookupError: The table has a rule nobody knows.
    """
    allowed = {"allow"}
    if allow_ptrace:
        allowed.add("ptrace")
    if allow_nested_userns:
        allowed |= {"namespace", "clone", "clone3", "unshare"}
    return tuple(rule for call in calls(arch) for rule in _rules_of(call, call.rule in allowed))


def _rules_of(call: Call, is_allowed: bool) -> Iterator[Rule]:
    if is_allowed:
        yield Rule(call, ALLOW)
    elif call.rule in ("refused", "ptrace", "namespace"):
        yield Rule(call, _REFUSED)
    elif call.rule not in ("absent", "clone3"):
        yield from _BY_ARGUMENT[call.rule](call)


_INT = 0xFFFFFFFF


def _is(argument: int, value: int) -> Test:
    return Test(argument, _INT, value)


def _blocks_without(values: Collection[int]) -> Iterator[tuple[int, int]]:
    # Every 32-bit number but *values*, as the fewest (mask, value) blocks, the small
    # ones first. libseccomp has no "unless": it drops the conditional rules of a call
    # that also has an unconditional one. Blocks do not overlap, so that cannot happen.
    for bit in range(32):
        mask = _INT >> bit << bit
        held = {value & mask for value in values}
        for block in sorted({value ^ 1 << bit for value in held} - held):
            yield mask, block


def _except(call: Call, argument: int, refused: Collection[int], number: int) -> Iterator[Rule]:
    # All values but *refused* are allowed.
    for value in refused:
        yield Rule(call, refuse(number), (_is(argument, value),))
    for mask, value in _blocks_without(refused):
        yield Rule(call, ALLOW, (Test(argument, mask, value),))


# sched.h. CLONE_NEWTIME shares its bit with the exit signal of clone(2), which
# therefore cannot make time namespaces.
_NEW_NAMESPACES = {
    "CLONE_NEWNS": 0x00020000,
    "CLONE_NEWCGROUP": 0x02000000,
    "CLONE_NEWUTS": 0x04000000,
    "CLONE_NEWIPC": 0x08000000,
    "CLONE_NEWUSER": 0x10000000,
    "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
}
_CLONE_NEWTIME = 0x00000080


def _without(call: Call, argument: int, flags: Collection[int], *given: Test) -> Iterator[Rule]:
    # Where *given* holds, none of *flags* may be set.
    for flag in flags:
        yield Rule(call, _REFUSED, (*given, Test(argument, flag, flag)))
    yield Rule(call, ALLOW, (*given, Test(argument, sum(flags), 0)))


# The flags are argument 0 of clone and unshare, on both architectures.
def _clone(call: Call) -> Iterator[Rule]:
    return _without(call, 0, _NEW_NAMESPACES.values())


def _unshare(call: Call) -> Iterator[Rule]:
    return _without(call, 0, [*_NEW_NAMESPACES.values(), _CLONE_NEWTIME])


# stat.h: S_ISUID, S_ISGID. What a box leaves in its workspace belongs, on the host, to
# the workspace's owner, who may be root: with the mark, whoever reaches the file there
# runs it as that owner. no_new_privs and nosuid hold only inside. mkdir and mkdirat may
# be asked for the marks, the kernel leaves them out (fs/namei.c, vfs_mkdir).
_MARKS = (0o4000, 0o2000)
_MODE_ARGUMENT = {
    "chmod": 1,
    "creat": 1,
    "fchmod": 1,
    "fchmodat": 2,
    "fchmodat2": 2,
    "mknod": 1,
    "mknodat": 2,
    "open": 2,
    "openat": 3,
}
# fcntl.h: O_CREAT, __O_TMPFILE; only with one of them is there a mode, otherwise the
# register holds whatever it held before. O_TMPFILE itself has O_DIRECTORY in it, which
# arm64 numbers differently; these two it takes from asm-generic.
_CREATING = (0o100, 0o20000000)


def _mode(call: Call) -> Iterator[Rule]:
    return _without(call, _MODE_ARGUMENT[call.name], _MARKS)


def _open(call: Call) -> Iterator[Rule]:
    mode = _MODE_ARGUMENT[call.name]
    flags = mode - 1
    yield Rule(call, ALLOW, (Test(flags, sum(_CREATING), 0),))
    for flag in _CREATING:
        yield from _without(call, mode, _MARKS, Test(flags, flag, flag))


# socket.h, netlink.h. AF_VSOCK reaches the hypervisor past any network namespace,
# AF_PACKET raw frames; the others, AF_ALG among them, are kernel code hardly anything
# needs. Of netlink, getifaddrs and `ip` need the routing protocol. libaudit goes on
# without the audit protocol on EPROTONOSUPPORT, and aborts on ENOSYS.
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE = 0


def _families(call: Call, families: Collection[int], others: Collection[int]) -> Iterator[Rule]:
    for family in families:
        yield Rule(call, ALLOW, (_is(0, family),))
    for mask, value in _blocks_without([*families, *others]):
        yield Rule(call, refuse(errno.EAFNOSUPPORT), (Test(0, mask, value),))


def _socket(call: Call) -> Iterator[Rule]:
    yield from _families(call, (_AF_UNIX, _AF_INET, _AF_INET6), (_AF_NETLINK,))
    netlink = _is(0, _AF_NETLINK)
    yield Rule(call, ALLOW, (netlink, _is(2, _NETLINK_ROUTE)))
    for mask, value in _blocks_without([_NETLINK_ROUTE]):
        yield Rule(call, refuse(errno.EPROTONOSUPPORT), (netlink, Test(2, mask, value)))


def _socketpair(call: Call) -> Iterator[Rule]:
    return _families(call, (_AF_UNIX, _AF_INET, _AF_INET6), ())


# ioctls.h, tiocl.h. TIOCSTI types into a terminal, TIOCLINUX pastes into a console:
# both make the shell outside run what the box wrote (CVE-2017-5226, CVE-2023-28100).
# TIOCSETD loads line disciplines, kernel code with a history (CVE-2017-2636).
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423


def _ioctl(call: Call) -> Iterator[Rule]:
    return _except(call, 1, (_TIOCSTI, _TIOCLINUX, _TIOCSETD), errno.EPERM)


# personality.h: PER_LINUX, PER_LINUX32, UNAME26 and ADDR_NO_RANDOMIZE (debuggers and
# sanitizers) in any combination, and the query. Others weaken the process, such as
# READ_IMPLIES_EXEC and MMAP_PAGE_ZERO, and answer ENOSYS.
_PERSONALITIES = 0x0008 | 0x0020000 | 0x0040000
_QUERY = 0xFFFFFFFF


def _personality(call: Call) -> Iterator[Rule]:
    yield Rule(call, ALLOW, (Test(0, _INT & ~_PERSONALITIES, 0),))
    yield Rule(call, ALLOW, (_is(0, _QUERY),))


_BY_ARGUMENT: dict[str, Callable[[Call], Iterator[Rule]]] = {
    "clone": _clone,
    "ioctl": _ioctl,
    "mode": _mode,
    "open": _open,
    "personality": _personality,
    "socket": _socket,
    "socketpair": _socketpair,
    "unshare": _unshare,
}
