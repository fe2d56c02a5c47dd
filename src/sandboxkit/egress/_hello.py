"""
The name a TLS client asks for, read from its first bytes. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["MAX_HELLO", "Hello", "HelloState", "read_hello"]

MAX_HELLO = 1 << 16
"""Bytes of a ClientHello that are read. Real ones have 200 to 2000, with post-quantum keys up to 4000."""
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _MAJOR, _HEADER = 22, 1, 0, 3, 5
_RECORDS = range(20, 25)
"""The kinds of records. Source: IANA, TLS ContentType."""


class HelloState(Enum):
    """
    What the bytes are.
    """

    INCOMPLETE = "incomplete"
    TLS = "tls"
    BROKEN = "broken"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Hello:
    """
    Attributes:
        state: Whether this is a whole ClientHello, may become one, begins like TLS and is no
            ClientHello that every server reads alike, or is something else.
        server_name: The name it asks for, or None where it asks for none.
        missing: How many bytes at least must come before it can be whole.
    """

    state: HelloState
    server_name: str | None = None
    missing: int = field(default=1, compare=False)


class _Short(Exception):  # noqa: N818 - never leaves this file
    pass


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if len(self._data) - self._at < count:
            raise _Short
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._data)


def read_hello(data: bytes) -> Hello:
    """
    What the first bytes of a client say. A ClientHello may be cut into several records.

    Bytes that begin like TLS and cannot be read are `BROKEN`, not `OTHER`: some server may
    take them. OpenSSL passes over empty records and reads twice as much as is read here.

    Source: RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3.
    """
    if not _looks_like_tls(data):
        return Hello(HelloState.OTHER)
    handshake, records, malformed = _handshake(data)
    if malformed or (handshake[:1] and handshake[0] != _CLIENT_HELLO):
        return Hello(HelloState.BROKEN)
    end = 4 + int.from_bytes(handshake[1:4], "big")
    if len(handshake) < 4 or len(handshake) < end:
        headers = _HEADER * (records + 1)
        missing = max(1, end + headers - len(data)) if len(handshake) >= 4 else 1
        return Hello(HelloState.BROKEN if len(data) > MAX_HELLO else HelloState.INCOMPLETE, missing=missing)
    try:
        return Hello(HelloState.TLS, _server_name(_Reader(handshake[4:end])))
    except (_Short, UnicodeError, ValueError):
        return Hello(HelloState.BROKEN)


def _looks_like_tls(data: bytes) -> bool:
    return not data or (data[0] in _RECORDS and (len(data) == 1 or data[1] == _MAJOR))


def _handshake(data: bytes) -> tuple[bytes, int, bool]:
    """
    The handshake bytes of all whole records so far, how many those are, and whether one of
    them is no handshake record.
    """
    parts: list[bytes] = []
    at = 0
    if data[:1] and data[0] != _HANDSHAKE:
        return b"", 0, len(data) > 1
    while len(data) - at >= _HEADER:
        kind, major, length = data[at], data[at + 1], int.from_bytes(data[at + 3 : at + _HEADER], "big")
        if kind != _HANDSHAKE or major != _MAJOR or not 0 < length <= 1 << 14:
            # What follows the ClientHello may be of any kind, as long as that is whole.
            whole = b"".join(parts)
            return whole, len(parts), len(whole) < 4 or len(whole) - 4 < int.from_bytes(whole[1:4], "big")
        if len(data) - at - _HEADER < length:
            break
        parts.append(data[at + _HEADER : at + _HEADER + length])
        at += _HEADER + length
    return b"".join(parts), len(parts), False


def _server_name(hello: _Reader) -> str | None:
    hello.take(34)
    hello.vector(1)
    hello.vector(2)
    hello.vector(1)
    if hello.at_end:
        return None
    extensions = _Reader(hello.vector(2))
    found: list[str] = []
    while not extensions.at_end:
        kind, body = extensions.number(2), _Reader(extensions.vector(2))
        if kind != _SERVER_NAME:
            continue
        names = _Reader(body.vector(2))
        while not names.at_end:
            name_type, name = names.number(1), names.vector(2)
            if name_type == 0:
                found.append(name.decode("ascii"))
    if len(found) > 1:
        raise ValueError("two server names")
    return found[0] if found else None
