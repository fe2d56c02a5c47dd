"""
Finds the rules about a host without trying all of them. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from sandboxkit.model import is_literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandboxkit.model import EgressRule

__all__ = ["RuleIndex"]


class RuleIndex:
    """
    Rules by the name they end in. A list of ten thousand hosts costs one look-up per label.
    """

    def __init__(self, rules: Iterable[EgressRule]) -> None:
        self._by_host: dict[str, list[tuple[int, EgressRule]]] = defaultdict(list)
        for place, rule in enumerate(rules):
            self._by_host[rule.pattern.host].append((place, rule))

    def find(self, host: str, *, scheme: str | None, port: int, suspect: bool = False) -> list[EgressRule]:
        """
        The rules about *host*, *scheme* and *port*, in their order.

        Args:
            host: A canonical host.
            scheme: `http` or `https`, or None where it is not known.
            port: The port.
            suspect: An unknown scheme counts as the one that a rule names, unless it allows.
        """
        found = []
        for place, rule in self._near(host):
            known = rule.pattern.scheme if scheme is None and suspect and rule.action != "allow" else scheme
            if rule.pattern.matches(host, scheme=known, port=port):
                found.append((place, rule))
        return [rule for _, rule in sorted(found, key=lambda row: row[0])]

    def _near(self, host: str) -> list[tuple[int, EgressRule]]:
        near = [*self._by_host.get(host, ()), *self._by_host.get("", ())]
        if is_literal(host):
            return near
        rest = host.partition(".")[2]
        while rest:
            near += self._by_host.get(rest, ())
            rest = rest.partition(".")[2]
        return near
