"""
The examples a rule carries, and whether it keeps to them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sandboxkit.errors import CommandError
from sandboxkit.model import EvaluationContext, Level, PolicyAction
from sandboxkit.policy._builtin import builtin_floor
from sandboxkit.policy._decide import decide
from sandboxkit.policy._layer import Layer, RuleSet
from sandboxkit.policy._match import CompiledRule
from sandboxkit.policy._subject import Subject
from sandboxkit.shell import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.policy._rule import PolicyRule

__all__ = ["EXAMPLE_CONTEXT", "example_problems", "floor_denies"]

EXAMPLE_CONTEXT = EvaluationContext(
    cwd="/home/user/project", home="/home/user", workspace_roots=("/home/user/project",), user="user"
)
"""
Where examples are judged, on every machine.
"""


def example_problems(rule: PolicyRule, level: Level) -> Iterator[tuple[str, str]]:
    """
    The key and the message for every example *rule* does not keep to.
    """
    if not rule.match and not rule.not_match:
        return
    compiled = CompiledRule.of(rule, level)
    for key, examples, expected in (("match", rule.match, True), ("not_match", rule.not_match, False)):
        for number, example in enumerate(examples):
            problem = _problem(compiled, example, expected=expected)
            if problem:
                yield f"{key}.{number}", f"{example!r}: {problem}"
    if rule.match and rule.action is not PolicyAction.DENY and all(map(_is_floored, rule.match)):
        yield "match", "the floor denies all of them, whatever this rule says; give one that the rule decides"


def floor_denies(command: str | tuple[str, ...]) -> bool:
    """
    Whether the floor alone denies *command*.

    Raises:
        CommandError: It is none.
    """
    return decide(_bare_floor(), parse(command), EXAMPLE_CONTEXT).action is PolicyAction.DENY


def _is_floored(example: str | tuple[str, ...]) -> bool:
    try:
        return floor_denies(example)
    except CommandError:
        return False


@cache
def _bare_floor() -> RuleSet:
    nothing = {level: Layer.of(level, ()) for level in Level if level is not Level.FLOOR}
    return RuleSet.of(
        floor=builtin_floor(),
        builtin=nothing[Level.BUILTIN],
        user=nothing[Level.USER],
        organisation=nothing[Level.ORGANISATION],
        project=nothing[Level.PROJECT],
        default=PolicyAction.ALLOW,
    )


def _problem(compiled: CompiledRule, example: str | tuple[str, ...], *, expected: bool) -> str | None:
    try:
        command = parse(example)
    except CommandError as error:
        return str(error)
    if not command.is_plain:
        why = command.opaque or "it takes a shell to read"
        return f"an example is plain words, but {why}; write it as a list of words, or put it among the [[tests]]"
    # What the rule says about an impostor is not what it says about its tool.
    matches = compiled.action_on(Subject(command.parts[0].argv, EXAMPLE_CONTEXT)) is compiled.rule.action
    if matches is expected:
        return None
    return "the rule does not match it" if expected else "the rule matches it"
