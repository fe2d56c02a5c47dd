"""
What a rule file holds, without what reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxkit.model import PolicyAction
    from sandboxkit.policy._rule import PolicyRule
    from sandboxkit.policy._trial import RuleTest

__all__ = ["RuleSource"]


@dataclass(frozen=True, slots=True)
class RuleSource:
    """
    What one file or mapping says.

    Attributes:
        rules: Its rules, in order.
        default: What it wants done with commands no rule matches, or None.
        tests: Commands it expects an action for. They are run on request only.
    """

    rules: tuple[PolicyRule, ...] = ()
    default: PolicyAction | None = None
    tests: tuple[RuleTest, ...] = ()
