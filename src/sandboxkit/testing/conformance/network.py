"""
What a box must not reach: sockets, shared memory and keys of the host, and the same
acts outside.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import dataclasses
import http.server
import json
import os
import socket
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandboxkit.model import EgressRule, NetworkPolicy, SandboxSpec
from sandboxkit.secrets import SecretRegistry
from sandboxkit.testing.conformance._acts import PYTHON, REFUSED, Act
from sandboxkit.testing.conformance._behaviours import exported
from sandboxkit.testing.conformance._fixtures import *  # noqa: F403 - what the behaviours ask for
from sandboxkit.testing.conformance._fixtures import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.testing.conformance._acts import Boxes

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


UNREACHED = frozenset({"ECONNREFUSED", "EACCES", "EPERM", "ENETUNREACH", "EHOSTUNREACH", "EAFNOSUPPORT"})
"""
The answers of a network that is not there. A time-out is none of them.
"""


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
    """
    Servers on the host's loopback are connected to by IPv4, IPv6, name, short address,
    0.0.0.0 and an abstract socket.

    Control: without a box each of them answers.
    """
    assert set(CONNECT.outside(servers=servers).values()) == {"done"}
    inside = await boxes.act(SandboxSpec.workspace_write(ws), CONNECT, servers=servers)
    assert set(inside.values()) <= UNREACHED, inside


async def test_the_hosts_network_is_a_thing_to_ask_for(boxes: Boxes, ws: Path, servers: list[list[object]]) -> None:
    """
    A spec asks for the host's network; the same servers are reached, so that their being
    out of reach elsewhere proves something.

    Control: the same acts in a box without network fail.
    """
    spec = SandboxSpec.workspace_write(ws, network=NetworkPolicy(mode="host"))
    inside = await boxes.act(spec, CONNECT, servers=servers)
    assert {what: answer for what, answer in inside.items() if answer != "done"}.keys() <= {"abstract"}
    # Landlock keeps abstract sockets in from ABI 6 on; the network namespace cannot here.
    assert inside["abstract"] in ("EPERM", "EACCES", "done")


async def test_tools_reach_no_server_of_the_host(boxes: Boxes, ws: Path) -> None:
    """
    bash connects by /dev/tcp.

    Control: without a box it reads the greeting.
    """
    with served(socket.AF_INET, ("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && head -c6 <&3"
        inside = await boxes.run(SandboxSpec.workspace_write(ws), ["bash", "-c", script])
        outside = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert (inside.exit_code, inside.text()) == (1, "")
    assert any(word in inside.text("stderr") for word in ("refused", "unreachable", "denied", "not permitted"))
    assert outside.stdout == "served"


async def test_datagrams_do_not_leave(boxes: Boxes, ws: Path) -> None:
    """
    A datagram is sent to a server of the host; it does not arrive.

    Control: one that is sent without a box does.
    """
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
    """
    Interfaces, routes and sockets are listed, an address is connected to, and a name
    resolved.

    Control: none: what a host can reach is its own business.
    """
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


_SHOWN = """
def told_proxy(name):
    # Where it listens, and what it is to be shown: nothing where only the box reaches it.
    told, _, place = os.environ[name].removeprefix("http://").rstrip("/").rpartition("@")
    host, _, number = place.rpartition(":")
    shown = b"Proxy-Authorization: Basic " + base64.b64encode(told.encode()) + b"\\r\\n" if told else b""
    return (host, int(number)), shown
"""

LISTED = Act(
    "import base64"
    + _SHOWN
    + """
def direct(port):
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        if client.recv(6) != b"served":
            raise OSError(errno.EPROTO, "")
def asked(what, port):
    place, shown = told_proxy("http_proxy")
    with socket.create_connection(place, 5) as client:
        client.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\nHost: x\\r\\n%b\\r\\n" % (port, shown))
        answer = b""
        while part := client.recv(4096):
            answer += part
    answers[what] = "served" if answer.endswith(b"served") else answer.decode()[9:12]
