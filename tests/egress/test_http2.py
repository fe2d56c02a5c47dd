"""
A guarded client over HTTP/2, against a real server: what holds for HTTP/1.1 holds there.
"""

from __future__ import annotations

import gzip
import json
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from anyio.streams.tls import TLSStream
from tests.egress.servers import local_policy, names, serving

from sandboxkit import EgressDeniedError, EgressLimitError, UrlError
from sandboxkit.egress import guarded_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.abc import SocketStream

httpx2 = pytest.importorskip("httpx2", reason="the client is the extra egress")
trustme = pytest.importorskip("trustme", reason="makes the certificates")
pytest.importorskip("h2", reason="HTTP/2 is the extra egress")
pytestmark = pytest.mark.anyio

CA = trustme.CA()
Fields = list[tuple[str, str]]
MIB = 1 << 20


class Server:
    """
    What it got: the fields of each request, and how many connections there were.
    """

    def __init__(self) -> None:
        self.requests: list[Fields] = []
        self.connections = 0
        self.port = 0


@asynccontextmanager
async def http2(answer: Callable[[dict[str, str]], tuple[Fields, bytes]]) -> AsyncIterator[Server]:
    """
    A server that gives each request *answer*, over HTTP/2 alone.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    CA.issue_cert("a.example", "b.example").configure_cert(context)
    server = Server()

    async def one(stream: SocketStream) -> None:
        try:
            tls = await TLSStream.wrap(stream, server_side=True, ssl_context=context, standard_compatible=False)
        except ssl.SSLError:
            return
        server.connections += 1
        await _speak(tls, server, answer)

    async with serving(one) as server.port:
        yield server


async def _speak(tls: TLSStream, server: Server, answer: Callable[[dict[str, str]], tuple[Fields, bytes]]) -> None:
    import h2.config
    import h2.connection
    import h2.events

    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
    connection.initiate_connection()
    waiting: dict[int, bytes] = {}
    while True:
        for number, rest in list(waiting.items()):
            room = min(connection.local_flow_control_window(number), connection.max_outbound_frame_size)
            while rest and room > 0:
                connection.send_data(number, rest[:room])
                rest = rest[room:]
                room = min(connection.local_flow_control_window(number), connection.max_outbound_frame_size)
            waiting[number] = rest
            if not rest:
                connection.end_stream(number)
                del waiting[number]
        await tls.send(connection.data_to_send())
        for event in connection.receive_data(await tls.receive()):
            if isinstance(event, h2.events.RequestReceived):
                fields = [(str(name), str(value)) for name, value in event.headers]
                server.requests.append(fields)
                extra, body = answer(dict(fields))
                status = [] if any(name == ":status" for name, _ in extra) else [(":status", "200")]
                connection.send_headers(event.stream_id, [*status, *extra])
                waiting[event.stream_id] = body
            elif isinstance(event, h2.events.StreamReset):
                waiting.pop(event.stream_id, None)


def plainly(_: dict[str, str]) -> tuple[Fields, bytes]:
    return [], b"hello"


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    CA.configure_trust(context)
    return context


def client(policy: Any = None, **more: Any) -> Any:
    return guarded_client(policy or local_policy(), resolver=names(), own=(), ssl_context=trusting(), **more)


async def test_a_request_goes_over_http2_under_its_own_name() -> None:
    async with http2(plainly) as server, client() as http:
        for path in ("x", "y"):
            answer = await http.get(f"https://a.example:{server.port}/{path}", headers={"X-Key": "v"})
            assert (answer.http_version, answer.content) == ("HTTP/2", b"hello")
    assert server.connections == 1
    fields = dict(server.requests[0])
    assert (fields[":authority"], fields[":path"], fields["x-key"]) == (f"a.example:{server.port}", "/x", "v")
    assert "host" not in fields


async def test_names_on_one_address_share_no_connection() -> None:
    async with http2(plainly) as server, client() as http:
        for host in ("a", "b"):
            await http.get(f"https://{host}.example:{server.port}/")
    assert server.connections == 2
    assert [dict(fields)[":authority"] for fields in server.requests] == [
        f"{host}.example:{server.port}" for host in "ab"
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "1\r\nX-B: 2"},
        {"X-A": "1\nX-B: 2"},
        {"X-A": "1\0"},
        {"X-A\r\nX-B": "1"},
        {"X A": "1"},
        {":authority": "evil.example"},
        {":path": "/other"},
        {"": "1"},
        {"Host": "evil.example"},
        {"host": "b.example"},
        {"Proxy-Authorization": "x"},
        {"Upgrade": "h2c"},
    ],
    ids=ascii,
)
async def test_fields_that_say_something_else_are_refused_unsent(headers: dict[str, str]) -> None:
    async with http2(plainly) as server, client() as http:
        url = f"https://a.example:{server.port}/"
        with pytest.raises((EgressDeniedError, ValueError, httpx2.LocalProtocolError)):
            await http.get(url, headers=headers)
        assert server.requests == []
        assert (await http.get(url, headers={"Host": f"a.example:{server.port}"})).status_code == 200


@pytest.mark.parametrize("name", ["sni_hostname", "trace", "network_stream", "target"])
async def test_extensions_that_could_lead_elsewhere_are_refused(name: str) -> None:
    async with http2(plainly) as server, client() as http:
        with pytest.raises(EgressDeniedError, match=name):
            await http.get(f"https://a.example:{server.port}/", extensions={name: "b.example"})
        assert server.requests == []


async def test_redirects_are_decided_about_and_take_no_keys_along() -> None:
    def answer(port: int, fields: dict[str, str]) -> tuple[Fields, bytes]:
        targets = {
            "/across": f"https://b.example:{port}/end",
            "/inside": "https://localhost/",
            "/down": f"http://b.example:{port}/x",
            "/denied": "/private",
            "/odd": "https:\\\\b.example",
        }
        location = targets.get(fields[":path"])
        return ([(":status", "302"), ("location", location)], b"") if location else ([], b"end")

    policy = local_policy(
        rules=[{"action": "deny", "to": "a.example/private"}, {"action": "deny", "to": "http://b.example"}]
    )
    server: Server
    async with (
        http2(lambda fields: answer(server.port, fields)) as server,
        client(policy, options={"follow_redirects": True}) as http,
    ):
        base = f"https://a.example:{server.port}"
        got = await http.get(f"{base}/across", headers={"Authorization": "k", "X-Api-Key": "k", "Cookie": "c=1"})
        assert (got.content, got.http_version) == (b"end", "HTTP/2")
        last = dict(server.requests[-1])
        assert last[":authority"] == f"b.example:{server.port}"
        assert not {"authorization", "x-api-key", "cookie"} & last.keys()
        for path in ("/inside", "/down", "/denied", "/odd"):
            count = len(server.requests)
            with pytest.raises((EgressDeniedError, UrlError)):
                await http.get(base + path)
            assert len(server.requests) == count + 1


async def test_a_bomb_stops_early_over_http2() -> None:
    bomb = gzip.compress(bytes(200 * MIB), 9)
    async with http2(lambda _: ([("content-encoding", "gzip")], bomb)) as server, client() as http:
        with pytest.raises(EgressLimitError, match=r"body (has more|is more)"):
            await http.get(f"https://a.example:{server.port}/")


async def test_many_fields_are_refused_over_http2() -> None:
    async with http2(lambda _: ([(f"x-{number}", "a") for number in range(200)], b"")) as server, client() as http:
        with pytest.raises(EgressLimitError, match="header fields"):
            await http.get(f"https://a.example:{server.port}/")


GROWTH = """
import json, ssl, sys
import anyio
import anyio.to_thread
from sandboxkit import EgressLimitError
from sandboxkit.egress import guarded_client
from tests.egress.servers import local_policy, names

