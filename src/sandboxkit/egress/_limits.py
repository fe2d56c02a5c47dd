"""
Bounds of a guarded client.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ClientLimits"]


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """
    Bounds of a guarded client.

    Attributes:
        total_timeout: Seconds from the request to the last byte of the answer, all redirects included.
        redirects: How many are followed. Source: CrawlForge's five, which real sites stay below.
        body_bytes: Of one body, after decoding.
        ratio: How many times larger than what was sent a body may become.
        ratio_from_bytes: Where that begins to count; small pages compress well.
        header_fields: Of one answer.
        header_bytes: Of one answer.
        connections: How many may be open at one time.
        keepalive: Seconds an idle connection is kept.
    """

    total_timeout: float = 30.0
    redirects: int = 5
    body_bytes: int = 10 * 1024 * 1024
    ratio: int = 100
    ratio_from_bytes: int = 1024 * 1024
    header_fields: int = 100
    header_bytes: int = 65536
    connections: int = 20
    keepalive: float = 5.0
