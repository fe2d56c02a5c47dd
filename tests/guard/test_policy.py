"""
Rules, their precedence, and the tables that stand beside them.
"""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from sandboxkit import EgressPolicy, EgressRule, PolicyError, canonical_url
from sandboxkit.guard import HostPattern, Verdict


def decide(policy: EgressPolicy, text: str, method: str = "GET") -> Verdict:
    return policy.decide(canonical_url(text), method=method)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("example.com", "example.com", "a.example.com"),
        ("*.example.com", "a.example.com", "example.com"),
        ("*.example.com", "b.example.com", "a.b.example.com"),
        ("**.example.com", "a.b.example.com", "example.com"),
        ("**.example.com", "a.example.com", "aexample.com"),
        ("Example.COM.", "example.com", "example.com.evil.example"),
        ("münchen.example", "xn--mnchen-3ya.example", "munchen.example"),
        ("1.2.3.4", "1.2.3.4", "1.2.3.5"),
        ("[::1]", "::1", "::2"),
        ("**", "1.2.3.4", ""),
        ("*", "localhost", "example.com"),
        ("*", "a", "1.2.3.4"),
    ],
)
def test_patterns(pattern: str, yes: str, no: str) -> None:
    parsed = HostPattern.parse(pattern)
    assert parsed.matches(yes)
    assert not no or not parsed.matches(no)
    assert HostPattern.parse(str(parsed)) == parsed


def test_a_pattern_may_name_scheme_and_port() -> None:
    parsed = HostPattern.parse("https://*.example.com:8443")
    assert parsed == HostPattern("example.com", 1, "https", 8443)
    assert str(parsed) == "https://*.example.com:8443"
    assert parsed.matches("a.example.com", scheme="https", port=8443)
    assert not parsed.matches("a.example.com", scheme="http", port=8443)
    assert not parsed.matches("a.example.com", scheme="https", port=443)
    assert not parsed.matches("a.example.com")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b",
        "*.",
        "**.",
        "*.*.example.com",
        "a.*.example.com",
        "*example.com",
        "***.a.example",
        "ftp://a.example",
        "a.example:0",
        "a.example:65536",
        "a.example:x",
        "*.1.2.3.4",
        "*.[::1]",
        "::1",
        "127.1",
        "user@a.example",
        "a..example",
        "https://",
    ],
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"pattern|label|host|wildcard|port|octets|brackets"):
        HostPattern.parse(text)


def test_deny_beats_ask_beats_allow_in_any_order() -> None:
    rules = [
        EgressRule(action="allow", to="**.example.com", id="a"),
        EgressRule(action="ask", to="*.example.com", id="b"),
        EgressRule(action="deny", to="secret.example.com", id="c", reason="not for agents"),
    ]
    for order in (rules, rules[::-1]):
        policy = EgressPolicy(rules=order, default="deny")
        assert decide(policy, "https://a.b.example.com/").rule == "a"
        assert decide(policy, "https://a.example.com/") == Verdict("ask", "a rule asks about *.example.com", "ask", "b")
        assert decide(policy, "https://secret.example.com/") == Verdict(
            "deny", "a rule denies secret.example.com: not for agents", "rule", "c"
        )
        assert decide(policy, "https://other.example/") == Verdict(
            "deny", "no rule allows it", "default", None, "rules"
        )


def test_an_empty_allow_list_allows_nothing() -> None:
    assert decide(EgressPolicy(), "https://example.com/").allowed
    assert not decide(EgressPolicy(allow_hosts=()), "https://example.com/").allowed
    assert EgressPolicy(allow_hosts=()).default == "deny"


def test_the_short_keys_are_rules() -> None:
    short = EgressPolicy(allow_hosts=["a.example"], ask_hosts=["b.example"], deny_hosts=["c.example"])
    assert [(rule.action, rule.to) for rule in short.rules] == [
        ("allow", "a.example"),
        ("ask", "b.example"),
        ("deny", "c.example"),
    ]
    assert EgressPolicy(**short.model_dump()) == short
    assert EgressPolicy.model_validate_json(short.model_dump_json()) == short


def test_deny_hosts_alone_leave_the_default() -> None:
    policy = EgressPolicy(deny_hosts=["*.example.com"])
    assert not decide(policy, "https://a.example.com/").allowed
    assert decide(policy, "https://example.com/").allowed


@pytest.mark.parametrize(
    "host", ["localhost", "a.localhost", "x.internal", "kubernetes", "a.b.svc.cluster.local", "x.onion", "nas.home"]
)
def test_reserved_names_are_lifted_one_by_one(host: str) -> None:
    verdict = decide(EgressPolicy(allow_hosts=[host]), f"http://{host}/")
    assert (verdict.action, verdict.code, verdict.setting) == ("deny", "name", "permit_hosts")
    assert decide(EgressPolicy(permit_hosts=[host]), f"http://{host}/").allowed
    assert not decide(EgressPolicy(permit_hosts=[host], allow_hosts=()), f"http://{host}/").allowed
    assert not decide(EgressPolicy(permit_hosts=[f"{host}:81"]), f"http://{host}/").allowed


