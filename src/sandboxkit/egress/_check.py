"""
What would be said of a URL, without connecting to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.guard import Verdict, canonical_url

if TYPE_CHECKING:
    from sandboxkit.egress._resolve import Resolver
    from sandboxkit.guard import EgressPolicy, Url

__all__ = ["check", "check_hop"]


async def check(url: str, *, policy: EgressPolicy, resolver: Resolver, method: str = "GET") -> Verdict:
    """
    What *policy* says of one request to *url*: its form, its name, the rules, the port,
    and every address that *resolver* has for the name. Nothing is connected to, and
    redirects are not followed: each is another request, and checked as one.

    The verdict is no permit for later: a name may have another address a moment after.
    Whatever connects checks again and dials what it checked, as `guarded_client` and
    `EgressProxy` do.

    Args:
        url: As somebody wrote it.
        policy: What to hold it against.
        resolver: Gives the addresses of a canonical host name, as text.
        method: The HTTP method that rules may look at.

    Raises:
        UrlError: *url* cannot be read in one way only.
    """
    return await check_hop(canonical_url(url), policy=policy, resolver=resolver, method=method)


async def check_hop(url: Url, *, policy: EgressPolicy, resolver: Resolver, method: str = "GET") -> Verdict:
    """
    `check` for a URL that was read before.
    """
    verdict = policy.decide(url, method=method)
    if verdict.action == "deny":
        return verdict
    addresses = (url.host,) if url.address is not None else tuple(await resolver(url.host, url.port))
    judged = policy.judge(addresses)
    return verdict if judged.allowed else judged
