"""
Carries bytes both ways between two streams.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from sandboxkit.egress._plain import PlainStream
from sandboxkit.errors import EgressError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import ByteStream

__all__ = ["Traffic", "TunnelEndedError", "relay"]

CHUNK = 1 << 18


class TunnelEndedError(Exception):
    """
    A tunnel was ended by us; says why.
    """


@dataclass(slots=True)
class Traffic:
    """
    What went through a tunnel so far.

    Attributes:
        sent: Bytes to the destination.
        received: Bytes from it.
        last: When bytes last moved, by `time.monotonic`.
    """

    sent: int = 0
    received: int = 0
    last: float = field(default_factory=time.monotonic)


async def relay(
    client: ByteStream,
    server: ByteStream,
    traffic: Traffic,
    *,
    first: Callable[[], Awaitable[bytes]],
    idle_timeout: float,
    total_timeout: float | None = None,
    max_bytes: int | None = None,
) -> None:
    """
    Carries bytes until both sides have ended. The end of one direction is passed on and
    the other goes on. Each side is read only as fast as the other takes it.

    Args:
        client: Who asked.
        server: Where to.
        traffic: Is counted up.
        first: Gives what the client sends first, once that was looked at; empty at its end.
        idle_timeout: Seconds without a byte in either direction.
        total_timeout: Seconds of all together, or None.
        max_bytes: Of both directions together, or None.

    Raises:
        TunnelEndedError: A bound was reached.
        EgressError: *first* refused.
        anyio.BrokenResourceError: One side reset its connection.
    """

    def count(sent: int, received: int) -> None:
        traffic.sent += sent
        traffic.received += received
        traffic.last = time.monotonic()
        if max_bytes is not None and traffic.sent + traffic.received > max_bytes:
            raise TunnelEndedError(f"more than {max_bytes} bytes went through")

    async def outwards() -> None:
        data = await first()
        if data:
            await server.send(data)
            count(len(data), 0)
            await _copy(client, server, lambda size: count(size, 0))
        await _end(server)

    async def inwards() -> None:
        await _copy(server, client, lambda size: count(0, size))
        await _end(client)

    failures: list[Exception] = []
    ended: list[object] = []

    async def guarded(way: Callable[[], Awaitable[None]]) -> None:
        try:
            await way()
        except NotImplementedError:
            tasks.cancel_scope.cancel()  # TLS ends both directions at once
        except (TunnelEndedError, EgressError, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as exc:
            failures.append(exc)  # a reset of one side ends both directions
        ended.append(way)
        if failures or len(ended) == 2:
            tasks.cancel_scope.cancel()

    end = float("inf") if total_timeout is None else time.monotonic() + total_timeout
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(guarded, outwards)
        tasks.start_soon(guarded, inwards)
        while (left := min(end, traffic.last + idle_timeout) - time.monotonic()) > 0:  # noqa: ASYNC110 - bytes move the end
            await anyio.sleep(left)
        spent = f"{total_timeout:g} s in all" if time.monotonic() >= end else f"{idle_timeout:g} s without a byte"
        failures.append(TunnelEndedError(f"ended after {spent}"))
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]


async def _copy(source: ByteStream, target: ByteStream, count: Callable[[int], None]) -> None:
    plain, other = _plain(source), _plain(target)
    if plain is not None and other is not None:
        await plain.carry(other, count)
        return
    while True:
        try:
            data = await source.receive(CHUNK)
        except anyio.EndOfStream:
            return
        await target.send(data)
        count(len(data))


def _plain(stream: ByteStream) -> PlainStream | None:
    """
    The socket behind *stream*, where nothing was put back in front of it.
    """
    found: object = getattr(stream, "plain", stream)
    return found if isinstance(found, PlainStream) else None


async def _end(stream: ByteStream) -> None:
    await stream.send_eof()
