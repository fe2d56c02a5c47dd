"""
Whatever a client says, the URL reader and both sides of the proxy reach the host that
WHATWG's reader and the standard library's see there, or none.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import pytest

from sandboxkit import UrlError
from sandboxkit.egress import EgressProxy, Injection, ProxyLimits
from sandboxkit.egress._http import Exchange, Server
from sandboxkit.egress._injection import Injector
from sandboxkit.egress._plain import PlainStream
from sandboxkit.egress._record import Record
from sandboxkit.egress._stream import Unread
from sandboxkit.errors import EgressError
from sandboxkit.guard import EgressPolicy, canonical_url, redirect_url
from sandboxkit.model import is_literal
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from anyio.abc import ByteStream

    from sandboxkit.egress._injection import Veil
    from sandboxkit.guard import Address

can_ada = pytest.importorskip("can_ada", reason="the WHATWG reader is compared where it is installed")
h11 = pytest.importorskip("h11", reason="the proxy is the extra egress")

CORPUS = Path(__file__).parent.parent / "corpus" / "ssrf.jsonl"
URLS = [json.loads(line)["url"] for line in CORPUS.read_text(encoding="utf-8").splitlines()]
BITS = [
    *"http:// https:// @ : / \\ % %2e %2F %00 [ ] :: ffff: 127.0.0.1 . .. 0x7f 017 localhost xn-- - _ ß ẞ İ Σ ς".split(),
    *"。 ． ａ １ é 日 ı ſ ? # & a.example b.example * 8080 :443 %41 %zz | ^ < { א م 1.1.1.1 0 ﬁ Ⅷ ① ⁵ ٠ ::1 %25".split(),
    *(
        " ",
        "\t",
        "\n",
        "\r",
        "\0",
        "\x7f",
        "\x85",
        "\u200d",
        "\u00ad",
        "e\u0301",
        '"',
        "'",
        "\u212a",
        "\u04c0",
        "\u10a0",
    ),
]
LINES = [
    "GET http://a.example/x HTTP/1.1",
    "GET http://a.example:8080/ HTTP/1.1",
    "POST http://a.example/ HTTP/1.1",
    "CONNECT a.example:443 HTTP/1.1",
    "CONNECT [::1]:443 HTTP/1.1",
    "GET http://b.example/ HTTP/1.0",
    "GET / HTTP/1.1",
    "OPTIONS * HTTP/1.1",
]
FIELDS = [
    "Host: a.example",
    "Host: evil.example",
    "Content-Length: 5",
    "Content-Length: 0",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding:\tchunked",
    "Connection: close",
    "Connection: Host, Content-Length",
    "Proxy-Connection: keep-alive",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "X: y",
    " folded",
]
BODIES = [
    "",
    "hello",
    "5\r\nhello\r\n0\r\n\r\n",
    "0\r\n\r\n",
    "GET http://evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
]
BREAKS = ["\r\n", "\r\n", "\r\n", "\n", "\r", "\r\n\r\n", "\0"]
PLAIN = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]", re.IGNORECASE)


def damaged(rng: random.Random, text: str, bits: list[str]) -> str:
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(bits) + text[at + rng.randrange(4) :]
    return text


def some_url(rng: random.Random) -> str:
    if rng.randrange(2):
        return damaged(rng, rng.choice(URLS), BITS)
    return "http://" + "".join(
        chr(rng.randrange(0x3000)) if rng.randrange(8) == 0 else rng.choice(BITS) for _ in range(rng.randrange(9))
    )


def bare(host: str | None) -> str:
    return (host or "").strip("[]").removesuffix(".")


def whatwg(text: str) -> str:
    try:
        return bare(can_ada.parse(text).hostname)
    except ValueError:
        return ""


def test_urls_have_one_host_or_none(rounds: Iterator[int], rng: random.Random) -> None:
    base = canonical_url("https://site.example/dir/page")
    for _ in rounds:
        for _ in range(200):
            text = some_url(rng)
            with suppress(UrlError):
                url = canonical_url(text)
                assert whatwg(text) == url.host, ascii(text)
                parts = urlsplit(str(url))
                assert (bare(parts.hostname), parts.port or url.port) == (url.host, url.port), ascii(text)
                assert can_ada.parse(str(url)).href == str(url), ascii(text)
                if text.isascii() and ":" not in url.host:
                    assert bare(urlsplit(text).hostname) == url.host, ascii(text)
            location = damaged(rng, rng.choice(["/a", "//b.example/x", "x", "?y", text]), BITS)
            with suppress(UrlError):
                there = redirect_url(base, location)
                assert bare((can_ada.parse(str(base)) + location).hostname) == there.host, ascii(location)


class Loud(logging.Handler):
    """
    Keeps what a connection that failed in an unforeseen way logs.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(f"{record.getMessage()}: {record.exc_info}")


