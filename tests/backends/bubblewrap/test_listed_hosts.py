"""
A box that may reach listed hosts reaches those and no other, whatever it tries.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unicodedata
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxkit import EgressPolicy, NetworkPolicy, SandboxSpec
from sandboxkit.backends._way_out import WayOut
from sandboxkit.backends.bubblewrap import BubblewrapBackend, BubblewrapFacts
from sandboxkit.egress import EgressProxy
from sandboxkit.errors import SetupError
from sandboxkit.model import Control, Grade
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator, Sequence

    from sandboxkit.egress import EgressEvent

pytest.importorskip("h11", reason="the proxy is the extra egress")
pytestmark = [pytest.mark.anyio, pytest.mark.requires("bubblewrap"), pytest.mark.timeout(240)]

TRICKS = (Path(__file__).parent / "egress_tricks.py").read_text(encoding="utf-8")
PYTHON = (interpreter(), "-I", "-S", "-c")
OPEN = "127.0.0.2"
"""Where the listed server is; the hidden ones are at 127.0.0.1, which is never permitted."""
NAME = re.compile(rb"way-([a-z0-9-]+?)-end")


async def resolver(host: str, _port: int) -> Sequence[str]:
    """
    No real name service is asked.
    """
    answers = {"open.example": [OPEN], "mixed.example": [OPEN, "127.0.0.1"], "localhost": ["127.0.0.1"]}
    return answers.get(host, ["127.0.0.1"] if host.endswith(".example") else [])


class Servers:
    """
    Servers that write down who arrived.
    """

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.opened: list[bytes] = []
        self.threads: list[threading.Thread] = []
        self.stack = ExitStack()
        self.port = 0
        self.open = 0
        self.abstract = f"sandboxkit-test-{os.getpid()}"
        self.path = ""

    def names(self) -> set[str]:
        return {name.decode() for data in self.heard for name in NAME.findall(data)}

    def serve(self, server: socket.socket, heard: list[bytes]) -> None:
        server.settimeout(None)
        self.stack.callback(server.close)
        is_stream = server.type == socket.SOCK_STREAM
        if is_stream:
            server.listen(100)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    if is_stream:
                        client, _ = server.accept()
                        threading.Thread(target=answer, args=(client,), daemon=True).start()
                    elif (data := server.recv(65536)) != b"stop":
                        heard.append(data)
                    else:
                        return

        def answer(client: socket.socket) -> None:
            with client, suppress(OSError):
                client.settimeout(2)
                heard.append(b"somebody")
                while data := client.recv(65536):
                    heard.append(data)
                    if b"HTTP/1.1\r\n" in data:
                        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
                        return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        self.threads.append(thread)
        self.stack.callback(_end, server, is_stream)


def _end(server: socket.socket, is_stream: bool) -> None:
    with suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)
    if not is_stream:
        with suppress(OSError), socket.socket(server.family, socket.SOCK_DGRAM) as client:
            client.sendto(b"stop", server.getsockname())


def at_one_port() -> tuple[int, list[socket.socket]]:
    """
    Sockets at every address a trick is tried on, and their port: one that is free at all.
    """
    rows = [
        (socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1"),
        (socket.AF_INET6, socket.SOCK_STREAM, "::1"),
        (socket.AF_INET, socket.SOCK_STREAM, OPEN),
        (socket.AF_INET, socket.SOCK_DGRAM, "127.0.0.1"),
        (socket.AF_INET6, socket.SOCK_DGRAM, "::1"),
    ]
    for _ in range(50):
        port, made = 0, [socket.socket(family, kind) for family, kind, _ in rows]
        try:
            for server, (_, _, address) in zip(made, rows, strict=True):
                server.bind((address, port))
                port = server.getsockname()[1]
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise
            for server in made:
                server.close()
        else:
            return port, made
    raise AssertionError("no port is free at every address")


@contextmanager
def servers() -> Iterator[Servers]:
    found = Servers()
    with found.stack as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp", prefix="sk-"))
        os.chmod(folder, 0o755)
        found.path = f"{folder}/s"
        found.port, network = at_one_port()
        rows = [
            (socket.SOCK_STREAM, "\0" + found.abstract),
            (socket.SOCK_DGRAM, "\0" + found.abstract + "-datagram"),
            (socket.SOCK_STREAM, found.path),
        ]
        local = [(socket.socket(socket.AF_UNIX, kind), name) for kind, name in rows]
        for server, name in local:
            server.bind(name)
        for server in (*network, *(server for server, _ in local)):
            found.serve(server, found.heard)
        os.chmod(found.path, 0o777)
        listed = socket.create_server((OPEN, 0))
        found.open = listed.getsockname()[1]
        found.serve(listed, found.opened)
        yield found


def network(port: int, **more: Any) -> NetworkPolicy:
    hosts = (f"open.example:{port}", f"inside.example:{port}", "mixed.example")
    return NetworkPolicy(**{"allow_hosts": hosts, "permit_networks": (f"{OPEN}/32",), **more})


@asynccontextmanager
async def box(network: NetworkPolicy, *roots: Path) -> AsyncIterator[Any]:
    spec = SandboxSpec.workspace_write(*roots, network=network) if roots else SandboxSpec.isolated(network=network)
    async with BubblewrapBackend(resolver=resolver).open(spec) as opened:
        yield opened


def order(
    found: Servers, proxy: int, *, only: Collection[str] = (), without: Collection[str] = (), own: bool = False
) -> list[str]:
    said = {
        "port": found.port, "open": found.open, "abstract": found.abstract, "path": found.path,
        "proxy": proxy, "pid": os.getpid(), "only": [*only], "without": [*without], "own": own,
    }  # fmt: skip
    return [*PYTHON, TRICKS, json.dumps(said)]


UNSEEN = {
    "raw-icmp", "raw-icmp-ipv6", "icmp-datagram", "icmp-datagram-ipv6", "ping", "raw-ip", "packet", "vsock",
    "new-namespace", "hosts-namespace", "tunnel-device", "new-route",
}  # fmt: skip
"""Ways that reach no server; whether the kernel refuses them is what they answer."""
NEVER = {
    # No proxy of ours lets these through, whatever its policy: they have two readings, or none. A naive one does.
    "connect-decimal", "connect-hexadecimal", "connect-user", "connect-full-width", "get-user", "get-backslash",
    "smuggled-two-lengths", "smuggled-two-contents", "smuggled-space", "smuggled-line-feed",
    "smuggled-sign", "smuggled-hexadecimal", "smuggled-unknown-coding",
    "socks-udp", "socks-version-four", "header-injection", "get-fragment",
    # These go to the listed server, and say something about another there.
    "host-header", "server-name",
}  # fmt: skip


async def test_no_way_leads_to_what_is_not_listed() -> None:
    with servers() as found:
        hosts = (f"open.example:{found.open}", f"inside.example:{found.port}", "mixed.example")
        async with box(network(found.open, allow_hosts=hosts)) as inside:
            result = await inside.run(order(found, 61080), timeout=200)
        answers = json.loads(result.check().text())
        assert len(answers) >= 70
        assert answers["host-header"].startswith("HTTP/1.1 200"), answers  # what is listed answers all the while
        assert found.heard == [], (found.names(), found.heard, answers)
        refused = {name for name in UNSEEN if "Error" in answers[name]}
        assert refused == UNSEEN, answers
        assert any(violation.kind == "egress" for violation in result.violations)


async def test_the_same_ways_lead_there_without_the_box() -> None:
    """
    The control: those past the proxy without a box, those through it by a proxy that lets
    everything through.
    """
    permissive = EgressPolicy(
        permit_networks=["127.0.0.0/8", "::1/128"], permit_hosts=["localhost"], reserved_suffixes=[], blocked_ports=[]
    )
    with servers() as found:
        proxy = EgressProxy(permissive, resolver=resolver, own=())
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: proxy.serve(listener, task_status=task_status))
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            done = await anyio.run_process(order(found, port, without=UNSEEN), check=True)
            tasks.cancel_scope.cancel()
        answers = json.loads(done.stdout)
        arrived = found.names()
    expected = answers.keys() - UNSEEN - NEVER
    missing = expected - arrived
    # A kernel may lack these; what it lacks is no way anywhere.
    assert missing <= {"mptcp", "tcp-fast-open"}, {name: answers[name] for name in missing}
    assert len(arrived) >= 35


async def test_what_reaches_no_server_works_where_it_is_allowed() -> None:
    """
    The control of the rest, in a network of its own: the kernel answers echo requests there.
    """
    with servers() as found:
        done = await anyio.run_process(order(found, 1, only=UNSEEN, own=True), check=True)
    answers = json.loads(done.stdout)
    lacking = {
        "ping": shutil.which("ping") is None,
        "tunnel-device": not os.access("/dev/net/tun", os.R_OK | os.W_OK),
        "vsock": "Address family not supported" in answers["vsock"],
    }
    failed = {name: answer for name, answer in answers.items() if answer not in ("done", "answered")}
    assert failed.keys() <= {name for name, lacks in lacking.items() if lacks}, failed
    assert {name for name, answer in answers.items() if answer == "answered"} == {
        name for name in UNSEEN if "icmp" in name
    }


class Naive:
    """
    A proxy with the mistakes that these ways are made for. It goes by the last target it can
    find in what it got first, by a Host field or TLS name before that, and believes every
    spelling of an address.
    """

    def __init__(self, found: Servers) -> None:
        self.found = found
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def __enter__(self) -> Naive:
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, IndexError, ValueError):
            client.settimeout(5)
            data = client.recv(65536)
            if data[:1] == b"\x04":
                client.sendall(b"\0\x5a" + bytes(6))
                self.forward(client, socket.inet_ntoa(data[4:8]), b"")
            elif data[:1] == b"\x05":
                client.sendall(b"\x05\0")
                asked = client.recv(100)  # whatever command it is
                client.sendall(b"\x05\0\0\x01" + bytes(6))
                self.forward(client, socket.inet_ntoa(asked[4:8]), b"")
            else:
                self.serve_http(client, data)

    def serve_http(self, client: socket.socket, data: bytes) -> None:
        method, target = re.findall(rb"([A-Z]+) (\S+) HTTP/1.1", data)[-1]
        host = self.host(target.decode())
        if b"\nHost: hidden.example" in data:
            host = "hidden.example"
        rest = data
        if method == b"CONNECT":
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            rest = client.recv(65536)
            host = "hidden.example" if b"hidden.example" in rest else host
        self.forward(client, host, rest)

    def host(self, target: str) -> str:
        text = unicodedata.normalize("NFKC", target).rpartition("://")[2].rpartition("@")[2]
        return re.split(r"[/#]", text)[0].rpartition(":")[0]

    def forward(self, client: socket.socket, host: str, data: bytes) -> None:
        address = "127.0.0.1" if host.endswith(".example") else socket.inet_ntoa(socket.inet_aton(host))
        with socket.create_connection((address, self.found.port), 5) as server:
            server.sendall(data or client.recv(65536))
            server.shutdown(socket.SHUT_WR)
            client.sendall(server.recv(100))


async def test_a_naive_proxy_lets_the_rest_through() -> None:
    """
    The control of those that no proxy of ours lets through.
    """
    with servers() as found:
        with Naive(found) as proxy:
            done = await anyio.run_process(order(found, proxy.port, only=NEVER), check=True)
        answers = json.loads(done.stdout)
        assert found.names() >= NEVER, {name: answers[name] for name in NEVER - found.names()}


async def test_what_is_listed_is_reached_and_the_rest_is_reported() -> None:
    events: list[EgressEvent] = []
    with servers() as found:
        lists = network(found.open, deny_hosts=("denied.example",), ask_hosts=("asked.example",))
        async with box(lists) as inside:
            url = f"http://open.example:{found.open}/"
            result = await inside.run(["curl", "-sS", "-m9", url, f"{url}x"], on_egress=events.append)
            assert (result.text(), result.violations) == ("hihi", ())
            assert [(event.address, event.verdict.allowed) for event in events] == [(OPEN, True)] * 2
            assert len(found.opened) >= 2
            for host, why, line in (
                ("other.example", "no rule allows it", 'network.allow_hosts = ["other.example:80"]'),
                ("denied.example", "a rule denies denied.example (rule deny denied.example)", None),
                (
                    "asked.example",
                    "a rule asks about asked.example (rule ask asked.example), and nobody approved",
                    None,
                ),
                ("mixed.example", "127.0.0.0/8", None),
                ("10.0.0.1", "no rule allows it", None),
                ("localhost.localdomain", "reserved", None),
            ):
                result = await inside.run(["curl", "-sS", "-m9", f"http://{host}/", f"http://{host}/"])
                (violation,) = result.violations
                assert (violation.kind, violation.target) == ("egress", f"http://{host}/"), violation
                assert violation.count == 2
                assert why in violation.detail
                assert "to curl" in violation.detail
                assert violation.spec_line == line
        assert found.heard == []


async def test_many_refusals_are_bounded() -> None:
    script = (
        "import socket\n"
        "for n in range(150):\n"
        "    with socket.create_connection(('127.0.0.1', 61080)) as client:\n"
        "        client.sendall(b'GET http://h%d.example/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' % n)\n"
        "        client.recv(1)  # what nobody waits for may come too late to be refused\n"
    )
    async with box(NetworkPolicy(mode="listed")) as inside:
        result = await inside.run([*PYTHON, script])
    assert len(result.violations) == 101
    assert result.violations[-1].count == 50


async def test_the_boxs_own_loopback_works_beside_it() -> None:
    script = (
        "import http.server,threading,urllib.request as u\n"
        "s=http.server.HTTPServer(('127.0.0.1',0),http.server.SimpleHTTPRequestHandler)\n"
        "threading.Thread(target=s.serve_forever,daemon=True).start()\n"
        "for h in ('127.0.0.1','localhost'): print(u.urlopen(f'http://{h}:{s.server_port}/').status)\n"
    )
    async with box(network(1)) as inside:
        result = await inside.run([interpreter(), "-c", script], cwd="/tmp")
        assert result.check().text().split() == ["200", "200"]
        assert result.violations == ()


async def test_rules_that_ask_wait_for_the_approver() -> None:
    asked: list[tuple[str, str, int]] = []

    async def ask(question: Any) -> bool:
        asked.append((question.identity, question.host, question.port))
        await anyio.sleep(0.2)
        return bool(question.host == "open.example")

    with servers() as found:
        lists = NetworkPolicy(ask_hosts=("*.example",), permit_networks=(f"{OPEN}/32",))
        async with box(lists) as inside:
            urls = [f"http://{host}.example:{found.open}/" for host in ("open", "open", "no")]
            result = await inside.run(["curl", "-sSm9", "-Z", *urls], ask=ask)
        assert result.text().count("hi") == 2
        assert sorted(asked) == [("curl", "no.example", found.open), ("curl", "open.example", found.open)]
        (violation,) = result.violations
        assert violation.detail.endswith("and nobody approved")


async def test_at_most_twenty_questions_are_asked() -> None:
    asked: list[str] = []

    async def ask(question: Any) -> bool:
        asked.append(question.host)
        return False

    async with box(NetworkPolicy(ask_hosts=("*.example",))) as inside:
        result = await inside.run(["curl", "-sSm9", *(f"http://h{n}.example/" for n in range(30))], ask=ask)
    assert len(asked) == 20
    assert len(result.violations) == 30


@pytest.mark.parametrize("after", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4])
async def test_cancelling_at_any_moment_leaves_nothing(after: float) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with servers() as found:
        async with box(network(found.open)) as inside:
            with anyio.move_on_after(after):
                await inside.run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/61080; printf 'CONNECT open.example:{found.open} HTTP/1.0\\r\\n\\r\\n' >&3; sleep 60"])  # fmt: skip
            with anyio.move_on_after(after):
                async with inside.start(["sleep", "60"]) as process:
                    await process.wait()
            result = await inside.run(["curl", "-sSm9", f"http://open.example:{found.open}/"])
            assert result.text() == "hi"
    await anyio.sleep(0.05)
    assert len(os.listdir("/proc/self/fd")) <= before + 3  # the broker's channel, and what the event loop keeps


async def test_what_the_block_raises_is_not_wrapped() -> None:
    async with box(network(1)) as inside:
        with pytest.raises(KeyError, match="mine"):
            async with inside.start(["sleep", "60"]):
                raise KeyError("mine")


async def test_a_started_command_reports_too() -> None:
    async with box(network(1)) as inside, inside.start(["curl", "-sSm9", "http://other.example/"]) as process:
        result = await process.wait()
        assert [found.target for found in result.violations] == ["http://other.example/"]


KILLED = """
import anyio, os, sys
from sandboxkit import NetworkPolicy, SandboxSpec
from sandboxkit.backends._way_out import WayOut
from sandboxkit.backends.bubblewrap import BubblewrapBackend, BubblewrapFacts

