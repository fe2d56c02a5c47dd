"""
Undoes gzip and deflate within bounds. Pure.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, final

from sandboxkit.errors import EgressLimitError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.egress._limits import ClientLimits

__all__ = ["ACCEPTED", "Body"]

ACCEPTED = "gzip, deflate"
"""What is asked for: what the standard library can stop in the middle of."""
_PIECE = 1 << 18


@final
class Body:
    """
    The body of one answer, decoded piece by piece; no piece is larger than 256 KiB.

    Args:
        destination: Stands in errors.
        encoding: The Content-Encoding field, or None.
        limits: How much may come, before and after decoding.

    Raises:
        EgressLimitError: The encoding is none of those that were asked for, or several.
    """

    def __init__(self, destination: str, encoding: str | None, limits: ClientLimits) -> None:
        self._destination = destination
        self._limits = limits
        self._wire = self._plain = 0
        name = (encoding or "identity").strip().lower()
        if name not in ("identity", "gzip", "x-gzip", "deflate"):
            raise EgressLimitError(destination, f"the answer is encoded as {ascii(name)[:40]}, which was not asked for")
        self._gzip = name.endswith("gzip")
        self._plainly = name == "identity"
        self._inflate: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """
        What *data* decodes to.

        Raises:
            EgressLimitError: More came than allowed, or it is no such encoding.
        """
        self._wire += len(data)
        if self._plainly:
            self._count(len(data))
            yield data
            return
        try:
            yield from self._inflated(data)
        except zlib.error as exc:
            raise EgressLimitError(self._destination, f"the body cannot be decoded: {exc}") from exc

    def _decoder(self, start: bytes) -> zlib._Decompress:
        if self._gzip:
            return zlib.decompressobj(zlib.MAX_WBITS | 16)
        # RFC 9110 section 8.4.1.2: deflate is in zlib's format; some servers leave that out.
        wrapped = not start or (start[0] & 15 == 8 and (len(start) < 2 or int.from_bytes(start[:2], "big") % 31 == 0))
        return zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)

    def _inflated(self, data: bytes) -> Iterator[bytes]:
        while data:
            inflate = self._inflate = self._inflate or self._decoder(data)
            piece = inflate.decompress(data, _PIECE)
            self._count(len(piece))
            if piece:
                yield piece
            data = inflate.unconsumed_tail
            if inflate.eof:
                data = inflate.unused_data if self._gzip else b""
                self._inflate = None  # RFC 1952 section 2.2: another member may follow

    def _count(self, more: int) -> None:
        self._plain += more
        limits = self._limits
        if self._plain > limits.body_bytes:
            raise EgressLimitError(self._destination, f"the body has more than {limits.body_bytes} bytes")
        if self._plain > limits.ratio_from_bytes and self._plain > limits.ratio * self._wire:
            raise EgressLimitError(self._destination, f"the body is more than {limits.ratio} times what was sent")
