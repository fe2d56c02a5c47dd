"""
The compiled filters decide as the table says, for every call on both architectures.

The programs are run by a small interpreter here, so those of a foreign architecture
are tested too, with more arguments than real calls could be made with.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import itertools
import random
import shutil
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyseccomp
import pytest

import sandboxkit.confine
from sandboxkit.confine import ARCHITECTURES, _bake, _seccomp, seccomp_filter
from sandboxkit.confine._rules import Call, calls
from sandboxkit.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ALLOW = 0x7FFF0000
KILL = 0x80000000
ENOSYS, EPERM = 0x50000 | errno.ENOSYS, 0x50000 | errno.EPERM
TOKENS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "i386": 0x40000003, "arm": 0x40000028}
X32 = 0x40000000
VARIANTS = list(itertools.product(ARCHITECTURES, (False, True), (False, True)))

BAKED_WITH = (2, 5)
BY_ARGUMENT = {"clone", "unshare", "socket", "socketpair", "ioctl", "personality"}
MODE_AT = {
    **dict.fromkeys(("chmod", "creat", "fchmod", "mknod"), 1),
    **dict.fromkeys(("fchmodat", "fchmodat2", "mknodat", "open"), 2),
    "openat": 3,
}
MODES = (0, 0o644, 0o777, 0o1777, 0o2000, 0o2755, 0o4000, 0o4755, 0o6000, 0o7777, 0o100644, 0o102644, 0o104644)
FLAGS = (0, 1, 2, 0o77, 0o100, 0o101, 0o1102, 0o20000000, 0o20200002, 0o20040001, 0o20000100, 0o200000, 0o57777677)
NEW = 0x7E020000
HIGH = (0, 1 << 32, 0xFFFFFFFF << 32)
PLAIN = [*range(48), 0x5401, 0x5412, 0x5413, 0x541B, 0x541C, 0x541D, 0x5422, 0x5423, 0x5424, 0xFFFFFFFF, 0x7FFFFFFF]
BITS = [1 << bit for bit in range(32)]
GIVEN = [0x3D0F00, 0x4111, 0x1200011, 0x60008, 0x40008, 0x20008, 0x400000, 0x400008, 0x80045430, 0x1005412]


Arguments = tuple[int, int, int, int]


def arguments() -> list[Arguments]:
    chance = random.Random(7)
    values = [*PLAIN, *BITS, *GIVEN, *(chance.getrandbits(32) for _ in range(200))]
    first = [(value | high, value | high, third, value | high) for value in values for high in HIGH for third in (0, 9)]
    netlink = [(16 | high, 0, value | other, 0) for value in values for high in HIGH for other in HIGH]
    return first + netlink


def creating(at: int) -> Iterator[Arguments]:
    """
    Every flag and mode with the mode as argument *at* and the flags before it.
    """
    pairs = [*itertools.product((*FLAGS, *BITS), MODES), *itertools.product(FLAGS, BITS)]
    for (flags, mode), high, other in itertools.product(pairs, HIGH, (0, 0xFFFFFFFF)):
        before = [other] * (at - 1)
        one, two, three, four, *_ = *before, flags | high, mode | high, other, other
        yield one, two, three, four


ARGUMENTS = arguments()


class Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint), ("minor", ctypes.c_uint), ("micro", ctypes.c_uint))


def libseccomp_version() -> tuple[int, int]:
    function = pyseccomp._libseccomp.seccomp_version
    function.restype = ctypes.POINTER(Version)
    return function().contents.major, function().contents.minor


def interpret(program: bytes, arch: int, number: int, args: tuple[int, ...] = ()) -> int:
    """
    What the classic BPF *program* returns for a call.

    Source: seccomp(2), Documentation/networking/filter.rst.
    """
    data = struct.pack("<IIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    words = struct.unpack("<16I", data)
    accumulator, at = 0, 0
    while True:
        code, when_true, when_false, k = struct.unpack_from("<HBBI", program, at * 8)
        at += 1
        match code:
            case 0x20:
                accumulator = words[k // 4]
            case 0x54:
                accumulator &= k
            case 0x05:
                at += k
            case 0x15:
                at += when_true if accumulator == k else when_false
            case 0x25:
                at += when_true if accumulator > k else when_false
            case 0x35:
                at += when_true if accumulator >= k else when_false
            case 0x45:
                at += when_true if accumulator & k else when_false
            case 0x06:
                return int(k)
            case _:
                raise AssertionError(f"instruction {code:#x}")


def expected(call: Call, args: Arguments, ptrace: bool, userns: bool) -> int:
    """
    The decision, written down a second time and without masks or blocks.
    """
    one, two, three, _ = low = [value & 0xFFFFFFFF for value in args]
    match call.rule:
        case "allow":
            return ALLOW
        case "absent":
            return ENOSYS
        case "refused":
            return EPERM
        case "ptrace":
            return ALLOW if ptrace else EPERM
        case "namespace":
            return ALLOW if userns else EPERM
        case "clone3":
            return ALLOW if userns else ENOSYS
        case "clone":
            return EPERM if one & NEW and not userns else ALLOW
        case "unshare":
            return EPERM if one & (NEW | 0x80) and not userns else ALLOW
        case "mode" | "open":
            at = MODE_AT[call.name]
            makes = call.rule == "mode" or low[at - 1] // 0o100 % 2 or low[at - 1] // 0o20000000 % 2
            return EPERM if makes and low[at] // 0o2000 % 4 else ALLOW
        case "ioctl":
            return EPERM if two in (0x5412, 0x541C, 0x5423) else ALLOW
        case "personality":
            return (
                ALLOW
                if one in {*(a | b | c for a in (0, 8) for b in (0, 0x20000) for c in (0, 0x40000)), 0xFFFFFFFF}
                else ENOSYS
            )
        case "socketpair":
            return ALLOW if one in (1, 2, 10) else 0x50000 | errno.EAFNOSUPPORT
        case "socket" if one == 16:
            return ALLOW if three == 0 else 0x50000 | errno.EPROTONOSUPPORT
        case "socket":
            return ALLOW if one in (1, 2, 10) else 0x50000 | errno.EAFNOSUPPORT
        case _:
            raise AssertionError(call)


def tried(call: Call) -> Iterable[Arguments]:
    if call.name in MODE_AT:
        return creating(MODE_AT[call.name])
    return ARGUMENTS if call.rule in BY_ARGUMENT else ARGUMENTS[:3]


def assert_decides(program: bytes, arch: str, ptrace: bool, userns: bool) -> None:
    for call in calls(arch):
        for args in tried(call):
            assert interpret(program, TOKENS[arch], call.number, args) == expected(call, args, ptrace, userns), (
                call,
                args,
            )


@pytest.mark.parametrize(("arch", "ptrace", "userns"), VARIANTS)
def test_every_call_is_decided_as_the_table_says(arch: str, ptrace: bool, userns: bool) -> None:
    assert_decides(seccomp_filter(arch, allow_ptrace=ptrace, allow_nested_userns=userns), arch, ptrace, userns)


@pytest.mark.parametrize(("arch", "ptrace", "userns"), VARIANTS)
def test_a_number_nobody_knows_is_absent(arch: str, ptrace: bool, userns: bool) -> None:
    program = seccomp_filter(arch, allow_ptrace=ptrace, allow_nested_userns=userns)
    known = {call.number for call in calls(arch)}
    for number in [*range(600), 1 << 20, X32 - 1, 0xFFFFFFFF]:
        if number not in known:
            assert interpret(program, TOKENS[arch], number) == ENOSYS, number


@pytest.mark.parametrize(("arch", "ptrace", "userns"), VARIANTS)
def test_another_architecture_dies(arch: str, ptrace: bool, userns: bool) -> None:
    program = seccomp_filter(arch, allow_ptrace=ptrace, allow_nested_userns=userns)
    for foreign in TOKENS.keys() - {arch}:
        assert {interpret(program, TOKENS[foreign], number) for number in range(600)} == {KILL}, foreign


@pytest.mark.parametrize(("ptrace", "userns"), [(False, False), (False, True), (True, False), (True, True)])
def test_x32_dies(ptrace: bool, userns: bool) -> None:
    program = seccomp_filter("x86_64", allow_ptrace=ptrace, allow_nested_userns=userns)
    assert {interpret(program, TOKENS["x86_64"], X32 | number) for number in range(600)} == {KILL}


@pytest.mark.parametrize(("arch", "ptrace", "userns"), VARIANTS)
def test_what_is_shipped_is_what_libseccomp_makes_of_the_table(arch: str, ptrace: bool, userns: bool) -> None:
    shipped = seccomp_filter(arch, allow_ptrace=ptrace, allow_nested_userns=userns)
    built = _bake.build(arch, allow_ptrace=ptrace, allow_nested_userns=userns)
    if libseccomp_version() == BAKED_WITH:
        assert built == shipped, "run: python -m sandboxkit.confine._bake"
    else:  # another version may order the instructions in another way
        assert_decides(built, arch, ptrace, userns)


@pytest.mark.parametrize(("arch", "ptrace", "userns"), VARIANTS)
def test_the_kernel_takes_its_size(arch: str, ptrace: bool, userns: bool) -> None:
    program = seccomp_filter(arch, allow_ptrace=ptrace, allow_nested_userns=userns)
    assert len(program) % 8 == 0
    assert len(program) // 8 <= 4096  # BPF_MAXINSNS


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(LookupError, match=r"'riscv64'; there is one for x86_64 and aarch64"):
        seccomp_filter("riscv64", allow_ptrace=True, allow_nested_userns=False)


def test_the_checksums_are_those_of_the_files() -> None:
    room = Path(sandboxkit.confine.__file__).parent
    rows = [line.split("  ") for line in (room / _seccomp.SUMS).read_text().splitlines()]
    shipped = {f"data/{path.name}" for path in (room / "data").iterdir()} - {_seccomp.SUMS}
    assert {name for _, name in rows} == shipped
    assert {name: hashlib.sha256((room / name).read_bytes()).hexdigest() for _, name in rows} == {
        name: digest for digest, name in rows
    }


@pytest.fixture
def damaged(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """
    A filter file with one bit changed; the fixture is the intact content.
    """
    data = _seccomp._data
    intact = data("data/x86_64.bpf")
    broken = bytes([intact[0] ^ 1]) + intact[1:]
    monkeypatch.setattr(_seccomp, "_data", lambda name: broken if name == "data/x86_64.bpf" else data(name))
    return intact


def test_a_damaged_filter_is_compiled_again(damaged: bytes) -> None:
    uncached = seccomp_filter.__wrapped__
    assert uncached("x86_64", allow_ptrace=False, allow_nested_userns=False) == damaged


@pytest.mark.usefixtures("damaged")
def test_a_damaged_filter_without_libseccomp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sandboxkit.confine, "_bake")
    monkeypatch.setitem(sys.modules, "sandboxkit.confine._bake", None)
    uncached = seccomp_filter.__wrapped__
    with pytest.raises(SetupError, match=r"x86_64.bpf does not match data/filters.sha256; reinstall"):
        uncached("x86_64", allow_ptrace=False, allow_nested_userns=False)


@pytest.mark.skipif(
    libseccomp_version() != BAKED_WITH, reason="another libseccomp may order instructions in another way"
)
def test_baking_writes_what_is_shipped(tmp_path: Path) -> None:
    room = Path(sandboxkit.confine.__file__).parent
    (tmp_path / "data").mkdir()
    shutil.copy(room / _seccomp.TABLE, tmp_path / _seccomp.TABLE)
    _bake.main(tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()} == {
        path.name: path.read_bytes() for path in (room / "data").iterdir()
    }
