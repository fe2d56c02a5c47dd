"""
Where the kernel lacks a means of confinement: what needs it is refused, in words, and what
does not need it goes on with less said about it.

A filter of system calls makes the kernel answer as one without the means does. The same
program runs without that filter too.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

NUMBERS = {
    "x86_64": {"prctl": 157, "pidfd_open": 434, "landlock": 444},
    "aarch64": {"prctl": 167, "pidfd_open": 434, "landlock": 444},
}
PR_SET_SECCOMP = 22
PROGRAM = """
import ctypes, json, struct, sys
refused = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
LOAD, EQUAL, RETURN, ALLOW, ERRNO = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000
rows = []
for number, argument, answer in refused:
    rows += [(LOAD, 0, 0, 0), (EQUAL, 0, 3 if argument is not None else 1, number)]
    if argument is not None:
        rows += [(LOAD, 0, 0, 16), (EQUAL, 0, 1, argument)]
    rows += [(RETURN, 0, 0, ERRNO | answer)]
rows += [(RETURN, 0, 0, ALLOW)]
held = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
if refused:
    loaded = struct.pack("HxxxxxxQ", len(rows), ctypes.addressof(held))
    assert not libc.prctl(38, 1, 0, 0, 0)
    assert not libc.prctl(22, 2, loaded, 0, 0), ctypes.get_errno()

import sandboxkit
said = {}
for isolation in ("worker", "reuse", "in-process"):
    try:
        with sandboxkit.SafeEvaluator(isolation=isolation, timeout=20) as evaluator:
            said[isolation] = evaluator.evaluate("1 + 1")
            said["reason"] = evaluator.enforcement().reason(sandboxkit.Control.FS_READ) if isolation == "worker" else said["reason"]
    except sandboxkit.SandboxError as error:
        said[isolation] = [type(error).__name__, str(error)]
        said.setdefault("reason", "")
try:
    said["condition"] = sandboxkit.safe_eval_condition("True", timeout=20)
except sandboxkit.SandboxError as error:
    said["condition"] = type(error).__name__
print(json.dumps(said))
"""


def without(refused: Iterable[tuple[str, int | None, int]]) -> dict[str, Any]:
    """
    What evaluation says where the kernel refuses system calls: (name, first argument or
    any, error number).
    """
    numbers = NUMBERS[os.uname().machine]
    rows = [(numbers[name], argument, answer) for name, argument, answer in refused]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(rows)], capture_output=True, text=True, timeout=60, check=True
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_with_all_means_it_evaluates() -> None:
    said = without([])
    assert (said["worker"], said["reuse"], said["in-process"], said["condition"]) == (2, 2, 2, True)
    assert "seccomp" in said["reason"]


@pytest.mark.parametrize("answer", [errno.EINVAL, errno.EPERM, errno.ENOSYS])
def test_without_seccomp_it_refuses(answer: int) -> None:
    said = without([("prctl", PR_SET_SECCOMP, answer)])
    for isolation in ("worker", "reuse"):
        kind, text = said[isolation]
        assert kind == "SetupError"
        assert "seccomp" in text
        assert errno.errorcode[answer] in text
        assert 'isolation="in-process" for authors you trust' in text
    assert said["condition"] == "SetupError"  # and not False, as a condition nobody can decide
    assert said["in-process"] == 2


@pytest.mark.parametrize("answer", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_landlock_seccomp_holds_alone_and_says_so(answer: int) -> None:
    said = without([("landlock", None, answer)])
    assert (said["worker"], said["reuse"]) == (2, 2)
    assert said["reason"].endswith("no Landlock on this kernel")


def test_without_pidfds_it_refuses() -> None:
    said = without([("pidfd_open", None, errno.ENOSYS)])
    kind, text = said["worker"]
    assert kind == "SetupError"
    assert "pidfd" in text
    assert said["in-process"] == 2
