"""
The filters of evaluation workers, as programs. What they do to a process is tested with
the worker itself, in tests/evaluation/test_confinement.py.
"""

from __future__ import annotations

import errno
import struct

import pytest

from sandboxkit.confine import ARCHITECTURES, CONVERSATION_FD, narrow_filters
from sandboxkit.confine._narrow import NARROW_CALLS, WIDE_CALLS
from sandboxkit.confine._rules import ALLOW, KILL, calls, refuse

LOAD, AND, IF_EQUAL, IF_BITS, RETURN = 0x20, 0x54, 0x15, 0x45, 0x06
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
DENY = refuse(errno.EPERM)


def answer(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """
    What the kernel does with a call, by running *program* as it would.
    """
    data = struct.pack("<IIQ6Q", number, arch, 0, *(*arguments, *(0,) * (6 - len(arguments))))
    instructions = list(struct.iter_unpack("<HBBI", program))
    at = held = 0
    while True:
        code, if_true, if_false, value = instructions[at]
        at += 1
        if code == LOAD:
            held = int.from_bytes(data[value : value + 4], "little")
        elif code == AND:
            held &= value
        elif code == RETURN:
            return int(value)
        else:
            holds = held == value if code == IF_EQUAL else bool(held & value)
            at += if_true if holds else if_false


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_narrow_filter_allows_its_list_and_nothing_else(arch: str) -> None:
    _, narrow = narrow_filters(arch)
    for call in calls(arch):
        expected = ALLOW if call.name in (*NARROW_CALLS, "mmap", "mprotect") else DENY
        assert answer(narrow, AUDIT_ARCH[arch], call.number, 99) == expected, call.name


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_wide_filter_allows_receiving_and_forking_besides(arch: str) -> None:
    wide, _ = narrow_filters(arch)
    allowed = {*NARROW_CALLS, *WIDE_CALLS, "read", "write", "mmap", "mprotect", "fork"}
    for call in calls(arch):
        expected = ALLOW if call.name in allowed else DENY
        assert answer(wide, AUDIT_ARCH[arch], call.number) == expected, call.name
    clone = next(call.number for call in calls(arch) if call.name == "clone")
    for flags, expected in ((17, ALLOW), (0x01200011, ALLOW), (0x10000011, DENY), (0x3D0F00, DENY), (0x00000111, DENY)):
        assert answer(wide, AUDIT_ARCH[arch], clone, flags) == expected


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_arguments_are_looked_at(arch: str) -> None:
    numbers = {call.name: call.number for call in calls(arch)}
    wide, narrow = narrow_filters(arch)
    for name in ("read", "write"):
        for fd in range(64):
            expected = ALLOW if fd == CONVERSATION_FD else DENY
            assert answer(narrow, AUDIT_ARCH[arch], numbers[name], fd) == expected
    for name in ("mmap", "mprotect"):
        for protection in range(8):
            expected = DENY if protection & 4 else ALLOW
            for program in (wide, narrow):
                assert answer(program, AUDIT_ARCH[arch], numbers[name], 0, 4096, protection) == expected


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_another_architecture_is_killed(arch: str) -> None:
    for program in narrow_filters(arch):
        assert answer(program, 0x40000003, 1) == KILL  # i386
        assert answer(program, AUDIT_ARCH[arch], 0x40000000 | 1) == KILL  # x32


def test_there_is_none_for_others() -> None:
    with pytest.raises(LookupError, match="riscv64"):
        narrow_filters("riscv64")
