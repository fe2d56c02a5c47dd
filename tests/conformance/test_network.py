"""
What a box must not reach: sockets, shared memory and keys of the host, and the same
acts outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conformance.conftest import Act

from sandboxkit.model import NetworkPolicy, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.conftest import Boxes

pytestmark = pytest.mark.anyio

CONNECT = Act(
    """
def talk(family, address):
    with socket.socket(getattr(socket, family)) as client:
        client.settimeout(5)
        client.connect(tuple(address) if isinstance(address, list) else address)
        if client.recv(6) != b"served":
            raise OSError(errno.EPROTO, "")
for what, family, address in arguments["servers"]:
    attempt(what, talk, family, address)
"""
)


@contextlib.contextmanager
def served(family: socket.AddressFamily, address: str | tuple[str, int]) -> Iterator[socket.socket]:
    """
    A server on this machine that greets whoever connects.
    """
    server = socket.socket(family)
    server.bind(address)
    server.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                with client:
                    client.sendall(b"served")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


@pytest.fixture
def servers() -> Iterator[list[list[object]]]:
    """
    Servers on the host's loopback: (name, family, address).
    """
    abstract = f"\0sandboxkit-test-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        four = stack.enter_context(served(socket.AF_INET, ("127.0.0.1", 0))).getsockname()
        rows: list[list[object]] = [
            ["IPv4", "AF_INET", list(four)],
            ["by name", "AF_INET", ["localhost", four[1]]],
            ["all interfaces", "AF_INET", ["0.0.0.0", four[1]]],
            ["another loopback address", "AF_INET", ["127.1", four[1]]],
        ]
        if socket.has_ipv6:
            with contextlib.suppress(OSError):
                six = stack.enter_context(served(socket.AF_INET6, ("::1", 0))).getsockname()
                rows.append(["IPv6", "AF_INET6", list(six[:2])])
        stack.enter_context(served(socket.AF_UNIX, abstract))
        rows.append(["abstract", "AF_UNIX", abstract])
        yield rows


async def test_servers_of_the_host_are_not_reached(boxes: Boxes, ws: Path, servers: list[list[object]]) -> None:
    assert set(CONNECT.outside(servers=servers).values()) == {"done"}
    inside = await boxes.act(SandboxSpec.workspace_write(ws), CONNECT, servers=servers)
    assert inside == {str(row[0]): "ECONNREFUSED" for row in servers}


async def test_the_hosts_network_is_a_thing_to_ask_for(boxes: Boxes, ws: Path, servers: list[list[object]]) -> None:
    spec = SandboxSpec.workspace_write(ws, network=NetworkPolicy(mode="host"))
    inside = await boxes.act(spec, CONNECT, servers=servers)
    assert {what: answer for what, answer in inside.items() if answer != "done"}.keys() <= {"abstract"}
    # Landlock keeps abstract sockets in from ABI 6 on; the network namespace cannot here.
    assert inside["abstract"] in ("EPERM", "done")


async def test_tools_reach_no_server_of_the_host(boxes: Boxes, ws: Path) -> None:
    with served(socket.AF_INET, ("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && head -c6 <&3"
        inside = await boxes.run(SandboxSpec.workspace_write(ws), ["bash", "-c", script])
        outside = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert (inside.exit_code, inside.text(), "refused" in inside.text("stderr")) == (1, "", True)
    assert outside.stdout == "served"


async def test_datagrams_do_not_leave(boxes: Boxes, ws: Path) -> None:
    send = Act(
        "attempt('send', socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto, b'x', ('127.0.0.1', arguments['port']))"
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.3)
        port = server.getsockname()[1]
        await boxes.act(SandboxSpec.workspace_write(ws), send, port=port)
        with pytest.raises(TimeoutError):
            server.recv(1)
        assert send.outside(port=port) == {"send": "done"}
        assert server.recv(1) == b"x"


async def test_there_is_only_the_boxs_own_loopback(boxes: Boxes, ws: Path) -> None:
    script = """
