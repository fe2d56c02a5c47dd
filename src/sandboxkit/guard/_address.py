"""
Whether an address may be connected to. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from sandboxkit.guard._networks import DENIED_IPV4, DENIED_IPV6, GLOBAL_IPV6, METADATA, Row
from sandboxkit.guard._verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

__all__ = ["OWN", "Address", "AddressRules", "Network", "classify", "embedded", "leads_to", "unmapped"]

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_LOW = 0xFFFFFFFF
_MAPPED, _TRANSLATED, _NAT64 = 0xFFFF, 0xFFFF0000, 0x0064FF9B << 64
_ALLOWED = Verdict.allow("public address")
_PLAIN_IPV6 = re.compile(r"[0-9A-Fa-f:]+")


class _Table:
    """
    Disjoint networks, looked up by bisection.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        nets = sorted((ipaddress.ip_network(row.network), row) for row in rows)
        self._starts = [int(net.network_address) for net, _ in nets]
        self._ends = [int(net.broadcast_address) for net, _ in nets]
        self._rows = [row for _, row in nets]

    def find(self, value: int) -> Row | None:
        index = bisect_right(self._starts, value) - 1
        return self._rows[index] if index >= 0 and value <= self._ends[index] else None


_V4, _V6 = _Table(DENIED_IPV4), _Table(DENIED_IPV6)
_GLOBAL_FIRST, _GLOBAL_LAST = (int(ipaddress.IPv6Network(GLOBAL_IPV6.network)[index]) for index in (0, -1))
_METADATA = {
    version: {
        int(net.network_address): row
        for row in METADATA
        if (net := ipaddress.ip_network(row.network)).version == version
    }
    for version in (4, 6)
}


def unmapped(address: Address) -> Address:
    """
    The IPv4 address that *address* maps, or itself.
    """
    return (address.version == 6 and address.ipv4_mapped) or address


class AddressRules:
    """
    What differs from the tables, prepared for many addresses.

    Args:
        permit_networks: Networks that may be connected to although a table refuses them;
            never metadata addresses, never *own_addresses*.
        own_addresses: Addresses of this machine that are refused although they are public.
        nat64: Judge what stands behind `64:ff9b::/96` by the embedded IPv4 address,
            instead of refusing it, as networks with DNS64 need.
    """

    __slots__ = ("_nat64", "_own", "_permit")

    def __init__(
        self,
        *,
        permit_networks: Iterable[Network] = (),
        own_addresses: Iterable[Address] = (),
        nat64: bool = False,
    ) -> None:
        self._permit = tuple(
            (net.version, int(net.network_address), int(net.broadcast_address), str(net)) for net in permit_networks
        )
        self._own = frozenset((plain.version, int(plain)) for plain in map(unmapped, own_addresses))
        self._nat64 = nat64

    def classify(self, address: str | Address) -> Verdict:
        """
        The verdict on *address*, a mapped IPv4 address being judged as the IPv4 address.
        """
        parsed = _parsed(address) if isinstance(address, str) else address
        if parsed is None:
            return Verdict.deny("it is no address", code="address")
        if parsed.version == 4:
            return self._ipv4(int(parsed))
        if parsed.scope_id is not None:
            return Verdict.deny("an address with a zone id is local to a link", code="address")
        value = int(parsed)
        if value >> 125 == 1:  # 2000::/3: most of what is asked about, and most of that embeds nothing
            return self._ipv6(value, tuple(embedded(value)) if _may_embed(value) else ())
        return self._ipv4(value & _LOW) if value >> 32 == _MAPPED else self._ipv6(value, tuple(embedded(value)))

    def _ipv4(self, value: int) -> Verdict:
        row = _V4.find(value)
        if row is None and not self._own:
            return _ALLOWED
        if metadata := _METADATA[4].get(value):
            return _refused(metadata, "no setting lifts this")
        if (4, value) in self._own:
            return OWN
        if row is None or (permitted := self._permitted(4, value)) is None:
            return _ALLOWED if row is None else _refused(row)
        return permitted

    def _ipv6(self, value: int, inner: tuple[int, ...]) -> Verdict:
        if metadata := _METADATA[6].get(value) or (inner and next(filter(None, map(_METADATA[4].get, inner)), None)):
            return _refused(metadata, "no setting lifts this")
        if self._own and (6, value) in self._own:
            return OWN
        if self._permit and (permitted := self._permitted(6, value)):
            return permitted
        for low in inner:
            if row := _V4.find(low):
                return _embedding(low, row)
        if inner and self._nat64 and value >> 32 == _NAT64:
            return self._ipv4(value & _LOW)
        if not _GLOBAL_FIRST <= value <= _GLOBAL_LAST:
            return _OUTSIDE
        row = _V6.find(value)
        return _ALLOWED if row is None else _refused(row)

    def _permitted(self, version: int, value: int) -> Verdict | None:
        for known, first, last, text in self._permit:
            if known == version and first <= value <= last:
                return Verdict.allow(f"permit_networks has {text}")
        return None


