"""
`guarded_client`: an httpx2 client that reaches what a policy allows. Imported when it is used.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import anyio
import httpcore2
import httpx2

from sandboxkit.egress._ask import Questions
from sandboxkit.egress._decode import ACCEPTED, Body
from sandboxkit.egress._dial import Dialer
from sandboxkit.egress._gate import Gate
from sandboxkit.egress._limits import ClientLimits
from sandboxkit.egress._network import Backend
from sandboxkit.egress._roots import system_roots
from sandboxkit.errors import (
    EgressDeniedError,
    EgressError,
    EgressLimitError,
    EgressTimeoutError,
    EgressUnreachableError,
)
from sandboxkit.guard import Verdict, canonical_url, redirect_url

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Collection, Generator, Iterator

    from sandboxkit.egress._ask import Ask
    from sandboxkit.egress._dial import Connector
    from sandboxkit.egress._event import OnEvent
    from sandboxkit.egress._record import Record
    from sandboxkit.egress._resolve import Resolver
    from sandboxkit.egress._upstream import UpstreamProxy
    from sandboxkit.guard import Address, EgressPolicy, Url

__all__ = ["DEADLINE", "GuardedClient", "GuardedTransport", "redirect_flow"]

DEADLINE = "sandboxkit.deadline"
_FIELD_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_METHOD = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FIELD_VALUE = re.compile(rb"[^\x00\r\n]*")
_CROSSES_ORIGINS = frozenset(
    {"accept", "accept-encoding", "accept-language", "cache-control", "dnt", "range", "user-agent"}
)
"""Request fields that follow a redirect to another origin; keys and cookies of all kinds stay behind."""
_ABOUT_CONTENT = frozenset({"content-type", "content-length", "content-encoding", "transfer-encoding", "expect"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_FAILURES: tuple[type[Exception], ...] = (httpcore2.NetworkError, httpcore2.UnsupportedProtocol, httpcore2.ProxyError)


@final
class GuardedTransport(httpx2.AsyncBaseTransport):
    """
    A transport of httpx2 under which every request is held against a policy, and every
    connection goes to an address that was checked. Redirects come back as they are:
    `guarded_client` follows them.

    It takes no proxy and reads no environment variable. A Host field or TLS name that
    differs from the URL is refused, and so are fields with line breaks.

    Args:
        policy: Decides about requests and addresses.
        identity: Stands in events and questions.
        ask: Answers where a rule asks; without it such a rule denies.
        limits: Bounds.
        on_event: Gets an event for each request.
        resolver: See `Dialer`.
        connector: See `Dialer`.
        own: See `Dialer`.
        upstream: See `Dialer`. No variable of the environment ever names one.
        ssl_context: Verifies servers; by default with the certificate authorities of the
            system, whatever SSL_CERT_FILE says.
        http2: Whether to offer HTTP/2 where the package h2 is there.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        *,
        identity: str = "client",
        ask: Ask | None = None,
        limits: ClientLimits | None = None,
        on_event: OnEvent | None = None,
        resolver: Resolver | None = None,
        connector: Connector | None = None,
        own: Collection[Address] | None = None,
        upstream: UpstreamProxy | None = None,
        ssl_context: ssl.SSLContext | None = None,
        http2: bool = True,
    ) -> None:
        self.limits = limits or ClientLimits()
        dialer = Dialer(policy, resolver=resolver, connector=connector, own=own, upstream=upstream)
        self._gate = Gate(policy, identity=identity, dialer=dialer, questions=Questions(ask), on_event=on_event)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context or system_roots(),
            max_connections=self.limits.connections,
            keepalive_expiry=self.limits.keepalive,
            http2=http2 and _has_h2(),
            network_backend=Backend(dialer),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """
        Sends one request.

        Raises:
            UrlError: Its URL cannot be read in one way only.
            EgressDeniedError: The policy refuses it, or it says two things about where it goes.
            EgressTimeoutError: A deadline passed.
            EgressUnreachableError: No connection was made, or it broke.
            EgressLimitError: The answer is too large or malformed.
        """
        deadline = request.extensions.get(DEADLINE) or anyio.current_time() + self.limits.total_timeout
        with self._gate.recording("client", "", request.method) as record:
            url = canonical_url(str(request.url))
            record.destination = url.origin + url.path
            fields = _checked_fields(request, url)
            await self._gate.approve_request(url, request.method, record)
            with _translated(record.destination, deadline):
                answer = await self._pool.handle_async_request(
                    httpcore2.Request(
                        method=request.method,
                        url=httpcore2.URL(
                            scheme=url.scheme.encode(), host=_raw_host(url), port=url.port, target=url.target.encode()
                        ),
                        headers=fields,
                        content=request.stream,
                        extensions={"timeout": request.extensions.get("timeout", {})},
                    )
                )
            try:
                return self._response(answer, record, deadline)
            except EgressError:
                await answer.aclose()
                raise

    def _response(self, answer: httpcore2.Response, record: Record, deadline: float) -> httpx2.Response:
        fields = list(answer.headers)
        size = sum(len(name) + len(value) + 4 for name, value in fields)
        if len(fields) > self.limits.header_fields or size > self.limits.header_bytes:
            raise EgressLimitError(record.destination, f"the answer has {len(fields)} header fields of {size} bytes")
        encodings = [value.decode("latin-1") for name, value in fields if name.lower() == b"content-encoding"]
        body = Body(record.destination, ",".join(encodings) or None, self.limits)
        return httpx2.Response(
            answer.status,
            headers=[
                field
                for field in fields
                if not encodings or field[0].lower() not in (b"content-encoding", b"content-length")
            ],
            stream=_Stream(answer, body, record.destination, deadline),
            extensions={
                key: answer.extensions[key] for key in ("http_version", "reason_phrase") if key in answer.extensions
            },
        )

    async def aclose(self) -> None:
        """
        Closes the connections.
        """
        await self._pool.aclose()


