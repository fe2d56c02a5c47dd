"""
The key of a chain that only its holder can write.
"""

from __future__ import annotations

import hmac
import os
from typing import TYPE_CHECKING, final

from sandboxkit.audit._failures import KEY, check_private
from sandboxkit.audit._files import opened_to_read
from sandboxkit.errors import AuditError

if TYPE_CHECKING:
    from typing import Self

__all__ = ["MIN_KEY_BYTES", "AuditKey"]

MIN_KEY_BYTES = 16
"""A shorter key can be guessed. Source: RFC 2104, section 3, asks for the hash's length, 32, and this is half."""
_MAX_KEY_BYTES = 4096
_ID_OF = b"sandboxkit audit key"


@final
class AuditKey:
    """
    A secret that makes a chain of records hard to forge: each hash is an HMAC-SHA256,
    so who does not hold the key can neither change a record nor add one.

    It does not protect from whoever holds it, which includes this application and what
    may read its memory or the key's file; nor from records being cut off at the end.

    Args:
        key: At least 16 bytes, best 32 from a random source.

    Raises:
        ValueError: It is shorter, or longer than 4096.

    Source: RFC 2104.
    """

    __slots__ = ("_key", "id")

    def __init__(self, key: bytes) -> None:
        if not MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
            raise ValueError(
                f"the key holds {len(key)} bytes; give {MIN_KEY_BYTES} to {_MAX_KEY_BYTES}, best 32 random ones"
            )
        self._key = bytes(key)
        self.id = hmac.digest(self._key, _ID_OF, "sha256").hex()[:16]

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """
        The key in the file *path*, without the line end that closes it.

        The file must be regular, no link, belong to this user or to root, and be closed
        to everybody else (mode 0600 or less).

        Raises:
            AuditError: It cannot be read, is open to others, or holds no usable key.
        """
        name = os.fspath(path)
        with opened_to_read(name, KEY) as fd:
            check_private(name, os.fstat(fd), closed=0o077)
            content = os.read(fd, _MAX_KEY_BYTES + 2)
        try:
            return cls(content.removesuffix(b"\n"))
        except ValueError as exc:
            raise AuditError(name, str(exc), remedy="make one: openssl rand -hex 32", role=KEY) from None

    def digest(self, content: bytes) -> str:
        """
        The HMAC-SHA256 of *content*, in hexadecimal.
        """
        return hmac.digest(self._key, content, "sha256").hex()

    def __repr__(self) -> str:
        return f"AuditKey(id={self.id!r})"
