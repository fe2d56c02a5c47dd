"""
The stream to a container where its descriptor alone is not enough.

Behind TLS what is encrypted cannot be read from a descriptor. On Windows no event loop waits
for descriptors, only for sockets; and a named pipe, by which the engine of that machine is
reached, is none.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import Protocol

import anyio

__all__ = ["NamedPipe", "SocketStream", "over_pipe"]

_CHUNK = 1 << 16


class SocketStream:
    """
    Both directions of a connected socket; a reader and a writer in one.

    Args:
        connection: What the SDK speaks to the engine by.
    """

    def __init__(self, connection: socket.socket) -> None:
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
            except (BlockingIOError, ssl.SSLWantReadError):
                await anyio.wait_readable(self._connection)
                continue
            except ssl.SSLWantWriteError:
                await anyio.wait_writable(self._connection)
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
            except (BlockingIOError, ssl.SSLWantWriteError):
                await anyio.wait_writable(self._connection)
            except ssl.SSLWantReadError:
                await anyio.wait_readable(self._connection)

    def close(self) -> None:
        """
        Closes both directions now, and wakes whoever waits for either.
        """
        self._is_closed = True
        with contextlib.suppress(anyio.NoEventLoopError):
            anyio.notify_closing(self._connection)
        self._connection.close()


class NamedPipe(Protocol):
    """
    What the SDK makes of a named pipe: calls that block, and may be made by two threads at once.

    Source: docker SDK for Python, docker/transport/npipesocket.py; Microsoft, "Synchronous and
    Overlapped Input and Output".
    """

    def recv_into(self, buffer: memoryview, /) -> int:
        """
        Reads what has come.
        """

    def send(self, data: bytes, /) -> int:
        """
        Writes *data*, or a part of it.
        """

    def settimeout(self, seconds: float | None, /) -> None:
        """
        How long either waits.
        """

    def close(self) -> None:
        """
        Closes it; who waits is told that it has ended.
        """


def over_pipe(pipe: NamedPipe) -> SocketStream:
    """
    A stream over *pipe*: two threads carry its bytes to and from a pair of sockets. They
    end with the pipe, and with the stream.
    """
    pipe.settimeout(None)
    ours, theirs = socket.socketpair()
    threading.Thread(target=_carry, args=(pipe, theirs), daemon=True).start()
    return SocketStream(ours)


def _carry(pipe: NamedPipe, theirs: socket.socket) -> None:
    reading = threading.Thread(target=_to_us, args=(pipe, theirs), daemon=True)
    reading.start()
    with theirs:
        # Errors of pywin32 are no OSError, and that nothing more comes is one of them.
        with contextlib.suppress(Exception):
            while data := theirs.recv(_CHUNK):
                while data:
                    data = data[pipe.send(data) :]
        _close(pipe)
        reading.join()  # what has come is for us still, however this way ended


def _to_us(pipe: NamedPipe, theirs: socket.socket) -> None:
    buffer = memoryview(bytearray(_CHUNK))
    with contextlib.suppress(Exception):  # likewise
        while count := pipe.recv_into(buffer):
            theirs.sendall(buffer[:count])
    _close(pipe)
    with contextlib.suppress(OSError):
        theirs.shutdown(socket.SHUT_WR)


def _close(pipe: NamedPipe) -> None:
    with contextlib.suppress(Exception):  # the other thread may have
        pipe.close()
