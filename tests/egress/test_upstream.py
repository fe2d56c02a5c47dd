"""
Another proxy is used where code names it, and leads no further than the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.egress.servers import LOOPBACK, local_policy, names, read_all, serving
from tests.egress.test_proxy import head, proxying

from sandboxkit import EgressDeniedError, EgressPolicy, EgressUnreachableError, PolicyError
from sandboxkit.egress import Dialer, EgressProxy, UpstreamProxy, guarded_client

if TYPE_CHECKING:
    from anyio.abc import SocketStream

pytest.importorskip("h11", reason="the proxy is the extra egress")
pytest.importorskip("httpx2", reason="the client is the extra egress")
pytestmark = pytest.mark.anyio


def dialer(upstream: UpstreamProxy, policy: EgressPolicy | None = None) -> Dialer:
    return Dialer(policy or EgressPolicy(), resolver=names(), own=(), upstream=upstream)


async def test_everything_goes_through_it_and_its_rules_hold_as_well() -> None:
    async with serving() as port, proxying(local_policy(deny_hosts=["b.example"])) as corporate:
        upstream = UpstreamProxy(f"http://proxy.example:{corporate.port}", permit_networks=LOOPBACK)
        proxy = EgressProxy(EgressPolicy(deny_hosts=["c.example"]), resolver=names(), own=(), upstream=upstream)
        async with proxy.listening() as address:
            import base64

            token = base64.b64encode(f"x:{address.token}".encode()).decode()
            for host, status in (("a", b"200"), ("b", b"502"), ("c", b"403")):
                async with await anyio.connect_tcp(address.host, address.port) as stream:
                    target = f"{host}.example:{port}"
                    await stream.send(
                        f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {token}\r\n\r\n".encode()
                    )
                    assert (await head(stream)).split()[1] == status
                    if status == b"200":
                        await stream.send(b"x" * 300_000)
                        await stream.send_eof()
                        assert await read_all(stream) == b"x" * 300_000
        assert [event.destination for event in await corporate.recorded(2)] == [f"{h}.example:{port}" for h in "ab"]


async def test_a_client_goes_through_it() -> None:
    async def web(stream: SocketStream) -> None:
        await head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    async with serving(web) as port, proxying() as corporate:
        upstream = UpstreamProxy(f"http://127.0.0.1:{corporate.port}", permit_networks=LOOPBACK)
        async with guarded_client(EgressPolicy(), resolver=names(), own=(), upstream=upstream) as http:
            assert (await http.get(f"http://a.example:{port}/")).text == "hello"
        assert [event.protocol for event in await corporate.recorded()] == ["connect"]


async def test_its_own_addresses_are_checked() -> None:
    async with proxying() as corporate:
        for permitted in ((), ["10.0.0.0/8"]):
            upstream = UpstreamProxy(f"http://proxy.example:{corporate.port}", permit_networks=permitted)
            with pytest.raises(EgressDeniedError, match=r"the upstream proxy http://proxy\.example.*127"):
                await dialer(upstream).connect("a.example", 443)
        metadata = UpstreamProxy("http://169.254.169.254:80", permit_networks=["0.0.0.0/0"])
        with pytest.raises(EgressDeniedError, match="no setting lifts this"):
            await dialer(metadata).connect("a.example", 443)
        assert corporate.events == []


async def test_what_it_may_be_in_is_permitted_for_nothing_else() -> None:
    async with proxying() as corporate:
        upstream = UpstreamProxy(f"http://127.0.0.1:{corporate.port}", permit_networks=LOOPBACK)
        for host, port, why in (
            ("127.0.0.1", 80, "loopback"),
            ("10.0.0.1", 80, "private use"),
            ("127.0.0.1", corporate.port, "upstream proxy"),
        ):
            with pytest.raises(EgressDeniedError, match=why):
                await dialer(upstream).connect(host, port)
        assert corporate.events == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 407 Auth\r\n\r\n", "answered 407"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://b.example\r\n\r\n", "answered 302"),
        (b"SSH-2.0-x\r\n\r\n", "no answer of HTTP"),
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000, "no answer of HTTP"),
    ],
)
async def test_a_proxy_that_does_not_open_a_tunnel_is_unreachable(answer: bytes, why: str) -> None:
    got: list[bytes] = []

    async def one(stream: SocketStream) -> None:
        got.append(await head(stream))
        await stream.send(answer)

    async with serving(one) as port:
        upstream = UpstreamProxy(f"http://127.0.0.1:{port}", permit_networks=LOOPBACK, authorization="Basic c2VjcmV0")
        with pytest.raises(EgressUnreachableError, match=why) as failed:
            await dialer(upstream).connect("a.example", 443)
    assert b"Proxy-Authorization: Basic c2VjcmV0\r\n" in got[0]
    assert "c2VjcmV0" not in f"{failed.value} {upstream!r} {upstream}"


@pytest.mark.parametrize(
    ("url", "more", "why"),
    [
        ("https://proxy.example", {}, "http://host:port alone"),
        ("http://proxy.example/path", {}, "http://host:port alone"),
        ("http://u:p@proxy.example", {}, "user name or password"),
        ("socks5://proxy.example", {}, "only http"),
        ("http://proxy.example", {"authorization": "Basic x\r\nX: y"}, "visible ASCII"),
        ("http://proxy.example", {"permit_networks": ["10.0.0.1"]}, "prefix length"),
    ],
)
def test_what_is_no_proxy_is_refused(url: str, more: dict[str, Any], why: str) -> None:
    with pytest.raises(PolicyError, match=why) as refused:
        UpstreamProxy(url, **more)
    assert "u:p" not in str(refused.value)
