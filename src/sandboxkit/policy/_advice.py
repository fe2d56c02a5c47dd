"""
What would lead to another decision.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxkit.model import UNKNOWN, Level, PolicyAction, toml_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.model import PolicyEvaluation, RuleMatch

__all__ = ["advice", "suggested_rule"]

_SUBCOMMAND = re.compile(r"[a-z][a-z0-9-]{0,29}")
_NOT_IN_ID = re.compile(r"[^a-z0-9._-]+")
_PLACES = {
    Level.USER: "the user's rules",
    Level.ORGANISATION: "the organisation's rules",
    Level.PROJECT: "the project's rules",
}


def advice(evaluation: PolicyEvaluation) -> Iterator[str]:
    """
    One text, of one or more lines, for each thing that would have to change; nothing
    where the command runs unasked by a rule's decision.
    """
    decided = [match for match in evaluation.matches if match.decided and match.action is evaluation.action]
    if evaluation.command.opaque and not evaluation.command.unread and not decided:
        yield "give the program and its arguments as a list, or in simpler shell, to have it judged exactly"
    elif evaluation.action >= PolicyAction.ASK:
        yield from _strict(evaluation, decided)
    elif evaluation.action is PolicyAction.SANDBOX and not decided:
        yield from _suggestion(evaluation, None, "no rule knows it; one of the user's could", "allow")


def _strict(evaluation: PolicyEvaluation, decided: list[RuleMatch]) -> Iterator[str]:
    if evaluation.command.unread:
        return  # the reason says it
    levels = {match.level for match in decided}
    if Level.FLOOR in levels:
        yield "no rule can allow this; where it is meant, run it yourself, outside of sandboxkit"
        return
    for level, place in _PLACES.items():
        named = sorted({match.rule_id for match in decided if match.level is level})
        if named:
            yield f"{place} say so; {', '.join(named)} would have to change there"
    builtin = [match for match in decided if match.level is Level.BUILTIN]
    if builtin or not decided:
        match = next(iter(builtin), None)
        yield from _suggestion(evaluation, match, "a rule of the user's file comes before the built-in ones", "sandbox")


def _suggestion(evaluation: PolicyEvaluation, match: RuleMatch | None, lead: str, action: str) -> Iterator[str]:
    if rule := suggested_rule(_words(evaluation, match), action):
        yield f"{lead}, for example:\n{rule}"


def _words(evaluation: PolicyEvaluation, match: RuleMatch | None) -> tuple[str, ...]:
    index = match.part if match else next((d.part for d in evaluation.parts if d.action is evaluation.action), 0)
    parts = evaluation.command.parts
    part = parts[index] if index is not None and index < len(parts) else None
    words = part.argv if part and not part.is_dynamic and all(redirect.is_known for redirect in part.redirects) else ()
    # A rule about an assignment or a redirection would speak about all of them.
    return () if match and match.words and match.words != words else words


def suggested_rule(words: tuple[str, ...], action: str) -> str:
    """
    A rule, as TOML, with that action for what begins like *words*; empty where their
    program is not known.
    """
    if not words or UNKNOWN in words[0] or not words[0].isprintable():
        return ""
    prefix = words[: 2 if len(words) > 1 and _SUBCOMMAND.fullmatch(words[1]) else 1]
    name = _NOT_IN_ID.sub("-", "-".join(prefix).lower()).strip("-._")[:100] or "mine"
    written = ", ".join(toml_value(word) for word in prefix)
    return f'[[rules]]\nid = "{name}"\nprefix = [{written}]\naction = "{action}"'
