"""
A proxy that looks into TLS holds every request against the rules, and a secret it puts in
stays outside of the box, whatever comes back.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import logging
import os
import re
import socket
import ssl
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio
import pytest
from anyio.streams.tls import TLSStream
from tests.egress.servers import echo, local_policy, names, read_all, serving, until
from tests.egress.test_proxy import exactly, head

from sandboxkit import EgressPolicy, PolicyError
from sandboxkit.egress import EgressEvent, EgressProxy, EgressQuestion, Injection, Interception, ProxyLimits
from sandboxkit.egress._plain import PlainStream
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from anyio.abc import ByteStream, SocketStream

trustme = pytest.importorskip("trustme", reason="makes the certificates")
pytest.importorskip("h11", reason="the proxy is the extra egress")
pytestmark = pytest.mark.anyio

SECRET = "s3cr3t/Wo+rt=42end"
CA = trustme.CA()


def server_context(*hosts: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert(*hosts).configure_cert(context)
    return context


def roots() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    CA.configure_trust(context)
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)  # as some versions of Python set it
    return context


@asynccontextmanager
async def secure(
    answer: bytes | Callable[[bytes], bytes], *hosts: str, ragged: bool = False
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """
    A TLS server that gives each request *answer*, and remembers what it got.
    """
    context = server_context(*(hosts or ("a.example", "b.example")))
    asked: list[bytes] = []

    async def one(stream: SocketStream) -> None:
        try:
            tls = await TLSStream.wrap(stream, server_side=True, ssl_context=context, standard_compatible=not ragged)
        except ssl.SSLError:
            return
        request = await head(tls)
        length = [line for line in request.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if length:
            request += await exactly(tls, int(length[0].split(b":")[1]))
        elif b"transfer-encoding: chunked" in request.lower():
            while not request.endswith(b"0\r\n\r\n"):  # a server may answer before the body is whole; this one waits
                request += await tls.receive()
        asked.append(request)
        await tls.send(answer if isinstance(answer, bytes) else answer(request))
        await tls.aclose()

    async with serving(one) as port:
        yield port, asked


class Box:
    """
    A client in a box that trusts the proxy alone.
    """

    def __init__(self, proxy: EgressProxy, port: int, events: list[EgressEvent]) -> None:
        self.port = port
        self.events = events
        (certificate,) = proxy.trust("/run/box").files.values()
        self.context = ssl.create_default_context(cadata=certificate.decode())

    async def tunnel(self, target: str) -> ByteStream:
        # Not connect_tcp: cancelled as it returns, it forgets the socket.
        stream = PlainStream(socket.create_connection(("127.0.0.1", self.port)))
        try:
            await stream.send(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            answer = await head(stream)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise ConnectionRefusedError((answer + await read_all(stream)).decode())
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
        return stream

    async def secured(self, target: str, name: str | None = None) -> TLSStream:
        stream = await self.tunnel(target)
        try:
            return await TLSStream.wrap(
                stream,
                hostname=name or target.partition(":")[0],
                ssl_context=self.context,
                standard_compatible=False,
            )
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise

    async def said(self, target: str, data: str | bytes) -> bytes:
        """
        Everything that comes back to *data*.
        """
        with anyio.fail_after(10):
            async with await self.secured(target) as stream:
                await stream.send(data.encode("latin-1") if isinstance(data, str) else data)
                return await read_all(stream)

    async def asked(self, target: str, line: str, *fields: str, body: str = "") -> bytes:
        last = () if "Connection: Upgrade" in fields else ("Connection: close",)
        return await self.said(target, "\r\n".join([f"{line} HTTP/1.1", f"Host: {target}", *fields, *last, "", body]))


@asynccontextmanager
async def boxed(
    policy: EgressPolicy | None = None, *, limits: ProxyLimits | None = None, ask: Any = None, **how: Any
) -> AsyncIterator[Box]:
    events: list[EgressEvent] = []
    interception = Interception(ssl_context=how.pop("ssl_context", None) or roots(), **how)
    proxy = EgressProxy(
        policy or local_policy(),
        intercept=interception,
        resolver=names(),
        own=(),
        on_event=events.append,
        limits=limits,
        ask=ask,
    )
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: proxy.serve(listener, task_status=task_status))
        yield Box(proxy, int(listener.extra(anyio.abc.SocketAttribute.local_port)), events)
        tasks.cancel_scope.cancel()


def ok(body: bytes = b"hello", *fields: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *fields, b"", body])


def secrets(port: int, *, value: str = SECRET) -> SecretRegistry:
    registry = SecretRegistry()
    registry.add("KEY", value, hosts=[f"a.example:{port}"])
    return registry


def injecting(port: int, **more: Any) -> dict[str, Any]:
    injection = Injection(**{"secret": "KEY", "to": f"a.example:{port}/v1", "methods": ("GET", "POST"), **more})
    return {"secrets": secrets(port), "injections": (injection,)}


# -- rules ----------------------------------------------------------------------------


async def test_rules_about_methods_and_paths_hold_inside() -> None:
    async with secure(ok()) as (port, asked):
        policy = local_policy(
            rules=[{"action": "allow", "to": "https://a.example/v1", "methods": ["GET"]}], default="deny"
        )
        async with boxed(policy) as box:
            assert (await box.asked(f"a.example:{port}", "GET /v1/x?q=1")).endswith(b"hello")
            for line in (
                "POST /v1/x",
                "GET /v2",
                "GET /v1/../v2",
                "GET /v1/%2e%2e/v2",
                "GET /v1%2f..%2fv2",
                "GET /",
                "DELETE /v1",
            ):
                answer = await box.asked(f"a.example:{port}", line)
                assert answer.startswith(b"HTTP/1.1 403"), (line, answer)
            with pytest.raises(ConnectionRefusedError, match="no rule allows it"):
                await box.tunnel(f"b.example:{port}")
            verdicts = {(event.protocol, event.method, event.verdict.allowed) for event in box.events}
    assert len(asked) == 1  # without a proxy the server answers all of them: see the next test
    assert {("https", "GET", True), ("https", "POST", False), ("https", "GET", False)} <= verdicts
    assert next(event for event in box.events if event.verdict.allowed).destination == f"https://a.example:{port}/v1/x"


async def test_without_interception_the_same_requests_are_answered() -> None:
    async with secure(ok()) as (port, asked):
        for line in ("POST /v1/x", "GET /v2"):
            async with await TLSStream.wrap(
                await anyio.connect_tcp("127.0.0.1", port), hostname="a.example", ssl_context=roots()
            ) as stream:
                await stream.send(f"{line} HTTP/1.1\r\nHost: a.example\r\n\r\n".encode())
                assert (await stream.receive()).startswith(b"HTTP/1.1 200")
    assert len(asked) == 2


async def test_every_request_of_a_connection_is_decided_about() -> None:
    async with secure(ok()) as (port, asked):
        policy = local_policy(rules=[{"action": "deny", "to": "a.example/private"}])
        async with boxed(policy) as box:
            one = f"GET /a HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n"
            answer = await box.said(f"a.example:{port}", one + one + one.replace("/a", "/private/x"))
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.count(b"HTTP/1.1 403") == 1
    assert len(asked) == 2


async def test_a_question_names_the_request() -> None:
    questions: list[EgressQuestion] = []

    async def ask(question: EgressQuestion) -> bool:
        questions.append(question)
        return question.request == f"POST https://a.example:{question.port}/buy"

    async with secure(ok()) as (port, _):
        policy = local_policy(rules=[{"action": "ask", "to": "a.example/buy"}, {"action": "ask", "to": "a.example/x"}])
        async with boxed(policy, ask=ask) as box:
            assert b" 200 " in await box.asked(f"a.example:{port}", "POST /buy", "Content-Length: 0")
            assert b" 403 " in await box.asked(f"a.example:{port}", "GET /x")
    assert len(questions) == 2


@pytest.mark.parametrize(
    "request_text",
    [
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example:1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example:{port}\r\nHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET https://evil.example/ HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n",
        "GET //evil.example@x\\ HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n",
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n",
        "TRACE / HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n",
        "trace / HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n",
        "CONNECT / HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example:{port}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example:{port}\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: a.example:{port}\r\nContent-Length: +3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a.example:{port}\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example:{port}\r\nContent-Length: 3 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a.example:{port}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example:{port}\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example:{port}\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example:{port}\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example:{port}\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example:{port}\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a.example:{port}\r\n\r\n",
        "GET / HTTP/1.1\rHost: a.example:{port}\r\r",
        "GET / HTTP/1.1\r\nHost: a.example:{port}\r\nX: a\0b\r\n\r\n",
        "GET /\x01 HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n",
    ],
)
async def test_what_could_be_read_in_two_ways_is_refused(request_text: str) -> None:
    async with secure(ok()) as (port, asked), boxed(limits=ProxyLimits(header_timeout=1)) as box:
        answer = await box.said(f"a.example:{port}", request_text.replace("{port}", str(port)))
    assert not answer.startswith(b"HTTP/1.1 200"), answer
    assert all(b"0\r\n\r\n" not in text and b"abc" not in text for text in asked)


async def test_messages_are_written_anew() -> None:
    def answer(_: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: X-Own\r\nX-Own: 1\r\n\r\n5;ext=1\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n"

    async with secure(answer) as (port, asked), boxed() as box:
        got = await box.said(
            f"a.example:{port}",
            f"POST /p HTTP/1.1\nHost: a.example:{port}\nTransfer-Encoding: Chunked\nConnection: close\n\n3;x=y\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
        )
    assert asked[0].startswith(f"POST /p HTTP/1.1\r\nHost: a.example:{port}\r\n".encode())
    assert b"ext" not in got
    assert b"X-Own" not in got
    assert b"X-Trailer" not in got
    assert got.endswith(b"5\r\nhello\r\n0\r\n\r\n")


# -- TLS ------------------------------------------------------------------------------


async def test_the_name_asked_for_is_that_of_the_tunnel() -> None:
    async with secure(ok()) as (port, asked), boxed() as box:
        with pytest.raises(ssl.SSLError, match=r"(?i)access.denied"):
            await box.secured(f"a.example:{port}", "b.example")
        event = box.events[-1]
    assert asked == []
    assert "b.example in a tunnel to a.example" in event.verdict.reason


@pytest.mark.parametrize("wrong", ["name", "authority", "protocol"])
async def test_servers_are_verified_by_our_roots(wrong: str) -> None:
    handler: Any = None
    if wrong == "protocol":

        async def handler(stream: SocketStream) -> None:
            await stream.send(b"220 no TLS here\r\n")
            await stream.receive()

    context = (
        ssl.create_default_context(cadata=trustme.CA().cert_pem.bytes().decode()) if wrong == "authority" else None
    )
    async with (
        secure(ok(), "other.example" if wrong == "name" else "a.example") as (port, asked),
        serving(handler or echo) as other,
        boxed(ssl_context=context) as box,
    ):
        target = f"a.example:{other if wrong == 'protocol' else port}"
        answer = await box.asked(target, "GET /")
    assert answer.startswith(b"HTTP/1.1 502"), answer
    assert asked == []


async def test_a_client_that_does_not_trust_the_proxy_gets_nothing() -> None:
    async with secure(ok()) as (port, asked), boxed() as box:
        box.context = roots()
        with pytest.raises((ssl.SSLCertVerificationError, ssl.SSLError)):
            await box.secured(f"a.example:{port}")
        await until(lambda: bool(box.events))
        assert "must trust the certificate" in str(box.events[-1].problem)
    assert asked == []


async def test_an_answer_cut_short_is_no_whole_one() -> None:
    async with secure(b"HTTP/1.1 200 OK\r\n\r\nhalf of i", ragged=True) as (port, _), boxed() as box:
        answer = await box.said(
            f"a.example:{port}", f"GET / HTTP/1.1\r\nHost: a.example:{port}\r\nConnection: close\r\n\r\n"
        )
        assert not answer.endswith(b"0\r\n\r\n")
        assert "broke" in str([event.problem for event in box.events])


async def test_what_is_no_tls_needs_a_rule_that_does_not_look_inside() -> None:
    async with serving() as port:
        for policy, goes in (
            (local_policy(allow_hosts=["a.example"]), True),
            (local_policy(rules=[{"action": "allow", "to": "https://a.example"}], default="deny"), False),
            (local_policy(rules=[{"action": "allow", "to": "a.example/v1"}], default="deny"), False),
            (local_policy(rules=[{"action": "deny", "to": "a.example/v1"}]), False),
        ):
            async with boxed(policy) as box:
                stream = await box.tunnel(f"a.example:{port}")
                async with stream:
                    await stream.send(b"SSH-2.0-x\r\n")
                    got = b""
                    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                        got = await stream.receive()
                    assert (got == b"SSH-2.0-x\r\n") is goes, policy


async def test_a_silent_client_is_not_waited_for() -> None:
    async with boxed(limits=ProxyLimits(header_timeout=0.2)) as box:
        stream = await box.tunnel("a.example:443")
        with anyio.fail_after(5):
            assert await read_all(stream) in (b"", b"<reset>")
        await stream.aclose()


async def test_socks_is_looked_into_as_well() -> None:
    async with secure(ok()) as (port, _), boxed(local_policy(rules=[{"action": "deny", "to": "a.example/no"}])) as box:
        for path, status in (("/yes", b"200"), ("/no", b"403")):
            stream = await anyio.connect_tcp("127.0.0.1", box.port)
            await stream.send(b"\x05\x01\x00")
            await exactly(stream, 2)
            await stream.send(b"\x05\x01\x00\x03\x09a.example" + port.to_bytes(2, "big"))
            assert (await exactly(stream, 10))[1] == 0
            async with await TLSStream.wrap(
                stream, hostname="a.example", ssl_context=box.context, standard_compatible=False
            ) as tls:
                await tls.send(f"GET {path} HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n".encode())
                assert (await head(tls)).split()[1] == status
                await anyio.aclose_forcefully(tls)


async def test_contexts_are_kept_within_a_bound() -> None:
    from sandboxkit.egress._authority import _KEPT, Authority

    authority = Authority(60)
    first = authority.context("a.example")
    assert authority.context("a.example") is first
    for number in range(_KEPT):
        authority.context(f"n{number}.example")
    assert authority.context("a.example") is not first
    assert len(authority._contexts) == _KEPT
    authority.context("x" * 60 + "." + "y" * 60 + ".example")
    authority.context("127.0.0.1")
    authority.context("::1")


def test_what_a_box_gets_is_a_certificate_and_where_it_is(tmp_path: Path) -> None:
    proxy = EgressProxy(EgressPolicy(), intercept=Interception(ssl_context=roots()))
    trust = proxy.trust("/run/box")
    assert set(trust.environment) >= {
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "PIP_CERT",
    }
    ((path, pem),) = trust.files.items()
    assert set(trust.environment.values()) == {path} == {"/run/box/sandboxkit-ca.pem"}
    assert b"BEGIN CERTIFICATE" in pem
    assert b"KEY" not in pem
    with pytest.raises(ValueError, match="relative"):
        proxy.trust("box")
    with pytest.raises(ValueError, match="intercept=True"):
        EgressProxy(EgressPolicy()).trust("/run/box")
    unsafe = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unsafe.check_hostname = False
    with pytest.raises(ValueError, match="must verify"):
        Interception(ssl_context=unsafe)


async def test_no_key_touches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sandboxkit.egress._authority import Authority

    opened: list[str] = []
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
    before = set(os.listdir("/dev/fd"))
    Authority(60).context("a.example")
    assert [path for path in opened if not path.startswith("/dev/fd") and not path.isdigit()] == []
    assert set(os.listdir("/dev/fd")) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/usr/bin/curl"), reason="curl is not installed")
async def test_curl_works_through_it(tmp_path: Path) -> None:
    async with secure(ok(b"hello curl")) as (port, _), boxed() as box:
        proxy_file = tmp_path / "ca.pem"
        pem = ssl.DER_cert_to_PEM_cert(box.context.get_ca_certs(binary_form=True)[0])
        proxy_file.write_text(pem)
        done = await anyio.run_process(
            ["/usr/bin/curl", "-sS", "--proxy", f"http://127.0.0.1:{box.port}", f"https://a.example:{port}/x"],
            env={"CURL_CA_BUNDLE": str(proxy_file)},
            check=False,
        )
    assert (done.stdout, done.stderr) == (b"hello curl", b"")


# -- websockets -----------------------------------------------------------------------


def switches(request: bytes) -> bytes:
    return b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nframe"


WEBSOCKET = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13")


async def test_a_websocket_needs_permission() -> None:
    async with secure(switches) as (port, asked):
        async with boxed() as box:
            answer = await box.asked(f"a.example:{port}", "GET /ws", *WEBSOCKET)
            assert answer.startswith(b"HTTP/1.1 403")
            assert b"websocket_hosts" in answer
        assert asked == []
        async with boxed(websocket_hosts=("a.example",)) as box:
            answer = await box.asked(f"a.example:{port}", "GET /ws", *WEBSOCKET)
            assert answer.startswith(b"HTTP/1.1 101"), (answer, box.events)
            assert answer.endswith(b"frame"), answer
            assert b"sec-websocket-key: x" in asked[0].lower()
        async with boxed(websocket_hosts=("a.example",), **injecting(port)) as box:
            answer = await box.asked(f"a.example:{port}", "GET /v1/ws", *WEBSOCKET, "Authorization: <KEY>")
            assert answer.startswith(b"HTTP/1.1 403")
    assert len(asked) == 1


async def test_a_switch_nobody_asked_for_is_none() -> None:
    async with secure(switches) as (port, _), boxed() as box:
        answer = await box.asked(f"a.example:{port}", "GET /")
    assert answer.startswith(b"HTTP/1.1 502")
    assert b"frame" not in answer


# -- secrets --------------------------------------------------------------------------


def credentials(request: bytes) -> list[bytes]:
    return [
        line for line in request.split(b"\r\n") if line.lower().startswith((b"authorization", b"x-api-key", b"x-other"))
    ]


async def test_a_placeholder_becomes_the_secret_on_its_route_alone() -> None:
    async with secure(ok()) as (port, asked):
        elsewhere = SECRET.encode()
        async with boxed(**injecting(port)) as box:
            here, there = f"a.example:{port}", f"b.example:{port}"
            await box.asked(here, "GET /v1/x", "Authorization: Bearer <KEY>", "X-Api-Key: <KEY>", "X-Other: <KEY>")
            assert credentials(asked.pop()) == [
                b"Authorization: Bearer " + elsewhere,
                b"X-Api-Key: " + elsewhere,
                b"X-Other: <KEY>",
            ]
            basic = base64.b64encode(b"user:<KEY>").decode()
            await box.asked(here, "POST /v1", f"Authorization: Basic {basic}", "Content-Length: 5", body="<KEY>")
            request = asked.pop()
            assert credentials(request) == [b"Authorization: Basic " + base64.b64encode(b"user:" + elsewhere)]
            assert request.endswith(b"<KEY>")
            for target, line in (
                (there, "GET /v1/x"),
                (here, "GET /v2"),
                (here, "GET /v10"),
                (here, "GET /v1/../v2"),
                (here, "GET /v1//x"),
                (here, "GET /v1/%2e%2e%2fv2"),
                (here, "DELETE /v1/x"),
                (here, "GET /?/v1"),
            ):
                await box.asked(target, line, "Authorization: Bearer <KEY>")
                assert credentials(asked.pop()) == [b"Authorization: Bearer <KEY>"], line
    async with serving(echo) as plain, boxed(**injecting(plain)) as box:  # what is no TLS never gets one
        stream = await box.tunnel(f"a.example:{plain}")
        await stream.send(f"GET /v1 HTTP/1.1\r\nHost: a.example:{plain}\r\nAuthorization: <KEY>\r\n\r\n".encode())
        assert b"Authorization: <KEY>" in await head(stream)
        await stream.aclose()


async def test_an_own_placeholder_may_look_like_a_key() -> None:
    async with secure(ok()) as (port, asked), boxed(**injecting(port, placeholder="ghp_placeholder0")) as box:
        await box.asked(f"a.example:{port}", "GET /v1", "Authorization: token ghp_placeholder0", "X-Api-Key: <KEY>")
    assert credentials(asked[0]) == [b"Authorization: token " + SECRET.encode(), b"X-Api-Key: <KEY>"]


async def test_a_new_value_is_used_and_a_removed_one_refuses() -> None:
    async with secure(ok()) as (port, asked):
        how = injecting(port)
        async with boxed(**how) as box:
            how["secrets"].add("KEY", "another-value", hosts=[f"a.example:{port}"])
            await box.asked(f"a.example:{port}", "GET /v1", "Authorization: <KEY>")
            assert credentials(asked.pop()) == [b"Authorization: another-value"]
            how["secrets"].remove("KEY")
            answer = await box.asked(f"a.example:{port}", "GET /v1", "Authorization: <KEY>")
            assert answer.startswith(b"HTTP/1.1 403")
    assert asked == []


def chunked(*pieces: bytes, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    parts = [b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces]
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(parts) + b"0\r\n" + trailer + b"\r\n"


def in_pieces(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


RAW = SECRET.encode()
DIGEST = base64.b64encode(hashlib.sha256(RAW).digest())
ECHOES: dict[str, bytes | Callable[[bytes], bytes]] = {
    "whole request": lambda request: ok(request),
    "body": ok(b"you sent " + RAW + b"!"),
    "json": ok(json.dumps({"key": SECRET}).encode(), b"Content-Type: application/json"),
    "json slashes": ok(json.dumps({"key": SECRET}).replace("/", "\\/").encode()),
    "header": ok(b"", b"X-Echo: " + RAW),
    "header name": ok(b"", b"X-keepsake42: 1"),
    "digest": ok(RAW, b"Repr-Digest: sha-256=:" + DIGEST + b":", b"Content-MD5: " + DIGEST),
    "cookie": ok(b"", b"Set-Cookie: k=" + quote(SECRET, safe="").encode()),
    "location": b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: https://evil.example/?k="
    + quote(SECRET).encode()
    + b"\r\n\r\n",
    "reason": b"HTTP/1.1 200 " + RAW + b"\r\nContent-Length: 0\r\n\r\n",
    "early hints": b"HTTP/1.1 103 Early Hints\r\nLink: " + RAW + b"\r\n\r\n" + ok(),
    "base64": ok(base64.b64encode(RAW)),
    "base64 one off": ok(base64.b64encode(b"x" + RAW + b"y")),
    "base64 two off": ok(base64.b64encode(b"xy" + RAW + b"y")),
    "base64 url": ok(base64.urlsafe_b64encode(b"Bearer " + RAW)),
    "hex": ok(RAW.hex().encode()),
    "entities": ok("".join(f"&#{char};" for char in RAW).encode()),
    "chunk borders": chunked(*in_pieces(b"a" + RAW + b"b")),
    "chunk extension": chunked(b"x", extension=b";k=" + RAW.replace(b"/", b"").replace(b"=", b"")),
    "trailer": chunked(b"x", trailer=b"X-Echo: " + RAW + b"\r\n"),
    "gzip": ok(gzip.compress(RAW), b"Content-Encoding: gzip"),
    "brotli": ok(b"\x8b\x08\x80" + RAW + b"\x03", b"Content-Encoding: br"),
    "deflate in capitals": ok(RAW, b"Content-Encoding: DEFLATE"),
    "encoded twice": ok(RAW, b"Content-Encoding: identity", b"Content-Encoding: gzip"),
    "unknown encoding": ok(RAW, b"Content-Encoding: rot13"),
    "transfer gzip": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + RAW,
    "utf-16": ok(SECRET.encode("utf-16"), b"Content-Type: text/plain; charset=utf-16"),
    "utf-7": ok(RAW, b'Content-Type: text/html; charset="UTF-7"'),
    "part": b"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes 0-4/18\r\n\r\n" + RAW[:5],
    "malformed": b"HTTP/1.1 200 OK\r\nX " + RAW + b"\r\n\r\n",
    "malformed status": b"HTTP/1.1 " + RAW + b"\r\n\r\n",
    "no HTTP at all": RAW + b"\r\n\r\n",
    "too short": b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + RAW,
    "until the end": b"HTTP/1.0 200 OK\r\n\r\n" + RAW,
    "second answer": ok() + ok(RAW),
    "websocket": lambda request: switches(request) + RAW,
    "error page": b'HTTP/1.1 401 Unauthorized\r\nContent-Length: %d\r\nWWW-Authenticate: x realm="' % len(RAW)
    + RAW
    + b'"\r\n\r\n'
    + RAW,
}


def shapes(value: str) -> set[bytes]:
    raw = value.encode()
    return {
        raw,
        raw.hex().encode(),
        quote(value).encode(),
        quote(value, safe="").encode(),
        base64.b64encode(raw)[:-4],
        base64.b64encode(b"x" + raw)[4:-4],
        base64.b64encode(b"xy" + raw)[4:-4],
        base64.urlsafe_b64encode(raw)[:-4],
        json.dumps(value)[1:-1].replace("/", "\\/").encode(),
        value.encode("utf-16-le"),
        value.encode("utf-16-be"),
        "".join(f"&#{char};" for char in raw).encode(),
        raw[:5],
        gzip.compress(raw)[10:],
        base64.b64encode(hashlib.sha256(raw).digest()),
    }


@pytest.mark.parametrize("kind", ECHOES)
async def test_a_server_that_echoes_tells_the_box_nothing(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with secure(ECHOES[kind]) as (port, asked), boxed(**injecting(port)) as box:
        got = await box.asked(f"a.example:{port}", "GET /v1/x", "Authorization: Bearer <KEY>")
        events = repr(box.events)
    assert RAW in asked[0]  # it had something to tell
    for where in (got, events.encode(), caplog.text.encode()):
        assert [shape for shape in shapes(SECRET) if shape in where] == []
        assert b"keepsake" not in where or kind == "header name"


@pytest.mark.parametrize("kind", ["body", "header", "base64", "gzip", "part"])
async def test_without_interception_the_same_echo_tells(kind: str) -> None:
    async with (
        secure(ECHOES[kind]) as (port, _),
        await TLSStream.wrap(
            await anyio.connect_tcp("127.0.0.1", port), hostname="a.example", ssl_context=roots()
        ) as stream,
    ):
        await stream.send(b"GET /v1/x HTTP/1.1\r\nHost: a.example\r\n\r\n")
        got = await read_all(stream)
    assert any(shape in got for shape in shapes(SECRET))


async def test_a_later_answer_of_the_host_is_masked_too() -> None:
    async with secure(ok(b"I remember " + RAW)) as (port, _), boxed(**injecting(port)) as box:
        for line in ("GET /other", "DELETE /v1", "GET /v1"):
            answer = await box.asked(f"a.example:{port}", line)
            assert b"I remember \xe2\x9f\xa6KEY\xe2\x9f\xa7" in answer


async def test_a_client_cannot_choose_how_the_answer_is_written() -> None:
    async with secure(ok()) as (port, asked), boxed(**injecting(port)) as box:
        await box.asked(
            f"a.example:{port}",
            "GET /v1",
            "Range: bytes=0-3",
            "If-Range: x",
            "Accept-Encoding: br",
            "Accept-Charset: utf-16",
            "TE: gzip",
            "A-IM: gzip",
            "Want-Repr-Digest: sha-256=1",
        )
    fields = {line.partition(b":")[0].lower() for line in asked[0].split(b"\r\n")[1:] if line}
    assert fields == {b"host", b"accept-encoding"}
    assert b"Accept-Encoding: identity" in asked[0]


async def test_a_stream_of_events_is_not_held_back() -> None:
    go = anyio.Event()
    context = server_context("a.example")

    async def one(stream: SocketStream) -> None:
        tls = await TLSStream.wrap(stream, server_side=True, ssl_context=context)
        await head(tls)
        await tls.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: first\n\n")
        await go.wait()
        await tls.send(b"data: second\n\n")
        await tls.aclose()

    async with (
        serving(one) as port,
        boxed(**injecting(port)) as box,
        await box.secured(f"a.example:{port}") as stream,
    ):
        await stream.send(f"GET /v1 HTTP/1.1\r\nHost: a.example:{port}\r\nConnection: close\r\n\r\n".encode())
        with anyio.fail_after(5):
            got = b""
            while b"data: first\n\n" not in got:
                got += await stream.receive()
            go.set()
            assert b"data: second" in await read_all(stream)


# -- connections that are kept ----------------------------------------------------------


@asynccontextmanager
async def lasting(*, ends_after: int | None = None, adds: bytes = b"") -> AsyncIterator[tuple[int, list[list[bytes]]]]:
    """
    A TLS server that serves many requests of a connection, and remembers those of each. It
    ends without an answer to the one after *ends_after*, and says *adds* behind each answer.
    """
    context = server_context("a.example")
    asked: list[list[bytes]] = []

    async def one(stream: SocketStream) -> None:
        own: list[bytes] = []
        asked.append(own)
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError, ssl.SSLError):
                await serve(await TLSStream.wrap(stream, server_side=True, ssl_context=context), own)

    async def serve(tls: TLSStream, own: list[bytes]) -> None:
        while True:
            request = await head(tls)
            if len(own) == ends_after:
                return
            own.append(request)
            if b"content-length: 2" in request.lower():
                await exactly(tls, 2)
            await tls.send(ok(request.split(b"\r\n")[0] + SECRET.encode()) + adds)

    async with serving(one) as port:
        yield port, asked


async def answers(box: Box, port: int, *lines: str) -> list[bytes]:
    """
    What comes back to requests of one tunnel, one after the other.
    """
    got = []
    with anyio.fail_after(10):
        async with await box.secured(f"a.example:{port}") as stream:
            for line in lines:
                body = "xy" if line.startswith("POST") else ""
                length = f"Content-Length: {len(body)}\r\n" if body else ""
                await stream.send(f"{line} HTTP/1.1\r\nHost: a.example:{port}\r\n{length}\r\n{body}".encode())
                answer = await head(stream)
                if b"chunked" in answer:
                    while not answer.endswith(b"0\r\n\r\n"):
                        answer += await stream.receive()
                elif told := re.search(rb"Content-Length: (\d+)", answer):
                    answer += await exactly(stream, int(told[1]))
                got.append(answer)
    return got


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with lasting() as (port, asked), boxed(**injecting(port)) as box:
        got = await answers(box, port, "GET /v1/a", "GET /v1/b", "POST /v1/c", "GET /v1/d", "GET /v1/e")
        await until(lambda: len(box.events) >= 6)
        addresses = [event.address for event in box.events if event.protocol == "https"]
    assert [len(own) for own in asked] == [2, 3]  # what cannot be repeated gets a connection of its own
    assert [answer.startswith(b"HTTP/1.1 200") for answer in got] == [True] * 5
    assert not any(SECRET.encode() in answer for answer in got)
    assert addresses == ["127.0.0.1"] * 5


async def test_each_request_of_a_kept_connection_is_decided_about() -> None:
    policy = local_policy(rules=[{"action": "deny", "to": "a.example/private"}])
    async with lasting() as (port, asked), boxed(policy) as box:
        got = await answers(box, port, "GET /a", "GET /b", "GET /private")
    assert [answer[9:12] for answer in got] == [b"200", b"200", b"403"]
    assert [len(own) for own in asked] == [2]


async def test_a_kept_connection_that_has_ended_is_made_anew() -> None:
    async with lasting(ends_after=1) as (port, asked), boxed() as box:
        got = await answers(box, port, *["GET /a"] * 4)
    assert [answer[9:12] for answer in got] == [b"200"] * 4
    assert [len(own) for own in asked if own] == [1] * 4


async def test_what_comes_behind_an_answer_is_never_the_next_one() -> None:
    async with lasting(adds=ok(b"smuggled")) as (port, asked), boxed(**injecting(port)) as box:
        got = await answers(box, port, *["GET /v1/a"] * 3)
    assert not any(b"smuggled" in answer for answer in got)
    assert [len(own) for own in asked] == [1] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors and connections in /proc")
async def test_no_cancellation_leaves_anything_of_an_intercepted_tunnel() -> None:
    """
    A client is given up after each number of turns of the event loop, and so at each await.
    """
    async with lasting() as (port, _), boxed(**injecting(port)) as box:
        await answers(box, port, "GET /v1/a")
        await until_closed(box.port, port)
        before = len(os.listdir("/proc/self/fd"))
        for turns in range(0, 120, 6):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answers, box, port, "GET /v1/a", "GET /v1/b")
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        await until_closed(box.port, port)
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)
        assert len(await answers(box, port, "GET /v1/a")) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors and connections in /proc")
async def test_cancelling_the_proxy_at_any_await_leaves_nothing() -> None:
    async with lasting() as (port, _):
        before = len(os.listdir("/proc/self/fd"))
        for turns in range(0, 120, 6):
            with suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError, ssl.SSLError):
                async with boxed(**injecting(port)) as box, anyio.create_task_group() as tasks:
                    tasks.start_soon(_tried, box, port)
                    for _ in range(turns):
                        await anyio.lowlevel.checkpoint()
                    tasks.cancel_scope.cancel()
            await until_closed(box.port, port)
            await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def _tried(box: Box, port: int) -> None:
    with suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError, ssl.SSLError):
        await answers(box, port, "GET /v1/a", "GET /v1/b")


async def until_closed(*ports: int) -> None:
    """
    Waits until no connection to one of *ports* is established.
    """
    endings = tuple(f":{port:04X}" for port in ports)
    await until(
        lambda: not [row for row in connections() if row[3] == "01" and (row[1] + " " + row[2]).endswith(endings)]
    )
    await until(lambda: not [row for row in connections() if row[3] in ("01", "08") and row[1].endswith(endings)])


def connections() -> list[list[str]]:
    with open("/proc/net/tcp", encoding="ascii") as rows:
        return [row.split() for row in rows.readlines()[1:]]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"to": "*.example/v1"}, "one host"),
        ({"to": "**"}, "one host"),
        ({"to": "http://a.example/v1"}, "no host pattern"),
        ({"to": "a.example/v1?x"}, "plain prefix"),
        ({"headers": ("host",)}, "no field for a secret"),
        ({"headers": ("Content-Length",)}, "no field for a secret"),
        ({"headers": ("x y",)}, "no field for a secret"),
        ({"placeholder": "short"}, "at least 6"),
        ({"placeholder": "with\nbreak"}, "at least 6"),
        ({"methods": ("get",)}, "no method"),
    ],
)
def test_an_injection_says_what_is_wrong_with_it(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        Injection(**{"secret": "KEY", "to": "a.example/v1", **wrong})


@pytest.mark.parametrize(
    ("hosts", "value", "more", "says"),
    [
        (["b.example"], "hunter2", [], "not for a.example"),
        (["a.example:8443"], "hunter2", [], "not for a.example"),
        (["a.example"], "hunt\r\nX: 2", [], "cannot stand in a header field"),
        (["a.example"], "hunter2", [Injection("NONE", "a.example/v1")], "NONE is not for a.example"),
        (
            ["a.example"],
            "hunter2",
            [Injection("OTHER", "b.example", placeholder="x<KEY>x")],
            "is part of that of OTHER",
        ),
    ],
)
def test_injections_are_checked_against_the_registry(
    hosts: list[str], value: str, more: Sequence[Injection], says: str
) -> None:
    registry = SecretRegistry()
    registry.add("KEY", value, hosts=hosts)
    registry.add("OTHER", "hunter3", hosts=["b.example"])
    interception = Interception(
        secrets=registry, injections=(Injection("KEY", "a.example/v1"), *more), ssl_context=roots()
    )
    with pytest.raises(PolicyError, match=says) as refused:
        EgressProxy(EgressPolicy(), intercept=interception)
    assert value not in str(refused.value)
    assert "hunter" not in repr(interception)
