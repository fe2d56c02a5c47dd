"""
How secrets are found in bytes, whole or in pieces. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.secrets._shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sandboxkit.secrets._shapes import Shape

__all__ = ["CLOSE", "MARKER", "OPEN", "Masker", "Table"]

MARKER = OPEN, CLOSE = "\u27e6", "\u27e7"
"""
The brackets of a marker. No secret may hold one, so no secret can begin in a marker
or end in one: that is why masking twice changes nothing.
"""
_ANONYMOUS = "***"
_ANCHORS = tuple((anchor, shape) for shape in SHAPES for anchor in shape.anchors)


def _marker(name: str) -> bytes:
    return f"{OPEN}{name}{CLOSE}".encode()


@dataclass(frozen=True, slots=True)
class Table:
    """
    What to look for.

    Attributes:
        values: (secret bytes, name); several forms may bear one name.
        markers: What stands for each name.
        longest: No match is longer, in bytes.
        needles: One of these stands in every text that holds a match.
        anchors: What begins the search for each shape, none where only values count.
    """

    values: tuple[tuple[bytes, str], ...]
    markers: Mapping[str, bytes]
    longest: int
    needles: tuple[str, ...]
    anchors: tuple[tuple[bytes, Shape], ...] = _ANCHORS

    @classmethod
    def of(cls, values: Mapping[bytes, str], *, shapes: Sequence[Shape] = SHAPES) -> Table:
        """
        A table of *values* (secret bytes to name) and *shapes*.
        """
        names = {*values.values(), *(shape.name for shape in shapes)}
        # A value that is part of a name would be found inside that name's marker.
        markers = {
            name: _marker(_ANONYMOUS if any(value in name.encode() for value in values) else name) for name in names
        }
        longest = max([1, *map(len, values), *(shape.longest for shape in shapes)])
        anchors = tuple((anchor, shape) for shape in shapes for anchor in shape.anchors)
        needles = (
            *(anchor.decode() for anchor, _ in anchors),
            *(value.decode("utf-8", "surrogatepass") for value in values),
        )
        return cls(tuple(values.items()), markers, longest, needles, anchors)

    def may_match(self, text: str) -> bool:
        """
        Whether masking could change *text*. Cheaper than masking it: a substring search
        in a str costs a tenth of one in bytes, and most texts hold nothing.
        """
        for needle in self.needles:  # noqa: SIM110 - any() with a generator takes three times as long
            if needle in text:
                return True
        return False

    def settled(self, data: bytes) -> int:
        """
        How many bytes of *data* no later byte can make the beginning of a match: all of
        them, where values alone count and none has begun.
        """
        if self.anchors:
            return len(data) - self.longest + 1
        until = len(data)
        for value, _ in self.values:
            start = data.find(value[:1], max(0, len(data) - len(value) + 1), until)
            while start >= 0:
                if value.startswith(data[start:]):
                    until = start
                    break
                start = data.find(value[:1], start + 1, until)
        return until

    def render(self, data: bytes, until: int, covered: int = 0) -> tuple[bytes, int]:
        """
        *data* masked up to *until*, as far as matches that begin before it go.

        Matches that overlap become one marker, named after the one that begins first.

        Args:
            data: What to mask; holds at least `longest` - 1 bytes past *until*, or ends there.
            until: Where to stop.
            covered: Bytes at the start that an earlier marker already stands for.

        Returns:
            The masked bytes, and how many bytes after *until* their last marker stands for.
        """
        parts, end = [], covered
        for start, stop, name in sorted(self._spans(data, until), key=lambda span: (span[0], -span[1], span[2])):
            if start >= end:
                parts += [data[end:start], self.markers[name]]
            end = max(end, stop)
        if end < until:
            parts.append(data[end:until])
            end = until
        return b"".join(parts), end - until

    def _spans(self, data: bytes, until: int) -> Iterator[tuple[int, int, str]]:
        for value, name in self.values:
            start = data.find(value)
            while 0 <= start < until:
                yield start, start + len(value), name
                start = data.find(value, start + 1)
        for shape in {id(shape): shape for anchor, shape in self.anchors if anchor in data}.values():
            yield from _shaped(shape, data, until)


def _shaped(shape: Shape, data: bytes, until: int) -> Iterator[tuple[int, int, str]]:
    found = shape.pattern.search(data)
    while found and found.start() < until:
        yield *found.span(), shape.name
        found = shape.pattern.search(data, found.start() + 1)


class Masker:
    """
    Masks a stream of bytes: whatever its pieces, the result is that of the whole.

    It holds back the last bytes that could still become a secret, at most
    `longest` - 1 of them, until more comes or `close` is called. Where shapes count these
    are always that many; where values alone do, only what one begins with.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._tail = b""
        self._covered = 0

    def whole(self, data: bytes) -> bytes:
        """
        *data* masked by itself, apart from the stream.
        """
        return self._table.render(data, len(data))[0]

    def feed(self, data: bytes) -> bytes:
        """
        The next masked bytes.
        """
        self._tail += data
        return self._render(self._table.settled(self._tail))

    def close(self) -> bytes:
        """
        The rest.
        """
        return self._render(len(self._tail))

    def _render(self, until: int) -> bytes:
        if until <= 0:
            return b""
        out, self._covered = self._table.render(self._tail, until, self._covered)
        self._tail = self._tail[until:]
        return out