answers["interfaces"] = [name for _, name in socket.if_nameindex()]
answers["routes"] = len(open("/proc/net/route").read().splitlines()) - 1
answers["sockets"] = len(open("/proc/net/unix").read().splitlines()) - 1
# An address of documentation (RFC 5737): without a route nothing is sent.
attempt("elsewhere", socket.create_connection, ("192.0.2.1", 80), 2)
attempt("name", socket.getaddrinfo, "example.invalid", 80)
"""
    inside = await boxes.act(SandboxSpec.workspace_write(ws), Act(script))
    assert inside.pop("name") != "done"
    assert inside == {"interfaces": ["lo"], "routes": 0, "sockets": 0, "elsewhere": "ENETUNREACH"}


@pytest.fixture
def short(ws: Path) -> Iterator[Path]:
    """
    A directory for sockets, whose paths must be short.
    """
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sk-") as directory:
        yield Path(directory).resolve()


async def test_sockets_of_the_host_that_lie_in_files_are_not_there(boxes: Boxes, ws: Path, short: Path) -> None:
    with served(socket.AF_UNIX, str(short / "s")), served(socket.AF_UNIX, str(short / "t")):
        (ws / "link").symlink_to(short / "s")
        servers = [["unlisted", "AF_UNIX", str(short / "s")], ["by a link", "AF_UNIX", str(ws / "link")]]
        if len(str(ws / "link")) > 100:
            servers.pop()
        assert set(CONNECT.outside(servers=servers).values()) == {"done"}
        inside = await boxes.act(SandboxSpec.workspace_write(ws), CONNECT, servers=servers)
        assert set(inside.values()) == {"ENOENT"}


async def test_the_run_directory_is_empty(boxes: Boxes, ws: Path) -> None:
    result = await boxes.run(
        SandboxSpec.workspace_write(ws), ["sh", "-c", "ls -A /run /var/run/ 2>/dev/null; test ! -e /sys/kernel"]
    )
    assert set(result.check().text().split()) <= {"/run:", "/var/run/:"}
    assert os.listdir("/run")


# --- address families and kernel interfaces ------------------------------------------------------------

FAMILIES = Act(
    """
for family, kind, protocol in ((40, 1, 0), (17, 3, 0), (38, 5, 0), (44, 3, 0), (31, 3, 1), (16, 3, 12)):
    attempt("%d" % family, lambda: socket.socket(family, kind, protocol).close())
for family, kind in ((2, 1), (10, 2), (1, 1), (16, 3)):
    attempt("ordinary %d" % family, lambda: socket.socket(family, kind, 0).close())
attempt("raw", lambda: socket.socket(2, 3, 1).close())
"""
)


async def test_families_past_the_network_namespace_are_not_there(boxes: Boxes, ws: Path) -> None:
    inside = await boxes.act(SandboxSpec.workspace_write(ws), FAMILIES)
    control = FAMILIES.outside()
    assert {inside[what] for what in ("ordinary 2", "ordinary 10", "ordinary 1", "ordinary 16")} == {"done"}
    assert {inside[what] for what in ("40", "17", "38", "44", "31")} == {"EAFNOSUPPORT"}
    assert inside["16"] == "EPROTONOSUPPORT"
    assert inside["raw"] in ("EPERM", "EACCES")
    print("without a box:", control)
    works = {what for what in ("40", "17", "38", "16") if control[what] == "done"}
    assert works, "at least one of them works outside"


KERNEL = Act(
    """
numbers = arguments["numbers"]
def call(what, *values):
    return kernel("syscall", numbers[what], *values)
