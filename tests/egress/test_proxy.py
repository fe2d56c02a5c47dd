"""
Through the proxy goes what the policy allows, by every way of asking, and nothing else.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.egress.servers import LOOPBACK, echo, local_policy, names, read_all, serving, until

from sandboxkit import EgressPolicy
from sandboxkit.egress import EgressEvent, EgressProxy, EgressQuestion, ProxyLimits
from sandboxkit.guard import canonical_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import ByteStream, SocketStream

    from sandboxkit.guard import Address

h11 = pytest.importorskip("h11", reason="the proxy is the extra egress")
pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent


class Proxy:
    """
    A running proxy without a token, and what it recorded.
    """

    def __init__(self, port: int, events: list[EgressEvent]) -> None:
        self.port = port
        self.events = events

    async def recorded(self, count: int = 1) -> list[EgressEvent]:
        """
        The events, once there are *count* of them: the client knows before they are written.
        """
        await until(lambda: len(self.events) >= count)
        return self.events

    async def opened(self) -> SocketStream:
        return await anyio.connect_tcp("127.0.0.1", self.port)

    async def said(self, data: bytes) -> bytes:
        """
        Everything the proxy says to *data*, until it closes.
        """
        async with await self.opened() as stream:
            await stream.send(data)
            with anyio.fail_after(10):
                return await read_all(stream)

    async def connected(self, target: str) -> tuple[SocketStream, bytes]:
        """
        A CONNECT, and the head of the answer.
        """
        stream = await self.opened()
        await stream.send(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return stream, await head(stream)

    async def socks(self, host: str, port: int) -> tuple[SocketStream, int]:
        """
        A SOCKS5 CONNECT by name, and the code of the answer.
        """
        stream = await self.opened()
        name = host.encode("latin-1", "replace")
        await stream.send(b"\x05\x01\x00")
        assert await exactly(stream, 2) == b"\x05\x00"
        await stream.send(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + struct.pack("!H", port))
        return stream, (await exactly(stream, 10))[1]


async def exactly(stream: ByteStream, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += await stream.receive(count - len(data))
    return data


async def head(stream: ByteStream) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive(1)
    return data


@asynccontextmanager
async def proxying(policy: EgressPolicy | None = None, *, resolver: Any = None, **more: Any) -> AsyncIterator[Proxy]:
    events: list[EgressEvent] = []
    proxy = EgressProxy(
        policy or local_policy(),
        identity="box",
        resolver=resolver or names(),
        own=(),
        on_event=events.append,
        **more,
    )
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: proxy.serve(listener, task_status=task_status))
        yield Proxy(int(listener.extra(anyio.abc.SocketAttribute.local_port)), events)
        tasks.cancel_scope.cancel()


async def web(stream: SocketStream) -> None:
    """
    An HTTP server that says what it was asked, until `/close`.
    """
    connection = h11.Connection(h11.SERVER)
    async with stream:
        while True:
            request: Any = None
            body = b""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    try:
                        connection.receive_data(await stream.receive())
                    except anyio.EndOfStream:
                        return
                elif isinstance(event, h11.Request):
                    request = event
                    if connection.they_are_waiting_for_100_continue:
                        await stream.send(
                            connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
                        )
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    break
                else:
                    return
            said = json.dumps(
                {
                    "method": request.method.decode(),
                    "target": request.target.decode(),
                    "headers": [[name.decode(), value.decode()] for name, value in request.headers],
                    "body": body.decode("latin-1"),
                }
            ).encode()
            for answer in (
                h11.Response(
                    status_code=200,
                    headers=[("Content-Length", str(len(said))), ("X-Secret", "hop"), ("Connection", "x-secret")],
                ),
                h11.Data(data=said if request.method != b"HEAD" else b""),
                h11.EndOfMessage(),
            ):
                await stream.send(connection.send(answer) or b"")
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()


def body_of(answer: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return value


async def test_a_tunnel_carries_bytes_both_ways_and_half_closes() -> None:
    async with serving() as port, proxying() as proxy:
        stream, answer = await proxy.connected(f"a.example:{port}")
        assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n"
        async with stream:
            await stream.send(b"x" * 1_000_000)
            await stream.send_eof()
            assert await read_all(stream) == b"x" * 1_000_000
        async with await proxy.opened() as stream:  # bytes right behind the request belong to the tunnel
            await stream.send(f"CONNECT a.example:{port} HTTP/1.0\r\n\r\nhello".encode())
            await stream.send_eof()
            assert (await read_all(stream)).endswith(b"\r\n\r\nhello")
        event = (await proxy.recorded(2))[0]
    assert (event.identity, event.protocol, event.destination) == ("box", "connect", f"a.example:{port}")
    assert (event.address, event.sent_bytes, event.received_bytes) == ("127.0.0.1", 1_000_000, 1_000_000)
    assert event.verdict.allowed
    assert event.problem is None


async def test_the_server_may_speak_first_and_end_first() -> None:
    late: list[bytes] = []
    done = anyio.Event()

    async def greets(stream: SocketStream) -> None:
        async with stream:
            await stream.send(b"220 hello\r\n")
            await stream.send_eof()
            late.append(await read_all(stream))
            done.set()

    async with serving(greets) as port, proxying() as proxy:
        stream, _ = await proxy.connected(f"a.example:{port}")
        async with stream:
            assert await read_all(stream) == b"220 hello\r\n"
            await stream.send(b"late")
            await stream.send_eof()
            with anyio.fail_after(5):
                await done.wait()
    assert late == [b"late"]


async def test_socks_resolves_names_here() -> None:
    async with serving() as port, proxying() as proxy:
        stream, code = await proxy.socks("a.example", port)
        assert code == 0
        async with stream:
            await stream.send(b"hello")
            assert await stream.receive() == b"hello"
        for host in ("localhost", "inside.local", "127.1", "2130706433", "user@a.example", "nowhere.invalid", "\xff"):
            stream, code = await proxy.socks(host, port)
            assert code == 2, host
            await stream.aclose()


@pytest.mark.parametrize("kind", [1, 4])
async def test_socks_takes_address_literals(kind: int) -> None:
    host = "127.0.0.1" if kind == 1 else "::1"
    raw = b"\x7f\x00\x00\x01" if kind == 1 else bytes(15) + b"\x01"
    async with serving(host=host) as port:
        for policy, code in ((local_policy(), 0), (EgressPolicy(), 2)):
            async with proxying(policy) as proxy, await proxy.opened() as stream:
                await stream.send(b"\x05\x02\x00\x02")
                assert await exactly(stream, 2) == b"\x05\x00"
                await stream.send(b"\x05\x01\x00" + bytes([kind]) + raw + struct.pack("!H", port))
                assert (await exactly(stream, 10))[1] == code


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"\x05\x01\x02", b"\x05\xff"),
        (b"\x05\x00", b"\x05\xff"),
        (b"\x05\x01\x00\x05\x02\x00\x01" + bytes(6), b"\x05\x00\x05\x07\x00\x01" + bytes(6)),
        (b"\x05\x01\x00\x05\x03\x00\x01" + bytes(6), b"\x05\x00\x05\x07\x00\x01" + bytes(6)),
        (b"\x05\x01\x00\x05\x01\x00\x09" + bytes(6), b"\x05\x00\x05\x08\x00\x01" + bytes(6)),
        (b"\x05\x01\x00\x05\x01\x00\x03\x00\x00\x50", b"\x05\x00\x05\x02\x00\x01" + bytes(6)),
        (b"\x05\x01\x00\x05\x01\x00\x03\x09a.example\x00\x00", b"\x05\x00\x05\x02\x00\x01" + bytes(6)),
        (b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", b"HTTP/1.1 400"),
    ],
)
async def test_what_socks_does_not_do_is_refused(data: bytes, answer: bytes) -> None:
    async with proxying() as proxy:
        assert (await proxy.said(data + (b"\r\n\r\n" if data[:1] == b"\x04" else b""))).startswith(answer)


@pytest.mark.parametrize(
    ("target", "status", "why"),
    [
        ("localhost:80", 403, "one label"),
        ("a.local:443", 403, "local is reserved"),
        ("10.0.0.1:443", 403, "private use"),
        ("[::ffff:a9fe:a9fe]:80", 403, "169.254.169.254/32"),
        ("169.254.169.254:80", 403, "no setting lifts this"),
        ("inside.example:443", 403, "private use"),
        ("a.example:22", 403, "port 22 is blocked"),
        ("nowhere.invalid:443", 403, "reserved"),
        ("nowhere.example.org:443", 403, "has no address"),
        ("127.1:80", 400, "four decimal octets"),
        ("a.example", 400, "CONNECT takes host:port"),
        ("a.example:0", 400, "CONNECT takes host:port"),
        ("a.example:99999", 400, "CONNECT takes host:port"),
        ("http://a.example/:80", 400, "CONNECT takes host:port"),
        ("user@a.example:80", 400, "labels"),
        ("fe80::1:80", 400, "CONNECT takes host:port"),
    ],
)
async def test_refusals_are_readable_and_recorded(target: str, status: int, why: str) -> None:
    async with proxying(EgressPolicy(), resolver=names(inside_example=["10.0.0.1"])) as proxy:
        answer = await proxy.said(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert why in answer.decode(), answer
        (event,) = await proxy.recorded()
    assert not event.verdict.allowed
    assert (event.address, event.sent_bytes) == (None, 0)


async def test_a_refused_head_is_readable_too(caplog: pytest.LogCaptureFixture) -> None:
    """
    An answer to HEAD has no body, whatever length it says. Source: RFC 9110 section 9.3.2.
    """
    async with proxying(local_policy(deny_hosts=["evil.example"])) as proxy:
        for target in ("http://evil.example/", "https://a.example/", "/"):
            answer = await proxy.said(f"HEAD {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 400")), answer
            assert answer.endswith(b"\r\n\r\n")
        assert not any(event.verdict.allowed for event in await proxy.recorded(3))
    assert "failed" not in caplog.text


async def test_an_absolute_url_is_fetched_with_its_own_host() -> None:
    async with serving(web) as port, proxying() as proxy, await proxy.opened() as stream:
        await stream.send(
            f"POST http://A.example:{port}/a/../b?q HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 5\r\n"
            "Proxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\nX-Hop: 1\r\nX-End: 2\r\n"
            "Connection: x-hop, keep-alive\r\nUpgrade: websocket\r\n\r\nhello".encode()
        )
        first = await head(stream)
        length = int(
            dict(line.split(": ") for line in first.decode().lower().split("\r\n")[1:] if line)["content-length"]
        )
        seen = json.loads(await exactly(stream, length))
        assert b"x-secret" not in first.lower()
        assert (seen["method"], seen["target"], seen["body"]) == ("POST", "/b?q", "hello")
        assert seen["headers"] == [
            ["host", f"a.example:{port}"],
            ["x-end", "2"],
            ["content-length", "5"],
            ["connection", "close"],
        ]
        await stream.send(f"GET http://localhost:{port}/ HTTP/1.1\r\nHost: a.example\r\n\r\n".encode())
        assert (await read_all(stream)).startswith(b"HTTP/1.1 403")
        assert [event.verdict.allowed for event in await proxy.recorded(2)] == [True, False]
    assert proxy.events[0].destination == f"http://a.example:{port}/b"


async def test_a_chunked_body_and_100_continue_go_through() -> None:
    async with serving(web) as port, proxying() as proxy, await proxy.opened() as stream:
        await stream.send(
            f"PUT http://a.example:{port}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        assert (await head(stream)).startswith(b"HTTP/1.1 100 ")
        await stream.send(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        await stream.send_eof()
        assert body_of(await read_all(stream))["body"] == "abcde"


async def test_every_request_of_a_connection_is_checked() -> None:
    policy = local_policy(rules=[{"action": "allow", "to": "a.example", "methods": ["GET"]}], default="deny")
    async with serving(web) as port, proxying(policy) as proxy:
        one = f"GET http://a.example:{port}/1 HTTP/1.1\r\nHost: a\r\n\r\n"
        other = f"GET http://b.example:{port}/2 HTTP/1.1\r\nHost: a.example\r\n\r\n"
        answer = await proxy.said((one + one + other + one).encode())  # pipelined
        assert [answer.count(b"HTTP/1.1 %d" % status) for status in (200, 403)] == [2, 1]
        answer = await proxy.said(one.replace("GET", "DELETE").encode())
        assert answer.startswith(b"HTTP/1.1 403")


SMUGGLED = [
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "Content-Length: +5\r\n\r\nhello",
    "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "X: a\rb\r\n\r\n",
    "X: a\0b\r\n\r\n",
    "X\x0bY: a\r\n\r\n",
    "Host: a.example\r\n\r\n",
]


@pytest.mark.parametrize("fields", SMUGGLED)
async def test_requests_of_two_readings_are_refused(fields: str) -> None:
    async with serving(web) as port, proxying() as proxy:
        answer = await proxy.said(f"POST http://a.example:{port}/ HTTP/1.1\r\nHost: a.example\r\n{fields}".encode())
        assert answer[:10] in (b"HTTP/1.1 4", b"HTTP/1.1 5"), answer
        sane = f"POST http://a.example:{port}/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
        assert body_of(await proxy.said(sane.encode()))["body"] == "hello"


@pytest.mark.parametrize(
    "target",
    ["/", "*", "a.example", "https://a.example/", "ftp://a.example/", "http:a", "http://127.1/", "http://a@b.example/"],
)
async def test_targets_that_are_no_http_url_are_refused(target: str) -> None:
    async with proxying() as proxy:
        answer = await proxy.said(f"GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 400"), answer


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01", b"\x00\x00\x00\x00", b"GET", b"\r\n\r\n", b"GARBAGE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]
)
async def test_garbage_ends_the_connection_and_nothing_else(data: bytes) -> None:
    async with proxying(limits=ProxyLimits(header_timeout=0.2)) as proxy:
        answer = await proxy.said(data)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4") or answer == b"<reset>"
        assert (await proxy.said(b"CONNECT localhost:1 HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    ("data", "protocol", "why"),
    [
        (b"GET / HTTP/9\r\n\r\n", "http", "the request is malformed"),
        (b"nonsense\r\n\r\n", "http", "the request is malformed"),
        (b"GET http://a.example/ HTTP/1.1\r\nHost: a\r\n x: \0\xff\r\n\r\n", "http", "the request is malformed"),
        (b"GET http://a.example/ HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 5000 + b"\r\n\r\n", "http", "1000 bytes"),
        (
            b"POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "http",
            "two lengths",
        ),
        (b"\x16\x03\x01\0\x05hello", "http", "TLS to the proxy itself"),
        (b"\x05\x01\x02", "socks5", "no way without a token"),
        (b"\x05\x01\0\x05\x02\0\x01\x7f\0\0\x01\0\x50", "socks5", "command 2"),
        (b"\x05\x01\0\x04\x01\0\x01\x7f\0\0\x01\0\x50", "socks5", "version 4"),
        (b"\x05\x01\0\x05\x01\0\x07\x7f\0\0\x01\0\x50", "socks5", "kind 7"),
    ],
)
async def test_what_cannot_be_read_is_recorded_too(data: bytes, protocol: str, why: str) -> None:
    async with proxying(limits=ProxyLimits(header_bytes=1000)) as proxy:
        await proxy.said(data)
        (event,) = await proxy.recorded()
    assert (event.identity, event.protocol, event.verdict.action) == ("box", protocol, "deny")
    assert why in event.verdict.reason
    assert event.verdict.reason.isascii()
    assert event.verdict.reason.isprintable()
    assert len(event.verdict.reason) <= 200


async def test_long_headers_are_refused() -> None:
    async with proxying(limits=ProxyLimits(header_bytes=1000)) as proxy:
        answer = await proxy.said(b"GET http://a.example/ HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 5000 + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 431"), answer


async def test_a_server_that_breaks_the_protocol_is_a_bad_gateway() -> None:
    async def bad(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello")

    async with serving(bad) as port, proxying() as proxy:
        answer = await proxy.said(f"GET http://a.example:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 502")
        assert "malformed" in ((await proxy.recorded())[0].problem or "")


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        # Two lengths: it was read as chunked, so it is passed on as that (RFC 9112 section 6.3).
        (b"200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello!\r\n0\r\n\r\n", b"hello!"),
        (b"200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 50\r\n\r\n2\r\nhi\r\n0\r\n\r\n", b"hi"),
        (b"204 No Content\r\nContent-Length: 5\r\n\r\nhello", b""),
        (b"103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    ],
)
async def test_an_answer_has_one_reading(said: bytes, passed: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def server(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 " + said)

    async with serving(server) as port, proxying() as proxy:
        for version in (b"1.1", b"1.0"):
            asked = b"GET http://a.example:%d/ HTTP/%s\r\nHost: a\r\nConnection: close\r\n\r\n" % (port, version)
            reader = h11.Connection(h11.CLIENT)
            reader.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
            reader.send(h11.EndOfMessage())
            reader.receive_data(await proxy.said(asked))
            reader.receive_data(b"")
            events: list[Any] = []
            while not events or not isinstance(events[-1], h11.EndOfMessage | h11.ConnectionClosed):
                events.append(reader.next_event())
            kinds = [type(event).__name__ for event in events]
            assert ("InformationalResponse" in kinds) is (said[:3] == b"103" and version == b"1.1"), kinds
            fields = dict(next(event for event in events if isinstance(event, h11.Response)).headers)
            assert not {b"content-length", b"transfer-encoding"} <= fields.keys()
            assert b"".join(event.data for event in events if isinstance(event, h11.Data)) == passed
            assert "EndOfMessage" in kinds
    assert "failed" not in caplog.text


@pytest.mark.parametrize(
    "data", [b"\x05", b"\x05\x02\x00", b"\x05\x01\x00", b"\x05\x01\x00\x05\x01\x00\x03\x20abc", b"G"]
)
async def test_who_never_says_where_to_is_not_waited_for(data: bytes) -> None:
    async with proxying(limits=ProxyLimits(header_timeout=0.2, connections=1)) as proxy:
        async with await proxy.opened() as stream:
            await stream.send(data)
            with anyio.fail_after(10):
                await read_all(stream)
        assert b" 503 " not in await proxy.said(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")


async def test_a_server_that_only_hints_is_given_up() -> None:
    async def server(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            while True:
                await stream.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 10)

    async with serving(server) as port, proxying() as proxy:
        for version in (b"1.1", b"1.0"):
            answer = await proxy.said(b"GET http://a.example:%d/ HTTP/%s\r\nHost: a\r\n\r\n" % (port, version))
            assert answer.count(b"HTTP/1.1 103") == (100 if version == b"1.1" else 0)
            assert b"HTTP/1.1 502" in answer
        assert "never comes to its answer" in ((await proxy.recorded(2))[0].problem or "")


async def test_what_cannot_be_reached_is_told_apart_from_what_is_refused() -> None:
    async with serving() as port:
        pass
    async with proxying() as proxy:
        stream, answer = await proxy.connected(f"a.example:{port}")
        await stream.aclose()
        assert answer.startswith(b"HTTP/1.1 502")
        stream, code = await proxy.socks("a.example", port)
        await stream.aclose()
        assert code == 4
        assert all(event.verdict.allowed and event.problem for event in await proxy.recorded(2))


async def test_a_shared_port_needs_the_token() -> None:
    import base64

    proxy = EgressProxy(local_policy(), resolver=names(), own=())
    async with serving() as port, proxy.listening() as address:
        assert address.token not in repr(address)
        assert address.token in address.http_url
        right = base64.b64encode(f"any:{address.token}".encode()).decode()
        wrong = base64.b64encode(b"any:wrong").decode()
        for field, status in (
            (f"Basic {right}", 200),
            (f"Basic {wrong}", 407),
            ("Basic ?", 407),
            (f"Bearer {right}", 407),
            ("", 407),
        ):
            async with await anyio.connect_tcp(address.host, address.port) as stream:
                await stream.send(f"CONNECT a.example:{port} HTTP/1.0\r\nProxy-Authorization: {field}\r\n\r\n".encode())
                assert (await head(stream)).startswith(b"HTTP/1.1 %d" % status), field
        for token, answer in ((address.token, b"\x01\x00"), ("wrong", b"\x01\x01")):
            async with await anyio.connect_tcp(address.host, address.port) as stream:
                await stream.send(b"\x05\x02\x00\x02")
                assert await exactly(stream, 2) == b"\x05\x02"
                await stream.send(b"\x01\x03any" + bytes([len(token)]) + token.encode())
                assert await exactly(stream, 2) == answer


async def test_rules_that_ask_wait_for_the_answer() -> None:
    asked: list[EgressQuestion] = []

    async def ask(question: EgressQuestion) -> bool:
        asked.append(question)
        await anyio.sleep(0.05)
        return question.host == "yes.example"

    policy = local_policy(ask_hosts=["*.example"])
    async with serving() as port, proxying(policy, ask=ask) as proxy:
        answers: dict[str, list[bytes]] = {"yes": [], "no": []}

        async def one(name: str) -> None:
            stream, answer = await proxy.connected(f"{name}.example:{port}")
            answers[name].append(answer[:12])
            await stream.aclose()

        async with anyio.create_task_group() as tasks:
            for name in ("yes", "no", "yes", "no"):
                tasks.start_soon(one, name)
        await one("yes")
    assert answers == {"yes": [b"HTTP/1.1 200"] * 3, "no": [b"HTTP/1.1 403"] * 2}
    assert sorted(question.host for question in asked) == ["no.example", "yes.example"]
    assert asked[0].identity == "box"


async def test_one_question_about_a_host_and_port_stands_at_a_time() -> None:
    standing, most = 0, 0

    async def ask(question: EgressQuestion) -> bool:
        nonlocal standing, most
        standing += 1
        most = max(most, standing)
        await anyio.sleep(0.05)
        standing -= 1
        return True

    async with serving(web) as port:
        rules = [{"action": "ask", "to": f"http://a.example:{port}/{path}"} for path in "abc"]
        async with proxying(local_policy(rules=rules), ask=ask) as proxy:
            async with anyio.create_task_group() as tasks:
                for path in "abcabc":
                    request = f"GET http://a.example:{port}/{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
                    tasks.start_soon(proxy.said, request.encode())
            assert {(event.host, event.port) for event in await proxy.recorded(6)} == {("a.example", port)}
            assert all(event.verdict.allowed for event in proxy.events)
    assert most == 1


@pytest.mark.parametrize("how", ["nobody", "raises", "truthy", "slow", "too many"])
async def test_no_clear_yes_is_a_no(how: str) -> None:
    async def ask(question: EgressQuestion) -> Any:
        if how == "raises":
            raise RuntimeError("no")
        if how == "slow":
            await anyio.sleep(30)
        return "yes" if how == "truthy" else True

    more: dict[str, Any] = {"ask": None if how == "nobody" else ask, "ask_timeout": 0.1}
    if how == "too many":
        more["max_questions"] = 0
    async with serving() as port, proxying(local_policy(ask_hosts=["a.example"]), **more) as proxy:
        stream, answer = await proxy.connected(f"a.example:{port}")
        await stream.aclose()
        assert answer.startswith(b"HTTP/1.1 403")
        event = (await proxy.recorded())[0]
    assert event.verdict.action == "ask"
    assert event.address is None


async def test_a_silent_tunnel_is_ended() -> None:
    async with serving() as port, proxying(limits=ProxyLimits(idle_timeout=0.3)) as proxy:
        stream, _ = await proxy.connected(f"a.example:{port}")
        async with stream:
            for _ in range(4):
                await anyio.sleep(0.1)
                await stream.send(b"x")
                assert await stream.receive() == b"x"
            with anyio.fail_after(5):
                assert await read_all(stream) == b"<reset>"
        assert (await proxy.recorded())[0].problem == "ended after 0.3 s without a byte"


async def test_a_tunnel_has_a_bound_in_bytes_and_in_time() -> None:
    async with serving() as port:
        async with proxying(limits=ProxyLimits(tunnel_bytes=1000)) as proxy:
            stream, _ = await proxy.connected(f"a.example:{port}")
            async with stream:
                await stream.send(b"x" * 2000)
                assert (await read_all(stream)).endswith(b"<reset>")
            assert (await proxy.recorded())[0].problem == "more than 1000 bytes went through"
        async with proxying(limits=ProxyLimits(total_timeout=0.2)) as proxy:
            stream, _ = await proxy.connected(f"a.example:{port}")
            async with stream:
                assert await read_all(stream) == b"<reset>"
            assert (await proxy.recorded())[0].problem == "ended after 0.2 s in all"


async def test_past_its_bound_connections_are_turned_away() -> None:
    async with serving() as port, proxying(limits=ProxyLimits(connections=1)) as proxy:
        stream, _ = await proxy.connected(f"a.example:{port}")
        assert (await proxy.said(b"")).startswith(b"HTTP/1.1 503")
        await stream.aclose()
        with anyio.fail_after(5):
            while True:
                again, answer = await proxy.connected(f"a.example:{port}")
                await again.aclose()
                if answer.startswith(b"HTTP/1.1 200"):
                    break


async def test_a_reset_is_passed_on() -> None:
    async def resets(stream: SocketStream) -> None:
        await stream.send(b"part")
        raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
        await anyio.sleep(0.1)
        raw.setsockopt(1, 13, struct.pack("ii", 1, 0))
        await anyio.aclose_forcefully(stream)

    async with serving(resets) as port, proxying() as proxy:
        stream, _ = await proxy.connected(f"a.example:{port}")
        async with stream:
            assert await read_all(stream) == b"part<reset>"


@pytest.mark.parametrize("wait", [0, 0.05])
@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"C",
        b"\x05\x01",
        b"GARBAGE\r\n\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\n\r\n",
        b"CONNECT a.example:PORT HTTP/1.1\r\n\r\n",
        b"CONNECT a.example:PORT HTTP/1.1\r\n\r\n" + b"x" * 300_000,
        b"POST http://a.example:PORT/ HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
    ],
    ids=lambda said: said[:12].decode("latin-1") + str(len(said)),
)
async def test_a_client_that_resets_ends_its_own_connection_alone(said: bytes, wait: float) -> None:
    async with serving() as port, proxying() as proxy:
        other, _ = await proxy.connected(f"b.example:{port}")
        client = socket.create_connection(("127.0.0.1", proxy.port))
        client.setblocking(False)
        with suppress(BlockingIOError):
            client.send(said.replace(b"PORT", str(port).encode()))
        await anyio.sleep(wait)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await anyio.sleep(0.05)
        async with other:
            await other.send(b"still here")
            assert await other.receive() == b"still here"
        stream, answer = await proxy.connected(f"c.example:{port}")
        await stream.aclose()
        assert answer.startswith(b"HTTP/1.1 200")


async def test_a_want_of_descriptors_passes() -> None:
    resource = pytest.importorskip("resource", reason="limits of processes are POSIX's")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as port, proxying() as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port))
        free = os.dup(client.fileno())
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            await anyio.sleep(0.25)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client.sendall(f"CONNECT a.example:{port} HTTP/1.0\r\n\r\n".encode())
        with client:
            assert (await anyio.to_thread.run_sync(client.recv, 12)) == b"HTTP/1.1 200"


async def test_who_is_short_of_descriptors_says_so() -> None:
    resource = pytest.importorskip("resource", reason="limits of processes are POSIX's")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as port, proxying() as proxy:
        async with await anyio.connect_tcp("127.0.0.1", proxy.port) as stream:
            await stream.send(f"CONNECT a.example:{port} HTTP/1.1\r\n".encode())
            await anyio.sleep(0.1)  # until the proxy has taken it
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            try:
                await stream.send(b"Host: a\r\n\r\n")
                answer = b"".join([part async for part in stream]).decode()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert answer.startswith("HTTP/1.1 502")
        assert f"this process has no descriptor left of {free}; let it have more (ulimit -n" in answer
        again, answered = await proxy.connected(f"a.example:{port}")
        await again.aclose()
        assert answered.startswith(b"HTTP/1.1 200")


async def test_a_slow_reader_slows_the_writer() -> None:
    sent = 0

    async def floods(stream: SocketStream) -> None:
        nonlocal sent
        async with stream:
            while True:
                await stream.send(b"x" * 65536)
                sent += 65536

    async with serving(floods) as port, proxying() as proxy:
        stream, _ = await proxy.connected(f"a.example:{port}")
        async with stream:
            await anyio.sleep(0.5)
            before = sent
            await anyio.sleep(0.3)
            assert sent == before < 32 * 2**20


async def test_environment_proxies_are_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with serving(web) as port, proxying() as proxy:
        answer = await proxy.said(
            f"GET http://a.example:{port}/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()
        )
        assert answer.startswith(b"HTTP/1.1 200")


ROWS = [json.loads(line) for line in (HERE.parent / "corpus" / "ssrf.jsonl").read_text(encoding="utf-8").splitlines()]


async def test_the_corpus_goes_the_same_way_by_connect_and_socks() -> None:
    """
    Rows of one hop; what would be dialed is written down and answered by nothing.
    """
    dialed: list[str] = []

    async def connector(address: Address, _port: int) -> ByteStream:
        dialed.append(str(address))
        raise ConnectionRefusedError

    for row in ROWS:
        if "redirects" in row or "fetches" in row or row["kind"] == "scheme":
            continue
        table = {name.replace(".", "_"): answers for name, answers in row.get("resolve", {}).items()}
        policy = EgressPolicy(**row.get("policy", {}))
        async with proxying(policy, resolver=names(**table), connector=connector) as proxy:
            dialed.clear()
            try:
                url = canonical_url(row["url"])
            except ValueError:
                continue  # cannot be asked for at all
            stream, answer = await proxy.connected(
                f"{url.authority if ':' in url.authority.rpartition(']')[2] else f'{url.authority}:{url.port}'}"
            )
            await stream.aclose()
            stream, code = await proxy.socks(f"[{url.host}]" if ":" in url.host else url.host, url.port)
            await stream.aclose()
            allowed = row["must"] == "allow"
            if row["id"] == "policy-host-013":
                continue  # plain http to port 80: a tunnel there must be TLS, which the next test shows
            assert (answer[9:12], code, bool(dialed)) == ((b"502", 4, True) if allowed else (b"403", 2, False)), row


async def test_a_unix_listener_is_served_too(tmp_path: Path) -> None:
    proxy = EgressProxy(local_policy(), resolver=names(), own=())
    listener = await anyio.create_unix_listener(tmp_path / "s")
    async with serving(echo) as port, anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: proxy.serve(listener, task_status=task_status))
        async with await anyio.connect_unix(tmp_path / "s") as stream:
            await stream.send(f"CONNECT a.example:{port} HTTP/1.0\r\n\r\nhello".encode())
            await stream.send_eof()
            assert (await read_all(stream)).endswith(b"hello")
        tasks.cancel_scope.cancel()


def test_loopback_is_reached_in_these_tests_by_permission_alone() -> None:
    assert not EgressPolicy().judge(["127.0.0.1"]).allowed
    assert EgressPolicy(permit_networks=LOOPBACK).judge(["127.0.0.1"]).allowed
