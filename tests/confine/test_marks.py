"""
Nothing made under the filter carries a set-user-ID or set-group-ID bit, whichever call
is asked for it. Each is made for real, and the file looked at.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from errno import ENOSYS, EPERM, EROFS
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.confine._rules import calls
from sandboxkit.model import ProcessPolicy, SandboxSpec
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.confine.conftest import Filtered

NUMBERS = {call.name: call.number for call in calls(os.uname().machine)}

SCRIPT = r"""
import ctypes, json, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
os.umask(0)
AT_FDCWD, TMPFILE, CREATE = -100, os.O_TMPFILE | os.O_RDWR, os.O_CREAT | os.O_WRONLY

def ask(call, *arguments):
    raw = [v if isinstance(v, bytes) else ctypes.c_long(v) for v in arguments]
    result = libc.syscall(ctypes.c_long(numbers[call]), *raw)
    return ctypes.get_errno() if result < 0 else 0, result

def plain(path):
    os.close(os.open(path, os.O_CREAT | os.O_RDONLY, 0o755))
    return path

def unnamed(path, mode):
    error, fd = ask("openat", AT_FDCWD, b".", TMPFILE, mode)
    if not error:
        libc.linkat(AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, path, 0x400)  # AT_SYMLINK_FOLLOW
    return error, fd

def how(mode):
    return struct.pack("QQQ", CREATE, mode & 0xFFFFFFFF, 0)  # it refuses what it does not know

ways = {
    "chmod": lambda path, mode: ask("chmod", plain(path), mode),
    "fchmod": lambda path, mode: ask("fchmod", os.open(plain(path), os.O_RDONLY), mode),
    "fchmodat": lambda path, mode: ask("fchmodat", AT_FDCWD, plain(path), mode),
    "fchmodat2": lambda path, mode: ask("fchmodat2", AT_FDCWD, plain(path), mode, 0),
    "creat": lambda path, mode: ask("creat", path, mode),
    "mknod": lambda path, mode: ask("mknod", path, 0o100000 | mode, 0),
    "mknod fifo": lambda path, mode: ask("mknod", path, 0o010000 | mode, 0),
    "mknodat": lambda path, mode: ask("mknodat", AT_FDCWD, path, 0o100000 | mode, 0),
    "open": lambda path, mode: ask("open", path, CREATE, mode),
    "openat": lambda path, mode: ask("openat", AT_FDCWD, path, CREATE, mode),
    "openat unnamed": unnamed,
    "openat2": lambda path, mode: ask("openat2", AT_FDCWD, path, how(mode), 24),
    "mkdir": lambda path, mode: ask("mkdir", path, mode),
    "mkdirat": lambda path, mode: ask("mkdirat", AT_FDCWD, path, mode),
    "chmod of a directory": lambda path, mode: ask("chmod", os.mkdir(path) or path, mode),
}
numbers, modes = json.loads(sys.argv[1])
answers = {}
for name, way in ways.items():
    if name.split()[0] in numbers:
        for mode in modes:
            path = f"{name} {mode:o}".encode()
            error = way(path, mode)[0]
            answers[path.decode()] = error, os.stat(path).st_mode & 0o7777 if os.path.lexists(path) else None
