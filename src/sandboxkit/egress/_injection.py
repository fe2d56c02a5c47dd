"""
Secrets that a box uses and never sees: put in on the way out, masked on the way back.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from pydantic import ValidationError

from sandboxkit.errors import EgressLimitError, PolicyError, SecretScopeError
from sandboxkit.model import SecretInjection, problems
from sandboxkit.secrets import MARKER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandboxkit.guard import EgressRule, Url
    from sandboxkit.secrets import SecretRegistry

__all__ = ["Injection", "Injector", "Veil"]

_Headers = list[tuple[bytes, bytes]]
_SENDABLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_NOT_SENT = frozenset(
    b"accept-encoding accept-charset range if-range te a-im want-digest want-content-digest want-repr-digest".split()
)
"""
Request fields that let a client choose how the answer is written: compressed, in another
character set, or in parts so small that no part holds a secret.
"""
_DIGESTS = frozenset(b"digest content-digest repr-digest content-md5".split())
"""
Answer fields with a digest of the body: masking makes them wrong, and one of a body that holds
a short secret tells it to who can guess. Source: RFC 9530, RFC 3230.
"""
_TEXTS = frozenset({"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin1", "windows-1252"})
"""Character sets in which ASCII looks like ASCII."""
_CHARSET = re.compile(rb"charset\s*=\s*\"?([^\s\";,]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Injection:
    """
    Where the value of a secret takes the place of its placeholder.

    Attributes:
        secret: The name of the secret in the registry. Its `hosts` must allow the host of `to`.
        to: One exact host, with a port where it is not 443, and a path prefix of whole
            segments, as `EgressRule.to`: `api.example.com/v1`. Always https.
        methods: The HTTP methods meant, or None: all of them.
        headers: Request fields in which the placeholder is looked for, also inside
            `Basic` credentials. Nothing is put into a URL or a body, which other
            people's logs keep.
        placeholder: What the box holds. By default the alias `<NAME>`; another one, at
            least 6 characters, where a program checks what its keys look like.

    Raises:
        PolicyError: Something in it is wrong; lists every problem.
    """

    secret: str
    to: str
    methods: tuple[str, ...] | None = None
    headers: tuple[str, ...] = ("authorization", "x-api-key", "private-token")
    placeholder: str = ""
    rule: EgressRule = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            row = SecretInjection(
                secret=self.secret,
                to=self.to,
                methods=self.methods,
                headers=self.headers,
                placeholder=self.placeholder,
                variable="_",  # no box is told of it: a secret's name need not be one of a variable
            )
        except ValidationError as exc:
            problem = PolicyError(*map(str, problems(exc, SecretInjection)), source=f"the injection of {self.secret}")
            raise problem from None
        for name, value in (("rule", row.rule), ("headers", row.headers), ("placeholder", row.stands_in()[1])):
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, row: SecretInjection) -> Injection:
        """
        The injection a spec asks for.
        """
        return cls(row.secret, row.to, row.methods, row.headers, row.placeholder)

    def covers(self, url: Url, method: str) -> bool:
        """
        Whether a request is one it is meant for. A path that servers read differently never is.
        """
        return (
            url.scheme == "https"
            and url.host == self.rule.pattern.host
            and url.port == (self.rule.pattern.port or 443)
            and self.rule.matches_request(url.path, method)
        )


@final
class Injector:
    """
    The injections of a proxy.

    Args:
        secrets: Has the values; they are looked up for each request.
        injections: Where they go.

    Raises:
        PolicyError: A secret is unknown or not for its host, or two placeholders are the same or one in another.
    """

    def __init__(self, secrets: SecretRegistry, injections: Sequence[Injection]) -> None:
        self._secrets = secrets
        self._injections = tuple(injections)
        self._hosts: dict[str, set[str]] = {}
        wrong = []
        for each in self._injections:
            pattern = each.rule.pattern
            self._hosts.setdefault(pattern.host, set()).add(each.secret)
            try:
                self._value(each.secret, pattern.host, pattern.port or 443)
            except (SecretScopeError, EgressLimitError) as exc:
                wrong.append(str(exc))
            wrong += [
                f"{each.secret}: its placeholder is part of that of {other.secret}"
                for other in self._injections
                if other.secret != each.secret and each.placeholder in other.placeholder
            ]
        if wrong:
            raise PolicyError(*wrong, source="injections")

    def veil(self, url: Url, method: str) -> Veil | None:
        """
        What to pull over one request and its answer, or None where the host gets no secret:
        what was put in may come back in any later answer of the same host.

        Raises:
            SecretScopeError: A secret is no longer for this host.
            EgressLimitError: A value cannot stand in a header field.
        """
        names = self._hosts.get(url.host)
        if names is None:
            return None
        known = [each for each in self._injections if each.covers(url, method)]
        filled = [(each, self._value(each.secret, url.host, url.port)) for each in known]
        return Veil(self._secrets, sorted(names), filled)

    def _value(self, name: str, host: str, port: int) -> str:
        if name not in self._secrets.names():
            raise SecretScopeError(name, host)
        value = self._secrets.fill(self._secrets.alias(name), host=host, port=port)
        if not _SENDABLE.fullmatch(value):
            raise EgressLimitError(host, f"the value of the secret {name} cannot stand in a header field")
        return value


@final
class Veil:
    """
    One request with its secrets, and its answer without them.

    Found in the answer are the spellings `SecretRegistry` knows. A server that means to
    tell the box what it was sent can: it has the secret, and chooses how to write it.
    """

    def __init__(self, secrets: SecretRegistry, names: Iterable[str], filled: list[tuple[Injection, str]]) -> None:
        self._filled = filled
        self._body = secrets.masker(only=names)

    def request(self, headers: Iterable[tuple[bytes, bytes]]) -> _Headers:
        """
        The fields to send.
        """
        sent = [
            (name, self._with_secrets(name.lower(), value)) for name, value in headers if name.lower() not in _NOT_SENT
        ]
        return [*sent, (b"Accept-Encoding", b"identity")]

    def _with_secrets(self, name: bytes, value: bytes) -> bytes:
        for each, secret in self._filled:
            if name.decode("ascii") in each.headers:
                value = _replaced(value, each.placeholder.encode(), secret.encode())
        return value

    def refusal(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """
        Why an answer cannot be searched, or None.
        """
        if status == 206:
            return "the answer is a part, which was not asked for"
        for name, value in headers:
            low = name.lower()
            if low == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                return "the answer is compressed, which was not asked for, and cannot be searched for secrets"
            if low == b"content-type":
                charset = _CHARSET.search(value)
                if charset is not None and charset[1].decode("latin-1").lower() not in _TEXTS:
                    return "the answer is in a character set that cannot be searched for secrets"
        return None

    def fields(self, headers: Iterable[tuple[bytes, bytes]]) -> _Headers:
        """
        The fields of an answer without secrets; one whose name holds a secret is left out, and
        so are digests of the body.
        """
        return [
            (name, self.text(value))
            for name, value in headers
            if name.lower() not in _DIGESTS and self.text(name) == name
        ]

    def text(self, data: bytes) -> bytes:
        """
        *data* without secrets, its markers in ASCII.
        """
        masked = self._body.whole(data)
        for sign, plain in zip(MARKER, b"[]", strict=True):
            masked = masked.replace(sign.encode(), bytes((plain,)))
        return masked

    def body(self, data: bytes) -> bytes:
        """
        The next bytes of the body without secrets; what may become one is held back.
        """
        return self._body.feed(data)

    def rest(self) -> bytes:
        """
        The last of the body.
        """
        return self._body.close()


def _replaced(value: bytes, placeholder: bytes, secret: bytes) -> bytes:
    scheme, space, coded = value.partition(b" ")
    if space and scheme.lower() == b"basic":
        try:
            plain = base64.b64decode(coded.strip(), validate=True)
        except binascii.Error:
            return value
        filled = plain.replace(placeholder, secret)
        return value if filled == plain else scheme + space + base64.b64encode(filled)
    return value.replace(placeholder, secret)
