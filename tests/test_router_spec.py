"""
The box of a run: a caller's spec is never widened, a rule bounds what it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from tests.property.test_spec import specs

from sandboxkit.model import (
    Access,
    Control,
    EnvironmentPolicy,
    FilesystemPolicy,
    Limits,
    NetworkPolicy,
    PolicyAction,
    PolicyEvaluation,
    SandboxSpec,
    access_of,
)
from sandboxkit.router._spec import _completed, effective_spec, preset, protected
from sandboxkit.shell import parse

if TYPE_CHECKING:
    from pathlib import Path


def evaluation(spec: SandboxSpec | None = None, action: PolicyAction = PolicyAction.SANDBOX) -> PolicyEvaluation:
    return PolicyEvaluation(action, "because", parse("make"), spec=spec)


ONLINE = SandboxSpec(network=NetworkPolicy(mode="host"))
CALLER = SandboxSpec(filesystem=FilesystemPolicy(write=("/w",)), limits=Limits(wall=30))


def test_without_specs_a_command_writes_its_directory(tmp_path: Path) -> None:
    assert effective_spec(evaluation(), None, str(tmp_path)) == SandboxSpec.workspace_write(tmp_path)


def test_without_specs_what_is_allowed_only_reads(tmp_path: Path) -> None:
    found = effective_spec(evaluation(action=PolicyAction.ALLOW), None, str(tmp_path))
    assert found == SandboxSpec.read_only(tmp_path) == preset(PolicyAction.ALLOW, str(tmp_path))


def test_a_callers_spec_is_kept_as_it_is() -> None:
    assert effective_spec(evaluation(action=PolicyAction.ALLOW), CALLER, "/elsewhere") is CALLER


def test_a_rules_spec_replaces_what_it_names_of_the_preset(tmp_path: Path) -> None:
    found = effective_spec(evaluation(ONLINE), None, str(tmp_path))
    assert found.network.mode == "host"
    assert found.filesystem == SandboxSpec.workspace_write(tmp_path).filesystem
    assert found.limits.model_fields_set == set()


def test_a_rules_spec_never_widens_the_callers() -> None:
    assert effective_spec(evaluation(ONLINE), CALLER, "/").network.mode == "none"


def test_what_a_rule_does_not_name_stays_the_callers() -> None:
    found = effective_spec(evaluation(SandboxSpec(limits=Limits(memory_bytes=1 << 30))), CALLER, "/")
    assert found == SandboxSpec(filesystem=CALLER.filesystem, limits=Limits(wall=30, memory_bytes=1 << 30))
    assert found.limits.model_fields_set == {"wall", "memory_bytes"}


def test_what_a_rule_names_is_a_ceiling() -> None:
    rule = SandboxSpec(filesystem=FilesystemPolicy(deny=("/w/secret",)), limits=Limits(wall=5))
    found = effective_spec(evaluation(rule), CALLER, "/")
    assert found.filesystem.write == ("/w",)
    assert found.filesystem.deny == ("/w/secret",)
    assert found.limits.wall == 5


def test_two_rules_that_open_the_network_bound_nothing_else() -> None:
    both = ONLINE.tighten(SandboxSpec(network=NetworkPolicy(mode="host")))
    caller = SandboxSpec(filesystem=FilesystemPolicy(write=("/w",)), network=NetworkPolicy(mode="host"))
    assert effective_spec(evaluation(both), caller, "/") == caller


@given(specs, specs)
def test_no_rule_ever_widens_a_callers_spec(rule: SandboxSpec, caller: SandboxSpec) -> None:
    found = effective_spec(evaluation(rule), caller, "/")
    assert found.tighten(caller) == found
    assert caller.requirements().items() <= {**found.requirements(), **caller.requirements()}.items()
    without = {Control.NET_ALLOWLIST, Control.NET_INTERCEPT} if found.network.mode == "none" else set()
    for control, grade in caller.requirements().items():
        if control in without:
            continue  # a list of hosts says nothing where there is no network
        if control in found.requirements():
            assert found.requirements()[control] >= grade
        else:
            assert control in {Control.NET_NONE, Control.PROCESS_NESTED_USERNS} or control in found.allow_degraded


@given(specs, specs)
def test_a_rules_ceiling_holds(rule: SandboxSpec, caller: SandboxSpec) -> None:
    found = effective_spec(evaluation(rule), caller, "/")
    assert found.tighten(_completed(rule, caller)) == found


def test_protected_files_become_read_only_where_they_are_writable() -> None:
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=("/w", "/w/file"), read=("/r",), deny=("/w/no",)))
    found = protected(spec, ["/w/a/audit", "/r/rules", "/w/no/rules", "/elsewhere", "/w/file"])
    assert found.filesystem.read == ("/r", "/w/a/audit", "/w/file")
    assert found.filesystem.write == ("/w",)
    assert found.filesystem.deny == ("/w/no",)
    assert found.filesystem.base == spec.filesystem.base
    assert found.limits.model_fields_set == set()


def test_without_protected_files_inside_nothing_changes() -> None:
    assert protected(CALLER, ["/elsewhere/audit"]) is CALLER


@given(specs)
def test_protecting_never_widens(spec: SandboxSpec) -> None:
    found = protected(spec, ["/a/b/c", "/b"])
    tree = found.filesystem.tree()
    assert found.tighten(spec) == found.tighten(found)
    assert all(access_of(path, tree) is not Access.WRITE for path in ("/a/b/c", "/b"))


@pytest.mark.parametrize("environment", [EnvironmentPolicy(set={"A": "1"}), EnvironmentPolicy(inherit=("PATH",))])
def test_a_rules_environment_is_a_base_too(environment: EnvironmentPolicy, tmp_path: Path) -> None:
    found = effective_spec(evaluation(SandboxSpec(environment=environment)), None, str(tmp_path))
    assert found.environment == environment