@final
class GuardedClient(httpx2.AsyncClient):
    """
    The client that `guarded_client` makes.
    """

    def __init__(self, transport: GuardedTransport, **options: Any) -> None:
        self._limits = transport.limits
        super().__init__(transport=transport, trust_env=False, timeout=self._limits.total_timeout, **options)

    def build_request(self, method: str, url: httpx2.URL | str, **parts: Any) -> httpx2.Request:
        """
        As in httpx2; a URL given as text is read strictly before httpx2 sees it.

        Raises:
            UrlError: *url* cannot be read in one way only.
        """
        return super().build_request(method, str(canonical_url(str(url))), **parts)

    async def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        auth: Any = httpx2.USE_CLIENT_DEFAULT,
        follow_redirects: Any = httpx2.USE_CLIENT_DEFAULT,
    ) -> httpx2.Response:
        """
        As in httpx2, with redirects that are checked like requests, within one deadline.

        Raises:
            EgressError: See `GuardedTransport`; also past the allowed number of redirects.
            UrlError: A redirect cannot be followed in one way only.
        """
        follow = self.follow_redirects if follow_redirects is httpx2.USE_CLIENT_DEFAULT else follow_redirects
        request.extensions = {**request.extensions, DEADLINE: anyio.current_time() + self._limits.total_timeout}
        flow = redirect_flow(request, auth, follow=follow, limits=self._limits, cookies=self.cookies)
        request, auth = next(flow)
        while True:
            answer = await super().send(request, stream=True, auth=auth, follow_redirects=False)
            try:
                request, auth = flow.send(answer)
            except StopIteration:
                if not stream:
                    await answer.aread()
                return answer
            except BaseException:
                await answer.aclose()
                raise
            await answer.aclose()


def redirect_flow(
    request: httpx2.Request, auth: Any, *, follow: bool, limits: ClientLimits, cookies: httpx2.Cookies
) -> Generator[tuple[httpx2.Request, Any], httpx2.Response, None]:
    """
    The requests to send, one after the other, with what they authenticate by; is sent the
    answer to each, and ends with the last.

    Raises:
        EgressError: A redirect is not followed, or there are too many.
        UrlError: A redirect cannot be followed in one way only.
    """
    history: list[httpx2.Response] = []
    has_crossed = False
    while True:
        answer = yield request, auth
        answer.history = list(history)
        following = _following(request, answer) if follow else None
        if following is None:
            return
        history.append(answer)
        if len(history) > limits.redirects:
            raise EgressLimitError(
                canonical_url(str(request.url)).origin, f"it redirects more than {limits.redirects} times"
            )
        request, crosses = following
        has_crossed |= crosses
        auth = None if has_crossed else auth
        (_of_hosts(cookies) if has_crossed else cookies).set_cookie_header(request)


def _of_hosts(cookies: httpx2.Cookies) -> httpx2.Cookies:
    """
    Those of *cookies* that some host has set or that name one: the others would go anywhere.
    """
    kept = httpx2.Cookies()
    for cookie in cookies.jar:
        if cookie.domain:
            kept.jar.set_cookie(cookie)
    return kept


