"""
The second filter of a box without namespaces, run as the kernel runs it, for both
architectures. The boxes of the backend's own tests run under it for real.
"""

from __future__ import annotations

import errno
import struct

import pytest

from sandboxkit.confine import AF_INET, AF_UNIX, ARCHITECTURES, alone_filter
from sandboxkit.confine._rules import ALLOW, calls, refuse

TOKENS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
EPERM, EACCES = refuse(errno.EPERM), refuse(errno.EACCES)
WIDE = 1 << 32


def answer(program: bytes, arch: str, call: str, *arguments: int) -> int:
    """
    What *program* says to a call. Source: Documentation/networking/filter.rst.
    """
    numbers = {row.name: row.number for row in calls(arch)}
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", numbers[call], TOKENS[arch], 0, *padded)
    instructions = list(struct.iter_unpack("<HBBI", program))
    accumulator = position = 0
    while True:
        code, if_true, if_false, k = instructions[position]
        position += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, k)
            case 0x54:
                accumulator &= k
            case 0x15:
                position += if_true if accumulator == k else if_false
            case 0x06:
                return int(k)
            case _:
                raise AssertionError(code)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("read", (0,), ALLOW),
        ("fchmodat", (), EPERM),
        ("fchown", (), EPERM),
        ("setxattr", (), EPERM),
        ("shmget", (), EPERM),
        ("mq_open", (), EPERM),
        ("utimensat", (3, 0, 0), ALLOW),
        ("utimensat", (3, 0, 1), EPERM),
        ("utimensat", (3, 1, 0), EPERM),
        ("utimensat", (3, WIDE, 0), EPERM),
        ("utimensat", (3, 0, WIDE), EPERM),
        ("ioctl", (3, 0x5401), ALLOW),
        ("ioctl", (3, 0x40086602), EPERM),
        ("ioctl", (3, WIDE | 0x40806685), EPERM),
        ("prlimit64", (0,), ALLOW),
        ("prlimit64", (WIDE,), ALLOW),
        ("prlimit64", (7,), EPERM),
        ("sched_setaffinity", (0,), ALLOW),
        ("sched_setaffinity", (7,), EPERM),
        ("setpriority", (0, 0), ALLOW),
        ("setpriority", (0, 7), EPERM),
        ("setpriority", (2, 0), EPERM),
        ("ioprio_set", (1, 0), ALLOW),
        ("ioprio_set", (1, 7), EPERM),
        ("ioprio_set", (3, 0), EPERM),
        ("socket", (AF_UNIX, 1), EACCES),
        ("socket", (AF_INET, 1), EACCES),
        ("socketpair", (AF_UNIX, 1), ALLOW),
        ("socketpair", (AF_UNIX, 5 | 0o2000000), ALLOW),
        ("socketpair", (AF_UNIX, 2), EACCES),
    ],
)
def test_the_strict_filter(arch: str, call: str, arguments: tuple[int, ...], expected: int) -> None:
    program = alone_filter(arch, families=(), allow_metadata=False)
    assert answer(program, arch, call, *arguments) == expected


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_families_and_modes_where_they_are_permitted(arch: str) -> None:
    program = alone_filter(arch, families=(AF_UNIX, AF_INET), allow_metadata=True)
    for call, arguments in [
        ("socket", (AF_UNIX,)),
        ("socket", (AF_INET,)),
        ("socketpair", (AF_UNIX, 2)),
        ("fchmodat", ()),
        ("utimensat", (3, 1, 1)),
        ("ioctl", (3, 0x40086602)),
    ]:
        assert answer(program, arch, call, *arguments) == ALLOW
    assert answer(program, arch, "socket", 10) == EACCES


def test_calls_of_a_foreign_architecture_are_the_other_filters_matter() -> None:
    program = alone_filter("x86_64", families=(), allow_metadata=False)
    assert answer(program, "aarch64", "fchown") == ALLOW
