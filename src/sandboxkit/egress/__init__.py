"""
Connections to the network, each of them checked where it is made.
"""

from sandboxkit.egress._ask import Ask, EgressQuestion
from sandboxkit.egress._check import check
from sandboxkit.egress._client import guarded_client, guarded_sync_client, guarded_transport
from sandboxkit.egress._dial import Connection, Connector, Dialer
from sandboxkit.egress._event import EgressEvent, OnEvent
from sandboxkit.egress._injection import Injection
from sandboxkit.egress._interception import Interception, Trust
from sandboxkit.egress._interfaces import own_addresses
from sandboxkit.egress._limits import ClientLimits
from sandboxkit.egress._proxy import EgressProxy, ProxyAddress
from sandboxkit.egress._record import ProxyLimits
from sandboxkit.egress._resolve import Resolver, system_resolver
from sandboxkit.egress._upstream import UpstreamProxy

__all__ = [
    "Ask",
    "ClientLimits",
    "Connection",
    "Connector",
    "Dialer",
    "EgressEvent",
    "EgressProxy",
    "EgressQuestion",
    "Injection",
    "Interception",
    "OnEvent",
    "ProxyAddress",
    "ProxyLimits",
    "Resolver",
    "Trust",
    "UpstreamProxy",
    "check",
    "guarded_client",
    "guarded_sync_client",
    "guarded_transport",
    "own_addresses",
    "system_resolver",
]
