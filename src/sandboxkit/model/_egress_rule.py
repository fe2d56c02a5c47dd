"""
`EgressRule`: one row about where connections may go. Text enters here.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, PrivateAttr, field_validator

from sandboxkit.model._described import Described
from sandboxkit.model._host import HostPattern
from sandboxkit.model._url_path import canonical_path

__all__ = ["Destination", "EgressAction", "EgressRule", "HostText", "Method", "NetworkText", "Port", "To"]

EgressAction = Literal["allow", "ask", "deny"]

_METHOD = re.compile(r"[A-Z][A-Z-]{0,19}")
_AMBIGUOUS = re.compile(r"%(?:2F|5C|25|00)|//|;", re.IGNORECASE)


def _is_ambiguous(path: str) -> bool:
    """
    Whether servers disagree about which resource a canonical *path* names: it has an
    escaped slash, backslash, percent sign or NUL, an empty segment, or parameters.
    """
    return _AMBIGUOUS.search(path) is not None


@dataclass(frozen=True, slots=True)
class Destination:
    """
    Where a rule points.

    Attributes:
        pattern: Scheme, host and port.
        path: The canonical prefix of whole segments, or None for every path.
    """

    pattern: HostPattern
    path: str | None

    @classmethod
    def parse(cls, text: str) -> Destination:
        """
        Reads `[scheme://]host[:port][/path]`, the host as `HostPattern` takes it.

        Raises:
            ValueError: *text* is no destination; says why.
        """
        scheme, marks, rest = text.partition("://")
        authority, slash, path = (rest if marks else scheme).partition("/")
        if slash and (not path.isascii() or re.search(r"[\x00-\x20\x7f\\*?#]", path)):
            raise ValueError(f"{text!r}: a path is a plain prefix, without query, fragment, wildcard or space")
        pattern = HostPattern.parse(scheme + marks + authority if marks else authority)
        prefix = canonical_path("/" + path) if path else None
        if prefix and _is_ambiguous(prefix):
            raise ValueError(f"{text!r}: servers disagree about such a path (//, ;, %2F, %5C, %25)")
        return cls(pattern, prefix)

    def covers(self, path: str) -> bool:
        """
        Whether a canonical *path* lies at or below the prefix.
        """
        if self.path is None or path == self.path:
            return True
        return path.startswith(self.path if self.path.endswith("/") else self.path + "/")


def _destination(text: str) -> str:
    Destination.parse(text)
    return text


def _network(text: str) -> str:
    if "/" not in text:
        raise ValueError(f"{text!r} has no prefix length; write /32 or /128 for one address")
    return str(ipaddress.ip_network(text))


def _host_pattern(text: str) -> str:
    HostPattern.parse(text)
    return text


To = Annotated[str, Field(max_length=1000), AfterValidator(_destination)]
"""A destination as rules name it: `[http://|https://]host[:port][/path]`."""
HostText = Annotated[str, AfterValidator(_host_pattern)]
"""A `HostPattern`, as text."""
NetworkText = Annotated[str, AfterValidator(_network)]
"""A network with its prefix length, as text."""
Port = Annotated[int, Field(ge=1, le=65535)]
"""A port of TCP or UDP."""


def _method(text: str) -> str:
    if not _METHOD.fullmatch(text):
        raise ValueError(f"{text!r} is no method; write GET, HEAD, POST … in capitals")
    return text


Method = Annotated[str, AfterValidator(_method)]
"""An HTTP method, in capitals."""


class EgressRule(Described):
    """
    One rule about destinations.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: EgressAction
    """`deny` beats `ask`, and `ask` beats `allow`, among all rules that match."""
    to: To
    """
    `[http://|https://]host[:port][/path]`. `*.example.com` is one label more,
    `**.example.com` any number; neither is `example.com` itself. `**` is every host.
    """
    methods: tuple[Method, ...] | None = None
    """The HTTP methods meant, or none given: all of them."""
    id: Annotated[str, Field(max_length=100)] | None = None
    """Stands in verdicts and records; the text of `to` where there is none."""
    reason: Annotated[str, Field(max_length=500)] | None = None
    """Why, for whoever reads the verdict."""

    _destination: Destination = PrivateAttr()

    @field_validator("methods")
    @classmethod
    def _some_method(cls, methods: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if methods == ():
            raise ValueError("an empty list of methods matches nothing; leave it out to match all")
        return methods

    def model_post_init(self, _context: Any, /) -> None:
        self._destination = Destination.parse(self.to)

    @property
    def name(self) -> str:
        """
        The id, or what stands for it.
        """
        return self.id or f"{self.action} {self.to}"

    @property
    def pattern(self) -> HostPattern:
        """
        Scheme, host and port of `to`.
        """
        return self._destination.pattern

    @property
    def sees_inside(self) -> bool:
        """
        Whether it looks at the path or the method, which a tunnel hides.
        """
        return self._destination.path is not None or self.methods is not None

    def matches_request(self, path: str, method: str) -> bool:
        """
        Whether path and method are meant, once the host is. About a path that servers
        read differently, a rule that allows says nothing and every other one applies; so it
        is with a method in small letters, which some servers take for the one in capitals.
        """
        seen = method if self.action == "allow" else method.upper()
        if self.methods is not None and seen not in self.methods:
            return False
        if self._destination.path is not None and _is_ambiguous(path):
            return self.action != "allow"
        return self._destination.covers(path)
