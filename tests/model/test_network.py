"""
What a spec says about the network, and what becomes of it where two meet.
"""

from __future__ import annotations

import pytest

from sandboxkit import EgressPolicy, EgressRule, NetworkPolicy, SandboxSpec, SecretInjection, SpecError
from sandboxkit.guard import canonical_url
from sandboxkit.model import Control, Grade

PYPI = NetworkPolicy(allow_hosts=("packages.example.org:443", "*.files.example.org"))


def test_naming_a_list_lists_hosts() -> None:
    assert PYPI.mode == "listed"
    assert NetworkPolicy(allow_hosts=()).mode == "listed"
    assert NetworkPolicy().mode == "none"
    assert SandboxSpec(network=PYPI).requirements()[Control.NET_ALLOWLIST] is Grade.ENFORCED
    assert Control.NET_NONE not in SandboxSpec(network=PYPI).requirements()


@pytest.mark.parametrize("network", [NetworkPolicy(allow_hosts=()), NetworkPolicy(mode="listed"), NetworkPolicy(deny_hosts=("a.example.org",))])  # fmt: skip
def test_what_is_not_allowed_is_denied(network: NetworkPolicy) -> None:
    assert EgressPolicy.of_network(network).decide(canonical_url("https://example.org/")).code == "default"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"mode": "none", "allow_hosts": ["a.example"]}, "allow_hosts: mode 'none' has no lists"),
        ({"mode": "host", "rules": []}, "rules: mode 'host' has no lists"),
        ({"allow_hosts": "a.example"}, "allow_hosts: must be a list"),
        ({"allow_hosts": ["a b"]}, "allow_hosts[0]: 'a b': a host has labels"),
        ({"ask_hosts": ["a.example?x"]}, "ask_hosts[0]"),
        ({"permit_networks": ["10.0.0.1"]}, "permit_networks[0]: '10.0.0.1' has no prefix length"),
        ({"permit_networks": ["10.0.0.1/8"]}, "permit_networks[0]: 10.0.0.1/8 has host bits set"),
        ({"permit_hosts": ["a/b"]}, "permit_hosts[0]"),
        ({"rules": [{"action": "allow", "to": "a.example", "methods": []}]}, "rules[0].methods"),
        ({"within": [{"mode": "none"}]}, "within: each of them has lists"),
        ({"blocked_ports": [0]}, "blocked_ports[0]: must be greater than or equal to 1"),
        ({"inject": [{"secret": "KEY", "to": "*.example"}]}, "inject[0].to: '*.example' must be one host"),
        ({"inject": [{"secret": "s3cr=t", "to": "a.example"}]}, "inject[0].secret: a secret's name is"),
        ({"inject": [{"secret": "my.key", "to": "a.example"}]}, "inject[0]: variable: 'my.key' is no variable"),
        ({"inject": [{"secret": "KEY", "to": "a.example"}], "intercept": False}, "inject: a secret is put in where"),
        (
            {"inject": [{"secret": "A", "to": "a.example"}, {"secret": "B", "to": "a.example", "variable": "A"}]},
            "inject: the variable A would hold two placeholders",
        ),
        ({"within": [{"inject": [{"secret": "A", "to": "a.example"}]}]}, "within: each of them has lists"),
        ({"mode": "none", "intercept": True}, "intercept: mode 'none' has no lists"),
        ({"allow_host": ["a.example"]}, "allow_host: there is no such key; did you mean 'allow_hosts'?"),
    ],
)
def test_what_is_wrong_is_said(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        SandboxSpec.from_dict({"network": fields})
    assert any(found.removeprefix("network").removeprefix(".").removeprefix(": ").startswith(problem) for found in caught.value.problems), caught.value  # fmt: skip


def test_it_survives_a_file(tmp_path: object) -> None:
    rules = (EgressRule(action="allow", to="a.example/x", methods=("GET",), reason="why"),)
    spec = SandboxSpec(
        network=NetworkPolicy(rules=rules, permit_networks=("10.0.0.0/8", "::1/128")).tighten(
            NetworkPolicy(allow_hosts=("**",), permit_hosts=("localhost",))
        )
    )
    path = f"{tmp_path}/box.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(spec.to_toml())
    assert SandboxSpec.from_file(path) == spec


INJECTING = NetworkPolicy(
    allow_hosts=("https://a.example",),
    inject=(SecretInjection(secret="KEY", to="a.example/v1"),),
    blocked_ports=(8443,),
)


def test_secrets_switch_interception_on() -> None:
    assert INJECTING.mode == "listed"
    assert INJECTING.intercept
    needed = SandboxSpec(network=INJECTING).requirements()
    assert needed[Control.NET_INTERCEPT] is Grade.ENFORCED
    assert Control.NET_INTERCEPT not in SandboxSpec(network=PYPI).requirements()


@pytest.mark.parametrize("other", [INJECTING, PYPI, NetworkPolicy(allow_hosts=("**",), inject=INJECTING.inject)])
def test_secrets_survive_a_file_and_meet_only_themselves(other: NetworkPolicy, tmp_path: object) -> None:
    both = INJECTING.tighten(other)
    assert both.inject == (INJECTING.inject if other.inject else ())
    assert both.intercepts
    path = f"{tmp_path}/box.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(SandboxSpec(network=both).to_toml())
    assert SandboxSpec.from_file(path).network == both
    assert both.tighten(both) == both


def test_ports_are_blocked_as_a_policy_blocks_them() -> None:
    hosts = ("**.example.org",)
    usual = EgressPolicy.of_network(NetworkPolicy(allow_hosts=hosts))
    assert usual.decide_tunnel("a.example.org", 6379).setting == "blocked_ports"
    none = NetworkPolicy(allow_hosts=hosts, blocked_ports=())
    assert EgressPolicy.of_network(none).decide_tunnel("a.example.org", 6379).allowed
    own = NetworkPolicy(allow_hosts=hosts, blocked_ports=(8443, 80, 80))
    assert own.blocked_ports == (80, 8443)
    assert not EgressPolicy.of_network(own).decide_tunnel("a.example.org", 8443).allowed
    both = EgressPolicy.of_network(none.tighten(own))
    assert [both.decide_tunnel("a.example.org", port).allowed for port in (80, 6379, 8443)] == [False, True, False]


def test_lists_that_were_written_for_tunnels_allow_no_more_because_another_looks_inside() -> None:
    unseen = NetworkPolicy(allow_hosts=("https://a.example.org/v1", "https://b.example.org"))
    both = unseen.tighten(NetworkPolicy(allow_hosts=("**.example.org",), intercept=True))
    policy = EgressPolicy.of_network(both)
    assert not policy.decide(canonical_url("https://a.example.org/v1")).allowed
    assert not policy.decide_inspected("a.example.org", 443).allowed
    assert policy.decide(canonical_url("https://b.example.org/v1")).allowed
    seeing = EgressPolicy.of_network(unseen.model_copy(update={"intercept": True}))
    assert seeing.decide(canonical_url("https://a.example.org/v1")).allowed


def test_two_lists_both_must_allow() -> None:
    other = NetworkPolicy(allow_hosts=("**.files.example.org",), ask_hosts=("packages.example.org",))
    both = PYPI.tighten(other)
    policy = EgressPolicy.of_network(both)
    decided = {
        host: policy.decide_tunnel(host, 443).action
        for host in ("packages.example.org", "a.files.example.org", "a.b.files.example.org", "example.org")
    }
    assert decided == {
        "packages.example.org": "ask",
        "a.files.example.org": "allow",
        "a.b.files.example.org": "deny",
        "example.org": "deny",
    }
    assert both == other.tighten(PYPI)
    assert both.tighten(PYPI) == both


@pytest.mark.parametrize(("mode", "expected"), [("none", "none"), ("host", "listed")])
def test_the_lesser_mode_counts(mode: str, expected: str) -> None:
    found = PYPI.tighten(NetworkPolicy.model_validate({"mode": mode}))
    assert found.mode == expected
    assert found == (PYPI if expected == "listed" else NetworkPolicy())


def test_switching_off_does_not_lift_the_list() -> None:
    off = SandboxSpec(allow_degraded=frozenset({Control.NET_NONE}))
    listed = SandboxSpec(network=PYPI, allow_degraded=frozenset({Control.NET_NONE}))
    assert Control.NET_NONE in off.tighten(listed).requirements()
    both = frozenset({Control.NET_NONE, Control.NET_ALLOWLIST})
    loose = SandboxSpec(network=PYPI, allow_degraded=both)
    assert Control.NET_NONE not in SandboxSpec(allow_degraded=both).tighten(loose).requirements()