print(json.dumps(answers))
"""

MARKS = (0o4755, 0o2755, 0o6755, (1 << 32) | 0o4711)
NONE_OF_THEM = (0o755, 0o1777)


@pytest.fixture
def where(user: Filtered) -> Iterator[Path]:
    """
    An empty directory of the user's, in which the bits are not inherited.
    """
    place = Path(subprocess.check_output([*user.drop, "mktemp", "-d"], text=True).strip())
    yield place
    shutil.rmtree(place)


def made(filtered: Filtered, where: Path, modes: tuple[int, ...]) -> dict[str, tuple[int, int | None]]:
    """
    way and mode: the error, and the mode of the file then there.
    """
    argv = [filtered.python, "-I", "-S", "-c", SCRIPT, json.dumps((NUMBERS, modes))]
    done = filtered.run(argv, cwd=where)
    assert not done.returncode, done.stderr
    return {way: (error, mode) for way, (error, mode) in json.loads(done.stdout).items()}


def marked(where: Path) -> list[str]:
    return sorted(path.name for path in where.iterdir() if path.stat().st_mode & 0o6000)


@pytest.mark.parametrize("variant", ["strict_fd", "plain_fd", "nested_fd"])
def test_no_way_leaves_a_mark(user: Filtered, where: Path, variant: str, request: pytest.FixtureRequest) -> None:
    answers = made(dataclasses.replace(user, fd=request.getfixturevalue(variant)), where, MARKS)
    assert marked(where) == []
    # The kernel itself leaves the bits out of a new directory's mode.
    directories = {way: answer for way, answer in answers.items() if way.startswith("mkdir")}
    assert {(error, (mode or 0) & ~0o777) for error, mode in directories.values()} == {(0, 0)}
    errors = {way.rsplit(" ", 1)[0]: error for way, (error, _) in answers.items() if way not in directories}
    assert errors.pop("openat2") == ENOSYS
    assert set(errors.values()) <= {EPERM, ENOSYS if errors.get("fchmodat2") == ENOSYS else EPERM}


def test_every_way_but_mkdir_would(user: Filtered, where: Path) -> None:
    answers = made(user, where, MARKS)
    absent = {way for way, (error, _) in answers.items() if error == ENOSYS}
    assert absent <= {f"fchmodat2 {mode:o}" for mode in MARKS}  # Linux 6.6
    assert set(marked(where)) == {way for way in answers if not way.startswith("mkdir")} - absent


def test_all_other_modes_are_given_as_without_the_filter(user: Filtered, where: Path, strict_fd: int) -> None:
    inside = made(dataclasses.replace(user, fd=strict_fd), where, NONE_OF_THEM)
    for path in where.iterdir():
        (path.rmdir if path.is_dir() else path.unlink)()
    without = made(user, where, NONE_OF_THEM)
    assert {way for way in without if inside[way] != without[way]} == {f"openat2 {mode:o}" for mode in NONE_OF_THEM}


def test_a_directory_that_has_the_bit_hands_it_down(user: Filtered, where: Path, strict_fd: int) -> None:
    where.chmod(0o2777)
    script = "mkdir -p a/b && cp -r a c && touch a/f && ln -s f a/l && stat -c %A a a/b a/f"
    done = dataclasses.replace(user, fd=strict_fd).run(["sh", "-c", script], cwd=where)
    assert done.stdout.split()[:2] == ["drwxr-sr-x"] * 2, done
    assert "s" not in done.stdout.split()[2]
    refused = dataclasses.replace(user, fd=strict_fd).run(["chmod", "750", "a"], cwd=where)
    assert "Operation not permitted" in refused.stderr


CAPABILITY = r"""
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
uid = os.getuid()
# linux/capability.h: CAP_SETUID, permitted and effective; revision 2, and 3 with its root.
revisions = [struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0)]
revisions += [struct.pack("<6I", 0x03000001, 1 << 7, 0, 0, 0, root) for root in (0, uid)]

def tried(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        print(error.errno)
    else:
        print("done")

def become_root():
    with open("/proc/self/uid_map", "w") as file:
        file.write(f"0 {uid} 1")

open("f", "w").close()
for value in revisions:
    tried(os.setxattr, "f", "security.capability", value)
if not libc.unshare(0x10000000):
    tried(become_root)
    for value in revisions:
        tried(os.setxattr, "f", "security.capability", value)
"""


@pytest.mark.anyio
@pytest.mark.parametrize("nested", [False, True])
async def test_no_file_gets_capabilities(tmp_path: Path, nested: bool) -> None:
    # They are the same mark under another name, an attribute, which the filter cannot
    # see. It takes CAP_SETFCAP, which a box has nowhere: with a namespace of its own it
    # could be root of that one, if it could write the map of its uids. Where that is
    # possible, a root caller's files become programs with the host's capabilities.
    backend = BubblewrapBackend()
    if not (detection := await backend.detect()).available:
        pytest.skip(f"{detection.reason}; {detection.remedy}")
    spec = SandboxSpec.workspace_write(tmp_path, process=ProcessPolicy(allow_nested_userns=nested))
    async with backend.open(spec) as box:
        result = await box.run([interpreter(), "-I", "-S", "-c", CAPABILITY])
    answers = result.check().text().split()
    assert answers[:3] == [str(EPERM)] * 3
    assert answers[3:] == ([str(EROFS)] + [str(EPERM)] * 3 if nested else [])
    assert "security.capability" not in os.listxattr(tmp_path / "f")
