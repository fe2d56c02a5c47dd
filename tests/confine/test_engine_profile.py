"""
The filter in the words of container engines refuses what the compiled one refuses.
"""

from __future__ import annotations

import errno
import itertools
import json

import pytest

from sandboxkit.confine import ARCHITECTURES, seccomp_profile
from sandboxkit.confine._rules import ALLOW, Rule, rules

VARIANTS = tuple(itertools.product(ARCHITECTURES, (False, True), (False, True)))


def said(rule: Rule) -> tuple[object, ...]:
    """
    A rule of ours, as a row of a profile says it.
    """
    tests = tuple((test.argument, test.mask, test.value) for test in rule.tests)
    return (rule.call.name, None if rule.action == ALLOW else rule.action & 0xFFFF, tests)


@pytest.mark.parametrize(("arch", "ptrace", "userns"), VARIANTS)
def test_every_rule_is_in_the_profile_and_no_other(arch: str, ptrace: bool, userns: bool) -> None:
    made = json.loads(json.dumps(seccomp_profile(arch, allow_ptrace=ptrace, allow_nested_userns=userns)))
    assert (made["defaultAction"], made["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", errno.ENOSYS)
    rows = {
        (name, row.get("errnoRet"), tuple((t["index"], t["value"], t["valueTwo"]) for t in row.get("args", ())))
        for row in made["syscalls"]
        for name in row["names"]
    }
    assert rows == set(map(said, rules(arch, allow_ptrace=ptrace, allow_nested_userns=userns)))


@pytest.mark.parametrize(("arch", "ptrace", "userns"), VARIANTS)
def test_no_row_tests_an_argument_twice(arch: str, ptrace: bool, userns: bool) -> None:
    """
    runc would take each such test for a row of its own, and allow where one of them holds.
    """
    for row in seccomp_profile(arch, allow_ptrace=ptrace, allow_nested_userns=userns)["syscalls"]:
        tested = [test["index"] for test in row.get("args", ())]
        assert len(tested) == len(set(tested))


def test_another_architecture_is_refused() -> None:
    with pytest.raises(LookupError, match="there is one for x86_64 and aarch64"):
        seccomp_profile("riscv64", allow_ptrace=True, allow_nested_userns=False)
