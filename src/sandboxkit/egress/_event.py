"""
What a proxy or client did, for whoever keeps records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from sandboxkit.guard import Verdict

__all__ = ["EgressEvent", "OnEvent"]


@dataclass(frozen=True, slots=True)
class EgressEvent:
    """
    One connection or request, after it ended or was refused.

    Attributes:
        identity: Whose it was: the name of the proxy's listener.
        protocol: `connect`, `http`, `socks5`, or inside a tunnel `https`: how it was asked for.
        destination: Host and port, or for a request its URL without the query; what
            could not be read is shown shortened, in ASCII. Of what is no request at all
            only the verdict tells.
        verdict: What was decided, and by which rule.
        host: The canonical host, or None where none could be read.
        port: The port, likewise.
        address: The address that was dialed, or None where nothing was.
        method: The HTTP method of a request, otherwise None.
        problem: What went wrong after it was allowed, or None.
        sent_bytes: What went to the destination.
        received_bytes: What came from it.
        duration_s: Seconds from asking to the end.
    """

    identity: str
    protocol: str
    destination: str
    verdict: Verdict
    host: str | None = None
    port: int | None = None
    address: str | None = None
    method: str | None = None
    problem: str | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    duration_s: float = 0.0


OnEvent: TypeAlias = Callable[[EgressEvent], None]
"""Gets each event; must return at once and not raise."""
