"""
What the policy says about a command, and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandboxkit.model._command import Command
    from sandboxkit.model._spec import SandboxSpec

__all__ = ["Advice", "Level", "PolicyAction", "PolicyEvaluation", "RuleMatch"]


class PolicyAction(IntEnum):
    """
    What is to be done with a command; greater is stricter, so parts combine by `max`.
    """

    ALLOW = 0
    SANDBOX = 1
    ASK = 2
    DENY = 3

    @classmethod
    def from_name(cls, name: str) -> PolicyAction:
        """
        The action called *name* (`allow`, `sandbox`, `ask`, `deny`).

        Raises:
            ValueError: No action has this name.
        """
        try:
            return cls[name.upper()]
        except KeyError:
            raise ValueError(f"{name!r} is no action; use allow, sandbox, ask or deny") from None

    def __str__(self) -> str:
        return self.name.lower()


class Level(IntEnum):
    """
    Who wrote a rule. Of the first three, the greater decides; `PROJECT` and `FLOOR`
    stand outside that order: they can only make a decision stricter.
    """

    BUILTIN = 0
    USER = 1
    ORGANISATION = 2
    PROJECT = 3
    FLOOR = 4

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """
    A rule that matched, whether or not it decided.

    Attributes:
        rule_id: The rule's id.
        level: Who wrote it.
        action: What it says.
        reason: Its reason.
        decided: Whether it set, or helped to set, the action of its part.
        part: The index of the part of the command it matched; None for the text
            of an opaque command.
        span: What it saw in the source text, as (start, end) in characters.
    """

    rule_id: str
    level: Level
    action: PolicyAction
    reason: str
    decided: bool
    part: int | None = None
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class PolicyEvaluation:
    """
    The decision about one command.

    Attributes:
        action: What is to be done.
        reason: Why, in one sentence.
        command: The command as it was read.
        matches: Every rule that matched.
        is_direct: Whether an `allow` may run outside a box: only tools that open
            no file named by arguments or configuration.
        max_timeout: The smallest timeout in seconds of the rules that decided, or None.
        spec: What the deciding rules say about the box: the base where the caller
            gave no spec, otherwise a ceiling. None where no rule says anything.
        rules_digest: Names the rule set that decided (sha256, hex).
    """

    action: PolicyAction
    reason: str
    command: Command
    matches: tuple[RuleMatch, ...] = ()
    is_direct: bool = False
    max_timeout: float | None = None
    spec: SandboxSpec | None = None
    rules_digest: str = ""

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form.
        """
        return {
            "action": str(self.action),
            "reason": self.reason,
            "command": self.command.text,
            "opaque": self.command.opaque,
            "direct": self.is_direct,
            "max_timeout": self.max_timeout,
            "rules_digest": self.rules_digest,
            "matches": [
                {
                    "rule": match.rule_id,
                    "level": str(match.level),
                    "action": str(match.action),
                    "reason": match.reason,
                    "decided": match.decided,
                    "part": match.part,
                    "span": list(match.span) if match.span else None,
                }
                for match in self.matches
            ],
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """
    What `AutoSandboxRouter.should_sandbox` answers, without running anything.

    Attributes:
        sandbox: False only for a command that may run outside a box.
        action: The policy's action.
        reason: Why, in one sentence.
    """

    sandbox: bool
    action: PolicyAction
    reason: str