for what, port in arguments["ports"].items():
    attempt(what + ", past the proxy", direct, port)
    if "http_proxy" in os.environ:
        asked(what, port)
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
    answers["own loopback"] = "done"
"""
)


async def test_listed_hosts_are_reached_and_no_others(boxes: Boxes, ws: Path) -> None:
    """
    A spec lists one server of the host's loopback. That one is reached through the proxy the
    command is told about, another is refused there, neither is reached past it, and the
    box's own loopback works.

    Control: without a box both servers answer.
    """
    loopback = ("127.0.0.1", 0)
    with served(socket.AF_INET, loopback) as one, served(socket.AF_INET, loopback) as other:
        ports = {"listed": one.getsockname()[1], "unlisted": other.getsockname()[1]}
        spec = SandboxSpec.workspace_write(ws, network=_listing(ports["listed"]))
        inside = await boxes.act(spec, LISTED, ports=ports)
        control = LISTED.outside(ports=ports)
    assert {inside.pop(f"{what}, past the proxy") for what in ports} <= UNREACHED
    assert inside == {"listed": "served", "unlisted": "403", "own loopback": "done"}
    assert {control[f"{what}, past the proxy"] for what in ports} == {"done"}


async def test_a_refused_host_is_reported(boxes: Boxes, ws: Path) -> None:
    """
    The result names a connection that the proxy refused, and the line that would allow it.

    Control: a command that asks for nothing has no such report.
    """
    spec = SandboxSpec.workspace_write(ws, network=NetworkPolicy(mode="listed"))
    ask = "import urllib.request as u; u.urlopen('http://unlisted.example/')"
    result = await boxes.run(spec, [*PYTHON, ask])
    found = [(violation.kind, violation.target, violation.spec_line) for violation in result.violations]
    assert found == [("egress", "http://unlisted.example/", 'network.allow_hosts = ["unlisted.example:80"]')]
    assert (await boxes.run(spec, ["true"])).violations == ()


SECRET = "sk-test-4hQ9/wZ+7Lr="
KEY = "SANDBOXKIT_TEST_KEY"
SPELLINGS = (SECRET, base64.b64encode(SECRET.encode()).decode(), SECRET.encode().hex())

ASKED = Act(
    "import base64, pathlib, ssl"
    + _SHOWN
    + """
port, authority = arguments["port"], arguments["authority"]
context = ssl.create_default_context(cafile=authority or os.environ["SSL_CERT_FILE"])
def opened():
    if authority:
        return socket.create_connection(("127.0.0.1", port), 10)
    place, shown = told_proxy("https_proxy")
    client = socket.create_connection(place, 10)
    client.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\nHost: x\\r\\n%b\\r\\n" % (port, shown))
    answer = b""
    while not answer.endswith(b"\\r\\n\\r\\n"):
        part = client.recv(1)
        if not part:
            raise OSError(errno.EPROTO, "")
        answer += part
    return client
def told(request):
    text = b""
    with opened() as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
        held = os.environ.get(arguments["key"], "")
        fields = (request + " HTTP/1.1", "Host: 127.0.0.1:%d" % port, "Authorization: Bearer " + held, "Connection: close")
        client.sendall(("\\r\\n".join(fields) + "\\r\\n\\r\\n").encode())
        try:
            while part := client.recv(65536):
                text += part
        except ssl.SSLError:
            pass
    return text.decode("latin-1")
for request in arguments["requests"]:
    answers[request] = told(request)
answers["seen"] = []
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        answers["seen"] += [row for row in path.read_bytes().decode("latin-1").split("\\0") if row.startswith(arguments["key"])]
    except OSError:
        pass
