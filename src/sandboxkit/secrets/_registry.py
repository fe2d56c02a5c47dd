"""
The secrets an application knows, and the masking of what it writes about commands.
"""

from __future__ import annotations

import base64
import html
import json
import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from sandboxkit.errors import SecretScopeError
from sandboxkit.model import HostPattern
from sandboxkit.secrets._masking import CLOSE, OPEN, Masker, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["MIN_LENGTH", "SecretRegistry"]

MIN_LENGTH = 6
"""Shorter values are refused: masking them would tear up ordinary text."""
_MAX_LENGTH = 1 << 16
_ALIAS = re.compile(r"<([A-Za-z_][A-Za-z0-9_.-]{0,63})>")
_ESCAPE = re.compile("%[0-9A-F]{2}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")

_UNESCAPED = ("", "/", "!'()*", ";,/?:@&=+$!'()*#")
"""
What is not percent-encoded beside letters, digits and `-._~`: by the strict, as in paths, by
encodeURIComponent and by encodeURI. Source: RFC 3986 section 2.3; ECMA-262, URI Handling Functions.
Forms keep `*` too and encode `~`. Source: WHATWG URL, application/x-www-form-urlencoded percent-encode set.
"""
_ENTITIES: tuple[dict[str, str], ...] = (
    {"'": "&apos;"},  # XML
    {"'": "&#39;", '"': "&#34;"},  # Go's html, MarkupSafe
    {"'": "&#39;", '"': "&#34;", "+": "&#43;"},  # Go's html/template
    {"'": "&#39;"},  # Java's and JavaScript's usual libraries
    {"'": "&#039;"},  # PHP's htmlspecialchars
    {"'": "&#x27;", "`": "&#x60;", "=": "&#x3D;"},  # Handlebars
    {"'": "&#39;", "`": "&#x60;", "=": "&#x3D;", "/": "&#x2F;"},  # Mustache
    {"'": "&#x27;", "/": "&#x2F;"},  # OWASP, Cross Site Scripting Prevention
)
"""How libraries write what HTML need not escape, each by its documentation; the rest is as html.escape has it."""
_JSON_MORE = (
    ("&<>", "\\u{:04x}"),  # Go's encoding/json, Rails
    ("&<>'\"", "\\u{:04X}"),  # PHP's JSON_HEX_*
    ("&<>'\"+`", "\\u{:04X}"),  # System.Text.Json
)
"""What JSON libraries escape beyond RFC 8259 section 7, so that it can stand in HTML."""


class SecretRegistry:
    """
    Secret values by name. Masking replaces each with ``⟦name⟧``, and so what has the
    shape of a well-known token.

    Found are the value itself and its usual spellings: percent-encoded, base64 (at any
    offset), hexadecimal, JSON-escaped, as HTML entities and quoted for a shell. Not found is a value that
    was split, compressed, encrypted or encoded in any other way: masking keeps
    secrets out of records by accident, it does not stop a program that means to leak.

    Where text is to hold a secret on its way to a host, it can hold the alias ``<name>``
    instead; `fill` puts the value in for the hosts it belongs to.

    Safe to use from several threads.

    Args:
        values: Secrets to begin with, by name.
    """

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, str] = {}
        self._hosts: dict[str, tuple[HostPattern, ...]] = {}
        self._table = Table.of({})
        for name, value in (values or {}).items():
            self.add(name, value)

    def add(self, name: str, value: str, *, hosts: Iterable[str] = ()) -> None:
        """
        Masks *value* from now on; an earlier value of *name* no longer.

        Args:
            name: Stands in the marker: a letter, then letters, digits, `_`, `.` and `-`.
            value: At least 6 characters.
            hosts: Where `fill` may put it in: exact hosts, with a port or without, as
                `HostPattern` reads them. By default nowhere.

        Raises:
            ValueError: The name or the value cannot be used.
        """
        if not _NAME.fullmatch(name):
            # Not shown: in swapped arguments it is the secret.
            raise ValueError("a secret's name is a letter or '_' and then at most 63 letters, digits, '_', '.' or '-'")
        if not MIN_LENGTH <= len(value.strip()) <= len(value) <= _MAX_LENGTH:
            raise ValueError(
                f"secret {name}: a value needs {MIN_LENGTH} to {_MAX_LENGTH} characters; shorter ones would mask ordinary text"
            )
        if OPEN in value or CLOSE in value:
            raise ValueError(f"secret {name}: a value cannot hold {OPEN} or {CLOSE}, which mark what was masked")
        patterns = tuple(_exact(name, host) for host in ([hosts] if isinstance(hosts, str) else hosts))
        with self._lock:
            self._keep({**self._values, name: value})
            self._hosts = {**self._hosts, name: patterns}

    def remove(self, name: str) -> None:
        """
        Forgets the secret called *name*, if there is one.
        """
        with self._lock:
            self._keep({known: value for known, value in self._values.items() if known != name})
            self._hosts = {known: hosts for known, hosts in self._hosts.items() if known != name}

    def _keep(self, values: dict[str, str]) -> None:
        table = Table.of(dict(row for name, value in values.items() for row in _spellings(name, value)))
        self._values, self._table = values, table

    def alias(self, name: str) -> str:
        """
        What stands for the secret called *name* in text that `fill` gets.

        Raises:
            KeyError: There is no such secret.
        """
        if name not in self._values:
            raise KeyError(name)
        return f"<{name}>"

    def fill(self, text: str, *, host: str, port: int = 443) -> str:
        """
        *text* with each alias replaced by its value. What is no alias of a known secret stays.
        Only values that go to *host* by TLS should be put in.

        Args:
            text: A header field or a body on its way out.
            host: A canonical host.
            port: Where on it.

        Raises:
            SecretScopeError: A secret in *text* is not for *host*.
        """
        values, hosts = self._values, self._hosts

        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name not in values:
                return found[0]
            if not any(pattern.matches(host, scheme="https", port=port) for pattern in hosts.get(name, ())):
                raise SecretScopeError(name, host)
            return values[name]

        return _ALIAS.sub(value, text)

    def names(self) -> tuple[str, ...]:
        """
        The names of the secrets.
        """
        return tuple(sorted(self._values))

    def mask(self, text: str) -> str:
        """
        *text* with every secret replaced. Masking it again changes nothing.
        """
        table = self._table
        if not table.may_match(text):
            return text
        data = _bytes(text)
        return table.render(data, len(data))[0].decode("utf-8", "surrogatepass")

    def mask_bytes(self, data: bytes) -> bytes:
        """
        *data* with every secret, in UTF-8, replaced.
        """
        return self._table.render(data, len(data))[0]

    def masker(self, *, only: Iterable[str] | None = None) -> Masker:
        """
        Masks a stream that comes in pieces, with the secrets known now.

        Args:
            only: Names of secrets: masks these and nothing else, no shape of a token
                either. Such a stream is held back only where a secret may have begun.
        """
        if only is None:
            return Masker(self._table)
        values = self._values
        rows = (row for name in only if name in values for row in _spellings(name, values[name]))
        return Masker(Table.of(dict(rows), shapes=()))

    def __repr__(self) -> str:
        return f"SecretRegistry({', '.join(self.names())})"


