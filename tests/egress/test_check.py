"""
A dry run decides like a connection, and makes none.
"""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandboxkit import EgressPolicy, SandboxError
from sandboxkit.egress import check
from sandboxkit.guard import canonical_url, redirect_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.anyio

CORPUS = Path(__file__).parent.parent / "corpus" / "ssrf.jsonl"
ROWS = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
MAX_HOPS = 5


def resolver_of(row: dict[str, Any]) -> Callable[[str, int], Awaitable[list[str]]]:
    """
    Answers from the row; where it lists several answers, one after the other.
    """
    table = {name.lower(): answers for name, answers in row.get("resolve", {}).items()}
    asked: collections.Counter[str] = collections.Counter()

    async def resolve(host: str, _port: int) -> list[str]:
        answers = table.get(host, [])
        if answers and isinstance(answers[0], list):
            answers = answers[min(asked[host], len(answers) - 1)]
            asked[host] += 1
        return list(answers)

    return resolve


async def fetched(
    row: dict[str, Any], policy: EgressPolicy, resolver: Callable[[str, int], Awaitable[list[str]]]
) -> bool:
    try:
        url = canonical_url(row["url"])
        for hop, location in enumerate([None, *(redirect["location"] for redirect in row.get("redirects", ()))]):
            url = url if location is None else redirect_url(url, location)
            if hop > MAX_HOPS or not (await check(str(url), policy=policy, resolver=resolver)).allowed:
                return False
    except SandboxError:
        return False
    return True


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
async def test_the_corpus_is_decided_as_it_says(row: dict[str, Any]) -> None:
    policy = EgressPolicy(**{key: value for key, value in row.get("policy", {}).items() if key != "keepalive"})
    resolver = resolver_of(row)
    got = [await fetched(row, policy, resolver) for _ in range(row.get("fetches", 1))]
    assert got == [outcome == "allow" for outcome in row.get("outcomes", [row["must"]])]


async def test_a_refused_name_is_not_resolved() -> None:
    async def resolve(host: str, _port: int) -> list[str]:
        raise AssertionError(host)

    for url in ("http://localhost/", "http://a.example:22/", "http://10.0.0.1/", "http://1.1.1.1/"):
        await check(url, policy=EgressPolicy(), resolver=resolve)
    assert not (await check("https://a.example/", policy=EgressPolicy(allow_hosts=[]), resolver=resolve)).allowed


async def test_a_rule_that_asks_still_looks_at_the_addresses() -> None:
    async def resolve(host: str, _port: int) -> list[str]:
        return ["10.0.0.1"] if host == "inside.example" else ["93.184.216.34"]

    policy = EgressPolicy(ask_hosts=["*.example"])
    assert (await check("https://a.example/", policy=policy, resolver=resolve)).action == "ask"
    assert (await check("https://inside.example/", policy=policy, resolver=resolve)).action == "deny"
