"""
SOCKS5, the part that connects. Names are resolved by us.
"""

from __future__ import annotations

import hmac
import ipaddress
import struct
from typing import TYPE_CHECKING

import anyio

from sandboxkit.egress._tunnel import open_tunnel
from sandboxkit.errors import EgressDeniedError, EgressError, EgressTimeoutError, UrlError
from sandboxkit.guard import canonical_host
from sandboxkit.model import ipv6_text

if TYPE_CHECKING:
    from sandboxkit.egress._gate import Gate
    from sandboxkit.egress._record import ProxyLimits
    from sandboxkit.egress._stream import Unread

__all__ = ["VERSION", "serve_socks"]

VERSION = 5
_NO_AUTHENTICATION, _USER_AND_PASSWORD, _NOTHING_FITS = 0, 2, 255
_OK, _FAILURE, _NOT_ALLOWED, _HOST_UNREACHABLE, _TTL_EXPIRED = 0, 1, 2, 4, 6
_COMMAND_UNKNOWN, _ADDRESS_UNKNOWN = 7, 8


async def serve_socks(gate: Gate, client: Unread, *, limits: ProxyLimits, token: str | None) -> None:
    """
    One SOCKS5 connection of *client*, whose first byte is still to be read.

    Raises:
        EgressError: It was refused or failed; the client was told.
        anyio.EndOfStream: The client left in the middle.

    Source: RFC 1928, RFC 1929.
    """
    asked = None
    with anyio.move_on_after(limits.header_timeout):
        asked = await _asked(gate, client, token)
    if asked is None:
        return
    text, port = asked
    with gate.recording("socks5", f"{ascii(text)[1:-1]}:{port}") as record:
        try:
            try:
                host = canonical_host(text)
                if port == 0:
                    raise ValueError("a port is 1 to 65535")
            except ValueError as exc:
                raise UrlError(record.destination, str(exc)) from None
            tunnel = await open_tunnel(gate, host, port, limits=limits, record=record)
        except (EgressError, UrlError) as exc:
            await _reply(client, _code(exc))
            raise
        async with tunnel:
            await _reply(client, _OK)
            await tunnel.carry(client)


async def _asked(gate: Gate, client: Unread, token: str | None) -> tuple[str, int] | None:
    """
    Host, as it was written, and port; None where there is nothing to connect to, and the
    client was told.
    """
    if not await _authenticated(client, token):
        if token:
            gate.unread("socks5", "it did not show the token", code="token")
        else:
            gate.unread("socks5", "it offers no way without a token")
        return None
    version, command, _, kind = await client.exactly(4)
    if version != VERSION or command != 1:
        gate.unread("socks5", f"version {version}, command {command}: only connecting by version 5 is known")
        await _reply(client, _COMMAND_UNKNOWN)
        return None
    text, port = await _destination(client, kind)
    if text is None:
        gate.unread("socks5", f"an address of kind {kind}, which is none")
        await _reply(client, _ADDRESS_UNKNOWN)
        return None
    return text, port


async def _authenticated(client: Unread, token: str | None) -> bool:
    _, count = await client.exactly(2)
    methods = await client.exactly(count)
    wanted = _NO_AUTHENTICATION if token is None else _USER_AND_PASSWORD
    if wanted not in methods:
        await client.send(bytes((VERSION, _NOTHING_FITS)))
        return False
    await client.send(bytes((VERSION, wanted)))
    if token is None:
        return True
    _, length = await client.exactly(2)
    await client.exactly(length)
    given = await client.exactly((await client.exactly(1))[0])
    right = hmac.compare_digest(given, token.encode())
    await client.send(bytes((1, 0 if right else 1)))
    return right


async def _destination(client: Unread, kind: int) -> tuple[str | None, int]:
    match kind:
        case 1:
            text: str | None = str(ipaddress.IPv4Address(await client.exactly(4)))
        case 3:
            text = (await client.exactly((await client.exactly(1))[0])).decode("ascii", "replace")
            if text.count(":") > 1 and not text.startswith("["):
                text = f"[{text}]"  # some clients send address literals as names
        case 4:
            text = f"[{ipv6_text(int.from_bytes(await client.exactly(16), 'big'))}]"
        case _:
            return None, 0
    (port,) = struct.unpack("!H", await client.exactly(2))
    return text, port


def _code(exc: Exception) -> int:
    if isinstance(exc, EgressDeniedError | UrlError):
        return _NOT_ALLOWED
    return _TTL_EXPIRED if isinstance(exc, EgressTimeoutError) else _HOST_UNREACHABLE


async def _reply(client: Unread, code: int) -> None:
    await client.send(bytes((VERSION, code, 0, 1)) + bytes(6))
