"""
Streams of plain sockets carry everything, hold little, and outlive what happens to others.
"""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import struct
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.abc import SocketAttribute
from tests.egress.servers import echo, local_policy, names, read_all, serving, until

from sandboxkit.egress import EgressProxy, _plain
from sandboxkit.egress._plain import PlainStream, serve_plain
from sandboxkit.egress._stream import has_news

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from anyio.abc import ByteStream

pytestmark = pytest.mark.anyio


def pair() -> tuple[PlainStream, PlainStream]:
    one, other = socket.socketpair()
    return PlainStream(one), PlainStream(other)


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    """
    An echo server of `serve_plain`; gives its port.
    """
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

    async def careful(stream: ByteStream) -> None:
        with suppress(anyio.BrokenResourceError):
            await echo(stream)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(serve_plain, listener, careful)
        yield int(listener.extra(SocketAttribute.local_port))
        tasks.cancel_scope.cancel()


async def echoes(port: int) -> bool:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"x")
        return await stream.receive() == b"x"


async def test_carrying_waits_for_the_slower_side_and_tells_the_end() -> None:
    source, inner = pair()
    outer, target = pair()
    counted: list[int] = []
    data = os.urandom(3 << 20)
    async with source, inner, outer, target, anyio.create_task_group() as tasks:

        async def carries() -> None:
            await inner.carry(outer, counted.append)
            await outer.send_eof()

        async def sends() -> None:
            await source.send(data)
            await source.send_eof()

        tasks.start_soon(carries)
        tasks.start_soon(sends)
        await anyio.sleep(0.1)
        assert sum(counted) < len(data)  # nobody has read yet
        assert await read_all(target) == data
    assert sum(counted) == len(data)


async def test_stuck_tunnels_share_few_large_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    class Counted(_plain._Buffers):
        @contextmanager
        def one(self) -> Iterator[bytearray]:
            with super().one() as buffer:
                held.append(len(buffer))
                try:
                    yield buffer
                finally:
                    held.remove(len(buffer))

    monkeypatch.setattr(_plain, "_buffers", Counted())
    async with anyio.create_task_group() as tasks:
        kept: list[ByteStream] = []
        for _ in range(20):
            (source, inner), (outer, target) = pair(), pair()
            kept += [source, inner, outer, target]
            tasks.start_soon(inner.carry, outer, lambda _: None)
            tasks.start_soon(source.send, bytes(4 << 20))
        await until(lambda: len(held) == 20)
        sizes = sorted(held)
        tasks.cancel_scope.cancel()
    assert sizes == [_plain.BUFFER] * 4 + [_plain._LARGE] * 16
    for stream in kept:
        await stream.aclose()


async def test_closing_ends_whoever_waits() -> None:
    one, other = pair()
    async with other:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:

                async def waits() -> None:
                    with pytest.raises(anyio.ClosedResourceError):
                        await one.receive()

                tasks.start_soon(waits)
                await anyio.sleep(0.05)
                await one.aclose()
        await one.aclose()


async def test_a_reset_is_no_end() -> None:
    async with served() as port:
        raw = socket.create_connection(("127.0.0.1", port))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()
        one, other = pair()
        async with one:
            await one.send(b"x")
            await other.aclose()  # with unread bytes: a reset, on sockets of every family
            with pytest.raises(anyio.BrokenResourceError):
                await one.receive()
            with pytest.raises(anyio.BrokenResourceError):
                await one.send(b"x" * 100_000)
        assert await echoes(port)


async def test_the_listener_outlives_a_want_of_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with served() as port:
        client = socket.socket()
        lowest = os.dup(0)
        os.close(lowest)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
            client.connect(("127.0.0.1", port))
            await anyio.sleep(0.15)  # the listener sees it and cannot take it
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client.close()
        with anyio.fail_after(5):
            assert await echoes(port)
    (said,) = [record.getMessage() for record in caplog.records]  # once, however often it tries
    assert said.startswith(f"connections wait: this process has no descriptor left of {lowest};")


async def test_a_listener_on_several_addresses_is_served() -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    proxy = EgressProxy(local_policy(), resolver=names(), own=())
    listener = await anyio.create_tcp_listener()
    port = listener.extra(SocketAttribute.local_port)
    async with serving() as server, anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: proxy.serve(listener, task_status=task_status))
        for host in ("127.0.0.1", "::1"):
            async with await anyio.connect_tcp(host, port) as stream:
                await stream.send(f"CONNECT a.example:{server} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                assert (await stream.receive()).startswith(b"HTTP/1.1 200")
        tasks.cancel_scope.cancel()


async def test_whether_something_came_is_known_of_any_descriptor() -> None:
    """
    select(2) takes none from 1024 on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"not applicable: this process may have {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        near, far = socket.socketpair()
        with near, far:
            stream = PlainStream(socket.socket(fileno=fcntl.fcntl(near.fileno(), fcntl.F_DUPFD_CLOEXEC, 1500)))
            assert not has_news(stream)
            far.send(b"x")
            assert has_news(stream)
            assert await stream.receive() == b"x"
            assert not has_news(stream)
            far.close()
            assert has_news(stream)
            await stream.aclose()
            assert has_news(stream)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
