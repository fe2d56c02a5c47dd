"""
The HTTP side of a proxy: CONNECT, and requests with an absolute URL.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from functools import partial
from typing import TYPE_CHECKING, final

import anyio
import h11

from sandboxkit.egress._relay import CHUNK, TunnelEndedError
from sandboxkit.egress._tunnel import open_tunnel
from sandboxkit.errors import EgressError, EgressLimitError, EgressTimeoutError, UrlError
from sandboxkit.guard import canonical_host, canonical_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from anyio.abc import ByteStream

    from sandboxkit.egress._gate import Gate
    from sandboxkit.egress._injection import Veil
    from sandboxkit.egress._record import ProxyLimits, Record
    from sandboxkit.egress._stream import Unread
    from sandboxkit.guard import Url

__all__ = ["Exchange", "Server", "StaleConnectionError", "serve_http", "status_of"]

_Headers = list[tuple[bytes, bytes]]
_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:\[\]]+):([0-9]{1,5})", re.ASCII)
_HOP_BY_HOP = frozenset(
    b"connection proxy-connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)
"""What is about one connection, not about the request. Source: RFC 9110 section 7.6.1."""
_NO_CONTENT = 204
_MOST_HINTS = 100
"""Interim answers (1xx) to one request. Real servers send one or two."""
_UPGRADE = [(b"Upgrade", b"websocket"), (b"Connection", b"Upgrade")]


async def serve_http(gate: Gate, client: Unread, *, limits: ProxyLimits, token: str | None) -> None:
    """
    The requests of one connection of *client*; each is checked by itself.

    Raises:
        EgressError: A tunnel was refused or failed; the client was told.
        TunnelEndedError: A tunnel or an exchange reached a bound.

    Source: RFC 9110 section 9.3.6 (CONNECT), RFC 9112 section 3.2.2 (absolute form).
    """
    server = Server(client, limits, on_unread=partial(gate.unread, "http"))
    for _ in range(limits.requests):
        request = await server.request()
        if request is None:
            return
        if token is not None and not _has_token(request, token):
            gate.unread("http", "it did not show the token", code="token")
            await server.refuse(407, "this proxy needs a token", (b"Proxy-Authenticate", b'Basic realm="sandboxkit"'))
            return
        if request.method == b"CONNECT":
            await _tunnel(gate, server, request)
            return
        if not await _forward(gate, server, request):
            return
    await client.aclose()


@final
class Server:
    """
    Our side of the client's connection.
    """

    def __init__(self, client: Unread, limits: ProxyLimits, *, on_unread: Callable[[str], None]) -> None:
        self.client = client
        self.limits = limits
        self._on_unread = on_unread
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.header_bytes)
        self._wants_no_body = False

    async def request(self) -> h11.Request | None:
        """
        The next request, or None where there is none or it is malformed; the client was told.
        """
        self._wants_no_body = False
        try:
            with anyio.fail_after(self.limits.header_timeout):
                event = await _next(self.http, self.client)
        except TimeoutError:
            return None
        except h11.RemoteProtocolError as exc:
            await self._not_read(exc.error_status_hint, f"the request is malformed: {exc}")
            return None
        if not isinstance(event, h11.Request):
            return None
        self._wants_no_body = event.method == b"HEAD"
        if _size(event) > self.limits.header_bytes:
            await self._not_read(431, f"the request has more than {self.limits.header_bytes} bytes of headers")
            return None
        names = [name for name, _ in event.headers]
        if b"transfer-encoding" in names and b"content-length" in names:
            await self._not_read(400, "the request has two lengths (Content-Length and Transfer-Encoding)")
            return None
        return event

    async def _not_read(self, status: int, why: str) -> None:
        self._on_unread(why)
        await self.refuse(status, why)

    async def refuse(self, status: int, why: str, *headers: tuple[bytes, bytes]) -> None:
        """
        Tells the client why not, and ends its connection.
        """
        body = f"sandboxkit: {why}\n".encode("ascii", "backslashreplace")
        fields = [*headers, (b"Content-Type", b"text/plain; charset=us-ascii"), (b"Content-Length", b"%d" % len(body))]
        if self.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        response = h11.Response(
            status_code=status, reason=_reason(status), headers=[*fields, (b"Connection", b"close")]
        )
        parts = [response, *([] if self._wants_no_body else [h11.Data(data=body)]), h11.EndOfMessage()]
        await self.client.send(b"".join(self.http.send(part) or b"" for part in parts))


def _size(message: h11.Request | h11.Response | h11.InformationalResponse) -> int:
    return sum(len(name) + len(value) + 4 for name, value in message.headers)


def _reason(status: int) -> bytes:
    return {
        400: b"Bad Request",
        403: b"Forbidden",
        407: b"Proxy Authentication Required",
        431: b"Request Header Fields Too Large",
        502: b"Bad Gateway",
        504: b"Gateway Timeout",
    }.get(status, b"Refused")


def status_of(exc: Exception) -> int:
    if isinstance(exc, UrlError | h11.RemoteProtocolError):
        return 400  # the latter of a body: what servers say that is malformed has an error of its own
    if isinstance(exc, PermissionError):
        return 403
    return 504 if isinstance(exc, EgressTimeoutError) else 502


async def _next(connection: h11.Connection, stream: ByteStream) -> h11.Event | type[h11.PAUSED]:
    """
    The next thing the other side says.
    """
    while True:
        event = connection.next_event()
        if event is not h11.NEED_DATA:
            return event  # type: ignore[return-value]  # NEED_DATA, the only other sentinel, is handled
        try:
            data = await stream.receive(CHUNK)
        except anyio.EndOfStream:
            data = b""
        connection.receive_data(data)


def _has_token(request: h11.Request, token: str) -> bool:
    for name, value in request.headers:
        scheme, _, coded = value.partition(b" ")
        if name == b"proxy-authorization" and scheme.lower() == b"basic":
            try:
                _, _, given = base64.b64decode(coded, validate=True).partition(b":")
            except binascii.Error:
                return False
            return hmac.compare_digest(given, token.encode())
    return False


async def _tunnel(gate: Gate, server: Server, request: h11.Request) -> None:
    shown = ascii(request.target.decode("latin-1"))[1:-1][:200]
    with gate.recording("connect", shown) as record:
        try:
            host, port = _authority(shown)
            tunnel = await open_tunnel(gate, host, port, limits=server.limits, record=record)
        except (EgressError, UrlError) as exc:
            await server.refuse(status_of(exc), str(exc))
            raise
        async with tunnel:
            await server.client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            server.client.put_back(server.http.trailing_data[0])
            await tunnel.carry(server.client)


def _authority(text: str) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(text)
    if found is None or not 0 < int(found[2]) < 65536:
        raise UrlError(f"'{text}'", "CONNECT takes host:port")
    try:
        return canonical_host(found[1]), int(found[2])
    except ValueError as exc:
        raise UrlError(f"'{text}'", str(exc)) from None


def _absolute(target: bytes) -> Url:
    text = target.decode("latin-1")
    if text.startswith("/") or text == "*":
        raise UrlError("'/...'", "this is a proxy; ask it for an absolute URL, or by CONNECT")
    url = canonical_url(text)
    if url.scheme != "http":
        raise UrlError(f"'{url.origin}'", "https goes through this proxy by CONNECT")
    return url


async def _forward(gate: Gate, server: Server, request: h11.Request) -> bool:
    """
    Passes one request on, and its answer back. Returns whether the client may send another.
    """
    method = request.method.decode("ascii")
    with gate.recording("http", "", method) as record:
        try:
            url = _absolute(request.target)
            record.destination = url.origin + url.path
            connection = await gate.open_request(url, method, record)
        except (EgressError, UrlError) as exc:
            await server.refuse(status_of(exc), str(exc))
            record.failed(exc)
            return False
        async with connection.stream:
            exchange = Exchange(server, connection.stream, record)
            return await exchange.run(method, url, request.headers.raw_items())


class StaleConnectionError(Exception):
    """
    A connection that was kept had ended before it served again.
    """


@final
class Exchange:
    """
    One request and its answer. Both are written anew, so that what one side reads as a
    single message is one for the other side too.

    Args:
        server: Our side of the client's connection.
        upstream: The connection to the server.
        record: What becomes of it.
        veil: What is pulled over it where the host gets secrets.
        upgrades: Whether it may become a websocket.
        keeps: Whether *upstream* may serve another exchange afterwards.
        used: Whether it has served one before: the server may have ended it since.

    Attributes:
        server: As above.
        record: As above.
        switched: Whether the server agreed to another protocol: nothing more of HTTP comes.
    """

    def __init__(
        self,
        server: Server,
        upstream: ByteStream,
        record: Record,
        *,
        veil: Veil | None = None,
        upgrades: bool = False,
        keeps: bool = False,
        used: bool = False,
    ) -> None:
        self.server = server
        self._upstream = upstream
        self.record = record
        self._veil = veil
        self._upgrades = upgrades
        self._keeps = keeps
        self._is_unanswered = used
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=server.limits.header_bytes)
        self._hints = 0
        self.switched = False

    async def run(self, method: str, url: Url, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """
        Returns whether the client may send another request.

        Raises:
            StaleConnectionError: *upstream* was used before and has ended since; the client was
                told nothing.
        """
        limits, traffic = self.server.limits, self.record.traffic
        fields = [field for field in _end_to_end(headers) if field[0].lower() != b"host"]
        head = h11.Request(
            method=method,
            target=url.target,
            headers=[
                (b"Host", url.authority.encode()),
                *(fields if self._veil is None else self._veil.request(fields)),
                *_framing(headers),
                *(_UPGRADE if self._upgrades else [] if self._keeps else [(b"Connection", b"close")]),
            ],
        )
        failures: list[Exception] = []
        left: list[Exception] = []
        with anyio.move_on_after(limits.total_timeout):
            async with anyio.create_task_group() as tasks:

                async def upload() -> None:
                    try:
                        await self._upload()
                    except (anyio.BrokenResourceError, OSError):
                        return  # the answer, or its absence, says why
                    except (h11.RemoteProtocolError, TunnelEndedError) as exc:
                        failures.append(exc)
                        tasks.cancel_scope.cancel()

                try:
                    await self._begin(head)
                    tasks.start_soon(upload)
                    await self._download()
                except (EgressError, TunnelEndedError) as exc:
                    failures.append(exc)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as exc:
                    left.append(exc)  # raised below: the group would wrap it
                tasks.cancel_scope.cancel()
        if left:
            raise left[0]
        if self._is_unanswered and failures and isinstance(failures[0], EgressLimitError):
            raise StaleConnectionError from failures[0]
        return await self._ended(failures, traffic.received)

    @property
    def is_reusable(self) -> bool:
        """
        Whether *upstream* can serve another exchange: both messages were whole, nothing came
        behind the answer, and the server keeps the connection.
        """
        is_done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        return self._keeps and is_done and self._http.trailing_data == (b"", False)

    def unread(self) -> tuple[bytes, bytes]:
        """
        What client and server sent behind the switch of protocols.
        """
        return self.server.http.trailing_data[0], self._http.trailing_data[0]

    async def _ended(self, failures: list[Exception], received: int) -> bool:
        http = self.server.http
        if self.switched and not failures:
            return False
        if failures or http.our_state is not h11.DONE:
            problem = (
                failures[0] if failures else EgressTimeoutError(self.record.destination, "the exchange took too long")
            )
            self.record.failed(problem)
            await self.server.refuse(status_of(problem), str(problem))
            return False
        if http.their_state is not h11.DONE:
            return False
        http.start_next_cycle()
        return True

    async def _begin(self, head: h11.Request) -> None:
        try:
            await self._to_server(head)
        except (anyio.BrokenResourceError, OSError):
            raise EgressLimitError(self.record.destination, "the server broke the connection") from None

    async def _upload(self) -> None:
        if self.server.http.their_state is h11.DONE:  # it was read for a connection that had ended
            await self._to_server(h11.EndOfMessage())
            return
        while True:
            event = await _next(self.server.http, self.server.client)
            if isinstance(event, h11.Data):
                await self._to_server(h11.Data(data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                await self._to_server(h11.EndOfMessage())
                return
            else:
                raise TunnelEndedError("the client left before its request was whole")

    async def _download(self) -> None:
        while True:
            event = await self._answer()
            if isinstance(event, h11.InformationalResponse | h11.Response):
                self._is_unanswered = False
            match event:
                case h11.InformationalResponse(status_code=101):
                    if self._upgrades:
                        self.switched = True
                        fields = [*_UPGRADE, *_end_to_end(event.headers.raw_items())]
                        await self._to_client(h11.InformationalResponse(status_code=101, headers=fields))
                        return
                case h11.InformationalResponse():
                    self._hints += 1
                    if self._hints > _MOST_HINTS:
                        raise EgressLimitError(self.record.destination, "the server never comes to its answer")
                    if self.server.http.their_http_version == b"1.0":
                        continue  # RFC 9110 section 15.2
                    fields = self._shown(event.headers.raw_items())
                    await self._to_client(h11.InformationalResponse(status_code=event.status_code, headers=fields))
                case h11.Response():
                    await self._to_client(self._response(event))
                case h11.Data():
                    await self._to_client_as_body(event.data if self._veil is None else self._veil.body(event.data))
                case h11.EndOfMessage():
                    if self._veil is not None:
                        await self._to_client_as_body(self._veil.rest())
                    await self._to_client(h11.EndOfMessage())
                    return
                case _:
                    raise EgressLimitError(
                        self.record.destination, "the server closed the connection without an answer"
                    )

    def _shown(self, headers: Iterable[tuple[bytes, bytes]]) -> _Headers:
        fields = _end_to_end(headers)
        return fields if self._veil is None else self._veil.fields(fields)

    def _response(self, event: h11.Response) -> h11.Response:
        fields, reason = event.headers.raw_items(), event.reason
        framing = [] if event.status_code == _NO_CONTENT else _framing(fields)
        if self._veil is not None:
            refusal = self._veil.refusal(event.status_code, fields)
            if refusal is not None:
                raise EgressLimitError(self.record.destination, refusal)
            reason, framing = b"", []  # masking changes the length
        return h11.Response(status_code=event.status_code, reason=reason, headers=[*self._shown(fields), *framing])

    async def _to_client_as_body(self, data: bytes) -> None:
        if data:
            await self._to_client(h11.Data(data=data))

    async def _answer(self) -> h11.Event | type[h11.PAUSED]:
        try:
            with anyio.fail_after(self.server.limits.idle_timeout):
                event = await _next(self._http, self._upstream)
        except TimeoutError:
            raise EgressTimeoutError(self.record.destination, "the server is silent") from None
        except h11.RemoteProtocolError as exc:
            # What the server wrote stands in the exception: behind a veil nobody may see it.
            detail = "" if self._veil else f": {exc}"
            raise EgressLimitError(self.record.destination, f"the answer is malformed{detail}") from (
                None if self._veil else exc
            )
        except (anyio.BrokenResourceError, OSError):
            raise EgressLimitError(self.record.destination, "the server broke the connection") from None
        if (
            isinstance(event, h11.Response | h11.InformationalResponse)
            and _size(event) > self.server.limits.header_bytes
        ):
            raise EgressLimitError(
                self.record.destination,
                f"the answer has more than {self.server.limits.header_bytes} bytes of headers",
            )
        return event

    async def _to_server(self, event: h11.Event) -> None:
        data = self._http.send(event) or b""
        await self._upstream.send(data)
        self._count(sent=len(data))

    async def _to_client(self, event: h11.Event) -> None:
        data = self.server.http.send(event) or b""
        await self.server.client.send(data)
        self._count(received=len(data))

    def _count(self, *, sent: int = 0, received: int = 0) -> None:
        traffic, bound = self.record.traffic, self.server.limits.tunnel_bytes
        traffic.sent += sent
        traffic.received += received
        if bound is not None and traffic.sent + traffic.received > bound:
            raise TunnelEndedError(f"more than {bound} bytes went through")


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> _Headers:
    """
    The fields that are about the message, without those that `Connection` names.
    """
    fields = list(headers)
    named = {
        token.strip().lower() for name, value in fields if name.lower() == b"connection" for token in value.split(b",")
    }
    return [
        field
        for field in fields
        if field[0].lower() not in _HOP_BY_HOP | named and field[0].lower() != b"content-length"
    ]


def _framing(headers: Iterable[tuple[bytes, bytes]]) -> _Headers:
    """
    How long the body is; everything h11 has read is chunked or has one length. Where an
    answer says both, it was read as chunked. Source: RFC 9112 section 6.3.
    """
    said = {name.lower(): value for name, value in headers}
    if b"transfer-encoding" in said:
        return [(b"Transfer-Encoding", b"chunked")]
    return [(b"Content-Length", said[b"content-length"])] if b"content-length" in said else []