async def resolver(host, port):
    return ["127.0.0.2"]

async def main():
    port = sys.argv[1]
    network = NetworkPolicy(allow_hosts=("open.example",), permit_networks=("127.0.0.2/32",))
    async with BubblewrapBackend(resolver=resolver).open(SandboxSpec.isolated(network=network)) as box:
        script = "exec 3<>/dev/tcp/127.0.0.1/61080; printf 'CONNECT open.example:%s HTTP/1.0\\\\r\\\\n\\\\r\\\\n' $0 >&3; read -r l <&3; printf way-killed-end >&3; exec sleep $1"
        await box.run(["bash", "-c", script, port, sys.argv[2]])

anyio.run(main)
"""


async def test_a_killed_application_leaves_no_tunnel_and_no_process() -> None:
    from sandboxkit.testing.conformance._acts import gone, importable, running

    mark = f"97{os.getpid()}"
    with servers() as found:
        application = subprocess.Popen([sys.executable, "-c", KILLED, str(found.open), mark], env=importable())
        try:
            with anyio.fail_after(60):
                while not any(b"way-killed-end" in data for data in found.opened):  # noqa: ASYNC110 - a thread hears it
                    await anyio.sleep(0.05)
            assert running(mark)
        finally:
            application.kill()
            application.wait()
        assert gone(mark)
        with anyio.fail_after(5):
            while established(found.open):  # noqa: ASYNC110 - the kernel sets no event
                await anyio.sleep(0.05)


def established(port: int) -> list[str]:
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[2] for row in rows if row[3] == "01" and f":{port:04X}" in row[1] + row[2]]


async def test_the_command_is_told_the_proxy_and_nothing_overrides_it() -> None:
    environment = {"HTTPS_PROXY": "http://192.0.2.1:1", "JAVA_TOOL_OPTIONS": "-Xmx1g", "PATH": "/usr/bin:/bin"}
    async with box(network(1)) as inside:
        result = await inside.run(["env"], environment=environment)
        plain = await inside.run(["env"])
    told = dict(line.split("=", 1) for line in result.check().text().splitlines())
    url = "http://127.0.0.1:61080"
    assert {told[name] for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy")} == {url}
    assert told["no_proxy"] == told["NO_PROXY"] == "localhost,127.0.0.1,::1"
    assert told["JAVA_TOOL_OPTIONS"].startswith("-Xmx1g -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=61080 ")
    assert told["NODE_USE_ENV_PROXY"] == "1"
    assert "https_proxy=" in plain.text()


async def test_a_proxy_that_fails_ends_the_box_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_self: WayOut, fd: int) -> None:
        os.close(fd)
        raise RuntimeError("out of order")

    monkeypatch.setattr(WayOut, "serve", fails)
    async with box(network(1)) as inside:
        with anyio.fail_after(30), pytest.raises(SetupError, match="the proxy of the box failed: out of order"):
            await inside.run(["sleep", "60"])


async def test_without_the_extra_it_is_absent_with_the_remedy() -> None:
    backend = BubblewrapBackend()
    spec = SandboxSpec.isolated(network=network(1))
    facts = (await backend.detect(spec)).facts
    assert isinstance(facts, BubblewrapFacts)
    claim = backend.enforcement(spec, replace(facts, has_proxy=False))
    assert claim.grade(Control.NET_ALLOWLIST) is Grade.ABSENT
    assert "pip install 'sandboxkit[egress]'" in claim.reason(Control.NET_ALLOWLIST)
    assert backend.enforcement(spec, facts).grade(Control.NET_NONE) is Grade.ABSENT


async def test_broad_lists_are_noted_in_the_plan() -> None:
    async with box(NetworkPolicy(allow_hosts=("*.github.io",))) as inside:
        plan = inside.plan(["true"])
    assert any("anybody can have a name under github.io" in note for note in plan.notes)
    assert "proxy     127.0.0.1:61080 in the box" in plan.describe()
    assert plan.to_dict()["proxy_port"] == 61080


async def test_a_box_does_not_use_up_the_applications_descriptors() -> None:
    script = (
        "import socket, sys, time\n"
        "kept = [socket.create_connection(('127.0.0.1', 61080)) for _ in range(400)]\n"
        "time.sleep(1)\n"
        "[one.close() for one in kept[:-1]]\n"
        "kept[-1].sendall(b'CONNECT a.example:80 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
        "print(kept[-1].recv(12))\n"
    )
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(os.listdir("/proc/self/fd")))
            await anyio.sleep(0.02)

    before = len(os.listdir("/proc/self/fd"))
    async with box(network(1)) as inside, anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        result = await inside.run([*PYTHON, script])
        tasks.cancel_scope.cancel()
    assert result.check().text() == "b'HTTP/1.1 403'\n"
    assert most < before + 200


async def test_the_command_inherits_neither_the_listener_nor_the_door() -> None:
    script = (
        "import os, socket\n"
        "print(sorted(int(name) for name in os.listdir('/proc/self/fd'))[:-1])\n"
        "try: socket.create_server(('127.0.0.1', 61080), reuse_port=True)\n"
        "except OSError as error: print(error.errno)\n"
    )
    async with box(network(1)) as inside:
        assert (await inside.run([*PYTHON, script])).check().text().split("\n")[:2] == ["[0, 1, 2]", "98"]