def _exact(name: str, host: str) -> HostPattern:
    pattern = HostPattern.parse(host)
    if pattern.labels != 0 or pattern.scheme == "http":
        raise ValueError(
            f"secret {name}: {host!r} must be one host, reached by https; a wildcard or http would give it away"
        )
    return pattern


def _entities(value: str) -> Iterator[str]:
    """
    How HTML writes *value*: only what must be escaped, or every character.
    """
    for quoted in (False, True):
        yield html.escape(value, quote=quoted)
    for table in _ENTITIES:
        yield "".join(table.get(char, html.escape(char)) for char in value)
    for form in ("&#{};", "&#x{:x};", "&#x{:X};"):
        yield "".join(form.format(ord(char)) for char in value)


def _json(value: str) -> Iterator[str]:
    """
    How JSON writes *value*: only what must be escaped, slashes as well, what means something
    in HTML as well, or every character.

    Source: RFC 8259 section 7.
    """
    for ascii_only in (False, True):
        for slash in ("/", "\\/"):
            yield json.dumps(value, ensure_ascii=ascii_only)[1:-1].replace("/", slash)
    for chars, form in _JSON_MORE:
        for ascii_only in (False, True):
            yield "".join(
                form.format(ord(char)) if char in chars else json.dumps(char, ensure_ascii=ascii_only)[1:-1]
                for char in value
            )
    units = value.encode("utf-16-be", "surrogatepass")
    for form in ("\\u{:04x}", "\\u{:04X}"):
        yield "".join(form.format(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _spellings(name: str, value: str) -> Iterator[tuple[bytes, str]]:
    data = _bytes(value)
    forms = {data, data.hex().encode(), data.hex().upper().encode()}
    percent = {quote(data, safe=kept) for kept in _UNESCAPED} | {quote_plus(data), quote_plus(data, safe="*")}
    percent |= {each.replace("~", "%7E") for each in percent}
    forms |= {form.encode() for each in percent for form in (each, _ESCAPE.sub(lambda found: found[0].lower(), each))}
    forms |= set(map(_bytes, _json(value)))
    forms |= {_bytes(value.replace("'", quoted)) for quoted in ("'\"'\"'", "'\\''")}
    forms |= set(map(_bytes, _entities(value)))
    forms |= {form for offset in range(3) for form in _base64_at(data, offset)}
    return ((form, name) for form in sorted(forms) if len(form) >= MIN_LENGTH)


def _base64_at(data: bytes, offset: int) -> Iterator[bytes]:
    """
    What *data* looks like inside a longer base64 text that holds it after *offset* bytes
    modulo 3: the characters that depend on nothing around it, and the whole groups among them,
    which are left where the text was cut between groups.
    """
    first = -offset % 3
    groups = data[first : first + (len(data) - first) // 3 * 3]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(groups)
        # Six bits are a character: those that lie in *data* alone.
        yield encode(bytes(offset) + data)[-(-8 * offset // 6) : 8 * (offset + len(data)) // 6]
