"""
A program that may reach one host: through the proxy, with another host refused.

The server is on loopback, and so is every name: nothing leaves the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from sandboxkit import EgressPolicy
from sandboxkit.egress import EgressEvent, EgressProxy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import SocketStream

    from sandboxkit.egress import ProxyAddress


async def hello(stream: SocketStream) -> None:
    """
    A web server of one page.
    """
    async with stream:
        await stream.receive()
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n")


async def names(_host: str, _port: int) -> Sequence[str]:
    """
    A name service under which every name is this machine. Leave it out to ask the real one.
    """
    return ["127.0.0.1"]


async def fetched(proxy: ProxyAddress, url: str) -> str:
    """
    What a program gets that uses the proxy, as curl would with HTTP_PROXY.
    """
    import base64

    token = base64.b64encode(f"sandboxkit:{proxy.token}".encode()).decode()
    async with await anyio.connect_tcp(proxy.host, proxy.port) as stream:
        await stream.send(
            f"GET {url} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {token}\r\nConnection: close\r\n\r\n".encode()
        )
        return b"".join([data async for data in stream]).decode().splitlines()[-1]


async def main() -> None:
    """
    Asks for an allowed page and for two that are refused.
    """
    policy = EgressPolicy(allow_hosts=["good.example"], permit_networks=["127.0.0.0/8"])
    events: list[EgressEvent] = []
    proxy = EgressProxy(policy, identity="example", resolver=names, on_event=events.append)
    server = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = server.extra(anyio.abc.SocketAttribute.local_port)
    async with server, proxy.listening() as address, anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, hello)
        for url in (f"http://good.example:{port}/", f"http://evil.example:{port}/", "http://169.254.169.254/"):
            print(f"{url.replace(str(port), 'PORT')}: {await fetched(address, url)}".replace(str(port), "PORT"))
        tasks.cancel_scope.cancel()
    for event in events:
        print(f"recorded: {event.verdict.action}, {event.verdict.reason}, dialed {event.address}")


anyio.run(main)
