"""
Which addresses are not the public internet, as tables. Pure data.

`ipaddress.is_global` is not used: it knows nothing of embedded addresses, multicast and
several reserved blocks, and what it says changes with the patch release of Python.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DENIED_IPV4", "DENIED_IPV6", "GLOBAL_IPV6", "METADATA", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """
    One network and what it is.

    Attributes:
        network: In CIDR notation.
        what: Stands in the reason of a refusal.
        source: The RFC, or whose documentation.
    """

    network: str
    what: str
    source: str


DENIED_IPV4: tuple[Row, ...] = (
    Row("0.0.0.0/8", "this network", "RFC 791 section 3.2"),
    Row("10.0.0.0/8", "private use", "RFC 1918"),
    Row("100.64.0.0/10", "shared address space of carriers", "RFC 6598"),
    Row("127.0.0.0/8", "loopback", "RFC 1122 section 3.2.1.3"),
    Row("168.63.129.16/32", "Azure's platform address", "Azure Docs, What is IP address 168.63.129.16?"),
    Row("169.254.0.0/16", "link-local", "RFC 3927"),
    Row("172.16.0.0/12", "private use", "RFC 1918"),
    Row("192.0.0.0/24", "IETF protocol assignments", "RFC 6890 section 2.1"),
    Row("192.0.2.0/24", "documentation", "RFC 5737"),
    Row("192.31.196.0/24", "AS112 redirection", "RFC 7535"),
    Row("192.52.193.0/24", "automatic multicast tunneling", "RFC 7450"),
    Row("192.88.99.0/24", "deprecated 6to4 relays", "RFC 7526"),
    Row("192.168.0.0/16", "private use", "RFC 1918"),
    Row("192.175.48.0/24", "AS112 service", "RFC 7534"),
    Row("198.18.0.0/15", "benchmarking; also the made-up answers of some VPNs", "RFC 2544"),
    Row("198.51.100.0/24", "documentation", "RFC 5737"),
    Row("203.0.113.0/24", "documentation", "RFC 5737"),
    Row("224.0.0.0/4", "multicast", "RFC 5771"),
    Row("240.0.0.0/4", "reserved, and the limited broadcast", "RFC 1112 section 4, RFC 8190"),
)
"""What no IPv4 connection may go to unless it is permitted."""

GLOBAL_IPV6 = Row("2000::/3", "global unicast", "RFC 4291 section 2.4, IANA IPv6 address space")
"""Everything outside it is refused: loopback, unique local, link-local, site-local, multicast, unassigned."""

DENIED_IPV6: tuple[Row, ...] = (
    Row("2001::/23", "IETF protocol assignments, among them Teredo and ORCHID", "RFC 2928, RFC 4380, RFC 7343"),
    Row("2001:db8::/32", "documentation", "RFC 3849"),
    Row("2002::/16", "6to4", "RFC 3056, RFC 7526"),
    Row("2620:4f:8000::/48", "AS112 service", "RFC 7534"),
    Row("3fff::/20", "documentation", "RFC 9637"),
)
"""What of `GLOBAL_IPV6` is refused as well."""

METADATA: tuple[Row, ...] = (
    Row("169.254.169.254/32", "instance metadata", "AWS, Google Cloud, Azure and others, instance metadata"),
    Row("169.254.170.2/32", "task credentials", "AWS, Amazon ECS task IAM role"),
    Row("169.254.170.23/32", "pod identity", "AWS, EKS Pod Identity"),
    Row("169.254.42.42/32", "instance metadata", "Scaleway, instance metadata"),
    Row("169.254.0.23/32", "instance metadata", "Tencent Cloud, instance metadata"),
    Row("168.63.129.16/32", "Azure's platform address", "Azure Docs, What is IP address 168.63.129.16?"),
    Row("100.100.100.200/32", "instance metadata", "Alibaba Cloud, instance metadata"),
    Row("192.0.0.192/32", "instance metadata", "Oracle Cloud, instance metadata"),
    Row("fd00:ec2::254/128", "instance metadata", "AWS, instance metadata over IPv6"),
    Row("fd00:ec2::23/128", "pod identity", "AWS, EKS Pod Identity"),
    Row("fd20:ce::254/128", "instance metadata", "Google Cloud, metadata server over IPv6"),
    Row("fe80::a9fe:a9fe/128", "instance metadata", "OpenStack Nova, metadata service over IPv6"),
    Row("fd00:42::42/128", "instance metadata", "Scaleway, instance metadata over IPv6"),
)
"""What hands out credentials: refused always, also under `permit_networks`."""
