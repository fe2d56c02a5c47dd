"""
Rules only ever add strictness where they deny or ask, and only add reach where they allow.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandboxkit import EgressPolicy, EgressRule
from sandboxkit.guard import Url

ORDER = ("deny", "ask", "allow")
HOSTS = st.sampled_from(["example.com", "a.example.com", "b.a.example.com", "other.example", "1.1.1.1"])
URLS = st.builds(
    Url,
    st.sampled_from(["http", "https"]),
    HOSTS,
    st.sampled_from([80, 443, 8443, 22]),
    st.sampled_from(["/", "/v1", "/v1/a", "/v1//a", "/v2", "/v1%2Fa"]),
)
TO = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "https://", "http://"]),
    st.one_of(HOSTS, st.sampled_from(["*.example.com", "**.example.com", "**", "*"])),
    st.sampled_from(["", ":443", ":8443"]),
    st.sampled_from(["", "/v1", "/v1/", "/v2"]),
)
METHODS = st.sampled_from([None, ("GET",), ("GET", "POST")])


def rules(actions: tuple[str, ...] = ORDER) -> st.SearchStrategy[EgressRule]:
    return st.builds(EgressRule, action=st.sampled_from(actions), to=TO, methods=METHODS)


MANY = st.lists(rules(), max_size=6)
DEFAULTS = st.sampled_from(["public", "deny"])


@given(MANY, DEFAULTS, rules(("deny", "ask")), URLS, st.sampled_from(["GET", "POST"]))
def test_a_rule_that_denies_or_asks_never_loosens(
    some: list[EgressRule], default: str, more: EgressRule, url: Url, method: str
) -> None:
    before = EgressPolicy(rules=some, default=default).decide(url, method=method)
    after = EgressPolicy(rules=[*some, more], default="deny" if default == "deny" else "public").decide(
        url, method=method
    )
    if default == "deny" and more.action == "ask":
        return  # what nothing allowed may now be asked about
    assert ORDER.index(after.action) <= ORDER.index(before.action)


@given(MANY, DEFAULTS, st.permutations(range(6)), URLS)
def test_the_order_of_rules_does_not_matter(some: list[EgressRule], default: str, order: list[int], url: Url) -> None:
    mixed = [some[index] for index in order if index < len(some)]
    one, other = EgressPolicy(rules=some, default=default), EgressPolicy(rules=mixed, default=default)
    assert one.decide(url).action == other.decide(url).action
    assert one.decide_tunnel(url.host, url.port).action == other.decide_tunnel(url.host, url.port).action


@given(MANY, DEFAULTS, URLS, st.sampled_from(["GET", "POST", "DELETE"]))
def test_a_tunnel_allows_nothing_that_a_request_through_it_is_denied(
    some: list[EgressRule], default: str, url: Url, method: str
) -> None:
    policy = EgressPolicy(rules=some, default=default)
    request = policy.decide(url, method=method)
    for scheme in (None, url.scheme):
        tunnel = policy.decide_tunnel(url.host, url.port, scheme=scheme)
        assert ORDER.index(tunnel.action) <= ORDER.index(request.action) or tunnel.action == "ask"


@given(MANY, URLS)
def test_the_index_finds_what_trying_every_rule_finds(some: list[EgressRule], url: Url) -> None:
    policy = EgressPolicy(rules=some)
    tried = [rule for rule in some if rule.pattern.matches(url.host, scheme=url.scheme, port=url.port)]
    assert policy._index.find(url.host, scheme=url.scheme, port=url.port) == tried
