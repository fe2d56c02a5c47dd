"""
What a command is told about the proxy that is its only way out. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.model import NetworkPolicy

__all__ = ["AUTHORITY_FILE", "PROXY_PORT", "proxied_environment"]

PROXY_PORT = 61080
"""
The port in the box. Its network is its own, so nothing else is there; above the range from
which the kernel gives ports to who names none (ip_local_port_range: 32768 to 60999).
"""
AUTHORITY_FILE = "/dev/sandboxkit-ca.pem"
"""
Where the box finds the certificate of a proxy that looks into its TLS: no spec names
anything in /dev, which is always the box's own, and read-only.
"""
_DIRECT = "localhost,127.0.0.1,::1"


def proxied_environment(
    network: NetworkPolicy,
    given: Mapping[str, str],
    *,
    port: int = PROXY_PORT,
    authority: str = AUTHORITY_FILE,
    token: str = "",
) -> dict[str, str]:
    """
    What a command finds instead of *given* for the way out that *network* lists: the proxy,
    and, where that looks into TLS, whom to trust and the placeholders of secrets. A variable
    of *given* that bears the name of one of these does not enter.
    """
    told = proxy_environment(port, given, token=token)
    if network.intercepts:
        from sandboxkit.guard import trusting  # few boxes need it

        told |= trusting(authority)
    return {**given, **told, **dict(row.stands_in() for row in network.inject)}


def proxy_environment(port: int, given: Mapping[str, str], *, token: str = "") -> dict[str, str]:
    """
    The variables by which the usual programs find a proxy on loopback *port*: curl, wget,
    git, pip, npm, Go, Rust and most others by the first four pairs, Node's own requests by
    its switch (from 22.21 and 24 on), Java by its options.

    All of them name it as an HTTP proxy, also `ALL_PROXY`: for SOCKS some clients lack a
    part and then fail for every destination. The box's own loopback is asked for directly.

    Args:
        port: The port.
        given: The command's variables; its options for Java are kept.
        token: What clients must show, where the loopback is the machine's and not the box's.
            Then nothing is asked for directly; and Java, whose options have no place for a
            token and which shows none to a tunnel, is not told.

    Source: curl(1) "ENVIRONMENT", Go's net/http ProxyFromEnvironment, Node's
    "NODE_USE_ENV_PROXY", Java's "Networking Properties"
    (jdk.http.auth.tunneling.disabledSchemes).
    """
    url = f"http://sandboxkit:{token}@127.0.0.1:{port}" if token else f"http://127.0.0.1:{port}"
    named = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": "" if token else _DIRECT}
    told = {**named, **{name.lower(): value for name, value in named.items()}, "NODE_USE_ENV_PROXY": "1"}
    return told if token else {**told, "JAVA_TOOL_OPTIONS": _java(port, given)}


def _java(port: int, given: Mapping[str, str]) -> str:
    options = (
        *filter(None, [given.get("JAVA_TOOL_OPTIONS")]),
        *(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}" for scheme in ("http", "https")),
        "-Dhttp.nonProxyHosts=localhost|127.0.0.1|[::1]",
    )
    return " ".join(options)
