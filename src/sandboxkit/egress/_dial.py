"""
Connects to what was checked, and to nothing else.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, final

import anyio
from anyio.abc import ByteStream, SocketAttribute

from sandboxkit.egress._interfaces import own_addresses
from sandboxkit.egress._plain import connect, shortage
from sandboxkit.egress._resolve import system_resolver
from sandboxkit.errors import EgressDeniedError, EgressError, EgressTimeoutError, EgressUnreachableError
from sandboxkit.guard import Address, Verdict, checked_addresses
from sandboxkit.model import is_literal

if TYPE_CHECKING:
    from sandboxkit.egress._resolve import Resolver
    from sandboxkit.egress._upstream import UpstreamProxy
    from sandboxkit.guard import EgressPolicy

__all__ = ["Connection", "Connector", "Dialer", "connect_checked"]

Connector: TypeAlias = Callable[[Address, int], Awaitable[ByteStream]]
"""Connects to one address and port, and to no other."""

_HEAD_START_S = 0.25
"""How long an address is tried before the next one joins. Source: RFC 8305 section 5."""
_INTERFACES_S = 30.0
"""How long the addresses of the interfaces are taken to stay."""


@dataclass(frozen=True, slots=True)
class Connection:
    """
    A connection that was checked.

    Attributes:
        stream: What goes through it.
        address: The address that was dialed.
    """

    stream: ByteStream
    address: Address


@final
class Dialer:
    """
    Resolves a name once for each connection, refuses it if *any* of its addresses is
    refused, and dials only addresses it has checked. There is no memory of verdicts, so
    no time in which a name may change where it leads.

    Which names may be reached is not asked here, only where they lead: ask
    `EgressPolicy.decide` or `decide_tunnel` first.

    Args:
        policy: Judges the addresses.
        resolver: Gives the addresses of a name; the machine's name service by default.
        connector: Connects to one address; for tests.
        own: The addresses of this machine; by default those of its interfaces.
        resolve_timeout: Seconds for the name service.
        connect_timeout: Seconds for all of a connection's attempts together.
        upstream: A proxy through which everything goes, see `UpstreamProxy`.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        *,
        resolver: Resolver | None = None,
        connector: Connector | None = None,
        own: Collection[Address] | None = None,
        resolve_timeout: float = 5.0,
        connect_timeout: float = 10.0,
        upstream: UpstreamProxy | None = None,
    ) -> None:
        self._upstream = upstream
        self._policy = policy
        self._resolver = resolver or system_resolver
        self._connector = connector or connect_checked
        self._fixed_own = own
        self._resolve_timeout = resolve_timeout
        self._connect_timeout = connect_timeout
        self._own: Collection[Address] = ()
        self._looked = float("-inf")

    async def connect(self, host: str, port: int) -> Connection:
        """
        A connection to a canonical *host*.

        Raises:
            EgressDeniedError: One of its addresses is refused; nothing was dialed.
            EgressTimeoutError: The name service or the host took too long.
            EgressUnreachableError: None of its addresses answered.
        """
        where = _shown(host, port)
        upstream = self._upstream
        if upstream is not None:
            self._refuse_behind(upstream, host, port)
            addresses, port = await self._of_upstream(upstream), upstream.port
        else:
            addresses = await self.addresses(host, port)
        try:
            with anyio.fail_after(self._connect_timeout):
                connection = await _race(where if upstream is None else str(upstream), addresses, port, self._connector)
                if upstream is None:
                    return connection
                return Connection(await upstream.tunnel(connection.stream, where), connection.address)
        except TimeoutError as exc:
            if isinstance(exc, EgressError):
                raise
            raise EgressTimeoutError(where, f"no connection within {self._connect_timeout:g} s") from None

    async def addresses(self, host: str, port: int) -> tuple[Address, ...]:
        """
        What `connect` would dial for *host*.

        Raises:
            EgressDeniedError: One of its addresses is refused, or it has none.
            EgressTimeoutError: The name service took too long.
            EgressUnreachableError: The name service failed.
        """
        texts = (host,) if is_literal(host) else await self._resolved(host, port)
        verdict = self._policy.judge(texts, own=self._own_now())
        if not verdict.allowed:
            raise EgressDeniedError(_shown(host, port), verdict)
        return checked_addresses(texts)

    def _refuse_behind(self, upstream: UpstreamProxy, host: str, port: int) -> None:
        """
        What can be told of a destination whose name another machine resolves.
        """
        verdict = self._policy.judge((host,), own=self._own_now()) if is_literal(host) else Verdict.allow("a name")
        if (host, port) == (upstream.host, upstream.port):
            verdict = Verdict.deny("it is the upstream proxy, which would lead anywhere", code="rule")
        if not verdict.allowed:
            raise EgressDeniedError(_shown(host, port), verdict)

    async def _of_upstream(self, upstream: UpstreamProxy) -> tuple[Address, ...]:
        texts = (upstream.host,) if is_literal(upstream.host) else await self._resolved(upstream.host, upstream.port)
        verdict = upstream.judge(texts)
        if not verdict.allowed:
            raise EgressDeniedError(str(upstream), verdict)
        return checked_addresses(texts)

    async def _resolved(self, host: str, port: int) -> Sequence[str]:
        with anyio.move_on_after(self._resolve_timeout):
            return tuple(await self._resolver(host, port))
        raise EgressTimeoutError(
            f"{host}:{port}", f"the name service gave no answer within {self._resolve_timeout:g} s"
        )

    def _own_now(self) -> Collection[Address]:
        if self._fixed_own is not None:
            return self._fixed_own
        if time.monotonic() - self._looked > _INTERFACES_S:
            self._own, self._looked = own_addresses(), time.monotonic()
        return self._own


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def connect_checked(address: Address, port: int) -> ByteStream:
    """
    A TCP connection to *address*, whose peer is compared with it.

    Raises:
        OSError: The connection failed.
        EgressDeniedError: The peer has another address, so something between redirects
            connections; nothing was sent.
    """
    stream = await connect(address, port)
    peer = ipaddress.ip_address(str(stream.extra(SocketAttribute.remote_address)[0]).partition("%")[0])
    if peer != address:
        await anyio.aclose_forcefully(stream)
        raise EgressDeniedError(f"{address}:{port}", Verdict.deny("the peer has another address", code="address"))
    return stream


