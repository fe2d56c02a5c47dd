"""
The network as httpcore2 sees it: what the dialer connects to. Imported when it is used.
"""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import anyio
import anyio.streams.tls
import httpcore2
from anyio.abc import SocketAttribute

from sandboxkit.egress._stream import has_news
from sandboxkit.errors import EgressDeniedError
from sandboxkit.guard import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from anyio.abc import ByteStream

    from sandboxkit.egress._dial import Dialer

__all__ = ["Backend"]


@final
class Backend(httpcore2.AsyncNetworkBackend):
    """
    Connects by a dialer.
    """

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        connection = await self._dialer.connect(host.strip("[]"), port)
        return _NetworkStream(connection.stream)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise EgressDeniedError(path, Verdict.deny("a guarded client uses no Unix sockets", code="url"))

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


@contextmanager
def _mapped(timeout: float | None, late: type[Exception], broken: type[Exception]) -> Iterator[None]:
    try:
        with anyio.fail_after(timeout):
            yield
    except TimeoutError as exc:
        raise late(exc) from exc
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, ssl.SSLError) as exc:
        raise broken(exc.__cause__ or exc) from exc


@final
class _NetworkStream(httpcore2.AsyncNetworkStream):
    """
    A stream of anyio as httpcore2 uses it.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _mapped(timeout, httpcore2.ReadTimeout, httpcore2.ReadError):
            try:
                return await self._stream.receive(max_bytes)
            except anyio.EndOfStream:
                return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with _mapped(timeout, httpcore2.WriteTimeout, httpcore2.WriteError):
            if buffer:
                await self._stream.send(buffer)

    async def aclose(self) -> None:
        await anyio.aclose_forcefully(self._stream)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        try:
            with _mapped(timeout, httpcore2.ConnectTimeout, httpcore2.ConnectError):
                return _NetworkStream(
                    await anyio.streams.tls.TLSStream.wrap(
                        self._stream, ssl_context=ssl_context, hostname=server_hostname, standard_compatible=False
                    )
                )
        except BaseException:
            await self.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        match info:
            case "ssl_object":
                return self._stream.extra(anyio.streams.tls.TLSAttribute.ssl_object, None)
            case "client_addr":
                return self._stream.extra(SocketAttribute.local_address, None)
            case "server_addr":
                return self._stream.extra(SocketAttribute.remote_address, None)
            case "socket":
                return self._stream.extra(SocketAttribute.raw_socket, None)
            case "is_readable":
                return has_news(self._stream)
            case _:
                return None