def memory(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key)) * 1024

async def main(url, roots, http2):
    context = ssl.create_default_context(cafile=roots)
    async with guarded_client(local_policy(), resolver=names(), own=(), ssl_context=context, http2=http2) as http:
        assert (await http.get(url + "small")).content == b"hello"
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # proc(5): the peak begins anew
        before = memory("VmRSS")
        try:
            await http.get(url + "bomb")
        except EgressLimitError:
            stopped = True
        else:
            stopped = False
        print(json.dumps([stopped, memory("VmHWM") - before]))

anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3] == "2")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of its memory from /proc")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the process that is measured has its own
@pytest.mark.parametrize("version", ["1", "2"])
async def test_a_bomb_takes_little_memory(version: str, tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(200 * MIB), 9)
    CA.cert_pem.write_to_path(tmp_path / "ca.pem")

    def answer(fields: dict[str, str]) -> tuple[Fields, bytes]:
        return ([("content-encoding", "gzip")], bomb) if fields[":path"] == "/bomb" else ([], b"hello")

    async def plain(stream: SocketStream) -> None:
        from tests.egress.test_proxy import head

        while True:
            wanted = (await head(stream)).startswith(b"GET /bomb")
            fields = b"Content-Encoding: gzip\r\n" if wanted else b""
            body = bomb if wanted else b"hello"
            await stream.send(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n" % (fields, len(body)) + body)

    async with http2(answer) as server, serving(plain) as port:
        url = f"https://a.example:{server.port}/" if version == "2" else f"http://a.example:{port}/"
        done = await anyio.to_thread.run_sync(
            partial(
                subprocess.run,
                [sys.executable, "-c", GROWTH, url, str(tmp_path / "ca.pem"), version],
                capture_output=True,
                text=True,
                cwd=Path(__file__).parents[2],
                check=False,
            )
        )
    assert done.returncode == 0, done.stderr
    stopped, grown = json.loads(done.stdout)
    assert stopped
    assert grown <= 8 * MIB, f"{grown / MIB:.1f} MiB"
