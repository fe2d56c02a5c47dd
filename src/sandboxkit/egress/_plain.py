"""
Sockets of the operating system as streams, without a transport between: what a tunnel
carries goes from one to the other through one buffer that is used again.
"""

from __future__ import annotations

import errno
import logging
import socket
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.stapled import MultiListener

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
    from typing import Any

    from anyio.abc import Listener

    from sandboxkit.guard import Address

__all__ = ["BUFFER", "PlainStream", "connect", "serve_plain", "shortage"]

_log = logging.getLogger("sandboxkit.egress")

BUFFER = 1 << 16
"""Bytes that are carried at one time where no large buffer is left."""
_LARGE, _LARGE_BUFFERS = 1 << 20, 16
"""
Most tunnels are short or wait; a tunnel that is carrying much uses one of a few large
buffers, so 1000 that are stuck hold 80 MiB. Measured on loopback, processor time for a
GiB: 0.55 s through anyio's own streams, 0.40 s by 256 KiB, 0.30 s by 1 MiB, 0.24 s with
splice(2) through a pipe of 1 MiB, of which one user may have only 16.
Source: pipe(7), pipe-user-pages-soft.
"""
_NO_LISTENER = frozenset((errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP))
_PAUSE_S, _SILENCE_S = 0.1, 10.0
_EXHAUSTED = {
    errno.ENFILE: "the machine has no descriptor left (sysctl fs.file-max); end what holds many open",
    errno.ENOBUFS: "the machine has no memory left for sockets; end what holds many open",
    errno.ENOMEM: "the machine has no memory left for sockets; end what holds many open",
}
"""Source: accept(2): what passes when connections end."""


class _Buffers:
    """
    A bounded number of large buffers, and small ones for who comes when all are in use.
    """

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self._left = _LARGE_BUFFERS

    @contextmanager
    def one(self) -> Iterator[bytearray]:
        """
        A buffer for as long as the block lasts.
        """
        if self._free:
            buffer = self._free.pop()
        elif self._left > 0:
            self._left -= 1
            buffer = bytearray(_LARGE)
        else:
            yield bytearray(BUFFER)
            return
        try:
            yield buffer
        finally:
            self._free.append(buffer)


_buffers = _Buffers()


@final
class PlainStream(ByteStream):
    """
    A connected stream socket. Owns it: closing the stream closes the socket.
    """

    def __init__(self, raw: socket.socket) -> None:
        raw.setblocking(False)
        if raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._raw = raw

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """
        The next bytes, at most *max_bytes*.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = self._raw.recv(max_bytes)
            except BlockingIOError:
                await self._until(anyio.wait_readable)
            except OSError as exc:
                raise self._broken(exc) from exc
            else:
                if not data:
                    raise anyio.EndOfStream
                return data

    async def send(self, item: bytes | memoryview) -> None:
        """
        Sends all of *item*.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        rest, waited = memoryview(item), False
        while rest:
            try:
                rest = rest[self._raw.send(rest) :]
            except BlockingIOError:
                waited = True
                await self._until(anyio.wait_writable)
            except OSError as exc:
                raise self._broken(exc) from exc
        if not waited:
            await anyio.lowlevel.cancel_shielded_checkpoint()

    async def carry(self, target: PlainStream, count: Callable[[int], None]) -> None:
        """
        Sends *target* what comes here until the end of it, as fast as it takes it.

        Args:
            target: Where to.
            count: Is told how many bytes went.
        """
        while True:
            await self._until(anyio.wait_readable)  # holds no buffer
            with _buffers.one() as buffer:
                if await self._carry_what_is_there(target, buffer, count):
                    return

    async def _carry_what_is_there(self, target: PlainStream, buffer: bytearray, count: Callable[[int], None]) -> bool:
        """
        Returns whether that was the end.
        """
        with memoryview(buffer) as view:
            while True:
                try:
                    size = self._raw.recv_into(view)
                except BlockingIOError:
                    return False
                except OSError as exc:
                    raise self._broken(exc) from exc
                if size == 0:
                    return True
                await target.send(view[:size])
                count(size)

    async def _until(self, ready: Callable[[socket.socket], Awaitable[None]]) -> None:
        try:
            await ready(self._raw)
        except (OSError, ValueError) as exc:
            raise anyio.ClosedResourceError from exc

    def _broken(self, exc: OSError) -> Exception:
        closed = self._raw.fileno() < 0
        return anyio.ClosedResourceError() if closed else anyio.BrokenResourceError(exc.strerror or str(exc))

    async def send_eof(self) -> None:
        """
        Ends the sending direction.
        """
        try:
            self._raw.shutdown(socket.SHUT_WR)
        except OSError as exc:
            if exc.errno != errno.ENOTCONN:  # the other side has gone: nobody is left to be told
                raise self._broken(exc) from exc

    async def aclose(self) -> None:
        """
        Closes the socket.
        """
        if self._raw.fileno() >= 0:
            anyio.notify_closing(self._raw)
            self._raw.close()
        await anyio.lowlevel.checkpoint()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """
        As a stream of anyio has them.
        """
        return {
            SocketAttribute.raw_socket: lambda: self._raw,
            SocketAttribute.family: lambda: self._raw.family,
            SocketAttribute.local_address: self._raw.getsockname,
            SocketAttribute.remote_address: self._raw.getpeername,
        }


