"""
Host names and address literals in their one written form, and patterns of them. Pure.

Rules, URLs, proxies and specs compare hosts in this form and no other.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["HostPattern", "canonical_host", "ipv6_text", "is_literal"]

MAX_NAME = 253
"""Characters of a name without its root label. Source: RFC 1035 section 2.3.4."""

_MOST_COMPOSED = 4
"""Code points that NFC makes one of, at most. Source: Unicode Standard Annex #15, section 9.3, U+1F82 and others."""

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.DOTALL)
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_QUAD = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
_SHIFTS = range(112, -1, -16)
_IN_BRACKETS = re.compile(r"\[([0-9A-Fa-f:.]+)\]")
_NO_AGREED_SMALL_LETTER = frozenset(map(chr, (0x04C0, 0x2132, 0x2183, *range(0x10A0, 0x10C6))))
"""
Capitals that got their small letters after IDNA2003's table was frozen (Unicode 3.2):
UTS #46 refuses what later tables map. Source: IdnaMappingTable.txt, status "disallowed".
"""
_DELIMITERS = frozenset("/?#@:[]\\%")


def canonical_host(text: str) -> str:
    """
    The one form of a host: a lower-case ASCII name without root label, a dotted quad, or
    an IPv6 address as RFC 5952 writes it, without brackets.

    Readers of URLs disagree about many spellings; all of those are refused instead of
    mapped: percent escapes, full-width letters and dots, numbers that are not four
    decimal octets (`127.1`, `0x7f000001`, `010.8.8.8`), zone ids, empty labels. A name
    beyond ASCII must be valid IDNA2008 after lower case and NFC; no other mapping is made.

    Args:
        text: A name, a dotted quad, or an IPv6 address in brackets.

    Raises:
        ValueError: What is wrong, for a sentence that names the host.

    Source: RFC 1123 section 2.1, RFC 5891, RFC 5952, RFC 6874 (zone ids, refused).
    """
    if text.startswith("["):
        return _ipv6(text)
    host = text.lower() if text.isascii() else _ascii(text)
    name = host.removesuffix(".")
    if len(name) > MAX_NAME:
        raise ValueError(f"a host name has at most {MAX_NAME} characters")
    if not _NAME.fullmatch(name):
        raise ValueError(_what_is_wrong(name))
    if name[-1] in "0123456789abcdefx" and _NUMERIC.fullmatch(name):
        if len(name) != len(host) or not _QUAD.fullmatch(name):
            raise ValueError("a host that ends in a number must be four decimal octets, such as 192.0.2.1")
        return name
    if "xn--" in name:
        _check_encoded(name)
    return name


def is_literal(host: str) -> bool:
    """
    Whether a canonical *host* is an address rather than a name.
    """
    return ":" in host or (host[-1:].isdigit() and _QUAD.fullmatch(host) is not None)


def _what_is_wrong(name: str) -> str:
    if not name:
        return "the host is empty"
    if "%" in name:
        return "the host has percent escapes, which some readers decode and others do not; write it plainly"
    if "" in name.split("."):
        return "the host has an empty label"
    return "a host has labels of 1 to 63 letters, digits, '_' and inner '-', separated by dots"


@lru_cache(maxsize=256)  # the standard library takes 4 µs to read one
def _ipv6(text: str) -> str:
    found = _IN_BRACKETS.fullmatch(text)
    if found is None:
        raise ValueError("brackets hold an IPv6 address, without zone id and nothing else")
    try:
        return ipv6_text(int(ipaddress.IPv6Address(found[1])))
    except ipaddress.AddressValueError:
        raise ValueError("the brackets hold no valid IPv6 address") from None


def ipv6_text(value: int) -> str:
    """
    An IPv6 address in hexadecimal, the longest run of zeros shortened.

    The standard library writes mapped addresses differently from Python 3.13 on.

    Source: RFC 5952 section 4; WHATWG URL, "IPv6 serializer".
    """
    words = [format((value >> shift) & 0xFFFF, "x") for shift in _SHIFTS]
    text = ":".join(words)
    if "0" not in words:
        return text
    longest = max(re.findall(r"(?:(?<![^:])0(?::|$))+", text), key=len)  # the first of the longest
    if len(longest.replace(":", "")) < 2:
        return text
    before, _, after = (":" + text).partition(":" + longest)
    return f"{before[1:]}::{after}"


def _ascii(text: str) -> str:
    if len(text) > _MOST_COMPOSED * MAX_NAME:  # what is below takes the square of it
        raise ValueError(f"a host name has at most {MAX_NAME} characters")
    if any(mark in text for mark in "\u3002\uff0e\uff61"):
        raise ValueError("the host has a character that looks like a dot and that some readers take for one")
    if not _DELIMITERS.isdisjoint(unicodedata.normalize("NFKC", text)):
        raise ValueError("the host has a character that becomes a delimiter of URLs when it is normalised")
    lowered = unicodedata.normalize("NFC", "".join(map(_lower, text)))
    return ".".join(label if label.isascii() else _encoded(label) for label in lowered.split("."))