attempt("io_uring_setup", lambda: os.close(call("io_uring_setup", 1, ctypes.create_string_buffer(120))))
attempt("keyctl", call, "keyctl", 0, -3, 1, 0, 0)
attempt("add_key", call, "add_key", b"user", b"sandboxkit-test", b"x", 1, -2)
attempt("request_key", call, "request_key", b"user", b"no-such-key", None, 0)
attempt("userfaultfd", lambda: os.close(call("userfaultfd", 1)))
attempt("bpf", lambda: os.close(call("bpf", 0, (ctypes.c_uint32 * 20)(2, 4, 4, 1), 72)))
attempt("perf_event_open", lambda: os.close(call("perf_event_open", (ctypes.c_uint32 * 32)(1, 128, 0, 0), 0, -1, -1, 0)))
attempt("open_by_handle_at", call, "open_by_handle_at", -100, ctypes.create_string_buffer(64), 0)
attempt("syslog", call, "syslog", 10, 0, 0)
"""
)
NUMBERS = {
    "x86_64": {
        "io_uring_setup": 425,
        "keyctl": 250,
        "add_key": 248,
        "request_key": 249,
        "userfaultfd": 323,
        "bpf": 321,
        "perf_event_open": 298,
        "open_by_handle_at": 304,
        "syslog": 103,
    },
    "aarch64": {
        "io_uring_setup": 425,
        "keyctl": 219,
        "add_key": 217,
        "request_key": 218,
        "userfaultfd": 282,
        "bpf": 280,
        "perf_event_open": 241,
        "open_by_handle_at": 265,
        "syslog": 116,
    },
}


async def test_kernel_interfaces_with_a_history_are_not_there(boxes: Boxes, ws: Path) -> None:
    numbers = NUMBERS[os.uname().machine]
    inside = await boxes.act(SandboxSpec.workspace_write(ws), KERNEL, numbers=numbers)
    absent = ("io_uring_setup", "keyctl", "add_key", "request_key", "userfaultfd")
    assert inside == {what: "ENOSYS" if what in absent else "EPERM" for what in numbers}
    control = KERNEL.outside(numbers=numbers)
    print("without a box:", control)
    assert {control["keyctl"], control["add_key"]} & {"done", "EDQUOT"}
    assert control["request_key"] in ("ENOKEY", "EACCES")


# --- memory and queues of System V and POSIX ------------------------------------------------------------------


@contextlib.contextmanager
def segment() -> Iterator[int]:
    """
    A shared memory segment of the host that anyone may attach.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.shmget(0x5A4B0000 | os.getpid() & 0xFFFF, 4096, 0o1000 | 0o666)
    assert number >= 0, os.strerror(ctypes.get_errno())
    try:
        yield number
    finally:
        libc.shmctl(number, 0, None)


SHARED = Act(
    """
libc.shmat.restype = ctypes.c_long
attempt("attach", kernel, "shmat", arguments["number"], None, 0o10000)
attempt("by key", kernel, "shmget", arguments["key"], 4096, 0)
answers["listed"] = str(arguments["key"]) in open("/proc/sysvipc/shm").read()
attempt("one of its own", lambda: kernel("shmctl", kernel("shmget", arguments["key"], 4096, 0o1600), 0, None))
"""
)


async def test_shared_memory_of_system_v_is_the_boxs_own(boxes: Boxes, ws: Path) -> None:
    with segment() as number:
        named = {"number": number, "key": 0x5A4B0000 | os.getpid() & 0xFFFF}
        inside = await boxes.act(SandboxSpec.workspace_write(ws), SHARED, **named)
        control = SHARED.outside(**named)
    assert inside.pop("attach") in ("EINVAL", "EIDRM")
    assert inside == {"by key": "ENOENT", "listed": False, "one of its own": "done"}
    assert (control["attach"], control["by key"], control["listed"]) == ("done", "done", True)


QUEUE = Act(
    """
rt = ctypes.CDLL("librt.so.1", use_errno=True)
def opened(flags):
    if rt.mq_open(arguments["name"].encode(), flags, 0o600, None) < 0:
        raise OSError(ctypes.get_errno(), "")
attempt("open", opened, os.O_RDWR)
"""
)


async def test_message_queues_are_the_boxs_own(boxes: Boxes, ws: Path) -> None:
    rt = ctypes.CDLL("librt.so.1", use_errno=True)
    name = f"/sandboxkit-test-{os.getpid()}"
    queue = rt.mq_open(name.encode(), os.O_RDWR | os.O_CREAT, 0o666, None)
    if queue < 0:
        pytest.skip(f"not applicable: this kernel makes no message queue: {os.strerror(ctypes.get_errno())}")
    os.close(queue)
    try:
        assert QUEUE.outside(name=name) == {"open": "done"}
        assert await boxes.act(SandboxSpec.workspace_write(ws), QUEUE, name=name) == {"open": "ENOENT"}
    finally:
        rt.mq_unlink(name.encode())
