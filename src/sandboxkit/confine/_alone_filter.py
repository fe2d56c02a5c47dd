"""
What a box without namespaces must be refused on top of the filter of every box: calls
by which a process acts on others of its user, or on files, past Landlock.

Pure. A few instructions, assembled here; the kernel runs both filters and obeys the
stricter answer, so this one only refuses. Calls of a foreign architecture it lets
pass: the other filter kills them.

Source: seccomp(2), landlock(7) "LIMITATIONS", unix(7), sysvipc(7), mq_overview(7), inotify(7), fanotify(7).
"""

from __future__ import annotations

import errno
import struct
from functools import cache
from typing import TYPE_CHECKING

from sandboxkit.confine._rules import ALLOW, calls, refuse

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["AF_INET", "AF_INET6", "AF_NETLINK", "AF_UNIX", "alone_filter"]

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET, _TYPE_MASK = 1, 5, 0xF

_METADATA = (
    "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat "
    "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr"
).split()
"""
Changes of mode, owner, times and attributes, which Landlock does not decide about: on
any file of the user, named or not.
"""

_FILE_REQUESTS = (
    0x40086602,  # FS_IOC_SETFLAGS
    0x40046602,  # FS_IOC32_SETFLAGS
    0x40087602,  # FS_IOC_SETVERSION
    0x401C5820,  # FS_IOC_FSSETXATTR
    0x800C6613,  # FS_IOC_SET_ENCRYPTION_POLICY
    0x40806685,  # FS_IOC_ENABLE_VERITY, after which nobody can write the file any more
)
"""
Requests of ioctl(2) that change a file that is only open for reading.

Source: linux/fs.h, linux/fscrypt.h, linux/fsverity.h.
"""

_WATCHING = ("inotify_add_watch", "fanotify_mark")
"""
By these whoever may list a directory as a user learns the names of what is made, read and
changed in it. Landlock does not decide about them.
"""

_IPC = ("shmget shmat shmctl semget semop semctl semtimedop msgget msgsnd msgrcv msgctl mq_open mq_unlink").split()
"""
System V and POSIX queues, semaphores and memory: without a namespace of its own a box
would share them with every process of the user.
"""

_ON_PROCESSES: dict[str, tuple[tuple[int, int], ...]] = {
    "prlimit64": ((0, 0),),
    "sched_setaffinity": ((0, 0),),
    "sched_setattr": ((0, 0),),
    "sched_setparam": ((0, 0),),
    "sched_setscheduler": ((0, 0),),
    "setpriority": ((0, 0), (1, 0)),  # PRIO_PROCESS
    "ioprio_set": ((0, 1), (1, 0)),  # IOPRIO_WHO_PROCESS
}
"""
Calls that set what another process of the user may use, with the (argument, value) that
mean the caller itself. A processor time limit of a second would end it.
"""

# filter.h, seccomp.h: (code, jt, jf, k).
_LOAD, _AND, _IF_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_TOKENS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_Instruction = tuple[int, int, int, int]
_PASS: _Instruction = (_RETURN, 0, 0, ALLOW)


@cache
def alone_filter(arch: str, *, families: tuple[int, ...], allow_metadata: bool, allow_watching: bool = False) -> bytes:
    """
    The second filter, as classic BPF for the kernel.

    Args:
        arch: The machine, as `os.uname().machine` names it.
        families: Address families a socket may be made of; others answer EACCES.
            Without AF_UNIX, connected pairs can still be made, of the two types that
            can never be connected to anything else.
        allow_metadata: Whether mode, owner, times and attributes of files may be
            changed. Otherwise EPERM, except that an open file may be given the
            present time, as touch(1) does.
        allow_watching: Whether directories and files may be watched; otherwise EACCES.

    Raises:
        KeyError: *arch* is unknown.
    """
    numbers = {call.name: call.number for call in calls(arch)}
    refused = [*_IPC, *(() if allow_metadata else _METADATA)]
    blocks = [_block(numbers[name], [_no(errno.EPERM)]) for name in refused if name in numbers]
    if not allow_watching:
        blocks += [_block(numbers[name], [_no(errno.EACCES)]) for name in _WATCHING]
    blocks.append(_block(numbers["socket"], _one_of(0, 0xFFFFFFFF, families)))
    blocks += [_block(numbers[name], _own(arguments)) for name, arguments in _ON_PROCESSES.items()]
    if AF_UNIX not in families:
        blocks.append(_block(numbers["socketpair"], _one_of(1, _TYPE_MASK, (_STREAM, _SEQPACKET))))
    if not allow_metadata:
        blocks.append(_block(numbers["utimensat"], _present_time()))
        blocks.append(_block(numbers["ioctl"], _none_of(1, _FILE_REQUESTS)))
    instructions = [
        (_LOAD, 0, 0, _ARCH),
        (_IF_EQUAL, 1, 0, _TOKENS[arch]),
        _PASS,
        (_LOAD, 0, 0, _NUMBER),
        *(instruction for block in blocks for instruction in block),
        _PASS,
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in instructions)


def _no(number: int) -> _Instruction:
    return (_RETURN, 0, 0, refuse(number))


def _block(number: int, body: list[_Instruction]) -> list[_Instruction]:
    # Nothing falls out of it: behind a test, the number is no longer what is loaded.
    return [(_IF_EQUAL, 0, len(body), number), *body]


def _one_of(argument: int, mask: int, values: Collection[int]) -> list[_Instruction]:
    """
    Only where the `int` *argument* under *mask* is one of *values*.
    """
    body = [(_LOAD, 0, 0, _low(argument)), (_AND, 0, 0, mask)]
    for value in values:
        body += [(_IF_EQUAL, 0, 1, value), _PASS]
    return [*body, _no(errno.EACCES)]


def _none_of(argument: int, values: Collection[int]) -> list[_Instruction]:
    """
    Only where the `int` *argument* is none of *values*.
    """
    body: list[_Instruction] = [(_LOAD, 0, 0, _low(argument))]
    for value in values:
        body += [(_IF_EQUAL, 0, 1, value), _no(errno.EPERM)]
    return [*body, _PASS]


def _own(arguments: tuple[tuple[int, int], ...]) -> list[_Instruction]:
    """
    Only where every `int` argument has its value.
    """
    body: list[_Instruction] = [_PASS]
    for argument, value in reversed(arguments):
        body = [(_LOAD, 0, 0, _low(argument)), (_IF_EQUAL, 0, len(body), value), *body]
    return [*body, _no(errno.EPERM)]


def _present_time() -> list[_Instruction]:
    """
    Only where path and times are null pointers, over the whole width of a pointer.
    """
    halves = [half for argument in (1, 2) for half in (_low(argument), _low(argument) + 4)]
    body: list[_Instruction] = []
    for left, half in reversed(list(enumerate(halves))):
        body = [(_LOAD, 0, 0, half), (_IF_EQUAL, 0, 2 * (len(halves) - 1 - left) + 1, 0), *body]
    return [*body, _PASS, _no(errno.EPERM)]


def _low(argument: int) -> int:
    # Both architectures are little-endian: the low half of an argument comes first.
    return _ARGUMENTS + 8 * argument