"""
)


@dataclasses.dataclass
class Told:
    """
    A TLS server that repeats what it was sent.

    Attributes:
        asked: Method, path and Authorization of each request.
        roots: Verifies it.
        authority: A file that does, for another process.
        port: Where it is.
    """

    asked: list[tuple[str, str, str]]
    roots: ssl.SSLContext
    authority: Path
    port: int = 0


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    """
    A TLS server on the host's loopback, by a certificate that no system knows.
    """
    pytest.importorskip("cryptography", reason="not applicable: no certificate can be made without the extra egress")
    from sandboxkit.egress._authority import Authority

    authority = Authority(3600)
    (file := tmp_path / "authority.pem").write_bytes(authority.certificate)
    found = Told([], ssl.create_default_context(cafile=file), file)

    class Repeats(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            held = self.headers.get("Authorization", "")
            found.asked.append((self.command, self.path, held))
            plain = held.partition(" ")[2].encode()
            body = " ".join((held, base64.b64encode(plain).decode(), plain.hex())).encode()
            self.send_response(200)
            self.send_header("X-Got", held)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the standard library's names

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Repeats)
    server.socket = authority.context("127.0.0.1").wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    found.port = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _looking_in(port: int, **more: Any) -> NetworkPolicy:
    rule = EgressRule(action="allow", to=f"https://127.0.0.1:{port}/open", methods=("GET", "POST"))
    return NetworkPolicy(intercept=True, rules=(rule,), permit_networks=("127.0.0.1/32",), **more)


def _statuses(answers: dict[str, Any], requests: tuple[str, ...]) -> list[str]:
    return [answers[request].partition(" ")[2][:3] for request in requests]


async def test_https_is_looked_into_where_the_spec_asks(boxes: Boxes, ws: Path, told: Told) -> None:
    """
    A spec looks into TLS and allows two methods below one path of a server. In it, another
    method and another path are refused; and nothing reaches the server where no authority
    knows it.

    Control: without a box all three are answered; and in it what is allowed is.
    """
    requests = ("GET /open/x", "DELETE /open/x", "GET /other")
    asks: dict[str, Any] = {"port": told.port, "requests": requests, "key": KEY}
    control = ASKED.outside(**asks, authority=str(told.authority))
    assert _statuses(control, requests) == ["200"] * 3
    told.asked.clear()
    spec = SandboxSpec.workspace_write(ws, network=_looking_in(told.port))
    inside = await boxes.outward(ssl_context=told.roots).act(spec, ASKED, **asks, authority=None)
    assert _statuses(inside, requests) == ["200", "403", "403"], inside
    assert [row[:2] for row in told.asked] == [("GET", "/open/x")]
    unknown = await boxes.act(spec, ASKED, **asks, authority=None)
    assert _statuses(unknown, requests)[0] not in ("200", "403"), unknown
    assert len(told.asked) == 1


async def test_a_secret_is_put_in_outside_and_never_seen(boxes: Boxes, ws: Path, told: Told) -> None:
    """
    A spec injects a secret for one method and path. The server gets it there, elsewhere the
    placeholder; the command finds it in no variable, no process and no answer that repeats it,
    plain, in base64 or in hexadecimal.

    Control: without a box, and the value in its environment, it is in all of them.
    """
    requests = ("GET /open/x", "POST /open/x")
    asks: dict[str, Any] = {"port": told.port, "requests": requests, "key": KEY}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY, SECRET)
        control = ASKED.outside(**asks, authority=str(told.authority))
    assert all(spelling in control["GET /open/x"] for spelling in SPELLINGS)
    assert f"{KEY}={SECRET}" in control["seen"]
    told.asked.clear()
    known = SecretRegistry()
    known.add(KEY, SECRET, hosts=[f"127.0.0.1:{told.port}"])
    row = {"secret": KEY, "to": f"127.0.0.1:{told.port}/open", "methods": ("GET",)}
    spec = SandboxSpec.workspace_write(ws, network=_looking_in(told.port, inject=(row,)))
    inside = await boxes.outward(secrets=known, ssl_context=told.roots).act(spec, ASKED, **asks, authority=None)
    assert _statuses(inside, requests) == ["200", "200"], inside
    assert [held for _, _, held in told.asked] == [f"Bearer {SECRET}", f"Bearer <{KEY}>"]
    assert not [spelling for spelling in SPELLINGS if spelling in json.dumps(inside)]
    assert f"{KEY}=<{KEY}>" in inside["seen"]


def _listing(port: int) -> NetworkPolicy:
    return NetworkPolicy(allow_hosts=(f"127.0.0.1:{port}",), permit_networks=("127.0.0.1/32",))


@pytest.fixture
def short(ws: Path) -> Iterator[Path]:
    """
    A directory for sockets, whose paths must be short.
    """
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sk-") as directory:
        yield Path(directory).resolve()


async def test_sockets_of_the_host_that_lie_in_files_are_not_there(boxes: Boxes, ws: Path, short: Path) -> None:
    """
    Sockets of the host below /tmp are connected to, by name and by a link in the workspace.

    Control: without a box each of them answers.
    """
    with served(socket.AF_UNIX, str(short / "s")), served(socket.AF_UNIX, str(short / "t")):
        (ws / "link").symlink_to(short / "s")
        servers = [["unlisted", "AF_UNIX", str(short / "s")], ["by a link", "AF_UNIX", str(ws / "link")]]
        if len(str(ws / "link")) > 100:
            servers.pop()
        assert set(CONNECT.outside(servers=servers).values()) == {"done"}
        inside = await boxes.act(SandboxSpec.workspace_write(ws), CONNECT, servers=servers)
        assert set(inside.values()) <= UNREACHED | REFUSED, inside


async def test_the_run_directory_is_empty(boxes: Boxes, ws: Path) -> None:
    """
    /run and /sys are listed: sockets of daemons lie there.

    Control: the host's /run is not empty.
    """
    result = await boxes.run(
        SandboxSpec.workspace_write(ws), ["sh", "-c", "ls -A /run /var/run/ /sys 2>/dev/null || true"]
    )
    assert set(result.check().text().split()) <= {"/run:", "/var/run/:", "/sys:"}
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
    """
    Sockets are made of families that no network namespace holds back: vsock, packet, alg,
    and the like.

    Control: at least one of them is made without a box.
    """
    inside = await boxes.act(SandboxSpec.workspace_write(ws), FAMILIES)
    control = FAMILIES.outside()
    refused = {"EAFNOSUPPORT", "EPROTONOSUPPORT", "EPERM", "EACCES"}
    assert {inside[what] for what in ("40", "17", "38", "44", "31", "16", "raw")} <= refused
    print("without a box:", control)
    works = {what for what in ("40", "17", "38", "16") if control[what] == "done"}
    assert works, "at least one of them works outside"


async def test_ordinary_sockets_are_made(boxes: Boxes, ws: Path) -> None:
    """
    Sockets of the families every program uses are made: IPv4, IPv6, AF_UNIX and netlink.

    Control: without a box they are made, too.
    """
    ordinary = ("ordinary 2", "ordinary 10", "ordinary 1", "ordinary 16")
    inside = await boxes.act(SandboxSpec.workspace_write(ws), FAMILIES)
    assert {inside[what] for what in ordinary} == {"done"}
    control = FAMILIES.outside()
    assert {control[what] for what in ordinary} == {"done"}


KERNEL = Act(
    """
