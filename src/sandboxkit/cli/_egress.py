"""
`sandboxkit egress`: where connections may go. None is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from sandboxkit.cli._exit import Exit
from sandboxkit.cli._output import note, printable, say
from sandboxkit.egress import check as dry_run
from sandboxkit.egress import own_addresses, system_resolver
from sandboxkit.errors import EgressTimeoutError
from sandboxkit.guard import EgressPolicy, Verdict, canonical_url

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from sandboxkit.cli._report import Report

__all__ = ["check"]

_CODES = {"allow": Exit.DONE, "ask": Exit.APPROVAL, "deny": Exit.DENIED}
_LOOKUP_S = 10.0


def check(options: argparse.Namespace, report: Report) -> int:
    """
    Prints what the policy decides about the URL.
    """
    policy = _policy(options)
    url = canonical_url(options.url)
    addresses: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        addresses.extend(options.address or await _looked_up(host, port))
        return addresses

    async def decide() -> Verdict:
        if options.no_lookup:
            return policy.decide(url, method=options.method)
        return await dry_run(str(url), policy=policy, resolver=resolve, method=options.method)

    verdict = anyio.run(decide)
    if not report.is_json:
        for warning in policy.warnings():
            note(f"warning: {printable(warning)}")
        lines = [str(url), str(verdict), *([f"addresses: {', '.join(addresses)}"] if addresses else ())]
        say("\n".join(map(printable, lines)))
    fields: dict[str, Any] = {
        "url": str(url),
        "action": verdict.action,
        "reason": verdict.reason,
        "code": verdict.code,
        "rule": verdict.rule,
        "setting": verdict.setting,
        "addresses": addresses,
        "warnings": list(policy.warnings()),
    }
    return report.done(_CODES[verdict.action], "checked", fields)


async def _looked_up(host: str, port: int) -> Sequence[str]:
    with anyio.move_on_after(_LOOKUP_S):
        return await system_resolver(host, port)
    raise EgressTimeoutError(host, f"the name service gave no answer within {_LOOKUP_S:g} s")


def _policy(options: argparse.Namespace) -> EgressPolicy:
    """
    The file of `--policy`, with what the other options add to it.
    """
    given = EgressPolicy.from_file(options.policy) if options.policy else EgressPolicy()
    fields = {name: getattr(given, name) for name in EgressPolicy.model_fields}
    fields["rules"] = [
        *given.rules,
        *({"action": action, "to": host} for action in ("allow", "ask", "deny") for host in getattr(options, action)),
    ]
    if options.allow:
        fields["default"] = "deny"
    fields["permit_hosts"] = [*given.permit_hosts, *options.permit_host]
    fields["permit_networks"] = [*given.permit_networks, *options.permit_network]
    fields["own_addresses"] = [*given.own_addresses, *sorted(own_addresses(), key=str)]
    return EgressPolicy(**fields)