class Bench:
    """
    A proxy before a network of sockets that go nowhere, and what it did there.
    """

    def __init__(self) -> None:
        policy = EgressPolicy(permit_networks=["127.0.0.0/8", "::1/128"], deny_hosts=["evil.example"])
        limits = ProxyLimits(header_timeout=5, idle_timeout=5, requests=5)
        self.proxy = EgressProxy(policy, resolver=self.resolve, connector=self.connect, own=(), limits=limits)
        self.loud = Loud()
        self.hosts: list[str] = []
        self.sent: list[bytes] = []
        self._servers: list[PlainStream] = []

    async def resolve(self, host: str, _port: int) -> list[str]:
        self.hosts.append(host)
        return ["127.0.0.1"]

    async def connect(self, _address: Address, _port: int) -> ByteStream:
        near, far = socket.socketpair()
        self._servers.append(PlainStream(far))
        self.tasks.start_soon(self.answer, self._servers[-1])
        return PlainStream(near)

    async def answer(self, stream: PlainStream) -> None:
        got = b""
        async with stream:
            with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                while b"\r\n\r\n" not in got:
                    got += await stream.receive()
                self.sent.append(got)
                await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                while True:
                    self.sent[-1] += await stream.receive()

    async def says(self, data: bytes) -> bytes:
        """
        What the proxy answers *data*.
        """
        self.hosts.clear()
        self.sent.clear()
        near, far = socket.socketpair()
        got = b""
        async with anyio.create_task_group() as self.tasks, PlainStream(near) as client:
            self.tasks.start_soon(self.proxy.handle, PlainStream(far))
            with anyio.fail_after(20), suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                await client.send(data)
                await client.send_eof()
                while True:
                    got += await client.receive()
        assert self.loud.seen == [], ascii(data)
        return got

    def run(self, rounds: Iterator[int], one: Callable[[], bytes], check: Callable[[bytes, bytes], None]) -> None:
        async def main() -> None:
            for _ in rounds:
                data = one()
                check(data, await self.says(data))

        log = logging.getLogger("sandboxkit.egress")
        log.addHandler(self.loud)
        try:
            anyio.run(main)
        finally:
            log.removeHandler(self.loud)


