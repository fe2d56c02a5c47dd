"""
A guarded client reaches what the policy allows, keeps its secrets to their origin, and is not flooded.
"""

from __future__ import annotations

import gzip
import json
import ssl
import zlib
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.streams.tls
import pytest
from tests.egress.servers import local_policy, names, serving
from tests.egress.test_proxy import head

from sandboxkit import (
    EgressDeniedError,
    EgressLimitError,
    EgressPolicy,
    EgressTimeoutError,
    EgressUnreachableError,
    SandboxError,
    UrlError,
)
from sandboxkit.egress import ClientLimits, EgressEvent, guarded_client, guarded_transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.abc import ByteStream, SocketStream

    from sandboxkit.guard import Address

httpx2 = pytest.importorskip("httpx2", reason="the client is the extra egress")
trustme = pytest.importorskip("trustme", reason="makes the certificates")
pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
CONTEXT = ssl.create_default_context()


@pytest.fixture(scope="module")
def trusted() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """
    Contexts of a server for `a.example`, and of a client that trusts it.
    """
    ca = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("a.example").configure_cert(server)
    client = ssl.create_default_context()
    ca.configure_trust(client)
    return server, client


@asynccontextmanager
async def answering(answer: bytes | Callable[[str], bytes]) -> AsyncIterator[tuple[int, list[str]]]:
    """
    A server that gives each request *answer* and remembers the heads it got.
    """
    heads: list[str] = []

    async def one(stream: SocketStream) -> None:
        async with stream:
            while True:
                asked = (await head(stream)).decode("latin-1")
                heads.append(asked)
                await stream.send(answer if isinstance(answer, bytes) else answer(asked))

    async with serving(one) as port:
        yield port, heads


def ok(body: bytes = b"hello", *fields: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join([*lines, "", ""]).encode() + body


def to(location: str, status: int = 302) -> bytes:
    return (
        f"HTTP/1.1 {status} Found\r\nLocation: {location}\r\nSet-Cookie: seen=1\r\nContent-Length: 0\r\n\r\n".encode()
    )


def client(policy: EgressPolicy | None = None, **more: Any) -> Any:
    more = {"resolver": names(), "own": (), "ssl_context": CONTEXT, **more}
    return guarded_client(policy or local_policy(), **more)


async def test_an_allowed_request_is_answered_and_recorded() -> None:
    events: list[EgressEvent] = []
    async with answering(ok()) as (port, heads), client(on_event=events.append) as http:
        answer = await http.get(f"http://A.example:{port}/x/../y?key=1")
        assert (answer.status_code, answer.text) == (200, "hello")
        assert (await http.get(f"http://a.example:{port}/z")).text == "hello"
    assert heads[0].startswith(f"GET /y?key=1 HTTP/1.1\r\nHost: a.example:{port}\r\n")
    assert heads[0].count("ccept-") == 1
    assert [event.destination for event in events] == [f"http://a.example:{port}/{name}" for name in "yz"]


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/",
        "http://127.0.0.1/",
        "http://inside.example/",
        "http://a.example:22/",
        "http://[::ffff:127.0.0.1]/",
        "http://127。0.0.1/",
        "http://2130706433/",
        "file:///etc/passwd",
        "http://u:p@a.example/",
        "http://a.example\\@b.example/",
        "ws://a.example/",
        "//a.example/",
    ],
)
async def test_what_is_refused_is_not_dialed(url: str) -> None:
    dialed: list[str] = []

    async def connector(address: Address, _port: int) -> ByteStream:
        dialed.append(str(address))
        raise ConnectionRefusedError

    async with client(
        EgressPolicy(), resolver=names(inside_example=["10.0.0.1"], a_example=["93.184.216.34"]), connector=connector
    ) as http:
        with pytest.raises((EgressDeniedError, UrlError)):
            await http.get(url)
        assert dialed == []
        with pytest.raises(EgressUnreachableError):
            await http.get("http://a.example/")
        assert dialed == ["93.184.216.34"]


