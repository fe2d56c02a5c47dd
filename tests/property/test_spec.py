"""
`SandboxSpec.tighten` only ever takes away.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from sandboxkit.guard import EgressPolicy, Url
from sandboxkit.model import (
    Access,
    Control,
    EgressRule,
    EnvironmentPolicy,
    FilesystemPolicy,
    Grade,
    Limits,
    NetworkPolicy,
    ProcessPolicy,
    SandboxSpec,
    SecretInjection,
    access_of,
)

PATHS = ["/", *("/" + "/".join(names) for length in (1, 2, 3) for names in product("ab", repeat=length))]
"""Enough to hold every order of nested paths."""
GLOBS = ["glob:/a/*", "glob:/**/b", "glob:/a/b/[ab]"]
NAMES = ["A", "AB", "ABC", "B", "PATH", "PATHS"]
PATTERNS = [*NAMES, "*", "A*", "AB*", "P*"]
SETS = ["shell-rc", "ide", "ci"]
MIB = 1 << 20

paths = st.lists(st.sampled_from(PATHS), max_size=4)
filesystems = st.builds(
    FilesystemPolicy,
    base=st.sampled_from(["system", "tools"]),
    read=paths,
    write=paths,
    deny=st.builds(lambda plain, patterns: plain + patterns, paths, st.lists(st.sampled_from(GLOBS), max_size=2)),
    protect=st.frozensets(st.sampled_from(SETS)),
    tmp_bytes=st.integers(MIB, 4 * MIB),
    allow_host_interpreter_writes=st.booleans(),
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "wall": st.none() | st.floats(0.5, 900),
        "cpu": st.none() | st.floats(0.5, 900),
        "memory_bytes": st.none() | st.integers(32 * MIB, 8192 * MIB),
        "processes": st.none() | st.integers(1, 1000),
        "file_size_bytes": st.none() | st.integers(0, 1 << 40),
        "open_files": st.integers(16, 4096),
        "max_output_bytes": st.integers(0, 1 << 30),
    },
).map(Limits.model_validate)
environments = st.builds(
    EnvironmentPolicy,
    inherit=st.lists(st.sampled_from(PATTERNS), max_size=4),
    set=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["1", "2"]), max_size=3),
)
processes = st.builds(ProcessPolicy, allow_nested_userns=st.booleans(), allow_ptrace=st.booleans(), tty=st.booleans())
KEY = SecretInjection(secret="K", to="a.test.dev")
NETWORKS = [
    *(NetworkPolicy(mode=mode) for mode in ("none", "listed", "host")),
    NetworkPolicy(allow_hosts=("a.test.dev",)),
    NetworkPolicy(allow_hosts=("*.test.dev",), deny_hosts=("a.test.dev",)),
    NetworkPolicy(allow_hosts=("**.test.dev:81",), ask_hosts=("b.a.test.dev",)),
    NetworkPolicy(allow_hosts=("https://a.test.dev",), permit_networks=("10.0.0.0/8",)),
    NetworkPolicy(allow_hosts=("a.test.dev/x", "10.0.0.1"), permit_networks=("10.0.0.0/24",)),
    NetworkPolicy(ask_hosts=("a.test.dev/x", "a.test.dev:81"), permit_hosts=("a",)),
    NetworkPolicy(rules=(EgressRule(action="allow", to="**", methods=("GET",)),), permit_hosts=("a",)),
    NetworkPolicy(allow_hosts=("**",)),
    NetworkPolicy(allow_hosts=("**",), blocked_ports=(81,)),
    NetworkPolicy(allow_hosts=("**",), blocked_ports=()),
    NetworkPolicy(allow_hosts=("a.test.dev/x", "https://b.a.test.dev/x"), intercept=True),
    NetworkPolicy(allow_hosts=("**.test.dev",), inject=(KEY,)),
    NetworkPolicy(allow_hosts=("a.test.dev",), inject=(KEY, SecretInjection(secret="K", to="a.test.dev/x"))),
]
specs = st.builds(
    SandboxSpec,
    filesystem=filesystems,
    network=st.sampled_from(NETWORKS),
    limits=limits,
    environment=environments,
    process=processes,
    require=st.dictionaries(st.sampled_from(list(Control)), st.sampled_from(list(Grade)), max_size=4),
    allow_degraded=st.frozensets(st.sampled_from(list(Control)), max_size=3),
)


def _at_most(one: float | None, other: float | None) -> bool:
    return other is None or (one is not None and one <= other)


def _sees_at_most(one: FilesystemPolicy, other: FilesystemPolicy) -> bool:
    bases = ["system", "tools"]
    mine, theirs = one.tree(), other.tree()
    return (
        all(access_of(path, mine) <= access_of(path, theirs) for path in PATHS)
        and bases.index(one.base) <= bases.index(other.base)
        and one.protect >= other.protect
        and set(one.denied_patterns()) >= set(other.denied_patterns())
        and one.tmp_bytes <= other.tmp_bytes
        and one.allow_host_interpreter_writes <= other.allow_host_interpreter_writes
    )


SCHEMES: tuple[tuple[Literal["http", "https"], int], ...] = (("http", 80), ("https", 81))
HOSTS = (("a.test.dev", "/"), ("a.test.dev", "/x"), ("b.a.test.dev", "/x/%2F"), ("a", "/"), ("10.0.0.1", "/"))
PLACES = [Url(scheme, host, port, path) for scheme, port in SCHEMES for host, path in HOSTS]
STRICTNESS = ["deny", "ask", "allow"]


@cache
def _answers(network: NetworkPolicy) -> list[int]:
    """
    How freely *network*, of lists, answers: requests, tunnels and addresses.
    """
    policy = EgressPolicy.of_network(network)
    verdicts = [policy.judge(["10.0.0.1"]), policy.judge(["10.1.0.1"])]
    for url in PLACES:
        is_seen = url.scheme == "http" or network.intercepts
        unseen = policy.decide_tunnel(url.host, url.port, scheme="https")
        verdicts += [policy.decide(url, method=method) if is_seen else unseen for method in ("GET", "PUT")]
        verdicts.append(policy.decide_inspected(url.host, url.port) if network.intercepts else unseen)
        verdicts += [policy.decide_tunnel(url.host, url.port, scheme=scheme) for scheme in (None, "https")]
    return [STRICTNESS.index(verdict.action) for verdict in verdicts]


def _reaches_at_most(one: NetworkPolicy, other: NetworkPolicy) -> bool:
    modes = ["none", "listed", "host"]
    if one.mode != "listed" or other.mode != "listed":
        return modes.index(one.mode) <= modes.index(other.mode)
    if not set(one.inject) <= set(other.inject):
        return False
    return all(mine <= theirs for mine, theirs in zip(_answers(one), _answers(other), strict=True))


def allows_at_most(one: SandboxSpec, other: SandboxSpec) -> bool:
    """
    Whether *one* allows nothing that *other* does not, and requires all that it does.
    """
    needed = one.requirements()
    if Control.NET_NONE in needed:
        # Nothing is reached, and so nothing that is not listed, and nothing that nobody sees.
        needed[Control.NET_ALLOWLIST] = needed[Control.NET_INTERCEPT] = Grade.ENFORCED
    return (
        _sees_at_most(one.filesystem, other.filesystem)
        and _reaches_at_most(one.network, other.network)
        and all(_at_most(getattr(one.limits, name), getattr(other.limits, name)) for name in Limits.model_fields)
        and all(one.environment.inherits(name) <= other.environment.inherits(name) for name in NAMES)
        and one.environment.set.items() <= other.environment.set.items()
        and one.process.allow_nested_userns <= other.process.allow_nested_userns
        and one.process.allow_ptrace <= other.process.allow_ptrace
        and one.process.tty <= other.process.tty
        and all(needed.get(control, Grade.ABSENT) >= grade for control, grade in other.requirements().items())
        and one.allow_degraded <= other.allow_degraded
    )


def same(one: SandboxSpec, other: SandboxSpec) -> bool:
    """
    Whether both are equal, and were given the same names of limits, which equality ignores.
    """
    return one == other and one.requirements() == other.requirements()


@given(specs)
def test_the_order_is_reflexive(spec: SandboxSpec) -> None:
    assert allows_at_most(spec, spec)


@given(specs, specs)
def test_tightening_allows_only_what_both_allow(one: SandboxSpec, other: SandboxSpec) -> None:
    tight = one.tighten(other)
    assert allows_at_most(tight, one)
    assert allows_at_most(tight, other)


@given(specs, specs)
def test_tightening_is_commutative(one: SandboxSpec, other: SandboxSpec) -> None:
    assert same(one.tighten(other), other.tighten(one))


@given(specs)
def test_tightening_by_itself_changes_nothing(spec: SandboxSpec) -> None:
    tight = spec.tighten(spec)
    assert allows_at_most(spec, tight)
    assert same(tight, tight.tighten(tight))


@given(specs, specs)
def test_tightening_twice_is_tightening_once(one: SandboxSpec, other: SandboxSpec) -> None:
    tight = one.tighten(other)
    assert same(tight.tighten(other), tight)
    assert same(tight.tighten(one), tight)


@given(specs, specs, specs)
def test_tightening_is_associative(one: SandboxSpec, two: SandboxSpec, three: SandboxSpec) -> None:
    assert same(one.tighten(two).tighten(three), one.tighten(two.tighten(three)))


@given(specs, specs, specs)
def test_tightening_is_monotone(one: SandboxSpec, two: SandboxSpec, other: SandboxSpec) -> None:
    narrow = one.tighten(two)
    assert allows_at_most(narrow.tighten(other), one.tighten(other))


@given(specs)
def test_a_spec_survives_its_json_form(spec: SandboxSpec) -> None:
    again = SandboxSpec.from_dict(spec.model_dump(mode="json", exclude_unset=True))
    assert same(again, spec)


@given(st.sampled_from(PATHS), filesystems, filesystems)
def test_an_unlisted_path_of_either_is_listed_by_neither(
    path: str, one: FilesystemPolicy, other: FilesystemPolicy
) -> None:
    tight = access_of(path, one.tighten(other).tree())
    lesser = min(access_of(path, one.tree()), access_of(path, other.tree()))
    assert tight <= lesser
    assert tight == lesser or (lesser is Access.UNLISTED and tight is Access.DENY)
