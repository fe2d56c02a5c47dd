"""
Looks at the first bytes of a tunnel, then carries the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import anyio

from sandboxkit.egress._hello import Hello, HelloState, read_hello
from sandboxkit.egress._relay import relay
from sandboxkit.errors import EgressDeniedError
from sandboxkit.guard import Verdict, canonical_host
from sandboxkit.model import is_literal

if TYPE_CHECKING:
    from sandboxkit.egress._dial import Connection
    from sandboxkit.egress._record import ProxyLimits, Record
    from sandboxkit.egress._stream import Unread
    from sandboxkit.guard import EgressPolicy

__all__ = ["Tunnel"]

_TLS_ACCESS_DENIED = bytes((21, 3, 1, 0, 2, 2, 49))
"""A fatal alert, so that the client can say why. Source: RFC 8446 section 6.2, access_denied."""


@final
class Tunnel:
    """
    A tunnel to *host* that was opened and carries nothing yet.
    """

    def __init__(
        self, policy: EgressPolicy, host: str, port: int, *, must_be_tls: bool, limits: ProxyLimits, record: Record
    ) -> None:
        self._policy = policy
        self._host = host
        self._port = port
        self._must_be_tls = must_be_tls
        self._limits = limits
        self._record = record

    async def carry(self, client: Unread, connection: Connection) -> None:
        """
        Carries bytes until both sides have ended.

        Raises:
            EgressDeniedError: The client asks for another name than that of the tunnel, or
                speaks no TLS where a rule allows https alone. Nothing of it was passed on.
            TunnelEndedError: A bound was reached.
        """

        async def first() -> bytes:
            data, hello = await self._greeting(client)
            refused = self._refused(hello) if data else None
            if refused is None:
                return data
            if hello.state is HelloState.TLS:
                await client.send(_TLS_ACCESS_DENIED)
            raise EgressDeniedError(self._record.destination, refused)

        await relay(
            client,
            connection.stream,
            self._record.traffic,
            first=first,
            idle_timeout=self._limits.idle_timeout,
            total_timeout=self._limits.total_timeout,
            max_bytes=self._limits.tunnel_bytes,
        )

    async def _greeting(self, client: Unread) -> tuple[bytes, Hello]:
        """
        The first bytes, as many as it takes to tell what they are.
        """
        data = await self._more(client)
        hello = read_hello(data)
        with anyio.move_on_after(self._limits.header_timeout):
            while hello.state is HelloState.INCOMPLETE:
                more = await self._more(client)
                if not more:
                    break
                data += more
                hello = read_hello(data)
        return data, hello

    async def _more(self, client: Unread) -> bytes:
        try:
            return await client.receive()
        except anyio.EndOfStream:
            return b""

    def _refused(self, hello: Hello) -> Verdict | None:
        if hello.state is not HelloState.TLS:
            if self._must_be_tls:
                return Verdict.deny("only https is allowed there, and this is no TLS", code="rule")
            return None
        if hello.server_name is None:
            return None
        try:
            asked = canonical_host(hello.server_name)
        except ValueError:
            return Verdict.deny("it asks for a TLS name that is none", code="name")
        if asked == self._host:
            return None
        if is_literal(self._host) and self._policy.decide_tunnel(asked, self._port, scheme="https").allowed:
            return None
        return Verdict.deny(f"it asks for the TLS name {asked} in a tunnel to {self._host}", code="name")
