"""
What it costs to read a URL, to judge an address and to decide about a request.

    python benchmarks/guard.py [--quick] [--json] [--check]

Each row is the best of many short rounds, because other work on the machine only ever
adds. Nothing fails on timing unless `--check` is given.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from ipaddress import ip_address
from itertools import cycle
from typing import TYPE_CHECKING

from sandboxkit import EgressPolicy, canonical_url
from sandboxkit.guard import classify

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = "https://www.example.com/a/b/c?x=1&y=2"
URL = canonical_url(PLAIN)
V4, V6 = ip_address("93.184.216.34"), ip_address("2606:4700:4700::1111")
FRESH_V4 = cycle([str(V4 + number) for number in range(5000)])
FRESH_V6 = cycle([str(V6 + (number << 40)) for number in range(5000)])
"""More of them than are remembered."""
TEN_THOUSAND = EgressPolicy(allow_hosts=[f"h{number}.example" for number in range(10_000)])

ROWS: dict[str, tuple[Callable[[], object], float | None]] = {
    "canonical_url, a plain URL": (lambda: canonical_url(PLAIN), 10.0),
    "canonical_url, an IPv6 literal": (lambda: canonical_url("http://[2606:4700:4700::1111]:8080/a"), 10.0),
    "canonical_url, dots and escapes": (lambda: canonical_url("https://example.com/a/../%7eb?x=[1]"), 10.0),
    "canonical_url, beyond ASCII": (lambda: canonical_url("https://münchen.example/"), None),
    "classify, IPv4 parsed": (lambda: classify(V4), 3.0),
    "classify, IPv6 parsed": (lambda: classify(V6), 3.0),
    "classify, IPv4 text at first look": (lambda: classify(next(FRESH_V4)), 3.0),
    "classify, IPv6 text at first look": (lambda: classify(next(FRESH_V6)), 3.0),
    "classify, IPv4 text seen before": (lambda: classify("93.184.216.34"), 3.0),
    "classify, IPv6 text seen before": (lambda: classify("2606:4700:4700::1111"), 3.0),
    "decide, 10,000 rules": (lambda: TEN_THOUSAND.decide(URL), None),
}
"""What is measured, and the limit in microseconds."""


def microseconds(act: Callable[[], object], rounds: int) -> float:
    """
    The cost of one call, in the best of *rounds* rounds of 100.
    """
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(100):
            act()
        best = min(best, time.perf_counter() - started)
    return best * 1e4


def main() -> int:
    """
    Prints the table; ends with 1 where `--check` finds a limit passed.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    parser.add_argument("--check", action="store_true", help="end with 1 where a limit is passed")
    given = parser.parse_args()
    rounds = 50 if given.quick else 500
    found = {name: round(microseconds(act, rounds), 2) for name, (act, _) in ROWS.items()}
    over = [name for name, (_, limit) in ROWS.items() if limit is not None and found[name] > limit]
    if given.json:
        print(json.dumps({"microseconds": found, "over": over}))
    else:
        for name, (_, limit) in ROWS.items():
            print(f"{name:34} {found[name]:8.2f} µs" + (f"   limit {limit:g}" if limit else ""))
    return 1 if given.check and over else 0


if __name__ == "__main__":
    sys.exit(main())
