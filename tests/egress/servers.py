"""
Servers on loopback that an egress test may reach, and a name service for them.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
from anyio.abc import SocketAttribute

from sandboxkit import EgressPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from anyio.abc import ByteStream, SocketStream

LOOPBACK = ["127.0.0.0/8", "::1/128"]


def local_policy(**fields: object) -> EgressPolicy:
    """
    A policy under which loopback may be reached, by names that lead there.
    """
    return EgressPolicy(permit_networks=LOOPBACK, **fields)  # type: ignore[arg-type]  # the fields are the test's


def names(**table: Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """
    A name service: `a_example=["127.0.0.1"]` answers for `a.example`. Everything else under
    `.example` is at 127.0.0.1; other names do not exist. No real one is asked.
    """
    known = {name.replace("_", "."): answers for name, answers in table.items()}

    async def resolve(host: str, _port: int) -> Sequence[str]:
        return known.get(host, ["127.0.0.1"] if host.endswith(".example") else [])

    return resolve


async def echo(stream: ByteStream) -> None:
    async with stream:
        async for data in stream:
            await stream.send(data)
        await stream.send_eof()


@asynccontextmanager
async def serving(
    handler: Callable[[SocketStream], Awaitable[None]] = echo, *, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """
    A server on *host*; gives its port.
    """

    async def careful(stream: SocketStream) -> None:
        try:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError):
                await handler(stream)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)

    listener = await anyio.create_tcp_listener(local_host=host)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, careful)
        yield int(listener.extra(SocketAttribute.local_port))
        tasks.cancel_scope.cancel()


async def until(true: Callable[[], bool]) -> None:
    """
    Waits for what another task is about to do.
    """
    with anyio.fail_after(5):
        while not true():  # noqa: ASYNC110 - what is waited for sets no event
            await anyio.sleep(0.01)


async def read_all(stream: ByteStream) -> bytes:
    parts = []
    try:
        async for data in stream:
            parts.append(data)  # noqa: PERF401 - what came before a reset counts
    except anyio.BrokenResourceError:
        parts.append(b"<reset>")
    return b"".join(parts)
