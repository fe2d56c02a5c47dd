"""
The addresses of this machine.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.guard import Address

__all__ = ["own_addresses"]

_LOCAL_V4 = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")


def own_addresses() -> frozenset[Address]:
    """
    The addresses of the interfaces, without loopback, which the address table refuses anyway.

    On Linux from the kernel's tables; elsewhere what the machine's own name leads to.

    Source: proc_pid_net(5), fib_trie and if_inet6.
    """
    return frozenset(address for address in _all() if not address.is_loopback)


def _all() -> Iterator[Address]:
    try:
        trie = Path("/proc/net/fib_trie").read_text(encoding="ascii")
    except OSError:
        yield from _of_the_name()
        return
    yield from map(ipaddress.IPv4Address, _LOCAL_V4.findall(trie))
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return  # a kernel without IPv6
    yield from (ipaddress.IPv6Address(int(line.split()[0], 16)) for line in lines)


def _of_the_name() -> Iterator[Address]:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return
    yield from (ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found)
