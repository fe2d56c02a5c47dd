"""
What a seccomp filter answers to a call: the program run again, outside the kernel.

It tells a refusal of the box's own filter from one of the kernel: the error number alone
does not. The broker uses it too: standard library only, imports nothing of the package.

Source: seccomp(2), Documentation/networking/filter.rst.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False  # as in typing, whose import is spared
if TYPE_CHECKING:
    from collections.abc import Callable

REFUSES = 0x00050000
"""SECCOMP_RET_ERRNO; its low half is the error number."""
ALLOWS = 0x7FFF0000
"""SECCOMP_RET_ALLOW."""
TOKENS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""linux/audit.h: AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64."""


def answer(program: bytes, machine: str, number: int, arguments: tuple[int, ...]) -> int:
    """
    The value the classic BPF *program* returns for call *number* with six *arguments*.

    Args:
        program: Instructions of 8 bytes each.
        machine: The architecture of the caller, as uname(2) names it.
        number: The call.
        arguments: Its registers.

    Raises:
        ValueError: It holds an instruction that no filter of this library has, or runs
            past its end.
    """
    words = struct.unpack("<16I", struct.pack("<IIQ6Q", number, TOKENS[machine], 0, *arguments))
    accumulator, at = 0, 0
    while at * 8 < len(program):
        code, if_true, if_false, k = struct.unpack_from("<HBBI", program, at * 8)
        at += 1
        if code == 0x06:
            return int(k)
        if code == 0x20:
            accumulator = words[k // 4]
        elif code == 0x54:
            accumulator &= k
        elif code == 0x05:
            at += k
        elif code in _TESTS:
            at += if_true if _TESTS[code](accumulator, k) else if_false
        else:
            raise ValueError(f"instruction {code:#x} is none of a filter's")
    raise ValueError("the filter has no end")


_TESTS: dict[int, Callable[[int, int], bool]] = {
    0x15: lambda accumulator, k: accumulator == k,
    0x25: lambda accumulator, k: accumulator > k,
    0x35: lambda accumulator, k: accumulator >= k,
    0x45: lambda accumulator, k: bool(accumulator & k),
}


def filter_refuses(
    programs: tuple[bytes, ...], machine: str, number: int, arguments: tuple[int, ...], error: int
) -> bool:
    """
    Whether one of *programs* answers the call with *error*.
    """
    return any(answer(program, machine, number, arguments) == REFUSES | error for program in programs)


def filter_allows(program: bytes, machine: str, number: int, arguments: tuple[int, ...]) -> bool:
    """
    Whether *program* lets the call pass.
    """
    return answer(program, machine, number, arguments) == ALLOWS
