"""
What the proxies of a backend's boxes work with, and the making of one for a command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.errors import SetupError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from sandboxkit.backends._way_out import WayOut
    from sandboxkit.egress import Ask, OnEvent, Resolver
    from sandboxkit.model import SandboxSpec
    from sandboxkit.secrets import SecretRegistry

__all__ = ["Outward"]


@dataclass(frozen=True, slots=True)
class Outward:
    """
    What the proxies of a backend's boxes work with.

    Attributes:
        resolver: The name service; None is the machine's.
        secrets: Has the values of what specs inject.
        ssl_context: Verifies real hosts; None takes the authorities of the system.
    """

    resolver: Resolver | None = None
    secrets: SecretRegistry | None = None
    ssl_context: ssl.SSLContext | None = None

    def way_out(
        self,
        name: str,
        spec: SandboxSpec,
        argv: Sequence[str],
        ask: Ask | None,
        on_egress: OnEvent | None,
        *,
        wants_token: bool = False,
    ) -> WayOut:
        """
        The proxy for one command.

        Args:
            name: The backend's name.
            spec: Whose network lists hosts.
            argv: The command.
            ask: Answers where a rule asks; None is a no.
            on_egress: Gets each event as well.
            wants_token: As for `WayOut`.

        Raises:
            MissingExtraError: The extra `egress` is not installed.
            SpecError: A secret of *spec* is unknown here.
            PolicyError: A secret is not for the host it is to go to.
            SetupError: The system has no certificate authorities, and none were given.
        """
        from sandboxkit.backends._way_out import WayOut  # few boxes have one

        try:
            return WayOut(
                spec.network,
                identity=argv[0] if argv else "",
                ask=ask,
                on_egress=on_egress,
                resolver=self.resolver,
                secrets=self.secrets,
                ssl_context=self.ssl_context,
                lasting=spec.limits.wall,
                wants_token=wants_token,
            )
        except FileNotFoundError as exc:
            raise SetupError(name, str(exc)) from None