def _in_turn(addresses: Sequence[Address]) -> list[Address]:
    """
    Families in turn, IPv6 first, each in the order of the answer. Source: RFC 8305 section 4.
    """
    families = [[address for address in addresses if address.version == version] for version in (6, 4)]
    longest = max(map(len, families))
    return [family[place] for place in range(longest) for family in families if place < len(family)]


async def _race(where: str, addresses: Sequence[Address], port: int, connector: Connector) -> Connection:
    """
    The first of *addresses* that answers. The next is tried when one fails, or has had its head start.
    """
    won: list[Connection] = []
    try:
        return await _raced(where, addresses, port, connector, won)
    except BaseException:
        for connection in won:  # it came at the moment at which all was cancelled
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(connection.stream)
        raise


async def _raced(
    where: str, addresses: Sequence[Address], port: int, connector: Connector, won: list[Connection]
) -> Connection:
    failures: list[OSError] = []
    async with anyio.create_task_group() as tasks:

        async def attempt(address: Address, failed: anyio.Event) -> None:
            try:
                stream = await connector(address, port)
            except OSError as exc:
                failures.append(exc)
                failed.set()
                return
            if won:
                await anyio.aclose_forcefully(stream)
                return
            won.append(Connection(stream, address))
            tasks.cancel_scope.cancel()

        for address in _in_turn(addresses):
            failed = anyio.Event()
            tasks.start_soon(attempt, address, failed)
            with anyio.move_on_after(_HEAD_START_S):
                await failed.wait()
    if won:
        return won[0]
    refused = next((exc for exc in failures if isinstance(exc, EgressError)), None)
    if refused is not None:
        raise refused
    short = next(filter(None, map(shortage, failures)), None)
    raise EgressUnreachableError(
        where, short or f"none of its {len(addresses)} addresses answered: {failures[0]}"
    ) from failures[0]
