"""
The filter of a box in the words of container engines, which take no compiled one.

Pure, from the same table as the compiled filters: what one refuses, the other does.
"""

from __future__ import annotations

import errno
from functools import cache
from typing import TYPE_CHECKING, Any

from sandboxkit.confine._rules import ALLOW, KILL, rules
from sandboxkit.confine._seccomp import ARCHITECTURES

if TYPE_CHECKING:
    from sandboxkit.confine._rules import Rule

__all__ = ["seccomp_profile"]

_TOKENS = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
_ERRNO_BITS = 0xFFFF


@cache
def seccomp_profile(arch: str, *, allow_ptrace: bool, allow_nested_userns: bool) -> dict[str, Any]:
    """
    The filter for a box as a seccomp profile of Docker and Podman, JSON-ready.

    An engine from before Docker 23 knows no `defaultErrnoRet`: there a call that is in no
    row answers EPERM instead of ENOSYS. What programs probe for (`clone3`, `openat2`) is
    in a row of its own, and answers ENOSYS everywhere.

    Args:
        arch: The machine, as `os.uname().machine` names it.
        allow_ptrace: Whether processes may trace and read each other.
        allow_nested_userns: Whether namespaces, and mounts in them, may be made.

    Raises:
        LookupError: *arch* is not one of `ARCHITECTURES`.

    Source: https://github.com/moby/profiles (seccomp), runtime-spec, config-linux.md, "Seccomp".
    """
    if arch not in ARCHITECTURES:
        raise LookupError(
            f"there is no seccomp table for the architecture {arch!r}; there is one for {' and '.join(ARCHITECTURES)}"
        )
    found = rules(arch, allow_ptrace=allow_ptrace, allow_nested_userns=allow_nested_userns)
    plain: dict[int, list[str]] = {}
    for rule in found:
        if not rule.tests:
            plain.setdefault(rule.action, []).append(rule.call.name)
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.ENOSYS,
        "architectures": [_TOKENS[arch]],
        "syscalls": [
            *({"names": names, **_action(action)} for action, names in plain.items()),
            *(_tested(rule) for rule in found if rule.tests),
        ],
    }


def _tested(rule: Rule) -> dict[str, Any]:
    # The low half of an argument alone: a mask of 32 bits leaves the upper half out.
    tests = [
        {"index": test.argument, "value": test.mask, "valueTwo": test.value, "op": "SCMP_CMP_MASKED_EQ"}
        for test in rule.tests
    ]
    return {"names": [rule.call.name], "args": tests, **_action(rule.action)}


def _action(action: int) -> dict[str, Any]:
    if action == ALLOW:
        return {"action": "SCMP_ACT_ALLOW"}
    if action == KILL:
        return {"action": "SCMP_ACT_KILL_PROCESS"}
    return {"action": "SCMP_ACT_ERRNO", "errnoRet": action & _ERRNO_BITS}