numbers = arguments["numbers"]
def call(what, *values):
    return kernel("syscall", numbers[what], *values)
attempt("io_uring_setup", lambda: os.close(call("io_uring_setup", 1, ctypes.create_string_buffer(120))))
attempt("io_uring_enter", call, "io_uring_enter", -1, 0, 0, 0, None, 0)
attempt("io_uring_register", call, "io_uring_register", -1, 0, None, 0)
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
        "io_uring_enter": 426,
        "io_uring_register": 427,
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
        "io_uring_enter": 426,
        "io_uring_register": 427,
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
    """
    io_uring, keys, userfaultfd, bpf, perf, file handles and the kernel's log are called.

    Control: the calls for keys answer without a box.
    """
    numbers = NUMBERS[os.uname().machine]
    inside = await boxes.act(SandboxSpec.workspace_write(ws), KERNEL, numbers=numbers)
    assert set(inside.values()) <= {"ENOSYS", "EPERM"}, inside
    control = KERNEL.outside(numbers=numbers)
    print("without a box:", control)
    assert {control["keyctl"], control["add_key"]} & {"done", "EDQUOT"}
    # Not EBADF: a ring that was handed in would be as useless.
    assert {control["io_uring_enter"], control["io_uring_register"]} <= {"EBADF", "EOPNOTSUPP", "EPERM", "EINVAL"}
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


