"""
The two seccomp filters of an evaluation worker, as bytes for the kernel.

An evaluation worker runs no program and opens no file, so it needs a few dozen calls and
not the few hundred of a box. Two filters lie on each other: the wide one holds for the
process that waits for requests and forks, and the narrow one is added in every fork
before it reads a byte of what it is to evaluate. A filter can never be taken away again,
and of two the stricter answer counts.

Pure: the numbers are those of `data/syscalls.toml`.

Source: seccomp(2), linux/filter.h.
"""

from __future__ import annotations

import errno
import struct
from functools import cache
from typing import TYPE_CHECKING

from sandboxkit.confine._rules import ALLOW, KILL, calls, refuse
from sandboxkit.confine._seccomp import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CONVERSATION_FD", "NARROW_CALLS", "WIDE_CALLS", "narrow_filters"]

CONVERSATION_FD = 3
"""The one descriptor a worker may read from and write to."""

NARROW_CALLS = (
    "brk clock_gettime clock_nanosleep exit exit_group futex getpid getrandom gettid gettimeofday "
    "madvise mremap munmap restart_syscall rt_sigprocmask rt_sigreturn sched_yield sigaltstack"
).split()
"""What CPython needs to compute and to end, whatever the arguments are."""

WIDE_CALLS = (
    "close close_range dup2 dup3 fcntl getppid pidfd_open poll ppoll prctl prlimit64 recvmsg rseq rt_sigaction seccomp "
    "sendmsg sendto set_robust_list set_tid_address setitimer setrlimit shutdown wait4"
).split()
"""
What is needed besides to take requests, to fork, and to give rights up in the fork.
None of it opens anything; prlimit64 and pidfd_open reach other processes of the same
user, which is why a worker loses them.
"""

_LOAD, _AND, _IF_EQUAL, _IF_BITS, _RETURN = 0x20, 0x54, 0x15, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_X32 = 0x40000000
_PROT_EXEC = 4
_SIGCHLD = 17
_FORK_FLAGS = 0x01000000 | 0x00200000  # CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID: glibc's fork()
_DENY = refuse(errno.EPERM)

_Instruction = tuple[int, int, int, int]


@cache
def narrow_filters(arch: str) -> tuple[bytes, bytes]:
    """
    The (wide, narrow) filters for *arch*, as classic BPF for seccomp(2).

    What neither names answers EPERM; a call of another architecture or of x32 kills.
    Under the narrow one read and write work on `CONVERSATION_FD` alone, no memory can be
    made executable, and no process, thread, file or socket can be made or reached.

    Args:
        arch: The machine, as `os.uname().machine` names it.

    Raises:
        LookupError: There is no table for *arch*.
    """
    if arch not in ARCHITECTURES:
        raise LookupError(
            f"there is no seccomp filter for the architecture {arch!r}; there is one for {' and '.join(ARCHITECTURES)}"
        )
    numbers = {call.name: call.number for call in calls(arch)}
    narrow = [numbers[name] for name in NARROW_CALLS if name in numbers]
    wide = [numbers[name] for name in WIDE_CALLS if name in numbers]
    without_exec = [numbers["mmap"], numbers["mprotect"]]
    ours = [numbers["read"], numbers["write"]]
    return (
        _program(arch, [*_forks(numbers), *_no_exec(without_exec), *_any([*ours, *narrow, *wide])]),
        _program(arch, [*_on_conversation(ours), *_no_exec(without_exec), *_any(narrow)]),
    )


def _program(arch: str, body: list[_Instruction]) -> bytes:
    instructions = [
        (_LOAD, 0, 0, _ARCH),
        (_IF_EQUAL, 1, 0, _AUDIT_ARCH[arch]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_IF_BITS, 0, 1, _X32),
        (_RETURN, 0, 0, KILL),
        *body,
        (_RETURN, 0, 0, _DENY),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in instructions)


def _any(numbers: list[int]) -> Iterator[_Instruction]:
    for number in numbers:
        yield (_IF_EQUAL, 0, 1, number)
        yield (_RETURN, 0, 0, ALLOW)


def _on_conversation(numbers: list[int]) -> Iterator[_Instruction]:
    for number in numbers:
        yield (_IF_EQUAL, 0, 4, number)
        yield (_LOAD, 0, 0, _ARGUMENTS)
        yield (_IF_EQUAL, 0, 1, CONVERSATION_FD)
        yield (_RETURN, 0, 0, ALLOW)
        yield (_RETURN, 0, 0, _DENY)


def _no_exec(numbers: list[int]) -> Iterator[_Instruction]:
    for number in numbers:
        yield (_IF_EQUAL, 0, 4, number)
        yield (_LOAD, 0, 0, _ARGUMENTS + 8 * 2)
        yield (_IF_BITS, 0, 1, _PROT_EXEC)
        yield (_RETURN, 0, 0, _DENY)
        yield (_RETURN, 0, 0, ALLOW)


def _forks(numbers: dict[str, int]) -> Iterator[_Instruction]:
    # A fork and nothing else: no thread, no namespace. `fork` itself takes no flags.
    if "fork" in numbers:
        yield from _any([numbers["fork"]])
    yield (_IF_EQUAL, 0, 5, numbers["clone"])
    yield (_LOAD, 0, 0, _ARGUMENTS)
    yield (_AND, 0, 0, 0xFFFFFFFF ^ _FORK_FLAGS)
    yield (_IF_EQUAL, 0, 1, _SIGCHLD)
    yield (_RETURN, 0, 0, ALLOW)
    yield (_RETURN, 0, 0, _DENY)
