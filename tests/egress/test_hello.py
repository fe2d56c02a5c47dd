"""
The name a TLS client asks for is read from real ClientHellos, however they are cut, and
compared with the host of its tunnel.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import anyio.streams.tls
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.egress.servers import local_policy, names, read_all, serving, until
from tests.egress.test_proxy import proxying

from sandboxkit.egress import EgressEvent, EgressProxy, ProxyLimits
from sandboxkit.egress._hello import MAX_HELLO, Hello, HelloState, read_hello

if TYPE_CHECKING:
    from anyio.abc import SocketStream

pytestmark = pytest.mark.anyio


def client_hello(name: str | None) -> bytes:
    """
    What OpenSSL sends first.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


def recut(hello: bytes, size: int) -> bytes:
    """
    The same handshake in records of *size* bytes.
    """
    body = hello[5:]
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(hello[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def longer(hello: bytes) -> bytes:
    """
    The same handshake in one record with 65,000 bytes of cipher suites that nobody has, and
    20,000 of an extension.
    """
    body = hello[9:]
    at = 35 + body[34]
    suites_end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    suites = body[at + 2 : suites_end] + b"\x12\x34" * 32400
    extensions = body[suites_end + 4 :] + b"\xfa\xfa\x4e\x20" + bytes(20000)
    more = body[suites_end : suites_end + 2] + len(extensions).to_bytes(2, "big") + extensions
    body = body[:at] + len(suites).to_bytes(2, "big") + suites + more
    return hello[:5] + b"\x01" + len(body).to_bytes(3, "big") + body


HELLO = client_hello("a.example")
EMPTY = b"\x16\x03\x01\x00\x00"


@pytest.mark.parametrize("name", ["a.example", "xn--mnchen-3ya.example", None])
def test_the_name_is_read(name: str | None) -> None:
    assert read_hello(client_hello(name)) == Hello(HelloState.TLS, name)


@pytest.mark.parametrize("size", [1, 2, 3, 50, 200])
def test_records_may_be_cut_anywhere(size: int) -> None:
    assert read_hello(recut(HELLO, size)) == Hello(HelloState.TLS, "a.example")
    assert read_hello(recut(HELLO, size) + b"\x14\x03\x03\x00\x01\x01") == Hello(HelloState.TLS, "a.example")


def test_every_beginning_is_incomplete_and_never_something_else() -> None:
    for end in range(len(HELLO)):
        assert read_hello(HELLO[:end]) == Hello(HelloState.INCOMPLETE)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1",
        b"SSH-2.0",
        b"\x80\x2e\x01",
        b"\x16\x02\x00\x00\x05hello",
    ],
)
def test_other_protocols_are_told_apart(data: bytes) -> None:
    assert read_hello(data).state is HelloState.OTHER


def test_what_begins_like_tls_and_cannot_be_read_is_no_other_protocol() -> None:
    for data in (
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x16\x03\x01\x00\x05\x02\x00\x00\x01a",
        EMPTY + HELLO,
        recut(HELLO[:25], 20) + EMPTY + recut(HELLO[:5] + HELLO[25:], 16384),
        recut(HELLO[:25], 20) + b"\x15\x03\x01\x00\x02\x01\x5a",
        HELLO[:9] + HELLO[9:].replace(b"a.example", b"\xe4.example"),
        recut(longer(HELLO), 16384)[: MAX_HELLO + 1],
    ):
        assert read_hello(data) == Hello(HelloState.BROKEN), data[:60]


def test_a_greeting_in_crumbs_is_not_read_for_each_of_them() -> None:
    data, at, reads = recut(longer(HELLO)[:9000], 1), 0, 0
    while (hello := read_hello(data[:at])).state is HelloState.INCOMPLETE and at < len(data):
        at += hello.missing
        reads += 1
    assert reads < 100
    assert read_hello(data).state is HelloState.INCOMPLETE
    whole, end = recut(HELLO, 7), 0
    while read_hello(whole[:end]).state is HelloState.INCOMPLETE:
        end += read_hello(whole[:end]).missing
    assert end == len(whole)  # never more than there is


def test_two_names_are_no_hello() -> None:
    at = HELLO.index(b"\x00\x0e\x00\x0c\x00\x00\x09a.example")
    double = b"\x00\x1a\x00\x18" + b"\x00\x00\x09a.example" * 2
    body = bytearray(HELLO[:at] + double + HELLO[at + 16 :])
    for place, size in ((3, 2), (6, 3)):
        body[place : place + size] = (int.from_bytes(body[place : place + size], "big") + 12).to_bytes(size, "big")
    assert read_hello(bytes(body)) == Hello(HelloState.BROKEN)


@given(st.binary(max_size=300), st.integers(0, len(HELLO)), st.integers(0, 20))
def test_no_bytes_break_it(noise: bytes, at: int, cut: int) -> None:
    read_hello(noise)
    read_hello(HELLO[:at] + noise + HELLO[at + cut :])