def test_http_reaches_what_was_asked_for(rounds: Iterator[int], rng: random.Random) -> None:
    bench = Bench()

    def request() -> str:
        line = rng.choice(LINES)
        if rng.randrange(3) == 0:
            line = f"GET {some_url(rng)} HTTP/1.1"
        head = [damaged(rng, line, [*BITS, *BREAKS, " "]), *rng.sample(FIELDS, rng.randrange(5))]
        ends = rng.choices(BREAKS, k=len(head)) if rng.randrange(4) == 0 else ["\r\n"] * len(head)
        text = "".join(part + end for part, end in zip(head, ends, strict=True)) + "\r\n" + rng.choice(BODIES)
        return damaged(rng, text, [*BREAKS, *FIELDS, *BITS]) if rng.randrange(3) == 0 else text

    def check(data: bytes, _answer: bytes) -> None:
        assert "evil.example" not in bench.hosts, data
        text = data.decode("latin-1")
        for host in bench.hosts:
            # Every host that was looked up is one that an independent reader sees in the text.
            asked = {whatwg(found) for found in re.findall(r"(?i)https?://[^\s]+", text)}
            asked |= {whatwg(f"http://{found}") for found in re.findall(r"(?m)^[A-Z]+[ \t]+([^\s]+:[0-9]+)", text)}
            assert host in asked or "CONNECT" in text, (host, data)
        for sent in bench.sent:
            head, _, rest = sent.partition(b"\r\n\r\n")
            if "CONNECT" in text:
                continue  # what goes through a tunnel is the client's
            lines = head.split(b"\r\n")
            names = [line.partition(b":")[0].lower() for line in lines[1:]]
            (host_line,) = [line for line in lines[1:] if line.lower().startswith(b"host:")]
            shown = host_line.partition(b":")[2].strip().decode()
            named = bare(urlsplit(f"//{shown}").hostname)
            assert named in bench.hosts or is_literal(named), data
            assert named in {whatwg(found) for found in re.findall(r"(?i)https?://[^\s]+", text)}, data
            assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1, data
            assert b"\n" not in head.replace(b"\r\n", b""), data
            assert b"\r" not in head.replace(b"\r\n", b""), data
            if not names.count(b"content-length") + names.count(b"transfer-encoding"):
                assert rest == b"", data

    bench.run(rounds, lambda: request().encode("utf-8", "surrogatepass"), check)


SECRET = "k3y/Wo+rt=42-of-the-test"
SPELLINGS = [SECRET, base64.b64encode(SECRET.encode()).decode(), SECRET.encode().hex()]
STATUSES = [
    *(f"HTTP/1.1 {status}" for status in ("200 OK", "204 x", "304 x", "206 x", "302 x", "999 x", "199 x", "500")),
    *("HTTP/1.0 200 OK", "HTTP/2 200", "HTTP/1.1 101 x", f"HTTP/1.1 200 {SECRET}", "garbage"),
]
ANSWER_FIELDS = [
    *(
        "Content-Length: 5",
        "Content-Length: 0",
        "Content-Length: 50",
        "Transfer-Encoding: chunked",
        "Connection: close",
    ),
    *("Connection: X, Content-Length", "Content-Encoding: gzip", "Content-Type: text/plain; charset=utf-16"),
    *("Transfer-Encoding: gzip", "Upgrade: websocket", f" folded {SECRET}", "X-A\xe9: \xff\xfe", f"X: {SECRET}"),
    *(f"Location: http://x/?{SPELLINGS[1]}", f"Set-Cookie: a={SECRET}", f"{SECRET}: y"),
]
ANSWER_BODIES = [
    *("", "hello", "5\r\nhello\r\n0\r\n\r\n", SECRET, SECRET[:9], "zz\r\n", "5\r\nhel"),
    f"{len(SECRET):x}\r\n{SECRET}\r\n0\r\nX: {SECRET}\r\n\r\n",
    f"4;ext={SECRET}\r\nabcd\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
]


def some_answer(rng: random.Random) -> bytes:
    head = [rng.choice(STATUSES), *rng.sample(ANSWER_FIELDS, rng.randrange(6))]
    text = "".join(part + (rng.choice(BREAKS) if rng.randrange(8) == 0 else "\r\n") for part in head)
    text = f"{text}\r\n{rng.choice(ANSWER_BODIES)}"
    if rng.randrange(4) == 0:
        text = f"HTTP/1.1 103 x\r\nLink: {SECRET}\r\n\r\n{text}"
    return damaged(rng, text, [*BREAKS, *ANSWER_FIELDS, SECRET]).encode("latin-1")


