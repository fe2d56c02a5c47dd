"""
Looks at the first bytes of a tunnel, then carries the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import anyio

from sandboxkit.egress._hello import MAX_HELLO, Hello, HelloState, read_hello
from sandboxkit.egress._relay import relay
from sandboxkit.errors import EgressDeniedError
from sandboxkit.guard import Verdict, canonical_host
from sandboxkit.model import is_literal

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from sandboxkit.egress._dial import Connection
    from sandboxkit.egress._gate import Gate
    from sandboxkit.egress._intercept import Intercepted
    from sandboxkit.egress._record import ProxyLimits, Record
    from sandboxkit.egress._stream import Unread
    from sandboxkit.guard import EgressPolicy

__all__ = ["Tunnel", "greeting", "more", "open_tunnel", "refuse_greeting", "unread_greeting"]

_TLS_ACCESS_DENIED = bytes((21, 3, 1, 0, 2, 2, 49))
"""A fatal alert, so that the client can say why. Source: RFC 8446 section 6.2, access_denied."""


async def open_tunnel(gate: Gate, host: str, port: int, *, limits: ProxyLimits, record: Record) -> Tunnel | Intercepted:
    """
    A tunnel to a canonical *host*: one whose server is connected, or one whose requests
    will be looked at, where the gate does that.

    Raises:
        EgressError: It is refused, or fails.
    """
    if gate.interceptor is not None:
        gate.foresee(host, port, record)
        return gate.interceptor.tunnel(gate, host, port, limits=limits, record=record)
    connection, must_be_tls = await gate.open_tunnel(host, port, record)
    return Tunnel(connection, gate.policy, host, port, must_be_tls=must_be_tls, limits=limits, record=record)


@final
class Tunnel:
    """
    A tunnel to *host* that was opened and carries nothing yet. Owns *connection*.
    """

    def __init__(
        self,
        connection: Connection,
        policy: EgressPolicy,
        host: str,
        port: int,
        *,
        must_be_tls: bool,
        limits: ProxyLimits,
        record: Record,
    ) -> None:
        self._connection = connection
        self._policy = policy
        self._host = host
        self._port = port
        self._must_be_tls = must_be_tls
        self._limits = limits
        self._record = record

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, where: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self._connection.stream)

    async def carry(self, client: Unread) -> None:
        """
        Carries bytes until both sides have ended.

        Raises:
            EgressDeniedError: The client asks for another name than that of the tunnel, or in a
                way that cannot be read, or speaks no TLS where a rule allows https alone.
                Nothing of it was passed on.
            TunnelEndedError: A bound was reached.
        """

        async def first() -> bytes:
            data, hello = await greeting(client, self._limits.header_timeout)
            if data and (refused := self._refused(hello)) is not None:
                await refuse_greeting(client, hello, refused, self._record)
            return data

        await relay(
            client,
            self._connection.stream,
            self._record.traffic,
            first=first,
            idle_timeout=self._limits.idle_timeout,
            total_timeout=self._limits.total_timeout,
            max_bytes=self._limits.tunnel_bytes,
        )

    def _refused(self, hello: Hello) -> Verdict | None:
        if (unread := unread_greeting(hello)) is not None:
            return unread
        if hello.state is HelloState.OTHER:
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


def unread_greeting(hello: Hello) -> Verdict | None:
    """
    The refusal of what begins like TLS and never tells which name it asks for, although a
    server may read one in it; None where there is nothing to refuse.
    """
    if hello.state in (HelloState.TLS, HelloState.OTHER):
        return None
    return Verdict.deny("it begins like TLS, and the name it asks for cannot be read", code="name")


async def greeting(client: Unread, within_s: float) -> tuple[bytes, Hello]:
    """
    The first bytes of *client*, as many as it takes to tell what they are.

    Args:
        client: Nothing of it was read.
        within_s: How long what has begun like TLS may take to become whole.
    """
    data = await more(client)
    hello = read_hello(data)
    wanted = len(data) + hello.missing
    with anyio.move_on_after(within_s):
        while hello.state is HelloState.INCOMPLETE:
            following = await more(client)
            data += following
            # It is not read anew for each byte: a client could keep us busy with few of them.
            if not following or len(data) >= min(wanted, MAX_HELLO):
                hello = read_hello(data)
                wanted = len(data) + hello.missing
            if not following:
                break
    return data, hello


async def more(client: Unread) -> bytes:
    """
    What *client* sends next; nothing at its end.
    """
    try:
        return await client.receive()
    except anyio.EndOfStream:
        return b""


async def refuse_greeting(client: Unread, hello: Hello, verdict: Verdict, record: Record) -> None:
    """
    Tells a client that speaks TLS why nothing of it is passed on.

    Raises:
        EgressDeniedError: Always.
    """
    if hello.state is not HelloState.OTHER:
        await client.send(_TLS_ACCESS_DENIED)
    raise EgressDeniedError(record.destination, verdict)