OWN = Verdict.deny("it is an address of this machine", code="address")
_OUTSIDE = Verdict.deny(
    "it is outside 2000::/3, the only IPv6 space of the public internet", code="address", setting="permit_networks"
)


_PLAIN = AddressRules()


def classify(
    address: str | Address,
    *,
    permit_networks: Collection[Network] = (),
    own_addresses: Collection[Address] = (),
    nat64: bool = False,
) -> Verdict:
    """
    Whether *address* is one of the public internet, by our own tables.

    IPv4 addresses inside IPv6 ones (mapped, compatible, translated, NAT64, 6to4, Teredo,
    ISATAP) are judged too; a mapped one is judged, and must be dialed, as the IPv4
    address it is. For many addresses under the same exceptions, keep an `AddressRules`.

    Args:
        address: As text, without brackets, or parsed. What is no address is refused.
        permit_networks: See `AddressRules`.
        own_addresses: See `AddressRules`.
        nat64: See `AddressRules`.

    Source: IANA IPv4 and IPv6 special-purpose address registries; `_networks.py` has
    each row's RFC.
    """
    if not permit_networks and not own_addresses and not nat64:
        return _PLAIN.classify(address)
    return AddressRules(permit_networks=permit_networks, own_addresses=own_addresses, nat64=nat64).classify(address)


def leads_to(address: Address, own: Collection[Address]) -> bool:
    """
    Whether *address* is in *own*, or embeds an IPv4 address that is.
    """
    if unmapped(address) in own:
        return True
    return address.version == 6 and any(ipaddress.IPv4Address(low) in own for low in embedded(int(address)))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Address | None:
    """
    The address that *text* writes. What it writes never changes, so this may be remembered.
    """
    try:
        if ":" not in text:
            return ipaddress.IPv4Address(text)
        value = _groups(text) if _PLAIN_IPV6.fullmatch(text) else None
        return ipaddress.IPv6Address(text if value is None else value)
    except ValueError:
        return None


def _groups(text: str) -> int | None:
    """
    The number of an IPv6 address of plain groups, for half of what the standard library
    takes; None where that should look.

    Source: RFC 4291 section 2.2, forms 1 and 2.
    """
    head, gap, tail = text.partition("::")
    before, after = head.split(":") if head else [], tail.split(":") if tail else []
    missing = 8 - len(before) - len(after)
    if "" in before or "" in after or (missing < 1 if gap else missing != 0):
        return None
    digits = "".join([group.zfill(4) for group in (*before, *["0"] * missing, *after)])
    return int(digits, 16) if len(digits) == 32 else None


def embedded(value: int) -> Iterator[int]:
    """
    Every IPv4 address that packets to the IPv6 address *value* may be carried to.

    Source: RFC 4291 section 2.5.5 (compatible, mapped), RFC 2765 section 2.1
    (translated), RFC 6052 section 2.1 (NAT64), RFC 3056 section 2 (6to4), RFC 4380
    section 4 (Teredo: client, inverted, and server), RFC 5214 section 6.1 (ISATAP).
    """
    prefix, low = value >> 32, value & _LOW
    if prefix in (_MAPPED, _TRANSLATED, _NAT64) or (prefix == 0 and value > 1):
        yield low
    if value >> 112 == 0x2002:
        yield (value >> 80) & _LOW
    if value >> 96 == 0x20010000:
        yield low ^ _LOW
        yield (value >> 64) & _LOW
    if prefix & 0xFDFFFFFF == 0x00005EFE:  # the universal bit may be set or not
        yield low


def _may_embed(value: int) -> bool:
    first = value >> 96
    return first >> 16 == 0x2002 or first == 0x20010000 or (value >> 32) & 0xFDFFFFFF == 0x00005EFE


@lru_cache(maxsize=64)
def _refused(row: Row, remedy: str | None = None) -> Verdict:
    reason = f"it is in {row.network}: {row.what}"
    return Verdict.deny(
        reason if remedy is None else f"{reason}; {remedy}",
        code="address",
        setting=None if remedy else "permit_networks",
    )


def _embedding(low: int, row: Row) -> Verdict:
    return Verdict.deny(
        f"it embeds {ipaddress.IPv4Address(low)}, which is in {row.network}: {row.what}",
        code="address",
        setting="permit_networks",
    )
