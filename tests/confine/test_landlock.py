"""
Landlock rights are planned by the kernel's ABI, and the kernel takes them.
"""

from __future__ import annotations

import ctypes
import json
import marshal
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxkit.confine import ABI, FsAccess, NetAccess, Scope, landlock_rules
from sandboxkit.model import LandlockRules

READ = 0b1101
WRITE_1 = 0x1FFF & ~(1 << 6 | 1 << 11)
DEVICE_1 = 0b1110


def test_no_landlock_no_rules() -> None:
    assert landlock_rules(0, readable=["/"]) is None


@pytest.mark.parametrize(
    ("abi", "handled", "write", "device", "scoped"),
    [
        (1, 0x1FFF, WRITE_1, DEVICE_1, 0),
        (2, 0x3FFF, WRITE_1 | 1 << 13, DEVICE_1, 0),
        (3, 0x7FFF, WRITE_1 | 3 << 13, DEVICE_1 | 1 << 14, 0),
        (4, 0x7FFF, WRITE_1 | 3 << 13, DEVICE_1 | 1 << 14, 0),
        (5, 0xFFFF, WRITE_1 | 3 << 13, DEVICE_1 | 3 << 14, 0),
        (6, 0xFFFF, WRITE_1 | 3 << 13, DEVICE_1 | 3 << 14, 3),
        (7, 0xFFFF, WRITE_1 | 3 << 13, DEVICE_1 | 3 << 14, 3),
        (8, 0xFFFF, WRITE_1 | 3 << 13, DEVICE_1 | 3 << 14, 3),
        (9, 0x1FFFF, WRITE_1 | 3 << 13 | 1 << 16, DEVICE_1 | 3 << 14, 3),
        (99, 0x1FFFF, WRITE_1 | 3 << 13 | 1 << 16, DEVICE_1 | 3 << 14, 3),
    ],
)
@pytest.mark.parametrize("handle_tcp", [False, True])
def test_rights_by_abi(abi: int, handled: int, write: int, device: int, scoped: int, handle_tcp: bool) -> None:
    rules = landlock_rules(abi, readable=["/usr"], writable=["/w"], devices=["/dev"], handle_tcp=handle_tcp)
    assert rules == LandlockRules(
        handled_fs=handled,
        handled_net=3 if handle_tcp and abi >= 4 else 0,
        scoped=scoped,
        paths=(("/dev", device), ("/usr", READ), ("/w", write)),
    )


def test_rights_of_one_path_add_up() -> None:
    rules = landlock_rules(1, readable=["/a", "/a"], devices=["/a"])
    assert rules is not None
    assert rules.paths == (("/a", READ | DEVICE_1),)


def test_numbers_can_be_handed_to_the_child() -> None:
    rules = landlock_rules(7, readable=["/"], handle_tcp=True)
    assert rules is not None
    assert marshal.loads(marshal.dumps((rules.handled_fs, rules.handled_net, rules.scoped, rules.paths)))


def test_the_table_is_in_order() -> None:
    assert [level.abi for level in ABI] == list(range(1, len(ABI) + 1))
    assert sum(level.fs for level in ABI) == sum(FsAccess)
    assert sum(level.net for level in ABI) == sum(NetAccess)
    assert sum(level.scoped for level in ABI) == sum(Scope)


def test_names_are_those_of_the_landlock_package() -> None:
    landlock = pytest.importorskip("landlock", reason="the landlock package is for Linux")
    theirs = {right.name: right.value for right in landlock.FSAccess}
    assert {right.name: right.value for right in FsAccess if right < FsAccess.RESOLVE_UNIX} == theirs


@pytest.mark.parametrize(("names", "prefix"), [(FsAccess, "ACCESS_FS"), (NetAccess, "ACCESS_NET"), (Scope, "SCOPE")])
def test_numbers_are_the_kernel_headers(names: type[FsAccess | NetAccess | Scope], prefix: str) -> None:
    header = Path("/usr/include/linux/landlock.h")
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    found = re.findall(rf"#define LANDLOCK_{prefix}_(\w+)\s+\(1ULL << (\d+)\)", header.read_text())
    assert all(names[name] == 1 << int(bit) for name, bit in found)