ROWS = [json.loads(line) for line in (HERE.parent / "corpus" / "ssrf.jsonl").read_text(encoding="utf-8").splitlines()]


async def test_the_corpus_goes_the_same_way_through_the_client() -> None:
    """
    Every row, redirects and rebinding included; whatever is dialed is answered by a stub on loopback.
    """
    from tests.egress.test_check import resolver_of

    from sandboxkit.egress._dial import connect_checked

    locations: list[str] = []

    def answer(_asked: str) -> bytes:
        return to(locations.pop(0)) if locations else ok()

    async with answering(answer) as (port, _):

        async def connector(_address: Address, asked: int) -> ByteStream:
            import ipaddress

            if asked == 443:
                raise ConnectionRefusedError  # there is no certificate for these names
            return await connect_checked(ipaddress.ip_address("127.0.0.1"), port)

        for row in ROWS:
            policy = EgressPolicy(**{key: value for key, value in row.get("policy", {}).items() if key != "keepalive"})
            resolver = resolver_of(row)
            outcomes = []
            for _ in range(row.get("fetches", 1)):
                locations[:] = [redirect["location"] for redirect in row.get("redirects", ())]
                locations[:-1] = [text.replace("https:", "http:") for text in locations[:-1]]  # must be answered here
                async with client(policy, resolver=resolver, connector=connector) as http:
                    try:
                        await http.get(row["url"], follow_redirects=True)
                        outcomes.append("allow")
                    except EgressUnreachableError:
                        outcomes.append("allow")  # it was dialed
                    except SandboxError:
                        outcomes.append("block")
            assert outcomes == row.get("outcomes", [row["must"]]), json.dumps(row)[:300]


