"""
The stream to a container of an engine behind TLS.

The SDK hands out its socket for it. What is encrypted cannot be read from the descriptor, so
this speaks through that socket, and waits as the other streams do.
"""

from __future__ import annotations

import contextlib
import ssl

import anyio

__all__ = ["TlsStream"]

_CHUNK = 1 << 16


class TlsStream:
    """
    Both directions of a connected socket; a reader and a writer in one.

    Args:
        connection: What the SDK speaks to the engine by.
    """

    def __init__(self, connection: ssl.SSLSocket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._is_closed = False

    async def receive(self) -> bytes:
        """
        The next bytes.

        Raises:
            anyio.EndOfStream: The engine has ended the stream.
            anyio.ClosedResourceError: This end was closed.
            OSError: The connection was lost.
        """
        while not self._is_closed:
            try:
                data = self._connection.recv(_CHUNK)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as exc:
                await self._wait(exc)
                continue
            if not data:
                raise anyio.EndOfStream
            return data
        raise anyio.ClosedResourceError

    async def send(self, item: bytes) -> None:
        """
        Hands over *item* whole.

        Raises:
            anyio.ClosedResourceError: This end was closed.
            OSError: The connection was lost.
        """
        view = memoryview(item)
        while view:
            if self._is_closed:
                raise anyio.ClosedResourceError
            try:
                view = view[self._connection.send(view) :]
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as exc:
                await self._wait(exc)

    async def _wait(self, wanted: ssl.SSLError) -> None:
        wait = anyio.wait_readable if isinstance(wanted, ssl.SSLWantReadError) else anyio.wait_writable
        await wait(self._connection)

    def close(self) -> None:
        """
        Closes both directions now, and wakes whoever waits for either.
        """
        self._is_closed = True
        with contextlib.suppress(anyio.NoEventLoopError):
            anyio.notify_closing(self._connection)
        self._connection.close()
