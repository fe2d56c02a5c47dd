"""
The parts of the tracer that read what a process asked for: paths, addresses, strings.
What it makes of a whole run is in `tests/backends/test_explain.py`.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

from sandboxkit.confine import _verdict, calls
from sandboxkit.process import _tracer
from sandboxkit.process._explain import CALLS, found
from sandboxkit.process._tracer import Memory, Refusals, Unreadable, act_of, address_of, automounts, is_bound, listens

if TYPE_CHECKING:
    from pathlib import Path

OWN = Memory(os.getpid())


def test_every_call_of_the_table_exists_on_some_machine() -> None:
    known = {call.name for arch in ("x86_64", "aarch64") for call in calls(arch)}
    assert CALLS.keys() <= known


def test_paths_are_resolved_as_the_kernel_resolves_them(tmp_path: Path) -> None:
    chance = random.Random(7)
    root = tmp_path.resolve()
    for number in range(40):
        place = root / "/".join(chance.choice("abc") for _ in range(chance.randint(1, 4)))
        place.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(place):
            target = chance.choice(["..", "a/b", str(root / "c"), ".", "../c/./a", "missing"])
            place.symlink_to(target) if number % 2 else place.mkdir()
    names = ["a", "b", "c", "..", ".", "missing"]
    for _ in range(500):
        path = f"{root}/" + "/".join(chance.choice(names) for _ in range(chance.randint(1, 6)))
        try:
            os.stat(path)
        except OSError:
            continue  # where the way ends there is no answer to compare with
        assert OWN.real(path, True) == os.path.realpath(path), path


def test_a_link_is_followed_only_where_the_call_does(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "l").symlink_to("gone")
    assert OWN.real(f"{root}/l", False) == f"{root}/l"
    assert OWN.real(f"{root}/l", True) == f"{root}/gone"
    assert OWN.real(f"{root}/l/x", False) == f"{root}/gone/x"


def test_links_without_end_end(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "x").symlink_to("y/x")
    (root / "y").symlink_to(".")
    assert OWN.real(f"{root}/x", True).startswith(str(root))


def test_strings_are_read_up_to_the_end_of_what_is_mapped() -> None:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = mmap.PAGESIZE
    start = libc.mmap(None, 2 * size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    end = start + size
    assert libc.munmap(end, size) == 0
    ctypes.memmove(end - 6, b"/last\0", 6)
    assert OWN.text(end - 6) == "/last"
    ctypes.memmove(end - 1, b"x", 1)
    for wrong in (end - 6, end, 0, 1, 2**64 - 1):
        with pytest.raises(Unreadable):
            OWN.text(wrong)
    assert libc.munmap(start, size) == 0


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (struct.pack("=H", socket.AF_INET) + b"\x1f\x90" + bytes([192, 0, 2, 1]), ("inet", "192.0.2.1", 8080)),
        (
            struct.pack("=H", socket.AF_INET6)
            + b"\0\x50"
            + bytes(4)
            + socket.inet_pton(socket.AF_INET6, "2001:db8::1"),
            ("inet", "2001:db8::1", 80),
        ),
        (struct.pack("=H", socket.AF_UNIX) + b"/run/s\0junk", ("unix", "/run/s", 0)),
        (struct.pack("=H", socket.AF_UNIX) + b"\0name", ("abstract", "name", 0)),
        (struct.pack("=H", 40) + bytes(14), ("", "", 0)),
        (struct.pack("=H", socket.AF_INET) + b"\0", ("", "", 0)),
        (b"", ("", "", 0)),
    ],
)
def test_addresses(raw: bytes, expected: tuple[str, str, int]) -> None:
    assert address_of(raw) == expected


def test_who_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens("127.0.0.1", port)
        assert listens("0.0.0.0", port)
        assert listens("::ffff:127.0.0.1", port)
        assert not listens("192.0.2.1", port)
        for other in ("127.0.0.2", "::1"):
            assert not listens(other, port), other
            with pytest.raises(OSError, match=r"refused|unreachable|assign"):
                socket.create_connection((other, port), timeout=5)
    assert not listens("127.0.0.1", port)
    with socket.create_server(("", 0)) as server:
        assert listens("127.0.0.2", server.getsockname()[1])


def test_who_listens_on_an_abstract_name() -> None:
    name = f"sandboxkit test {os.getpid()}\0x"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        assert not is_bound(name)
        server.listen()
        assert is_bound(name)
        assert not is_bound(name[:-1])
    assert not is_bound(name)


@pytest.mark.parametrize(
    ("name", "arguments", "act"),
    [
        ("openat", (0, 0, os.O_RDONLY), "read"),
        ("openat", (0, 0, os.O_WRONLY), "content"),
        ("openat", (0, 0, os.O_RDONLY | os.O_TRUNC), "content"),
        ("openat", (0, 0, os.O_WRONLY | os.O_CREAT), "create"),
        ("openat", (0, 0, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "entry"),
        ("openat", (0, 0, os.O_RDWR | os.O_TMPFILE), "entry"),
        ("access", (0, os.R_OK), "read"),
        ("faccessat", (0, 0, os.W_OK), "content"),
        ("unlink", (0,), "entry"),
    ],
)
def test_what_a_call_does(name: str, arguments: tuple[int, ...], act: str) -> None:
    assert act_of(CALLS[name], arguments) == act


def refusals() -> Refusals:
    return Refusals({"calls": {}, "ignored": [], "filters": []}, _verdict)


def test_what_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This process sees the host, so nothing that is there is hidden from it.
    (tmp_path / "f").touch()
    here = refusals()
    assert not here.is_hidden(OWN, [f"{tmp_path}/f"], "read")
    assert not here.is_hidden(OWN, [f"{tmp_path}/none"], "read")
    other = Memory(os.getpid())
    other.proc = str(tmp_path)  # a process whose root is empty
    assert here.is_hidden(other, [f"{tmp_path}/f"], "read")
    assert here.is_hidden(other, [f"{tmp_path}/none"], "create")
    assert not here.is_hidden(other, [f"{tmp_path}/none/x"], "create")
    assert not here.is_hidden(other, [f"/proc/{os.getpid()}/stat"], "read")
    here.mounted_on_demand = (str(tmp_path),)
    with pytest.raises(Unreadable):
        here.is_hidden(other, [f"{tmp_path}/f"], "read")


def test_mounts_on_demand_are_read_from_the_kernels_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(path.startswith("/") for path in automounts())
    table = tmp_path / "mountinfo"
    table.write_text(
        "30 1 0:25 / / rw shared:1 - ext4 /dev/sda rw\n31 30 0:50 / /net rw,relatime shared:9 master:2 - autofs -hosts rw\n"
    )
    really = open
    monkeypatch.setattr("builtins.open", lambda path, *rest, **named: really(table, *rest, **named))
    assert automounts() == ("/net",)


@pytest.mark.parametrize(
    ("content", "gap"),
    [
        (b"", "the process that traced the command was ended before it could report"),
        (b"{", "the process that traced the command was ended before it could report"),
        (b'{"is_on": false, "refusals": [], "dropped": 0, "unread": 0}', "the command was not seen to start"),
        (b'{"is_on": true, "refusals": [], "dropped": 0, "unread": 0}', ""),
        (
            b'{"is_on": true, "refusals": [], "dropped": 4, "unread": 2}',
            (
                "0 different refusals are listed, 4 more calls were refused in other ways; "
                "2 refused calls are not listed, because what they were about could not be read"
            ),
        ),
    ],
)
def test_what_is_missing_of_a_report_is_said(content: bytes, gap: str) -> None:
    assert found(content) == ((), gap)


def test_a_tracer_that_may_not_says_which_right_it_lacks() -> None:
    refused: Any = f'{{"problem": {errno.EPERM}}}'.encode()
    seen, gap = found(refused)
    assert seen == ()
    assert "processes may not be traced here (" in gap
    assert _tracer.MOST == 200