@pytest.mark.parametrize(
    "host", ["admin.example.com", "vault.example.com", "internals.example", "local.example.com", "xlocal.example"]
)
def test_public_names_are_not_judged_by_their_spelling(host: str) -> None:
    assert decide(EgressPolicy(), f"http://{host}/").allowed


def test_first_labels_can_be_reserved() -> None:
    policy = EgressPolicy(reserved_first_labels=["admin"])
    assert not decide(policy, "https://admin.example.com/").allowed
    assert decide(policy, "https://administrator.example.com/").allowed


def test_ports_are_blocked_on_every_host_until_the_table_changes() -> None:
    verdict = decide(EgressPolicy(allow_hosts=["a.example"]), "http://a.example:22/")
    assert (verdict.code, verdict.setting) == ("port", "blocked_ports")
    assert decide(EgressPolicy(blocked_ports=()), "http://a.example:22/").allowed


def test_paths_and_methods() -> None:
    policy = EgressPolicy(
        rules=[
            {"action": "allow", "to": "https://api.example.com/v1/", "methods": ["GET", "HEAD"]},
            {"action": "deny", "to": "api.example.com/v1/admin"},
        ],
        default="deny",
    )
    url = "https://api.example.com/v1/"
    assert decide(policy, url).allowed
    assert decide(policy, url + "things?x=../admin").allowed
    assert not decide(policy, url, "POST").allowed
    assert not decide(policy, "http://api.example.com/v1/").allowed
    assert not decide(policy, "https://api.example.com/v10").allowed
    for denied in ("admin", "admin/x", "x/../admin", "%61dmin", "x/%2e%2e/admin"):
        assert decide(policy, url + denied).code == "rule", denied
    assert decide(policy, url + "administrators").allowed


@pytest.mark.parametrize("path", ["a%2f..%2fadmin", "a%5c..%5cadmin", "a//admin", "admin;x", "%252e%252e/admin"])
def test_about_a_path_that_servers_read_differently_rules_are_strict(path: str) -> None:
    allow = EgressPolicy(rules=[{"action": "allow", "to": "a.example/v1"}], default="deny")
    deny = EgressPolicy(rules=[{"action": "deny", "to": "a.example/v1/admin"}])
    assert not decide(allow, f"https://a.example/v1/{path}").allowed
    assert not decide(deny, f"https://a.example/v1/{path}").allowed
    assert decide(deny, f"https://b.example/v1/{path}").allowed
    assert decide(EgressPolicy(allow_hosts=["a.example"]), f"https://a.example/v1/{path}").allowed


def test_a_method_in_small_letters_is_refused_like_the_one_in_capitals() -> None:
    policy = EgressPolicy(
        rules=[
            {"action": "deny", "to": "a.example", "methods": ["DELETE"]},
            {"action": "ask", "to": "a.example", "methods": ["POST"]},
            {"action": "allow", "to": "a.example", "methods": ["GET", "PUT"]},
        ],
        default="deny",
    )
    said = {method: policy.decide(canonical_url("http://a.example/"), method=method).action for method in METHODS}
    assert said == {
        **dict.fromkeys(("GET", "PUT"), "allow"),
        **dict.fromkeys(("POST", "post", "Post"), "ask"),
        **dict.fromkeys(("DELETE", "delete", "get", "PATCH"), "deny"),
    }


METHODS = ("GET", "PUT", "POST", "post", "Post", "DELETE", "delete", "get", "PATCH")


def test_a_tunnel_hides_paths_methods_and_schemes() -> None:
    def tunnel(scheme: str | None = None, **fields: Any) -> Verdict:
        return EgressPolicy(default="deny", rules=[fields]).decide_tunnel("a.example", 443, scheme=scheme)

    assert tunnel(action="allow", to="a.example").allowed
    assert not tunnel(action="allow", to="a.example/v1").allowed
    assert not tunnel(action="allow", to="a.example", methods=["GET"]).allowed
    assert not tunnel(action="allow", to="https://a.example").allowed
    assert tunnel("https", action="allow", to="https://a.example").allowed
    denied = EgressPolicy(rules=[{"action": "deny", "to": "http://a.example/x"}]).decide_tunnel("a.example", 443)
    assert denied.reason == "a rule denies http://a.example/x; it looks at requests, which a tunnel hides"
    assert tunnel(action="ask", to="a.example", methods=["POST"]).action == "ask"
    assert EgressPolicy().decide_tunnel("localhost", 443).code == "name"
    assert EgressPolicy().decide_tunnel("a.example", 22).code == "port"


