"""
`EndpointGuard`: the back ends an application itself talks to. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from sandboxkit.errors import EgressDeniedError, PolicyError
from sandboxkit.guard._url import Url, canonical_url
from sandboxkit.guard._verdict import Verdict
from sandboxkit.model import canonical_host, is_literal

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["EndpointGuard"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@final
class EndpointGuard:
    """
    Lets an application reach its own back ends and nothing else, whatever a setting or
    an environment variable names: https, exactly these hosts, port 443. It fails closed.

    Args:
        hosts: Exact names; no wildcards, no addresses, no ports.
        development: Also lets `localhost`, `127.0.0.1` and `[::1]` be reached, by http
            too and on any port. Pass it from code, never from the environment of a
            deployment.

    Raises:
        PolicyError: One of *hosts* is no plain name.
    """

    def __init__(self, hosts: Iterable[str], *, development: bool = False) -> None:
        wrong, names = [], set()
        for text in [hosts] if isinstance(hosts, str) else hosts:
            try:
                name = canonical_host(text)
            except ValueError as exc:
                wrong.append(f"{text!r}: {exc}")
                continue
            if is_literal(name) or "." not in name:
                wrong.append(f"{text!r}: an endpoint is a full name, such as api.example.com")
            names.add(name)
        if wrong:
            raise PolicyError(*wrong, source="an endpoint guard")
        self._hosts = frozenset(names)
        self._development = development

    @property
    def hosts(self) -> frozenset[str]:
        """
        The hosts, in canonical form.
        """
        return self._hosts

    def decide(self, text: str) -> Verdict:
        """
        Whether the URL *text* is an endpoint of the application.

        Raises:
            UrlError: *text* cannot be read in one way only.
        """
        return self._decide(canonical_url(text))

    def check(self, text: str) -> Url:
        """
        The URL *text*, to be used as returned.

        Raises:
            UrlError: *text* cannot be read in one way only.
            EgressDeniedError: It is no endpoint of the application.
        """
        url = canonical_url(text)
        verdict = self._decide(url)
        if not verdict.allowed:
            raise EgressDeniedError(url.origin, verdict)
        return url

    def _decide(self, url: Url) -> Verdict:
        if self._development and url.host in _LOOPBACK:
            return Verdict.allow("development may reach loopback")
        if url.scheme != "https":
            return Verdict.deny("an endpoint is reached by https alone", code="rule")
        if url.port != 443:
            return Verdict.deny("an endpoint is reached on port 443 alone", code="port")
        if url.host not in self._hosts:
            return Verdict.deny("it is none of the application's endpoints", code="default", setting="hosts")
        return Verdict.allow("it is an endpoint of the application")

    def __repr__(self) -> str:
        return f"EndpointGuard({sorted(self._hosts)}, development={self._development})"
