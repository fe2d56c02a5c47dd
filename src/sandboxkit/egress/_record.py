"""
What becomes of one connection or request of a proxy.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sandboxkit.egress._event import EgressEvent
from sandboxkit.egress._relay import Traffic
from sandboxkit.errors import EgressDeniedError, UrlError
from sandboxkit.guard import Verdict

__all__ = ["ProxyLimits", "Record"]


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """
    Bounds of a proxy.

    Attributes:
        connections: How many may be open at one time; more are turned away. Each takes two
            descriptors of this process, which has 1,024 of them by default on most systems:
            for more than some 500, raise RLIMIT_NOFILE (`ulimit -n`).
        header_timeout: Seconds for a request to arrive, and for a begun TLS greeting.
        idle_timeout: Seconds a tunnel or an exchange may be silent in both directions.
        total_timeout: Seconds of one tunnel or exchange, or None.
        header_bytes: Of one request or answer, without its body.
        tunnel_bytes: Of both directions of one tunnel or exchange together, or None.
        requests: How many one client connection may make.
    """

    connections: int = 1000
    header_timeout: float = 30.0
    idle_timeout: float = 300.0
    total_timeout: float | None = None
    header_bytes: int = 65536
    tunnel_bytes: int | None = None
    requests: int = 1000


@dataclass(slots=True)
class Record:
    """
    Is filled while something goes on; `event` says it at the end.
    """

    identity: str
    protocol: str
    destination: str
    method: str | None = None
    verdict: Verdict = field(default_factory=lambda: Verdict.deny("it was not understood", code="url"))
    host: str | None = None
    port: int | None = None
    address: str | None = None
    problem: str | None = None
    traffic: Traffic = field(default_factory=Traffic)
    started: float = field(default_factory=time.monotonic)

    def failed(self, exc: BaseException) -> None:
        """
        Notes why it ended early.
        """
        if isinstance(exc, EgressDeniedError):
            self.verdict = exc.verdict
        elif isinstance(exc, UrlError):
            self.destination, self.verdict = exc.url, Verdict.deny(exc.problem, code="url")
        else:
            self.problem = str(exc) or type(exc).__name__

    def event(self) -> EgressEvent:
        """
        The record as it is kept.
        """
        return EgressEvent(
            identity=self.identity,
            protocol=self.protocol,
            destination=self.destination,
            verdict=self.verdict,
            host=self.host,
            port=self.port,
            address=self.address,
            method=self.method,
            problem=self.problem,
            sent_bytes=self.traffic.sent,
            received_bytes=self.traffic.received,
            duration_s=time.monotonic() - self.started,
        )
