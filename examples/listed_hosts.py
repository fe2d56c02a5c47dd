"""
A box that may reach one host: that one is fetched, another is refused and named with the
line of a spec that would allow it, and what ignores the proxy reaches nothing.

The server is on loopback, and the name service below answers with that, so nothing leaves
the machine.

    python examples/listed_hosts.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.abc

import sandboxkit as sk
from sandboxkit.backends.bubblewrap import BubblewrapBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import SocketStream

    from sandboxkit.egress import EgressQuestion

FETCH = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1]).read().decode().strip())
except urllib.error.HTTPError as refusal:
    print(refusal.read().decode().strip())
"""
PAST_THE_PROXY = """
import socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])))
except OSError as error:
    print(error.strerror)
"""


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


async def main() -> None:
    """
    Runs four commands in one box.
    """
    server = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = server.extra(anyio.abc.SocketAttribute.local_port)
    network = sk.NetworkPolicy(
        allow_hosts=(f"good.example:{port}",),
        ask_hosts=("asked.example",),
        permit_networks=("127.0.0.1/32",),  # only because the server is here; a public host needs none
    )
    spec = sk.SandboxSpec.isolated(network=network)

    async def ask(question: EgressQuestion) -> bool:
        print(f"asked: may {question.identity} reach {question.host}:{question.port}?".replace(str(port), "PORT"))
        return False

    async with server, anyio.create_task_group() as tasks, BubblewrapBackend(resolver=names).open(spec) as box:
        tasks.start_soon(server.serve, hello)
        for host in ("good.example", "evil.example", "asked.example"):
            result = await box.run(["python3", "-c", FETCH, f"http://{host}:{port}/"], ask=ask)
            print(f"{host}: {result.text()}".replace(str(port), "PORT"), end="")
            for refused in result.violations:
                if refused.spec_line:
                    print(f"  to allow it: {refused.spec_line}".replace(str(port), "PORT"))
        result = await box.run(["python3", "-c", PAST_THE_PROXY, str(port)])
        print(f"past the proxy: {result.text()}", end="")
        tasks.cancel_scope.cancel()


anyio.run(main)
