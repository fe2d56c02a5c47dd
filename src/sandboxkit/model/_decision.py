"""
What the policy says about a command, and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from sandboxkit.model._quick import quick

if TYPE_CHECKING:
    from sandboxkit.model._command import Command
    from sandboxkit.model._spec import SandboxSpec

__all__ = ["Advice", "Level", "PartDecision", "PolicyAction", "PolicyEvaluation", "RuleMatch"]


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


@quick
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
        part: The index of the part of the command it matched; None where it is about
            the command as a whole.
        span: What it saw in the source text, as (start, end) in characters.
        words: The words it was asked about: those of the part, or what stands for an
            assignment (`env NAME=value`), for a redirection to a file (`tee FILE`) or
            from one (`cat FILE`).
    """

    rule_id: str
    level: Level
    action: PolicyAction
    reason: str
    decided: bool
    part: int | None = None
    span: tuple[int, int] | None = None
    words: tuple[str, ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class PartDecision:
    """
    The decision about one part of a command: a node of the tree that the parts form
    by their `inside` and `outer`.

    Attributes:
        part: The index of the part in `PolicyEvaluation.command.parts`.
        action: What is to be done with it.
        reason: Why, in one sentence.
        matches: Every rule that matched it.
        notes: Why rules that nearly matched it did not, for example an option that is
            not on the list of a tool that only reads.
    """

    part: int
    action: PolicyAction
    reason: str
    matches: tuple[RuleMatch, ...] = ()
    notes: tuple[str, ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class PolicyEvaluation:
    """
    The decision about one command.

    Attributes:
        action: What is to be done.
        reason: Why, in one sentence.
        command: The command as it was read.
        parts: The decision about every part; `action` is the strictest of them.
        matches: Every rule that matched, over all parts.
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
    parts: tuple[PartDecision, ...] = ()
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
            "parts": [_part(decision, self.command) for decision in self.parts],
            "matches": [_match(match) for match in self.matches],
        }


def _part(decision: PartDecision, command: Command) -> dict[str, Any]:
    part = command.parts[decision.part]
    return {
        "argv": list(part.argv),
        "span": list(part.span) if part.span else None,
        "inside": part.inside,
        "outer": part.outer,
        "action": str(decision.action),
        "reason": decision.reason,
        "notes": list(decision.notes),
    }


def _match(match: RuleMatch) -> dict[str, Any]:
    return {
        "rule": match.rule_id,
        "level": str(match.level),
        "action": str(match.action),
        "reason": match.reason,
        "decided": match.decided,
        "part": match.part,
        "span": list(match.span) if match.span else None,
        "words": list(match.words),
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
