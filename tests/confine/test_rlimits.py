"""
Limits become the kernel's numbers, and the kernel keeps them.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxkit.confine import rlimits
from sandboxkit.model import Control, Limits

MIB = 1024 * 1024
ALWAYS = ((7, 1024), (8, 8 * MIB), (12, 819_200))


def test_default_limits() -> None:
    assert rlimits(Limits()) == ((1, 8192 * MIB), (2, 4096 * MIB), (4, 1), (6, 513), *ALWAYS)


def test_no_limits() -> None:
    limits = Limits(cpu=None, memory_bytes=None, processes=None, file_size_bytes=None, wall=None)
    assert rlimits(limits) == ((4, 1), *ALWAYS)


@pytest.mark.parametrize(("seconds", "limit"), [(0.001, 1), (1.0, 1), (1.5, 2), (60.0, 60)])
def test_processor_time_is_rounded_up(seconds: float, limit: int) -> None:
    assert dict(rlimits(Limits(cpu=seconds)))[resource.RLIMIT_CPU] == limit


def test_the_supervisor_is_not_counted() -> None:
    assert dict(rlimits(Limits(processes=1)))[resource.RLIMIT_NPROC] == 2


def test_what_a_group_holds_comes_first() -> None:
    grouped = frozenset({Control.LIMITS_MEMORY, Control.LIMITS_PROCESSES})
    behind = dict(rlimits(Limits(memory_bytes=64 * MIB, processes=8), grouped=grouped))
    assert (behind[resource.RLIMIT_DATA], behind[resource.RLIMIT_NPROC]) == (96 * MIB, 10)


@pytest.mark.skipif(sys.platform != "linux", reason="the numbers are those of Linux")
def test_numbers_are_the_systems() -> None:
    names = ("CPU", "FSIZE", "DATA", "CORE", "NPROC", "NOFILE", "MEMLOCK", "MSGQUEUE")
    every = Limits(cpu=1)
    assert [number for number, _ in rlimits(every)] == [getattr(resource, f"RLIMIT_{name}", 12) for name in names]


ATTEMPTS = {
    "memory": "bytearray(300 << 20)",
    "file size": "f = open(sys.argv[2], 'wb'); f.write(b'x' * (2 << 20)); f.flush()",
    "open files": "[os.dup(0) for _ in range(100)]",
    "processor time": "while True: pass",
}
LIMITED = Limits(cpu=1, memory_bytes=128 * MIB, file_size_bytes=MIB, open_files=64)


def attempt(name: str, limits: Limits | None, path: str) -> subprocess.CompletedProcess[str]:
    source = "import os, resource, sys\nfor n, m in eval(sys.argv[1]): resource.setrlimit(n, (m, m))\n" + ATTEMPTS[name]
    ceilings = {number: resource.getrlimit(number)[1] for number, _ in rlimits(limits)} if limits else {}
    pairs = [(n, m if ceilings[n] < 0 else min(m, ceilings[n])) for n, m in (rlimits(limits) if limits else ())]
    command = [sys.executable, "-I", "-S", "-c", source, repr(pairs), path]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize(
    ("name", "said"),
    [("memory", "MemoryError"), ("file size", "File too large"), ("open files", "Too many open files")],
)
def test_the_kernel_keeps_them(tmp_path: object, name: str, said: str) -> None:
    assert said in attempt(name, LIMITED, f"{tmp_path}/f").stderr
    without = attempt(name, None, f"{tmp_path}/f")
    assert (without.stderr, without.returncode) == ("", 0)


def test_processor_time_kills(tmp_path: object) -> None:
    assert attempt("processor time", LIMITED, f"{tmp_path}/f").returncode == -9


CRASH = "import os, resource, sys\nresource.setrlimit(4, (int(sys.argv[1]),) * 2)\nos.abort()"


def crash(where: Path, limit: int) -> list[str]:
    """
    What a process that dies under *limit* leaves behind.
    """
    command = [sys.executable, "-I", "-S", "-c", CRASH, str(limit)]
    assert subprocess.run(command, cwd=where, timeout=20, check=False).returncode == -6
    return os.listdir(where)


def test_a_crash_leaves_no_core_file(tmp_path: Path) -> None:
    assert crash(tmp_path, dict(rlimits(Limits()))[resource.RLIMIT_CORE]) == []
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if hard == resource.RLIM_INFINITY and pattern[0] not in "/|@":
        assert crash(tmp_path, hard) != []
