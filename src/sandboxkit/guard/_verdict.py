"""
What the guard says. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sandboxkit.model import EgressAction

__all__ = ["Code", "Verdict"]

Code = Literal["allowed", "url", "name", "rule", "default", "port", "address", "dns", "ask", "token"]
"""
Which check decided: how the URL is written, a reserved name, a rule, the default, a
blocked port, an address, an empty answer of the name service, a rule that asks, or that
the client of a proxy showed no token.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    Whether a destination may be reached, and why.

    Attributes:
        action: `allow`, `ask` or `deny`.
        reason: A clause for people; the destination itself is not repeated in it.
        code: Which check decided.
        rule: The id of the rule that decided, if one did.
        setting: The key of `EgressPolicy` that would change it, if one would.
    """

    action: EgressAction
    reason: str
    code: Code = "allowed"
    rule: str | None = None
    setting: str | None = None

    @property
    def allowed(self) -> bool:
        """
        Whether the connection may be made without asking anybody.
        """
        return self.action == "allow"

    @classmethod
    def allow(cls, reason: str, *, rule: str | None = None) -> Verdict:
        """
        It may be reached.
        """
        return cls("allow", reason, "allowed", rule)

    @classmethod
    def deny(cls, reason: str, *, code: Code, rule: str | None = None, setting: str | None = None) -> Verdict:
        """
        It may not be reached.
        """
        return cls("deny", reason, code, rule, setting)

    def __str__(self) -> str:
        return f"{self.action}: {self.reason}" + (f" ({self.setting} would change it)" if self.setting else "")