async def told(method: str, version: str, answer: bytes, size: int, veil: Veil | None) -> tuple[bytes, bool, Record]:
    """
    What a client is told where a server says *answer*, *size* bytes at a time, and whether it
    may send another request.
    """
    (client, ours), (near, far) = ([PlainStream(end) for end in socket.socketpair()] for _ in range(2))
    got, again = b"", False
    record = Record("box", "https", "https://a.example/v1/x", method)

    async def read() -> None:
        nonlocal got
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                got += await client.receive()

    async def say() -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            for at in range(0, len(answer), size):
                await far.send(answer[at : at + size])
            await far.send_eof()
            while True:
                await far.receive()

    with anyio.fail_after(20):
        async with client, far, anyio.create_task_group() as tasks:
            await client.send(f"{method} /v1/x HTTP/{version}\r\nHost: a.example\r\n\r\n".encode())
            tasks.start_soon(read)
            tasks.start_soon(say)
            async with ours, near:
                server = Server(Unread(ours), ProxyLimits(), on_unread=lambda _: None)
                request = await server.request()
                assert request is not None
                exchange = Exchange(server, near, record, veil=veil, keeps=True)
                with suppress(EgressError, anyio.BrokenResourceError):
                    again = await exchange.run(
                        method, canonical_url("https://a.example/v1/x"), request.headers.raw_items()
                    )
    return got, again, record


def test_answers_are_whole_and_without_secrets(rounds: Iterator[int], rng: random.Random) -> None:
    registry = SecretRegistry()
    registry.add("API_KEY", SECRET, hosts=["a.example"])
    injector = Injector(registry, [Injection("API_KEY", to="a.example/v1")])

    async def main() -> None:
        for _ in rounds:
            answer, method = some_answer(rng), rng.choice(["GET", "GET", "HEAD", "OPTIONS"])
            veil = rng.choice([None, injector.veil(canonical_url("https://a.example/v1/x"), method)])
            got, again, record = await told(method, rng.choice(["1.1", "1.0"]), answer, rng.choice([1, 7, 9999]), veil)
            if veil is not None:
                assert not [held for held in SPELLINGS if held in got.decode("latin-1") + repr(record)], answer
            if again:
                reader = h11.Connection(h11.CLIENT)
                reader.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
                reader.send(h11.EndOfMessage())
                reader.receive_data(got)
                kinds: list[type] = []
                while not kinds or kinds[-1] is not h11.EndOfMessage:
                    event = reader.next_event()
                    assert event is not h11.NEED_DATA, answer
                    kinds.append(type(event))
                assert reader.trailing_data[0] == b"", answer

    anyio.run(main)


def test_socks_reaches_what_was_asked_for(rounds: Iterator[int], rng: random.Random) -> None:
    bench = Bench()

    def request() -> bytes:
        name = rng.choice(
            ["a.example", "[::1]", "127.0.0.1", "evil.example", bare(whatwg(some_url(rng))), some_url(rng)[7:]]
        )
        raw = damaged(rng, name, BITS).encode("utf-8", "surrogatepass")[:255]
        kind, address = rng.choice(
            [(3, bytes([len(raw)]) + raw), (1, rng.randbytes(4)), (4, rng.randbytes(16)), (rng.randrange(256), raw)]
        )
        data = (
            b"\x05\x01\x00\x05"
            + bytes([rng.choice((1, 1, 1, 2)), 0, kind])
            + address
            + struct.pack("!H", rng.randrange(65536))
        )
        if rng.randrange(3) == 0:
            at = rng.randrange(len(data))
            data = data[:at] + rng.randbytes(rng.randrange(3)) + data[at + rng.randrange(3) :]
        return data

    def check(data: bytes, answer: bytes) -> None:
        assert "evil.example" not in bench.hosts, data
        for host in bench.hosts:
            # RFC 1928 section 4, read anew: version, methods, then the request.
            at = 2 + data[1]
            assert (data[at], data[at + 1], data[at + 3]) == (5, 1, 3), data
            named = data[at + 5 :][: data[at + 4]].decode("ascii")
            assert PLAIN.fullmatch(named), data
            assert whatwg(f"http://{named}/") == host, data
            assert struct.unpack("!H", data[at + 5 + data[at + 4] :][:2]) != (0,), data
        if answer[:4] == b"\x05\x00\x05\x00":
            assert len(answer) >= 12, data

    bench.run(rounds, request, check)
