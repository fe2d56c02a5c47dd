"""
May this URL, host or address be reached? Pure: nothing is resolved and nothing dialed here.
"""

from sandboxkit.guard._address import Address, AddressRules, Network, classify
from sandboxkit.guard._endpoint import EndpointGuard
from sandboxkit.guard._networks import DENIED_IPV4, DENIED_IPV6, GLOBAL_IPV6, METADATA
from sandboxkit.guard._policy import EgressPolicy, checked_addresses
from sandboxkit.guard._reserved import BLOCKED_PORTS, RESERVED_SUFFIXES
from sandboxkit.guard._trusting import trusting
from sandboxkit.guard._url import MAX_URL_LENGTH, Url, canonical_url, redirect_url
from sandboxkit.guard._verdict import Code, Verdict
from sandboxkit.model import EgressAction, EgressRule, HostPattern, canonical_host

__all__ = [
    "BLOCKED_PORTS",
    "DENIED_IPV4",
    "DENIED_IPV6",
    "GLOBAL_IPV6",
    "MAX_URL_LENGTH",
    "METADATA",
    "RESERVED_SUFFIXES",
    "Address",
    "AddressRules",
    "Code",
    "EgressAction",
    "EgressPolicy",
    "EgressRule",
    "EndpointGuard",
    "HostPattern",
    "Network",
    "Url",
    "Verdict",
    "canonical_host",
    "canonical_url",
    "checked_addresses",
    "classify",
    "redirect_url",
    "trusting",
]
