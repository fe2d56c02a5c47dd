"""
The table of system calls says what the kernel and libseccomp say.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pyseccomp
import pytest

import sandboxkit.confine
from sandboxkit.confine import ARCHITECTURES
from sandboxkit.confine._rules import calls

TABLE = tomllib.loads((Path(sandboxkit.confine.__file__).parent / "data/syscalls.toml").read_text())
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
NEVER_IMPLEMENTED = {
    *("afs_syscall", "epoll_ctl_old", "epoll_wait_old", "getpmsg", "putpmsg", "security", "tuxcall", "vserver"),
    *("arch_specific_syscall", "syscalls"),  # not calls: a range and the end of the header's list
    "sync_file_range2",  # of other architectures, at the number of sync_file_range
}
"""Names of the headers without a call behind them on these architectures; unimplemented(2)."""
SPELLED = {"fstatat": "newfstatat"}
"""The generic header's name: the table's."""
TOKENS = {"x86_64": pyseccomp.Arch.X86_64, "aarch64": pyseccomp.Arch.AARCH64}
RULES = {
    *("absent", "refused", "ptrace", "namespace", "clone3", "clone"),
    *("unshare", "socket", "socketpair", "ioctl", "personality", "mode", "open"),
}


def header_numbers(path: Path) -> dict[str, int]:
    found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", path.read_text(), re.MULTILINE)
    # The generic header has 32-bit calls as well, which end in 64 and lie in a range of their own.
    return {SPELLED.get(name, name): int(number) for name, number in found if not 403 <= int(number) <= 423}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_numbers_are_the_kernel_headers(arch: str) -> None:
    if not HEADERS[arch].exists():
        pytest.skip(f"{HEADERS[arch]} is not installed")
    header = {name: number for name, number in header_numbers(HEADERS[arch]).items() if name not in NEVER_IMPLEMENTED}
    table = {call.name: call.number for call in calls(arch)}
    known_to_header = {name: number for name, number in table.items() if name in header or number <= 450}
    if arch == "x86_64":  # these filled gaps later on
        header.setdefault("uretprobe", 335)
        header.setdefault("uprobe", 336)
    else:
        # Defined below a macro in the generic header, because 32-bit calls share them.
        for name in ("name_to_handle_at", "open_by_handle_at"):
            header.setdefault(name, table[name])
    assert known_to_header == {name: number for name, number in header.items() if name in table or number <= 450}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_numbers_are_those_of_libseccomp(arch: str) -> None:
    resolved = {call.name: pyseccomp.resolve_syscall(TOKENS[arch], call.name) for call in calls(arch)}
    ours = {call.name: call.number for call in calls(arch)}
    unnamed = {name for name, number in resolved.items() if number == -1}

    assert {name: number for name, number in resolved.items() if name not in unnamed} == {
        name: number for name, number in ours.items() if name not in unnamed
    }
    assert all(call.since >= (6,) for call in calls(arch) if call.name in unnamed)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_number_is_there_once(arch: str) -> None:
    numbers = [call.number for call in calls(arch)]
    assert numbers == sorted(set(numbers))


def test_rows_are_sorted_and_known() -> None:
    assert list(TABLE) == sorted(TABLE)
    assert {row["rule"] for row in TABLE.values() if "rule" in row} == RULES
    assert all(re.fullmatch(r"\d+\.\d+(\.\d+)?", row["since"]) for row in TABLE.values())
    assert all({"since", "rule", *ARCHITECTURES} >= set(row) for row in TABLE.values())


def test_an_unknown_architecture_has_no_rows() -> None:
    assert calls("riscv64") == ()