NO_IPC = frozenset({"EINVAL", "EIDRM", "ENOENT", "EPERM", "EACCES", "ENOSYS"})
"""The answers of a namespace of its own, and of a filter that knows no such call."""

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
    """
    A segment of the host that anyone may attach is attached by number and by key.

    Control: without a box it is attached and found.
    """
    with segment() as number:
        named = {"number": number, "key": 0x5A4B0000 | os.getpid() & 0xFFFF}
        inside = await boxes.act(SandboxSpec.workspace_write(ws), SHARED, **named)
        control = SHARED.outside(**named)
    assert {inside["attach"], inside["by key"]} <= NO_IPC
    assert (control["attach"], control["by key"]) == ("done", "done")


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
    """
    A POSIX message queue of the host is opened.

    Control: without a box it opens.
    """
    rt = ctypes.CDLL("librt.so.1", use_errno=True)
    name = f"/sandboxkit-test-{os.getpid()}"
    queue = rt.mq_open(name.encode(), os.O_RDWR | os.O_CREAT, 0o666, None)
    if queue < 0:
        pytest.skip(f"not applicable: this kernel makes no message queue: {os.strerror(ctypes.get_errno())}")
    os.close(queue)
    try:
        assert QUEUE.outside(name=name) == {"open": "done"}
        assert await boxes.act(SandboxSpec.workspace_write(ws), QUEUE, name=name) in (
            {"open": answer} for answer in NO_IPC
        )
    finally:
        rt.mq_unlink(name.encode())


QUEUES = Act(
    """
IPC_NOWAIT = 0o4000
attempt("receive by number", kernel, "msgrcv", arguments["queue"], ctypes.create_string_buffer(64), 8, 0, IPC_NOWAIT)
attempt("queue by key", kernel, "msgget", arguments["key"], 0)
attempt("set by key", kernel, "semget", arguments["key"], 1, 0)
attempt("value by number", kernel, "semctl", arguments["semaphores"], 0, 12)
answers["listed"] = any(str(arguments["key"]) in open("/proc/sysvipc/" + name).read() for name in ("msg", "sem"))
attempt("one of its own", lambda: kernel("msgctl", kernel("msgget", arguments["key"], 0o3600), 0, None))
"""
)


@contextlib.contextmanager
def queue_and_semaphores() -> Iterator[dict[str, int]]:
    """
    A message queue with one message and a set of semaphores of the host, for anyone.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    key = 0x5A4C0000 | os.getpid() & 0xFFFF
    queue, semaphores = libc.msgget(key, 0o1666), libc.semget(key, 1, 0o1666)
    assert min(queue, semaphores) >= 0, os.strerror(ctypes.get_errno())
    try:
        assert libc.msgsnd(queue, (ctypes.c_long * 2)(1, 7), 8, 0) == 0
        yield {"queue": queue, "semaphores": semaphores, "key": key}
    finally:
        libc.msgctl(queue, 0, None)
        libc.semctl(semaphores, 0, 0)


async def test_queues_and_semaphores_of_system_v_are_the_boxs_own(boxes: Boxes, ws: Path) -> None:
    """
    A message queue and semaphores of the host that anyone may use are read by number and by
    key.

    Control: without a box the message is received, and both are found.
    """
    with queue_and_semaphores() as named:
        inside = await boxes.act(SandboxSpec.workspace_write(ws), QUEUES, **named)
        control = QUEUES.outside(**named)
    acts = ("receive by number", "queue by key", "set by key", "value by number")
    assert {inside[what] for what in acts} <= NO_IPC, inside
    assert {control[what] for what in acts} == {"done"}


async def test_objects_of_system_v_are_not_listed_and_can_be_made(boxes: Boxes, ws: Path) -> None:
    """
    Shared memory, a message queue and semaphores of the host are looked for in /proc. A
    queue and a segment of its own, with the same keys, are made.

    Control: without a box they are listed.
    """
    spec = SandboxSpec.workspace_write(ws)
    with queue_and_semaphores() as named, segment() as number:
        numbered = {"number": number, "key": 0x5A4B0000 | os.getpid() & 0xFFFF}
        inside = (await boxes.act(spec, QUEUES, **named), await boxes.act(spec, SHARED, **numbered))
        control = (QUEUES.outside(**named), SHARED.outside(**numbered))
    assert [(found["listed"], found["one of its own"]) for found in inside] == [(False, "done")] * 2
    assert [found["listed"] for found in control] == [True, True]


KEYS = Act(
    """
