"""
Names and ports that are refused unless the policy says otherwise, as tables. Pure data.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BLOCKED_PORTS", "RESERVED_SUFFIXES", "ReservedSuffix"]


@dataclass(frozen=True, slots=True)
class ReservedSuffix:
    """
    A name that is not public, with everything below it.
    """

    suffix: str
    source: str


RESERVED_SUFFIXES: tuple[ReservedSuffix, ...] = (
    ReservedSuffix("localhost", "RFC 6761 section 6.3"),
    ReservedSuffix("local", "RFC 6762 section 3, multicast DNS"),
    ReservedSuffix("internal", "ICANN board resolution 2024.07.29.06, private use; cloud metadata and container hosts"),
    ReservedSuffix("localdomain", "hosts(5) of common distributions"),
    ReservedSuffix("home.arpa", "RFC 8375"),
    ReservedSuffix("lan", "RFC 6762 appendix G, private use in the wild"),
    ReservedSuffix("home", "ICANN board resolution 2018.02.04.12, name collisions"),
    ReservedSuffix("corp", "ICANN board resolution 2018.02.04.12, name collisions"),
    ReservedSuffix("private", "RFC 6762 appendix G, private use in the wild"),
    ReservedSuffix("intranet", "RFC 6762 appendix G, private use in the wild"),
    ReservedSuffix("onion", "RFC 7686: must not reach the name service"),
    ReservedSuffix("invalid", "RFC 6761 section 6.4"),
    ReservedSuffix("test", "RFC 6761 section 6.2"),
    ReservedSuffix("svc", "Kubernetes, DNS for Services and Pods"),
    ReservedSuffix("cluster.local", "Kubernetes, DNS for Services and Pods"),
)
"""
What is refused by name, with all below it; so is every name of a single label. Names
that only look internal (`admin.example.com`, `vault.example.com`) are judged by address.
"""

BLOCKED_PORTS: frozenset[int] = frozenset(
    {
        # WHATWG Fetch, "port blocking": protocols that can be made to read a request as commands.
        *(1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104),
        *(109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515),
        *(526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049),
        *(3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080),
        # File sharing and remote desktops: SMB, rsync, RDP.
        *(445, 873, 3389),
        # Databases and caches that take commands without a login or over HTTP: SQL Server, Oracle, MySQL,
        # PostgreSQL, CouchDB, Redis, InfluxDB, Elasticsearch, memcached, MongoDB.
        *(1433, 1434, 1521, 3306, 5432, 5984, 6379, 8086, 9200, 9300, 11211, 27017),
        # Control planes: Docker, etcd, the kubelet.
        *(2375, 2376, 2379, 2380, 10250),
    }
)
"""Ports that are refused on every host, also public ones."""
