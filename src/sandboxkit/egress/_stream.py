"""
A stream of which bytes may be looked at before they are taken.
"""

from __future__ import annotations

import select
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, final

import anyio
from anyio.abc import ByteStream, SocketAttribute

from sandboxkit.egress._relay import CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["Unread", "has_news"]

_LINGER_S = 1.0
_LINGER_READS = 64


@final
class Unread(ByteStream):
    """
    *stream*, with bytes put back in front of it.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._front = b""

    def put_back(self, data: bytes) -> None:
        """
        *data* is received first.
        """
        self._front = data + self._front

    @property
    def plain(self) -> ByteStream | None:
        """
        The stream itself, where nothing was put back.
        """
        return None if self._front else self._stream

    async def exactly(self, count: int) -> bytes:
        """
        The next *count* bytes.

        Raises:
            anyio.EndOfStream: There are fewer.
        """
        data = b""
        while len(data) < count:
            data += await self.receive(count - len(data))
        return data

    async def receive(self, max_bytes: int = CHUNK) -> bytes:
        """
        What comes next.
        """
        if self._front:
            data, self._front = self._front[:max_bytes], self._front[max_bytes:]
            return data
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        """
        Sends *item*.
        """
        await self._stream.send(item)

    async def send_eof(self) -> None:
        """
        Ends the sending direction.
        """
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """
        Closes the stream.
        """
        await self._stream.aclose()

    async def farewell(self) -> None:
        """
        Ends the sending direction and reads what is still under way: closing a socket with
        unread bytes resets it, and the other side would lose the last of what it was told.
        """
        with anyio.move_on_after(_LINGER_S):
            try:
                await self._stream.send_eof()
                for _ in range(_LINGER_READS):
                    await self._stream.receive(CHUNK)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                return

    def reset_on_close(self) -> None:
        """
        Closing will tell the other side that something is missing.

        Source: socket(7), SO_LINGER.
        """
        raw = self._stream.extra(SocketAttribute.raw_socket, None)
        if raw is None:
            return
        with suppress(OSError):  # a reset by the other side has closed this end already
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def abort(self) -> None:
        """
        Closes the stream without waiting for what was sent.
        """
        await anyio.aclose_forcefully(self._stream)

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """
        Those of the stream.
        """
        return self._stream.extra_attributes


def has_news(stream: ByteStream) -> bool:
    """
    Whether something came over a socket that waits for nothing, or it has ended.
    """
    raw = stream.extra(SocketAttribute.raw_socket, None)
    if raw is None or raw.fileno() < 0:
        return True
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([raw], [], [], 0)[0])
    seen = select.poll()  # select(2) takes no descriptor from 1024 on
    seen.register(raw, select.POLLIN)
    return bool(seen.poll(0))