number = arguments["keyctl"]
name = arguments["name"].encode()
def search():
    return kernel("syscall", number, 10, -4, b"user", name, 0)
def content():
    if kernel("syscall", number, 11, arguments["key"], ctypes.create_string_buffer(64), 64) < 1:
        raise OSError(errno.ENODATA, "")
attempt("find it by name", search)
attempt("read it by number", content)
try:
    answers["listed"] = arguments["name"] in open("/proc/keys").read()
except OSError:
    answers["listed"] = False
"""
)
KEY_CALLS = {"x86_64": (248, 250), "aarch64": (217, 219)}
"""add_key and keyctl."""


@contextlib.contextmanager
def key_of_the_user(name: str) -> Iterator[int]:
    """
    A key in the caller's user keyring, which every process of the user searches. It is made
    in that of this process: only who possesses a key may open it, and a service started by
    the system does not possess what is in its user's.

    Source: user-keyring(7), process-keyring(7), keyctl(2).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    add_key, keyctl = KEY_CALLS[os.uname().machine]
    key = libc.syscall(add_key, b"user", name.encode(), b"secret", 6, -2)
    if key < 0:
        pytest.skip(f"not applicable: no key can be made here: {os.strerror(ctypes.get_errno())}")
    # All rights for whoever possesses it, and for whoever is the user: KEYCTL_SETPERM. Then
    # KEYCTL_LINK to the user's keyring, and KEYCTL_UNLINK from that of the process.
    for call in ((5, key, 0x3F3F0000), (8, key, -4), (9, key, -2)):
        libc.syscall(keyctl, *call)
    try:
        yield key
    finally:
        libc.syscall(keyctl, 9, key, -4)


async def keys_inside_and_outside(boxes: Boxes, ws: Path) -> tuple[dict[str, object], dict[str, object]]:
    """
    What a box, and then a plain process, find of a key of the host.
    """
    named = {"name": f"sandboxkit-test-{os.getpid()}", "keyctl": KEY_CALLS[os.uname().machine][1]}
    with key_of_the_user(str(named["name"])) as key:
        inside = await boxes.act(SandboxSpec.workspace_write(ws), KEYS, key=key, **named)
        return inside, KEYS.outside(key=key, **named)


async def test_keys_of_the_host_are_not_read(boxes: Boxes, ws: Path) -> None:
    """
    A key of the caller's user keyring is searched by name and read by number.

    Control: without a box it is found and read.
    """
    inside, control = await keys_inside_and_outside(boxes, ws)
    assert {inside["find it by name"], inside["read it by number"]} <= {"ENOSYS", "EPERM", "EACCES", "ENOKEY"}, inside
    assert (control["find it by name"], control["read it by number"]) == ("done", "done")


async def test_keys_of_the_host_are_not_listed(boxes: Boxes, ws: Path) -> None:
    """
    The name of a key of the caller's user keyring is looked for in /proc/keys.

    Control: without a box it is listed.
    """
    inside, control = await keys_inside_and_outside(boxes, ws)
    assert (inside["listed"], control["listed"]) == (False, True)


__all__ = exported(globals(), "servers", "short", "told", *FIXTURES)
