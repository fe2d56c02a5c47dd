"""
How records hang together: each names the hash of the one before, and bears its own. Pure.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

    from sandboxkit.audit._key import AuditKey

__all__ = ["START", "Head", "Link", "Region", "hashed", "sealed"]

_HEAD = re.compile(r"(?:([1-9][0-9]{0,17}):)?([0-9a-f]{64})")
_LINK = re.compile(
    rb'(?:,"key":"([0-9a-f]{16})")?,"seq":([1-9][0-9]{0,17}),"prev":"([0-9a-f]{64})","hash":"([0-9a-f]{64})"\}'
)
_LINK_BYTES = 256
"""More than the end of a record that `_LINK` matches."""
_HASH_BYTES = len(',"hash":""}') + 64
_EARLIER = b'{"schema":1,'


@dataclass(frozen=True, slots=True)
class Head:
    """
    A record's place in a chain. Kept elsewhere, it proves later that the chain up to
    it is the same.

    Attributes:
        sequence: The record's number; the first of a chain is 1.
        hash: Its hash, 64 hexadecimal digits.
    """

    sequence: int
    hash: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        The head in *text*: `number:hash`, or only the hash (the number is then 0, and
        not compared).

        Raises:
            ValueError: It is neither.
        """
        found = _HEAD.fullmatch(text.strip().lower())
        if not found:
            raise ValueError(f"{text!r} is no head; give number:hash or hash, which has 64 hexadecimal digits")
        return cls(int(found[1] or 0), found[2])

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"


START = Head(0, "0" * 64)
"""What the first record of a chain follows."""


def hashed(content: bytes, key: AuditKey | None) -> str:
    """
    SHA-256 of *content*, or HMAC-SHA256 under *key*.
    """
    return key.digest(content) if key else hashlib.sha256(content).hexdigest()


def sealed(record: bytes, after: Head, key: AuditKey | None) -> tuple[bytes, Head]:
    """
    *record*, an object of JSON, as the line that follows *after*, without its end; and
    the head it makes.

    The hash covers the whole object without the member `hash`, which comes last.
    """
    keyed = f',"key":"{key.id}"' if key else ""
    content = record[:-1] + f'{keyed},"seq":{after.sequence + 1},"prev":"{after.hash}"}}'.encode("ascii")
    digest = hashed(content, key)
    return content[:-1] + f',"hash":"{digest}"}}'.encode("ascii"), Head(after.sequence + 1, digest)


@dataclass(frozen=True, slots=True)
class Link:
    """
    What ties a line to the chain.

    Attributes:
        head: Its number and the hash it bears.
        prev: The hash it names as the one before.
        key_id: Which key it is hashed with, or None.
    """

    head: Head
    prev: str
    key_id: str | None

    @classmethod
    def of(cls, line: bytes) -> Self | None:
        """
        The link of *line*, or None where it ends in none.
        """
        found = _LINK.search(line, max(0, len(line) - _LINK_BYTES))
        if not found or found.end() != len(line):
            return None
        key_id, number, prev, digest = (part.decode("ascii") if part else None for part in found.groups())
        return cls(Head(int(number or 0), digest or ""), prev or "", key_id)

    def fits(self, line: bytes, key: AuditKey | None) -> bool:
        """
        Whether the hash that *line* bears is the hash of *line*.
        """
        return hashed(line[:-_HASH_BYTES] + b"}", key) == self.head.hash

    def follows(self, before: Head) -> bool:
        """
        Whether it is the record right after *before*.
        """
        return self.head.sequence == before.sequence + 1 and self.prev == before.hash


def is_earlier(line: bytes) -> bool:
    """
    Whether *line* was written by a version that chained otherwise.
    """
    return line.startswith(_EARLIER)


class Region:
    """
    Lines that are no records, between two that are: what a write that was cut off, or
    damage, left. The record after them describes them (`torn`), so they cannot change
    later without being noticed.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.lines = 0
        self.bytes = 0
        self.was_whole = False

    def add(self, line: bytes) -> None:
        """
        Adds *line*, without its end.
        """
        text = line if not self.lines else b"\n" + line
        self._hash.update(text)
        self.lines += 1
        self.bytes += len(text)
        # Half a record has no link: this one was complete once, and was changed.
        self.was_whole = self.was_whole or Link.of(line) is not None

    def described(self) -> dict[str, int | str]:
        """
        What the next record says about it.
        """
        return {"lines": self.lines, "bytes": self.bytes, "sha256": self._hash.hexdigest()}