def _following(request: httpx2.Request, answer: httpx2.Response) -> tuple[httpx2.Request, bool] | None:
    """
    The request that a redirect asks for, and whether it goes to another origin; None where
    *answer* is no redirect.

    Source: RFC 9110 section 15.4; the change to GET for 301 and 302 is what browsers do.
    """
    location = answer.headers.get("location")
    if answer.status_code not in (301, 302, 303, 307, 308) or location is None:
        return None
    here = canonical_url(str(request.url))
    there = redirect_url(here, location)
    method = request.method
    if (answer.status_code == 303 and method != "HEAD") or (answer.status_code in (301, 302) and method == "POST"):
        method = "GET"
    crosses = here.origin != there.origin
    keeps_body = method == request.method and method not in _SAFE
    if keeps_body and crosses:
        raise EgressDeniedError(
            there.origin, Verdict.deny("a redirect would send the body to another origin", code="url")
        )
    fields = [
        (name, value)
        for name, value in request.headers.items()
        if name not in ("host", "cookie")
        and (not crosses or name in _CROSSES_ORIGINS)
        and (keeps_body or name not in _ABOUT_CONTENT)
    ]
    extensions = {key: request.extensions[key] for key in (DEADLINE, "timeout") if key in request.extensions}
    content = request.content if keeps_body else None
    return httpx2.Request(method, str(there), headers=fields, content=content, extensions=extensions), crosses


def _checked_fields(request: httpx2.Request, url: Url) -> list[tuple[bytes, bytes]]:
    """
    The header of *request*, if it says nothing that the URL does not.
    """
    if not _METHOD.fullmatch(request.method):
        raise EgressDeniedError(
            url.origin,
            Verdict.deny(f"{request.method[:40]!r} is no method; give GET, POST or another token", code="url"),
        )
    if request.method == "CONNECT":
        raise EgressDeniedError(
            url.origin, Verdict.deny("CONNECT asks for a tunnel, which an EgressProxy gives, no client", code="url")
        )
    unknown = request.extensions.keys() - {DEADLINE, "timeout"}
    if unknown:
        raise EgressDeniedError(
            url.origin, Verdict.deny(f"the extension {min(unknown)!r} may change where it goes", code="url")
        )
    fields = []
    for name, value in request.headers.raw:
        if not _FIELD_NAME.fullmatch(name) or not _FIELD_VALUE.fullmatch(value):
            raise EgressDeniedError(url.origin, Verdict.deny("a header field has a line break or NUL", code="url"))
        low = name.lower()
        if low == b"host" and value.decode("latin-1").lower() != url.authority:
            raise EgressDeniedError(url.origin, Verdict.deny("its Host field names another host", code="url"))
        if low in (b"proxy-authorization", b"upgrade"):
            raise EgressDeniedError(url.origin, Verdict.deny(f"the field {low.decode()} is not sent", code="url"))
        if low != b"accept-encoding":
            fields.append((name, value))
    if not any(name.lower() == b"host" for name, _ in fields):
        fields.insert(0, (b"Host", url.authority.encode()))
    return [*fields, (b"Accept-Encoding", ACCEPTED.encode())]


def _raw_host(url: Url) -> bytes:
    return f"[{url.host}]".encode() if ":" in url.host else url.host.encode()


def _has_h2() -> bool:
    try:
        import h2  # noqa: F401 - whether it is there
    except ImportError:
        return False
    return True


@contextmanager
def _translated(destination: str, deadline: float) -> Iterator[None]:
    """
    Failures of httpcore2 and the deadline, as ours.
    """
    try:
        with anyio.CancelScope(deadline=deadline) as scope:
            yield
            return
    except httpcore2.TimeoutException as exc:
        raise EgressTimeoutError(destination, f"it took too long ({type(exc).__name__})") from exc
    except httpcore2.ProtocolError as exc:
        raise EgressLimitError(destination, f"the answer is malformed: {exc}") from exc
    except _FAILURES as exc:
        raise EgressUnreachableError(destination, f"the connection failed: {exc}") from exc
    if scope.cancelled_caught:
        raise EgressTimeoutError(destination, "it took longer than total_timeout")


@final
class _Stream(httpx2.AsyncByteStream):
    """
    The body of an answer, within its bounds.
    """

    def __init__(self, answer: httpcore2.Response, body: Body, destination: str, deadline: float) -> None:
        self._answer = answer
        self._body = body
        self._destination = destination
        self._deadline = deadline

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = self._answer.aiter_stream()
        try:
            while True:
                with _translated(self._destination, self._deadline):
                    data = await anext(pieces, None)
                if data is None:
                    return
                for piece in self._body.feed(data):
                    yield piece
        finally:
            with anyio.CancelScope(shield=True):
                await pieces.aclose()
            await self.aclose()

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._answer.aclose()