async def test_tls_is_verified_by_name_and_not_by_address(trusted: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def secure(stream: SocketStream) -> None:
        tls = await anyio.streams.tls.TLSStream.wrap(stream, server_side=True, ssl_context=trusted[0])
        await head(tls)
        await tls.send(ok())

    async with serving(secure) as port:
        async with client(ssl_context=trusted[1]) as http:
            assert (await http.get(f"https://a.example:{port}/")).text == "hello"
            with pytest.raises(EgressUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                await http.get(f"https://b.example:{port}/")
        async with client() as http:
            with pytest.raises(EgressUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                await http.get(f"https://a.example:{port}/")


async def test_keys_and_cookies_do_not_follow_to_another_origin() -> None:
    def answer(asked: str) -> bytes:
        if asked.startswith("GET /same"):
            return to("/away")
        return to(f"http://b.example:{port}/end") if asked.startswith("GET /away") else ok()

    fields = {"Authorization": "Bearer x", "X-API-Key": "y", "Accept": "text/plain", "Cookie": "c=1"}
    async with answering(answer) as (port, heads), client() as http:
        got = await http.get(f"http://a.example:{port}/same", headers=fields, follow_redirects=True)
        assert [str(one.url) for one in got.history] == [f"http://a.example:{port}/{path}" for path in ("same", "away")]
    same, away, end = (asked.lower() for asked in heads)
    assert "bearer x" in same
    assert "x-api-key" in away
    assert "seen=1" in away
    assert "accept: text/plain" in end
    assert f"host: b.example:{port}" in end
    for secret in ("authorization", "x-api-key", "cookie"):
        assert secret not in end


async def test_cookies_of_no_host_stay_with_the_origin_that_was_asked() -> None:
    """
    Those that a client is made with name no host. The control: the first two have them.
    """

    def answer(asked: str) -> bytes:
        if asked.startswith("GET /same"):
            return to("/away")
        if asked.startswith("GET /away"):
            return to(f"http://b.example:{port}/there")
        return to(f"http://a.example:{port}/back") if asked.startswith("GET /there") else ok()

    options = {"cookies": {"session": "c"}, "auth": ("user", "pass"), "headers": {"X-API-Key": "y"}}
    async with answering(answer) as (port, heads), client(options=options) as http:
        await http.get(f"http://a.example:{port}/same", follow_redirects=True)
    same, away, there, back = (asked.lower() for asked in heads)
    assert all(held in asked for asked in (same, away) for held in ("session=c", "x-api-key", "authorization"))
    assert not [held for held in ("session", "cookie", "x-api-key", "authorization") if held in there]
    assert not [held for held in ("session=", "x-api-key", "authorization") if held in back]


async def test_redirects_are_followed_only_when_asked_and_five_times_at_most() -> None:
    async with answering(to("/again")) as (port, heads), client() as http:
        assert (await http.get(f"http://a.example:{port}/")).status_code == 302
        heads.clear()
        with pytest.raises(EgressLimitError, match="more than 5 times"):
            await http.get(f"http://a.example:{port}/", follow_redirects=True)
        assert len(heads) == 6


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1:1/", "//localhost/", "file:///etc/passwd", "http:foo", "///a", "http://a.example\\@b.example/"],
)
async def test_a_redirect_is_decided_about_like_a_request(location: str) -> None:
    policy = local_policy(deny_hosts=["127.0.0.1"])
    async with answering(to(location)) as (port, heads), client(policy) as http:
        with pytest.raises((EgressDeniedError, UrlError)):
            await http.get(f"http://a.example:{port}/", follow_redirects=True)
        assert len(heads) == 1


async def test_a_body_is_not_sent_to_another_origin() -> None:
    async with (
        answering(lambda asked: to(f"http://b.example:{port}/", 307) if "a.example" in asked else ok()) as (
            port,
            heads,
        ),
        client() as http,
    ):
        with pytest.raises(EgressDeniedError, match="body to another origin"):
            await http.post(f"http://a.example:{port}/", content=b"secret", follow_redirects=True)
    assert len(heads) == 1


async def test_overrides_of_host_and_tls_name_are_refused() -> None:
    async with answering(ok()) as (port, heads), client() as http:
        url = f"http://a.example:{port}/"
        for more in (
            {"headers": {"Host": "b.example"}},
            {"extensions": {"sni_hostname": "b.example"}},
            {"extensions": {"target": b"http://b.example/"}},
            {"headers": {"X": "a\r\nHost: b.example"}},
            {"headers": [(b"X\r\nHost", b"b.example")]},
            {"headers": {"Proxy-Authorization": "x"}},
        ):
            with pytest.raises(EgressDeniedError):
                await http.get(url, **more)
        for method in ("CONNECT", "GET\r\nX: y", "GET / HTTP/1.1\r\n\r\nGET", ""):
            with pytest.raises(EgressDeniedError, match=r"is no method; give GET|CONNECT asks for a tunnel"):
                await http.request(method, url)
        assert heads == []
        assert (await http.get(url, headers={"Host": f"a.example:{port}"})).status_code == 200


async def test_a_method_is_decided_about() -> None:
    policy = local_policy(rules=[{"action": "allow", "to": "a.example/v1", "methods": ["GET"]}], default="deny")
    async with answering(ok()) as (port, _), client(policy) as http:
        assert (await http.get(f"http://a.example:{port}/v1/x")).status_code == 200
        for method, path in (("POST", "v1"), ("GET", "v2"), ("GET", "v1/../v2"), ("get", "v1")):
            request = httpx2.Request(method, f"http://a.example:{port}/{path}")
            if method == "get":
                request.method = "get"
            with pytest.raises(EgressDeniedError):
                await http.send(request)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate", None])
async def test_bodies_are_decoded(encoding: str | None) -> None:
    plain = b"hello " * 1000
    raw = zlib.compressobj(wbits=-15)
    body = {
        "gzip": gzip.compress(plain[:600]) + gzip.compress(plain[600:]),
        "deflate": zlib.compress(plain),
        "raw deflate": raw.compress(plain) + raw.flush(),
        None: plain,
    }[encoding]
    fields = [f"Content-Encoding: {encoding.split()[-1]}"] if encoding else []
    async with answering(ok(body, *fields)) as (port, _), client() as http:
        assert (await http.get(f"http://a.example:{port}/")).content == plain


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress", "x"])
async def test_encodings_that_were_not_asked_for_are_refused(encoding: str) -> None:
    async with answering(ok(b"x", f"Content-Encoding: {encoding}")) as (port, _), client() as http:
        with pytest.raises(EgressLimitError, match="not asked for"):
            await http.get(f"http://a.example:{port}/")


async def test_a_bomb_stops_early() -> None:
    bomb = gzip.compress(bytes(200 * 2**20), 9)
    async with answering(ok(bomb, "Content-Encoding: gzip")) as (port, _):
        async with client() as http:
            with pytest.raises(EgressLimitError, match=r"body (has more|is more)"):
                await http.get(f"http://a.example:{port}/")
        largest = 0
        async with client(limits=ClientLimits(body_bytes=5 * 2**20, ratio=10_000)) as http:
            with pytest.raises(EgressLimitError, match="more than 5242880"):  # noqa: PT012 - the reading is what fails
                async with http.stream("GET", f"http://a.example:{port}/") as answer:
                    async for piece in answer.aiter_bytes():
                        largest = max(largest, len(piece))
        assert 0 < largest <= 2**18


async def test_answers_have_bounds() -> None:
    many = [f"X-{number}: a" for number in range(200)]
    for answer, why in (
        (ok(b"x" * 2000), "more than 1000 bytes"),
        (ok(b"", *many), "header fields"),
        (b"HTTP/1.1 banana\r\n\r\n", "malformed"),
    ):
        async with answering(answer) as (port, _), client(limits=ClientLimits(body_bytes=1000)) as http:
            with pytest.raises(EgressLimitError, match=why):
                await http.get(f"http://a.example:{port}/")


@pytest.mark.parametrize("where", ["head", "body"])
async def test_a_trickle_meets_the_total_deadline(where: str) -> None:
    async def trickles(stream: SocketStream) -> None:
        await head(stream)
        await stream.send(
            b"HTTP/1.1 200 OK\r\n" if where == "head" else b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
        )
        while True:
            await stream.send(b"x: y\r\n" if where == "head" else b"x")
            await anyio.sleep(0.05)

    async with serving(trickles) as port, client(limits=ClientLimits(total_timeout=0.5)) as http:
        with anyio.fail_after(5), pytest.raises(EgressTimeoutError):
            await http.get(f"http://a.example:{port}/")


async def test_environment_proxies_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with answering(ok()) as (port, _), client() as http:
        assert (await http.get(f"http://a.example:{port}/")).status_code == 200


async def test_a_client_takes_no_option_that_leads_around_the_guard() -> None:
    for option in ("mounts", "proxy", "transport", "base_url", "verify", "trust_env"):
        with pytest.raises(TypeError, match=option):
            guarded_client(local_policy(), options={option: None})


async def test_the_transport_serves_a_client_of_ones_own() -> None:
    transport = guarded_transport(local_policy(), resolver=names(), own=(), ssl_context=CONTEXT)
    async with answering(to("http://localhost/")) as (port, _), httpx2.AsyncClient(transport=transport) as http:
        with pytest.raises(EgressDeniedError):
            await http.get(f"http://a.example:{port}/", follow_redirects=True)


async def test_the_default_certificates_are_those_of_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from sandboxkit.egress._roots import system_roots

    try:
        before = len(system_roots().get_ca_certs())
    except FileNotFoundError as exc:
        pytest.skip(str(exc))
    trustme.CA().cert_pem.write_to_path(tmp_path / "own.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
    assert len(system_roots().get_ca_certs()) == before