def shortage(exc: BaseException | None) -> str | None:
    """
    What this process or the machine is short of where *exc* says so, with the remedy.
    """
    if not isinstance(exc, OSError):
        return None
    if exc.errno == errno.EMFILE:
        most = f" of {_most_files()}" if _most_files() else ""
        return (
            f"this process has no descriptor left{most}; let it have more (ulimit -n, resource.setrlimit), "
            "or bound the connections (ProxyLimits, ClientLimits)"
        )
    return _EXHAUSTED.get(exc.errno or 0)


def _most_files() -> int:
    if sys.platform == "win32":
        return 0
    import resource

    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 0)


async def connect(address: Address, port: int) -> PlainStream:
    """
    A TCP connection to *address*.

    Raises:
        OSError: It failed.
    """
    raw = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        raw.setblocking(False)
        try:
            raw.connect((str(address), port))
        except BlockingIOError:
            await anyio.wait_writable(raw)
        if code := raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, f"connecting to {address} port {port} failed: {errno.errorcode.get(code, code)}")
        return PlainStream(raw)
    except BaseException:
        if raw.fileno() >= 0:
            anyio.notify_closing(raw)
            raw.close()
        raise


async def serve_plain(
    listener: Listener[ByteStream], handler: Callable[[ByteStream], Coroutine[Any, Any, None]]
) -> None:
    """
    Serves *listener* as it would itself, with `PlainStream` where it is a socket.

    Args:
        listener: Stays open.
        handler: Owns each stream, and must not raise.
    """
    if isinstance(listener, MultiListener):
        async with anyio.create_task_group() as tasks:
            for each in listener.listeners:
                tasks.start_soon(serve_plain, each, handler)
        return
    raw = listener.extra(SocketAttribute.raw_socket, None)
    if raw is None:
        await listener.serve(handler)
        return
    silent_until = float("-inf")
    async with anyio.create_task_group() as tasks:
        while True:
            try:
                stream = await _accepted(raw)
            except OSError as exc:
                if (why := shortage(exc)) is None:
                    raise
                if time.monotonic() > silent_until:
                    silent_until = time.monotonic() + _SILENCE_S
                    _log.warning("connections wait: %s", why)
                await anyio.sleep(_PAUSE_S)
                continue
            if stream is not None:
                tasks.start_soon(handler, stream)


async def _accepted(raw: socket.socket) -> PlainStream | None:
    """
    The next connection, or None where it is gone already.

    Raises:
        OSError: The listener is closed, or there is a shortage.
    """
    await anyio.wait_readable(raw)
    try:
        peer, _ = raw.accept()
    except BlockingIOError:
        return None
    except OSError as exc:
        if raw.fileno() < 0 or exc.errno in _NO_LISTENER or shortage(exc):
            raise
        return None
    try:
        return PlainStream(peer)
    except OSError:
        peer.close()  # reset before we came to it
        return None
