"""
Looks into TLS: the proxy stands in for the host, decides about each request, and talks to
the real one itself.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, final

import anyio
from anyio.streams.tls import TLSAttribute, TLSStream

from sandboxkit.egress._hello import HelloState
from sandboxkit.egress._http import Exchange, Server, StaleConnectionError, status_of
from sandboxkit.egress._injection import Injector
from sandboxkit.egress._relay import TunnelEndedError, relay
from sandboxkit.egress._roots import strict, system_roots
from sandboxkit.egress._stream import Unread, has_news
from sandboxkit.egress._tunnel import Tunnel, greeting, more, refuse_greeting, unread_greeting
from sandboxkit.errors import (
    EgressDeniedError,
    EgressError,
    EgressTimeoutError,
    EgressUnreachableError,
    SecretScopeError,
    UrlError,
)
from sandboxkit.guard import Verdict, canonical_host, canonical_url
from sandboxkit.model import HostPattern
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    import h11
    from anyio.abc import ByteStream

    from sandboxkit.egress._gate import Gate
    from sandboxkit.egress._injection import Veil
    from sandboxkit.egress._interception import Interception
    from sandboxkit.egress._record import ProxyLimits, Record
    from sandboxkit.guard import Url

__all__ = ["Intercepted", "Interceptor"]

_GOODBYE_S = 1.0


@final
class Interceptor:
    """
    What the tunnels of a proxy that looks inside share.

    Args:
        interception: What the caller asked for.
    """

    def __init__(self, interception: Interception) -> None:
        from sandboxkit.egress._authority import Authority

        self.authority = Authority(interception.valid_s)
        self.injector = Injector(interception.secrets or SecretRegistry(), interception.injections)
        self.roots = strict(interception.ssl_context or system_roots())
        self._sockets = tuple(map(HostPattern.parse, interception.websocket_hosts))

    def tunnel(self, gate: Gate, host: str, port: int, *, limits: ProxyLimits, record: Record) -> Intercepted:
        """
        A tunnel of which nothing was opened yet.
        """
        return Intercepted(self, gate, host, port, limits=limits, record=record)

    def allows_websocket(self, url: Url) -> bool:
        """
        Whether a request may become a connection into which nobody looks.
        """
        return any(known.matches(url.host, scheme=url.scheme, port=url.port) for known in self._sockets)


@final
class Intercepted:
    """
    A tunnel in which the proxy is the host. The real one is connected when a request was
    allowed; a connection that it keeps serves the next one that can be repeated.
    """

    def __init__(
        self, interceptor: Interceptor, gate: Gate, host: str, port: int, *, limits: ProxyLimits, record: Record
    ) -> None:
        self._interceptor = interceptor
        self._gate = gate
        self._host = host
        self._port = port
        self._limits = limits
        self._record = record
        self._kept: tuple[TLSStream, str | None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._kept is not None:
            await _let_go(self._kept[0])

    async def carry(self, client: Unread) -> None:
        """
        Serves what the client asks for in the tunnel. The client speaks first.

        What is no TLS is carried as it would be without interception: by rules that allow
        the host whatever is said to it.

        Raises:
            EgressDeniedError: The client asks for another name than that of the tunnel, or in a
                way that cannot be read, or speaks no TLS and no rule allows that.
            TunnelEndedError: The client did not accept our certificate, or a bound was reached.
        """
        data, hello = b"", None
        with anyio.move_on_after(self._limits.header_timeout):
            data, hello = await greeting(client, self._limits.header_timeout)
        if not data or hello is None:
            raise TunnelEndedError(f"the client said nothing within {self._limits.header_timeout:g} s")
        if (unread := unread_greeting(hello)) is not None:
            await refuse_greeting(client, hello, unread, self._record)
        client.put_back(data)
        if hello.state is HelloState.OTHER:
            await self._unseen(client)
            return
        if hello.server_name is not None and _name(hello.server_name) != self._host:
            shown = ascii(hello.server_name)[1:-1][:253]
            verdict = Verdict.deny(f"it asks for the TLS name {shown} in a tunnel to {self._host}", code="name")
            await refuse_greeting(client, hello, verdict, self._record)
        await self._seen(client)

    async def _unseen(self, client: Unread) -> None:
        connection, must_be_tls = await self._gate.open_tunnel(self._host, self._port, self._record)
        tunnel = Tunnel(
            connection,
            self._gate.policy,
            self._host,
            self._port,
            must_be_tls=must_be_tls,
            limits=self._limits,
            record=self._record,
        )
        async with tunnel:
            await tunnel.carry(client)

    async def _seen(self, client: Unread) -> None:
        context = self._interceptor.authority.context(self._host)
        try:
            with anyio.fail_after(self._limits.header_timeout):
                inside = await TLSStream.wrap(client, server_side=True, ssl_context=context, standard_compatible=False)
        except (ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream, TimeoutError):
            raise TunnelEndedError(
                "the client ended the TLS handshake: it must trust the certificate of EgressProxy.trust()"
            ) from None
        unread = partial(self._gate.unread, "https", of=f"https://{self._record.destination}/")
        server = Server(Unread(inside), self._limits, on_unread=unread)
        for _ in range(self._limits.requests):
            request = await server.request()
            if request is None or not await self._one(server, request):
                break
        with anyio.move_on_after(_GOODBYE_S):
            await inside.unwrap()

    async def _one(self, server: Server, request: h11.Request) -> bool:
        """
        One request and its answer. Returns whether the client may send another.
        """
        method = request.method.decode("ascii")
        destination = f"https://{self._record.destination}/"
        with self._gate.recording("https", destination, method) as record:
            try:
                url = self._url(request)
                record.destination = url.origin + url.path
                await self._gate.approve_request(url, method, record)
                veil = self._interceptor.injector.veil(url, method)
                upgrades = self._upgrades(request, url, veil)
                used = None if upgrades or not _may_be_repeated(request) else self._taken(record)
                if used is not None:
                    with suppress(StaleConnectionError):
                        exchange = Exchange(server, used, record, veil=veil, keeps=True, used=True)
                        return await self._over(exchange, used, url, request)
                upstream = await self._connected(url, record)
            except (EgressError, UrlError, SecretScopeError) as exc:
                await server.refuse(status_of(exc), str(exc))
                record.failed(exc)
                return False
            exchange = Exchange(server, upstream, record, veil=veil, upgrades=upgrades, keeps=not upgrades)
            return await self._over(exchange, upstream, url, request)

    async def _over(self, exchange: Exchange, upstream: TLSStream, url: Url, request: h11.Request) -> bool:
        """
        One exchange over *upstream*, which is kept for the next where that is possible.
        """
        is_kept = False
        try:
            again = await exchange.run(request.method.decode("ascii"), url, request.headers.raw_items())
            if exchange.switched:
                await self._carry_socket(upstream, exchange)
            is_kept = again and exchange.is_reusable
            return again
        finally:
            before: tuple[TLSStream, str | None] | None = (upstream, None)
            if is_kept:
                before, self._kept = self._kept, (upstream, exchange.record.address)
            if before is not None:
                await _let_go(before[0])

    def _taken(self, record: Record) -> TLSStream | None:
        """
        The connection that was kept, if nothing came over it since: otherwise the server has
        ended it, or says what nobody asked for.
        """
        kept, self._kept = self._kept, None
        if kept is None:
            return None
        stream, address = kept
        if stream.extra(TLSAttribute.ssl_object).pending() or has_news(stream):
            self._kept = kept  # let go of when another is kept, or the tunnel ends
            return None
        record.address = address
        return stream

    def _url(self, request: h11.Request) -> Url:
        """
        What is asked for, where everything that names the host names that of the tunnel.
        """
        target = request.target.decode("latin-1")
        if not target.startswith("/"):
            raise UrlError("'...'", "inside a tunnel a request names a path")
        literal = f"[{self._host}]" if ":" in self._host else self._host
        url = canonical_url(f"https://{literal}:{self._port}{target}")
        for name, value in request.headers:
            if name == b"host" and value.decode("latin-1").lower() not in (url.authority, f"{literal}:{self._port}"):
                raise EgressDeniedError(url.origin, Verdict.deny("its Host field names another host", code="url"))
        if request.method.upper() == b"TRACE":
            raise EgressDeniedError(url.origin, Verdict.deny("TRACE repeats what was sent", code="url"))
        if request.method.upper() == b"CONNECT":
            raise EgressDeniedError(url.origin, Verdict.deny("nobody looks into a tunnel in a tunnel", code="url"))
        return url

    def _upgrades(self, request: h11.Request, url: Url, veil: Veil | None) -> bool:
        """
        Whether the request asks for a websocket; other upgrades are left out, as a server may.
        """
        asked = any(name == b"upgrade" and b"websocket" in value.lower() for name, value in request.headers)
        if not asked:
            return False
        if veil is not None:
            raise EgressDeniedError(
                url.origin, Verdict.deny("nobody looks into a websocket, and the host gets secrets", code="rule")
            )
        if not self._interceptor.allows_websocket(url):
            raise EgressDeniedError(
                url.origin,
                Verdict.deny(
                    "nobody looks into a websocket; Interception.websocket_hosts lists where it may be", code="rule"
                ),
            )
        return True

    async def _connected(self, url: Url, record: Record) -> TLSStream:
        """
        The real host, verified by our roots.
        """
        connection = await self._gate.open_approved(url.host, url.port, record)
        try:
            with anyio.fail_after(self._limits.header_timeout):
                return await TLSStream.wrap(
                    connection.stream, hostname=url.host, ssl_context=self._interceptor.roots, standard_compatible=True
                )
        except TimeoutError:
            problem: EgressError = EgressTimeoutError(url.origin, "the TLS handshake took too long")
        except ssl.SSLCertVerificationError as exc:
            problem = EgressUnreachableError(url.origin, f"its certificate is refused: {exc.verify_message}")
        except (ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream, OSError):
            problem = EgressUnreachableError(url.origin, "the TLS handshake failed")
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(connection.stream)
            raise
        await anyio.aclose_forcefully(connection.stream)
        raise problem

    async def _carry_socket(self, upstream: ByteStream, exchange: Exchange) -> None:
        client, far = exchange.server.client, Unread(upstream)
        for stream, data in zip((client, far), exchange.unread(), strict=True):
            stream.put_back(data)
        await relay(
            client,
            far,
            exchange.record.traffic,
            first=partial(more, client),
            idle_timeout=self._limits.idle_timeout,
            total_timeout=self._limits.total_timeout,
            max_bytes=self._limits.tunnel_bytes,
        )


def _may_be_repeated(request: h11.Request) -> bool:
    """
    Whether a request can be sent once more where a connection that was kept has ended: it
    changes nothing, and has no body that was read already.

    Source: RFC 9110 section 9.2.2.
    """
    has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in request.headers)
    return request.method in (b"GET", b"HEAD", b"OPTIONS") and not has_body


async def _let_go(upstream: TLSStream) -> None:
    """
    The message was whole or is given up: there is no end of TLS to wait for.
    """
    with anyio.CancelScope(shield=True):
        await anyio.aclose_forcefully(upstream.transport_stream)


def _name(text: str) -> str | None:
    try:
        return canonical_host(text)
    except ValueError:
        return None
