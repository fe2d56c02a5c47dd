"""
One strict reader of URLs. Pure.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from sandboxkit.errors import UrlError
from sandboxkit.model import canonical_host, canonical_path, is_literal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DEFAULT_PORTS", "MAX_URL_LENGTH", "Scheme", "Url", "canonical_url", "redirect_url"]

MAX_URL_LENGTH = 8192
"""Characters, as given and in canonical form. Source: RFC 9110 section 4.1 asks for 8000 at least."""

Scheme = Literal["http", "https"]
DEFAULT_PORTS = {"http": 80, "https": 443}

_UNREADABLE = re.compile(r"[\x00-\x20\x7f\\]")
_REFUSED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"})
_SHAPE = re.compile(
    r"(https?)://(\[[^\]/?#@]*\]|[^/?#@:\[\]]+)(?::([0-9]*))?(/[^?#]*)?(\?[^#]*)?(?:#.*)?",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
_PLAIN_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9\-._~!$&'()*+,;=:@]*)+")
_PLAIN_QUERY = re.compile(r"[A-Za-z0-9\-._~!$&()*+,;=:@/?]*(?:%[0-9A-Fa-f]{2}[A-Za-z0-9\-._~!$&()*+,;=:@/?]*)*")
_QUERY_TO_REWRITE = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~!$&()*+,;=:@/?]+?", re.DOTALL)
"""An apostrophe is escaped here alone. Source: WHATWG URL, special-query percent-encode set."""
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Url:
    """
    An http or https URL in its one form; `str()` writes it, in ASCII.

    Attributes:
        scheme: `http` or `https`.
        host: A lower-case name, a dotted quad, or an IPv6 address without brackets.
        port: Always a number, also where it is the scheme's default.
        path: Begins with a slash; dot segments are resolved, escapes are in capitals and
            stand for no letter, digit, `-`, `.`, `_` or `~`.
        query: What follows the question mark, or None where there is none.
        raw: The text it was read from, for checks of how it was written. Two URLs that
            differ in it alone are the same.
    """

    scheme: Scheme
    host: str
    port: int
    path: str = "/"
    query: str | None = None
    raw: str = field(default="", compare=False, repr=False)

    @property
    def authority(self) -> str:
        """
        Host and, unless it is the default, port, as the Host header takes them.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """
        Scheme, host and port. Source: RFC 6454 section 6.2.
        """
        return f"{self.scheme}://{self.authority}"

    @property
    def target(self) -> str:
        """
        Path and query, as a request line takes them.
        """
        return self.path if self.query is None else f"{self.path}?{self.query}"

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """
        The address, where the host is one.
        """
        return ipaddress.ip_address(self.host) if is_literal(self.host) else None

    def __str__(self) -> str:
        return self.origin + self.target


def canonical_url(text: str) -> Url:
    """
    *text* as a `Url`, or a refusal: where readers of URLs disagree about the host, this
    one does not guess.

    Check, record, ask about and send only what this returns. Escaping what a URL cannot
    hold and resolving dot segments is all it repairs. The fragment is dropped: it is never sent.

    Refused are: schemes other than http and https, user names and passwords, backslashes,
    spaces, control and format characters anywhere, ports outside 1 to 65535, more than
    8192 characters, and every host `canonical_host` refuses.

    Raises:
        UrlError: Says what is wrong, without repeating a password.

    Source: RFC 3986; WHATWG URL. tests/guard compares it with both.
    """
    _readable(text)
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise UrlError(_shown(text), _shape_problem(text))
    scheme, host, digits, path, query = found.groups()
    secure = len(scheme) == 5
    try:
        host = canonical_host(host)
    except ValueError as exc:
        raise UrlError(_shown(text), str(exc)) from None
    port = _port(text, digits) if digits else (443 if secure else 80)
    path = "/" if path is None else path if _PLAIN_PATH.fullmatch(path) else canonical_path(path)
    if query is not None:
        query = query[1:] if _PLAIN_QUERY.fullmatch(query, 1) else _QUERY_TO_REWRITE.sub(_kept_or_escaped, query[1:])
    if len(path) + len(query or "") > MAX_URL_LENGTH - 300:
        _short_enough(text, path, query)
    return Url("https" if secure else "http", host, port, path, query, text)


def redirect_url(base: Url, location: str) -> Url:
    """
    Where a `Location` header leads from *base*.

    Raises:
        UrlError: It does not lead to one URL that `canonical_url` takes; `http:path` and
            `///host` count among these.

    Source: RFC 9110 section 10.2.2, RFC 3986 section 5.2.
    """
    _readable(location)
    if _ABSOLUTE.match(location):
        return canonical_url(location)
    if location.startswith("//"):
        return canonical_url(f"{base.scheme}:{location}")
    if location.startswith("/"):
        return canonical_url(base.origin + location)
    if location.startswith("?"):
        return canonical_url(base.origin + base.path + location)
    if not location or location.startswith("#"):
        return base
    return canonical_url(base.origin + base.path[: base.path.rindex("/") + 1] + location)


def _readable(text: str) -> None:
    if len(text) > MAX_URL_LENGTH:
        raise UrlError(_shown(text), f"it is longer than {MAX_URL_LENGTH} characters")
    if _UNREADABLE.search(text) or not (
        text.isascii() or _REFUSED_CATEGORIES.isdisjoint(map(unicodedata.category, text))
    ):
        raise UrlError(
            _shown(text),
            "it has a backslash, or a space, control or format character, which readers treat differently; escape it",
        )


def _short_enough(text: str, path: str, query: str | None) -> None:
    if len(path) + len(query or "") + 1 > MAX_URL_LENGTH:
        raise UrlError(_shown(text), f"escaped, it is longer than {MAX_URL_LENGTH} characters")


def _port(text: str, digits: str) -> int:
    significant = digits.lstrip("0")
    port = int(significant) if 0 < len(significant) < 6 else 0
    if not 0 < port < 65536:
        raise UrlError(_shown(text), "a port is 1 to 65535")
    return port


def _kept_or_escaped(found: re.Match[str]) -> str:
    part = found[0]
    return part if len(part) == 3 and part[0] == "%" else quote(part, safe="")


_PROBLEMS: tuple[tuple[Callable[[str], object], str], ...] = (
    (lambda text: not re.match(r"https?:", text, re.IGNORECASE | re.ASCII), "only http:// and https:// may be used"),
    (
        lambda text: not re.match(r"https?://[^/?#]", text, re.IGNORECASE | re.ASCII),
        "a host must follow the two slashes",
    ),
    (
        lambda text: "@" in re.split(r"[/?#]", text, maxsplit=3)[2],
        "a user name or password cannot stand in it; send a header",
    ),
)


def _shape_problem(text: str) -> str:
    for applies, problem in _PROBLEMS:
        if applies(text):
            return problem
    return "after the host only a colon and a decimal port may stand; IPv6 addresses need brackets"


def _shown(text: str) -> str:
    """
    *text* as a message repeats it: short, in ASCII, without what may be a password.
    """
    hidden = re.sub(r"(?<=//)[^/?#]*@", "…@", text[:_SHOWN])
    if "@" in text and "@" not in text[:_SHOWN]:
        hidden = hidden.partition("//")[0] + "//…"
    shown = ascii(hidden.replace("…", "***"))[1:-1]
    return f"'{shown[:_SHOWN]}'" + (" and so on" if len(text) > _SHOWN or len(shown) > _SHOWN else "")