def test_one_bad_address_refuses_the_name() -> None:
    assert EgressPolicy().judge(["93.184.216.34", "2606:4700::1"]).allowed
    assert EgressPolicy().judge(["93.184.216.34", "10.0.0.1"]).reason == "it is in 10.0.0.0/8: private use"
    assert EgressPolicy().judge([]).code == "dns"


def test_own_addresses_may_be_known_only_later() -> None:
    own = [ipaddress.ip_address("93.184.216.34")]
    policy = EgressPolicy(nat64=True)
    for text in ("93.184.216.34", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"):
        assert policy.judge([text], own=own).reason == "it is an address of this machine"
        assert policy.judge([text]).allowed
    assert policy.judge(["93.184.216.35"], own=own).allowed


def test_every_problem_is_listed_with_its_place() -> None:
    fields: dict[str, Any] = {
        "rules": [{"action": "alow", "to": "a.example"}, {"action": "deny", "to": "127.1"}],
        "permit_networks": ["10.0.0.1", "10.0.0.1/8"],
        "blocked_ports": [0],
        "reserved_suffixes": ["1.2.3.4"],
        "nonsense": 1,
    }
    with pytest.raises(PolicyError) as refused:
        EgressPolicy(**fields)
    text = str(refused.value)
    for place in (
        "rules[0].action",
        "rules[1].to",
        "permit_networks[0]",
        "permit_networks[1]",
        "blocked_ports[0]",
        "reserved_suffixes[0]",
        "nonsense",
    ):
        assert place in text, text


@pytest.mark.parametrize(
    "fields",
    [
        {"allow_hosts": [], "default": "public"},
        {"allow_hosts": "a.example"},
        {"rules": [{"action": "allow", "to": "a.example/v1?x"}]},
    ]
    + [{"rules": [{"action": "allow", "to": "a.example", "methods": methods}]} for methods in ([], ["get"])]
    + [{"rules": [{"action": "allow", "to": f"a.example/{path}"}]} for path in ("a//b", "a%2fb", "*", "ä")],
)
def test_what_contradicts_itself_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        EgressPolicy(**fields)


def test_wildcards_over_names_of_strangers_are_pointed_out() -> None:
    broad = EgressPolicy(
        allow_hosts=["**", "*.com", "*.co.uk", "**.github.io"], permit_hosts=["*"], permit_networks=["0.0.0.0/0"]
    )
    assert len(broad.warnings()) == 6
    assert EgressPolicy(allow_hosts=["*.example.com", "a.github.io"], deny_hosts=["**"]).warnings() == ()


def test_many_rules_cost_no_more_than_a_few() -> None:
    policy = EgressPolicy(allow_hosts=[f"h{number}.example" for number in range(10_000)])
    assert decide(policy, "https://h9999.example/").allowed
    assert len(policy._index._near("h9999.example")) == 1


@pytest.mark.parametrize(
    "tail",
    [
        "a/../b",
        "a/%2e%2e/b",
        "a/%2E%2E%2fb",
        "a/..%2fb",
        "a/..%5Cb",
        "a/%252e%252e%252fb",
        "a/..",
        "?file=../../x",
        "..;/../b",
    ],
)
def test_dot_segments_are_refused_where_an_operator_wants_that(tail: str) -> None:
    url = canonical_url(f"https://a.example/{tail}")
    assert EgressPolicy().decide(url).allowed
    refused = EgressPolicy(deny_path_traversal=True).decide(url)
    assert (refused.action, refused.code, refused.setting) == ("deny", "url", "deny_path_traversal")


@pytest.mark.parametrize("tail", ["", "a..b/c", "a/...", "v1.0/x", "?q=a..b", "..a/b"])
def test_other_dots_are_no_dot_segments(tail: str) -> None:
    assert EgressPolicy(deny_path_traversal=True).decide(canonical_url(f"https://a.example/{tail}")).allowed


@pytest.mark.parametrize(
    "path", ["etc/passwd", "x/etc/passwd", "%65tc/passwd", "x%2Fetc%2Fpasswd", "x%252fetc%252fp", "x%5Cetc%5Cp"]
)
def test_texts_in_paths_are_refused_where_an_operator_wants_that(path: str) -> None:
    url = canonical_url(f"https://a.example/{path}")
    assert EgressPolicy().decide(url).allowed
    refused = EgressPolicy(deny_paths=["/etc/", "/proc/"]).decide(url)
    assert (refused.action, refused.reason, refused.setting) == ("deny", "deny_paths has /etc/", "deny_paths")
    assert EgressPolicy(deny_paths=["/etc/"]).decide(canonical_url("https://a.example/fetch?x=/etc/")).allowed


def test_how_a_url_was_written_is_no_part_of_it() -> None:
    one, other = canonical_url("https://a.example/x/../y"), canonical_url("https://a.example/y")
    assert one == other
    assert hash(one) == hash(other)
    assert "raw" not in repr(one)
