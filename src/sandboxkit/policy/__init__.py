"""
What may be done with a command: rules, their precedence, and the floor below them.

Pure but for reading and writing rule files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit._lazy import lazy

if TYPE_CHECKING:
    from sandboxkit.policy._diagnostic import diagnostic
    from sandboxkit.policy._floor import FloorRow
    from sandboxkit.policy._policy import ExecPolicy
    from sandboxkit.policy._rule import PolicyRule, RuleConstraints
    from sandboxkit.policy._schema import rules_schema
    from sandboxkit.policy._shared import get_exec_policy, initialize_exec_policy
    from sandboxkit.policy._undecided import failed, undecided

__all__ = [
    "ExecPolicy",
    "FloorRow",
    "PolicyRule",
    "RuleConstraints",
    "diagnostic",
    "failed",
    "get_exec_policy",
    "initialize_exec_policy",
    "rules_schema",
    "undecided",
]

__getattr__ = lazy(
    __name__,
    {
        "_diagnostic": ("diagnostic",),
        "_floor": ("FloorRow",),
        "_policy": ("ExecPolicy",),
        "_rule": (
            "PolicyRule",
            "RuleConstraints",
        ),
        "_schema": ("rules_schema",),
        "_shared": (
            "get_exec_policy",
            "initialize_exec_policy",
        ),
        "_undecided": (
            "failed",
            "undecided",
        ),
    },
)
