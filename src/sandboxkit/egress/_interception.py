"""
What a proxy does that looks into TLS. Text enters here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.egress._roots import verifying
from sandboxkit.guard import trusting
from sandboxkit.model import HostPattern

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from sandboxkit.egress._injection import Injection
    from sandboxkit.secrets import SecretRegistry

__all__ = ["Interception", "Trust"]

_FILE = "sandboxkit-ca.pem"
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interception:
    """
    How `EgressProxy` looks into TLS.

    Attributes:
        secrets: Has the values of `injections`.
        injections: Where secrets take the place of their placeholders.
        websocket_hosts: Hosts, as `HostPattern` reads them, to which a request may become a
            websocket. Nobody looks into it, and hosts of `injections` never get one.
        ssl_context: Verifies servers; by default with the certificate authorities of the
            system, whatever SSL_CERT_FILE says. A connection that is cut off counts as broken
            in it from then on.
        valid_s: Seconds until the proxy's certificates expire, and with them its use.

    Raises:
        ValueError: A host is no pattern, or the context does not verify.
    """

    secrets: SecretRegistry | None = None
    injections: tuple[Injection, ...] = ()
    websocket_hosts: tuple[str, ...] = ()
    ssl_context: ssl.SSLContext | None = None
    valid_s: float = _DAY_S

    def __post_init__(self) -> None:
        for text in self.websocket_hosts:
            HostPattern.parse(text)
        if self.ssl_context is not None:
            verifying(self.ssl_context)


@dataclass(frozen=True, slots=True)
class Trust:
    """
    What a box needs to accept a proxy that looks into TLS. It trusts the proxy, and with
    it no other certificate authority: the proxy verifies the real servers.

    Attributes:
        files: Contents by path in the box. A certificate, no key.
        environment: Variables that point there.
    """

    files: Mapping[str, bytes]
    environment: Mapping[str, str]

    @classmethod
    def at(cls, directory: str, certificate: bytes) -> Trust:
        """
        With the file in *directory* of the box, an absolute path.
        """
        path = f"{directory.rstrip('/')}/{_FILE}"
        return cls({path: certificate}, trusting(path))