@pytest.fixture(scope="module")
def certificates() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """
    Contexts of a server for every `.example` name used here, and of a client that trusts it.
    """
    trustme = pytest.importorskip("trustme", reason="makes the certificates")
    ca = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("a.example", "evil.example", "127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    ca.configure_trust(client)
    return server, client


async def _tls_through(proxy: Any, target: str, name: str, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> bytes:
    stream, answer = await proxy.connected(target)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    async with stream:
        try:
            tls = await anyio.streams.tls.TLSStream.wrap(stream, hostname=name, ssl_context=contexts[1])
        except (ssl.SSLError, anyio.BrokenResourceError) as exc:
            return str(exc.__cause__ or exc).encode()
        await tls.send(b"hello")
        return await tls.receive()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_tunnel_is_for_the_name_it_was_asked_for(
    certificates: tuple[ssl.SSLContext, ssl.SSLContext], version: ssl.TLSVersion
) -> None:
    certificates[1].maximum_version = version
    reached: list[str] = []

    async def secure(stream: SocketStream) -> None:
        tls = await anyio.streams.tls.TLSStream.wrap(stream, server_side=True, ssl_context=certificates[0])
        reached.append("server")
        await tls.send(await tls.receive())

    async with serving(secure) as port, proxying(local_policy(allow_hosts=["https://a.example"])) as proxy:
        assert await _tls_through(proxy, f"a.example:{port}", "a.example", certificates) == b"hello"
        assert reached == ["server"]
        said = await _tls_through(proxy, f"a.example:{port}", "evil.example", certificates)
        assert b"denied" in said.lower(), said
        assert reached == ["server"]
        refused = [event for event in await proxy.recorded(2) if not event.verdict.allowed]
        assert [event.verdict.reason for event in refused] == [
            "it asks for the TLS name evil.example in a tunnel to a.example"
        ]
        assert refused[0].sent_bytes == 0


async def test_where_https_alone_is_allowed_nothing_else_goes_through() -> None:
    got: list[bytes] = []

    async def notes(stream: SocketStream) -> None:
        async for data in stream:
            got.append(data)  # noqa: PERF401 - seen while the stream is still open

    async with serving(notes) as port:
        for policy, passes in ((local_policy(allow_hosts=["https://a.example"]), False), (local_policy(), True)):
            got.clear()
            async with proxying(policy) as proxy:
                stream, code = await proxy.socks("a.example", port)
                assert code == 0
                async with stream:
                    await stream.send(b"GET / HTTP/1.1\r\n\r\n")
                    await anyio.sleep(0.2)
                assert bool(got) is passes


async def test_a_literal_with_a_name_inside_needs_the_name_allowed(
    certificates: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async def secure(stream: SocketStream) -> None:
        tls = await anyio.streams.tls.TLSStream.wrap(stream, server_side=True, ssl_context=certificates[0])
        await tls.send(await tls.receive())

    policy = local_policy(allow_hosts=["127.0.0.1", "a.example"])
    async with serving(secure) as port, proxying(policy) as proxy:
        assert await _tls_through(proxy, f"127.0.0.1:{port}", "a.example", certificates) == b"hello"
        assert b"denied" in (await _tls_through(proxy, f"127.0.0.1:{port}", "evil.example", certificates)).lower()


async def test_a_begun_greeting_has_a_deadline() -> None:
    events: list[EgressEvent] = []
    policy = local_policy(allow_hosts=["https://a.example"])
    proxy = EgressProxy(
        policy, resolver=names(), own=(), limits=ProxyLimits(header_timeout=0.2), on_event=events.append
    )
    async with serving() as port, proxy.listening() as address:
        async with await anyio.connect_tcp(address.host, address.port) as stream:
            await stream.send(b"\x05\x01\x02")
            await stream.receive()
            await stream.send(b"\x01\x01x" + bytes([len(address.token)]) + address.token.encode())
            await stream.receive()
            await stream.send(b"\x05\x01\x00\x03\x09a.example" + port.to_bytes(2, "big"))
            await stream.receive()
            await stream.send(HELLO[:50])
            with anyio.fail_after(5):
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    await stream.receive()
        await until(lambda: bool(events))
    assert events[0].verdict.reason == "it begins like TLS, and the name it asks for cannot be read"


HIDDEN = client_hello("evil.example")


@pytest.mark.parametrize(
    "pieces",
    [
        (EMPTY + HIDDEN,),
        (recut(HIDDEN[:25], 20) + EMPTY + recut(HIDDEN[:5] + HIDDEN[25:], 16384),),
        (recut(longer(HIDDEN), 16384)[:65000], recut(longer(HIDDEN), 16384)[65000:]),
        (HIDDEN[:50], HIDDEN[50:]),
    ],
    ids=["an empty record first", "an empty record inside", "long", "slow"],
)
async def test_a_greeting_that_only_the_server_can_read_does_not_pass(
    certificates: tuple[ssl.SSLContext, ssl.SSLContext], pieces: tuple[bytes, ...]
) -> None:
    """
    Also where anything may be said to a host, TLS is for that host. The control: without
    the proxy the server reads the name in it.
    """
    seen: list[str | None] = []
    context = certificates[0]
    context.sni_callback = lambda _tls, name, _context: seen.append(name)

    async def secure(stream: SocketStream) -> None:
        await anyio.streams.tls.TLSStream.wrap(stream, server_side=True, ssl_context=context)

    limits = ProxyLimits(header_timeout=0.3)
    async with serving(secure) as port, proxying(local_policy(allow_hosts=["a.example"]), limits=limits) as proxy:
        stream, answer = await proxy.connected(f"a.example:{port}")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        async with stream:
            await stream.send(pieces[0])
            if pieces[0] != HIDDEN[:50]:
                with suppress(anyio.BrokenResourceError):
                    for piece in pieces[1:]:
                        await stream.send(piece)
            (event,) = await proxy.recorded()
            assert b"\x15\x03\x01\x00\x02\x02\x31" in await read_all(stream)
        assert (event.verdict.allowed, event.verdict.code, event.sent_bytes) == (False, "name", 0)
        assert seen == []
        async with await anyio.connect_tcp("127.0.0.1", port) as straight:
            for piece in pieces:
                await straight.send(piece)
            await until(lambda: bool(seen))
        assert seen == ["evil.example"]