def _lower(char: str) -> str:
    """
    Each character by itself: str.lower() makes a final sigma of the last one of a word.
    """
    low = char.lower()
    if char in _NO_AGREED_SMALL_LETTER or (low != char and len(char.casefold()) > len(low)):
        raise ValueError(
            "the host has a capital letter of which readers make different small ones; write the small one"
        )
    if unicodedata.normalize("NFC", char) != char:
        raise ValueError("the host has a duplicate of another character, kept for compatibility; write the other one")
    return low


def _encoded(label: str) -> str:
    import idna  # takes as long to import as all of the model; most hosts are ASCII

    try:
        encoded = idna.alabel(label).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise ValueError("the host is no valid internationalised name (IDNA2008)") from None
    if not _has_agreed_direction(label):
        raise ValueError(
            "the host has, beside letters written from right to left, a character newer than Unicode 3.2, "
            "of which readers do not know the direction"
        )
    return encoded


def _has_agreed_direction(label: str) -> bool:
    """
    Whether every reader judges the directions in *label* alike. Their tables differ in
    age: WHATWG's reader Ada has those of Unicode 12. Unicode 3.2 is what IDNA2003 froze.

    Source: RFC 5893 section 2.
    """
    if {"R", "AL", "AN"}.isdisjoint(map(unicodedata.bidirectional, label)):
        return True
    return all(unicodedata.ucd_3_2_0.category(char) != "Cn" for char in label)


def _check_encoded(name: str) -> None:
    import idna

    for label in name.split("."):
        if label.startswith("xn--"):
            try:
                plain = idna.ulabel(label)
                same = (
                    not plain.isascii() and idna.alabel(plain).decode("ascii") == label and _has_agreed_direction(plain)
                )
            except (idna.IDNAError, UnicodeError):
                same = False
            if not same:
                raise ValueError("a label that begins with xn-- is no valid internationalised name (IDNA2008)")


_PATTERN = re.compile(
    r"(?:(https?)://)?(\*\*?(?=[.:]|$)\.?)?(\[[^\]]*\]|[^:/]*)(?::([0-9]{1,5}))?", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class HostPattern:
    """
    Which hosts a rule means: `[scheme://]host[:port]`.

    `example.com` is that name alone, `*.example.com` every name with one more label,
    `**.example.com` every name below it at any depth; neither wildcard covers
    `example.com` itself. `**` is every host, address literals included. An address
    stands for itself, IPv6 in brackets.

    Attributes:
        host: The canonical host, or what follows the wildcard; empty for `**`.
        labels: How many labels may stand in front: 0, 1, or None for any number from 1.
        scheme: `http` or `https`, or None for both.
        port: The one port, or None for every port.
    """

    host: str
    labels: int | None = 0
    scheme: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> HostPattern:
        """
        Raises:
            ValueError: *text* is no pattern; says why.
        """
        found = _PATTERN.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{text!r} is no host pattern; write [http://|https://]host[:port], with *. or **. in front"
            )
        scheme, wildcard, rest, digits = found.groups()
        port = int(digits) if digits else None
        if port is not None and not 0 < port < 65536:
            raise ValueError(f"{text!r}: a port is 1 to 65535")
        stars = (wildcard or "").removesuffix(".")
        if (not rest) is not (bool(stars) and wildcard == stars):
            raise ValueError(f"{text!r}: a wildcard stands alone or before a dot and a name")
        try:
            host = canonical_host(rest) if rest else ""
        except ValueError as exc:
            raise ValueError(f"{text!r}: {exc}") from None
        if stars and is_literal(host):
            raise ValueError(f"{text!r}: an address takes no wildcard; permit_networks takes networks")
        labels = {"": 0, "*": 1, "**": None}[stars]
        return cls(host, labels, scheme.lower() if scheme else None, port)

    def matches(self, host: str, *, scheme: str | None = None, port: int | None = None) -> bool:
        """
        Whether a canonical *host* is meant, asked for by *scheme* and *port*. A pattern
        that names one of the two matches nothing for which it is not known.
        """
        if (self.scheme and self.scheme != scheme) or (self.port and self.port != port):
            return False
        if self.labels == 0:
            return host == self.host
        if not self.host:
            return self.labels is None or ("." not in host and not is_literal(host))
        front = host.removesuffix("." + self.host)
        return front != host and (self.labels is None or "." not in front)

    def __str__(self) -> str:
        stars = {0: "", 1: "*", None: "**"}[self.labels]
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            (f"{self.scheme}://" if self.scheme else "")
            + ".".join(part for part in (stars, host) if part)
            + (f":{self.port}" if self.port else "")
        )
