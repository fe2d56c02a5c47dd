"""
Another proxy behind ours, where a network has no other way out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, final

import anyio

from sandboxkit.egress._stream import Unread
from sandboxkit.errors import EgressUnreachableError, PolicyError, UrlError
from sandboxkit.guard import EgressPolicy, canonical_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from anyio.abc import ByteStream

    from sandboxkit.guard import Verdict

__all__ = ["UpstreamProxy"]

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r?\n")
_MAX_ANSWER = 16384
_CREDENTIAL = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)?")


@final
class UpstreamProxy:
    """
    An HTTP proxy through which all connections go, by CONNECT. It is named in code: no
    variable of the environment is read.

    Rules about names, ports and literal addresses hold as without it. **Where a name
    leads is decided by the upstream proxy**, which resolves it: this side cannot check the
    addresses any more, so that proxy must keep clients out of the inner network.

    Args:
        url: `http://host:port`, without path, user name or password.
        permit_networks: The networks its addresses may be in although they are not
            public, as `EgressPolicy.permit_networks`. They are permitted for this one
            purpose: nothing else in them can be reached.
        authorization: The value of Proxy-Authorization, or None. It is never shown.

    Raises:
        PolicyError: The URL is none of an HTTP proxy, or something else is wrong.
    """

    def __init__(self, url: str, *, permit_networks: Iterable[str] = (), authorization: str | None = None) -> None:
        try:
            parsed = canonical_url(url)
        except UrlError as exc:
            raise PolicyError(exc.problem, source="an upstream proxy") from None
        if parsed.scheme != "http" or parsed.target != "/":
            raise PolicyError("it is named by http://host:port alone", source="an upstream proxy")
        if authorization is not None and not _CREDENTIAL.fullmatch(authorization):
            raise PolicyError("authorization is a scheme and one word of visible ASCII", source="an upstream proxy")
        self.host, self.port = parsed.host, parsed.port
        self._addresses = EgressPolicy(permit_networks=permit_networks)
        self._origin = parsed.origin
        self._authorization = authorization

    def judge(self, addresses: Sequence[str]) -> Verdict:
        """
        The verdict on its own addresses.
        """
        return self._addresses.judge(addresses)

    async def tunnel(self, stream: ByteStream, where: str) -> ByteStream:
        """
        A tunnel to *where* through a connection to the proxy, which it takes over.

        Raises:
            EgressUnreachableError: The proxy refuses, or does not speak HTTP.
        """
        try:
            fields = [f"CONNECT {where} HTTP/1.1", f"Host: {where}"]
            if self._authorization is not None:
                fields.append(f"Proxy-Authorization: {self._authorization}")
            await stream.send("\r\n".join([*fields, "", ""]).encode())
            return await self._opened(Unread(stream), where)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)
            raise

    async def _opened(self, stream: Unread, where: str) -> Unread:
        answer = b""
        try:
            while (end := answer.find(b"\r\n\r\n")) < 0 and len(answer) < _MAX_ANSWER:
                answer += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            raise EgressUnreachableError(where, f"{self} closed the connection") from None
        status = _STATUS.match(answer)
        if end < 0 or status is None:
            raise EgressUnreachableError(where, f"{self} gave no answer of HTTP")
        if not status[1].startswith(b"2"):
            raise EgressUnreachableError(where, f"{self} answered {status[1].decode()}")
        stream.put_back(answer[end + 4 :])
        return stream

    def __str__(self) -> str:
        return f"the upstream proxy {self._origin}"

    def __repr__(self) -> str:
        return f"UpstreamProxy({self._origin!r})"