APPLY = """
import ctypes, json, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fs, net, scoped, paths, size = json.loads(sys.argv[1])
def call(*arguments):
    result = libc.syscall(*arguments)
    assert result >= 0, (arguments, os.strerror(ctypes.get_errno()))
    return result
ruleset = call(444, struct.pack("QQQ", fs, net, scoped), ctypes.c_size_t(size), 0)
for path, rights in paths:
    call(445, ruleset, 1, struct.pack("=Qi", rights, os.open(path, os.O_PATH)), 0)
libc.prctl(38, 1, 0, 0, 0)
call(446, ruleset, 0)
"""
WORK = """
import shutil, socket
def attempt(action, *arguments):
    try:
        action(*arguments)
        return "done"
    except OSError as error:
        return type(error).__name__
def tcp():
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname())
read, write = sys.argv[2:]
answers = {
    "list": attempt(os.listdir, read),
    "read": attempt(lambda: open(read + "/a").read()),
    "change": attempt(lambda: open(read + "/a", "r+")),
    "truncate": attempt(os.truncate, read + "/a", 0),
    "create": attempt(lambda: open(read + "/b", "w")),
    "remove": attempt(os.unlink, read + "/a"),
    "list elsewhere": attempt(os.listdir, "/"),
    "create in w": attempt(lambda: open(write + "/b", "w")),
    "make in w": attempt(os.makedirs, write + "/c/d"),
    "move in w": attempt(os.rename, write + "/b", write + "/c/b"),
    "link in w": attempt(os.symlink, "b", write + "/c/s"),
    "truncate in w": attempt(os.truncate, write + "/c/b", 0),
    "remove in w": attempt(shutil.rmtree, write + "/c"),
    "take out": attempt(os.rename, read + "/a", write + "/a"),
    "device": attempt(lambda: open("/dev/null", "w").write("x")),
    "loopback": attempt(tcp),
}
print(json.dumps(answers))
"""


def kernel_abi() -> int:
    abi = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        pytest.skip("this kernel has no Landlock")
    return int(abi)


def outcome(tmp_path: Path, rules: LandlockRules | None, abi: int) -> dict[str, str]:
    for name in ("r", "w"):
        (tmp_path / name).mkdir()
    (tmp_path / "r" / "a").write_text("text")
    source, argument = "import json, os, sys\n" + WORK, "null"
    if rules:
        source = APPLY + WORK
        size = 24 if abi >= 6 else 16 if abi >= 4 else 8
        argument = json.dumps((rules.handled_fs, rules.handled_net, rules.scoped, rules.paths, size))
    command = [sys.executable, "-I", "-c", source, argument, str(tmp_path / "r"), str(tmp_path / "w")]
    answers: dict[str, str] = json.loads(subprocess.check_output(command))
    return answers


@pytest.mark.parametrize("handle_tcp", [False, True])
def test_the_kernel_enforces_the_plan(tmp_path: Path, handle_tcp: bool) -> None:
    abi = kernel_abi()
    system = {sys.base_prefix, sys.prefix, "/usr", os.path.realpath("/lib"), "/etc"}
    rules = landlock_rules(
        abi,
        readable=[*sorted(system), str(tmp_path / "r")],
        writable=[str(tmp_path / "w")],
        devices=["/dev"],
        handle_tcp=handle_tcp,
    )
    answers = outcome(tmp_path, rules, abi)

    denied = {"change", "create", "remove", "list elsewhere", "take out"}
    denied |= {"truncate"} if abi >= 3 else set()
    denied |= {"loopback"} if handle_tcp and abi >= 4 else set()
    if abi < 2:
        answers.pop("move in w")
    assert {name for name, answer in answers.items() if answer != "done"} == denied
    assert {answers[name] for name in denied} == {"PermissionError"}


def test_without_the_plan_all_of_it_works(tmp_path: Path) -> None:
    answers = outcome(tmp_path, None, 0)
    # It was removed one step before.
    assert answers.pop("take out") == "FileNotFoundError"
    assert set(answers.values()) == {"done"}
