"""
Trying rules: their examples, and whole commands with the action that is expected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field

from sandboxkit.errors import CommandError
from sandboxkit.model import Described
from sandboxkit.policy._examples import EXAMPLE_CONTEXT
from sandboxkit.policy._rule import ActionField

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandboxkit.model import EvaluationContext, Level, PolicyEvaluation
    from sandboxkit.policy._policy import ExecPolicy
    from sandboxkit.policy._rule import PolicyRule

__all__ = ["Outcome", "RuleTest", "trials"]


class RuleTest(Described):
    """
    A command and what the whole policy is expected to say about it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(min_length=1)]
    """A command line, or a list of words that no shell reads."""
    action: ActionField
    """The expected action: `allow`, `sandbox`, `ask` or `deny`."""
    rule: str = ""
    """The id of a rule that must be among those that decide; empty: any may."""
    reason: Annotated[str, Field(max_length=500)] = ""
    """Why that is expected, in words for whoever reads a failure."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    One trial.

    Attributes:
        kind: `match`, `not_match` or `tests`: where it was asked for.
        subject: The id of the rule, or the number of the test from 0.
        command: The command.
        expected: What was expected, in words.
        found: What came out, in words.
        is_right: Whether that is the same.
        evaluation: The decision, or None where there is no such command.
        reason: Why that was expected, as far as the file says it.
    """

    kind: str
    subject: str
    command: str | tuple[str, ...]
    expected: str
    found: str
    is_right: bool
    evaluation: PolicyEvaluation | None = None
    reason: str = ""


def trials(
    policy: ExecPolicy,
    level: Level,
    tests: Iterable[RuleTest] = (),
    *,
    context: EvaluationContext = EXAMPLE_CONTEXT,
) -> Iterator[Outcome]:
    """
    Every example of the rules of *level* and every one of *tests*, judged by the whole
    *policy*.

    A `match` example is right where its rule decides, or where the command comes out
    stricter than the rule says; a `not_match` example where its rule does not match. A
    test is right where the action is the expected one and the named rule decides.

    Args:
        policy: The rules in force.
        level: Whose rules' examples are tried; those of disabled rules are not.
        tests: Whole commands.
        context: Where the commands are judged: `/home/user/project`, by default.
    """
    for rule in policy.rules(level):
        if rule.enabled:
            yield from (_matching(policy, rule, level, example, context) for example in rule.match)
            yield from (_other(policy, rule, level, example, context) for example in rule.not_match)
    for number, test in enumerate(tests):
        yield _tested(policy, str(number), test, context)


def _matching(
    policy: ExecPolicy, rule: PolicyRule, level: Level, example: str | tuple[str, ...], context: EvaluationContext
) -> Outcome:
    evaluation = policy.evaluate(example, context=context)
    own = [match for match in evaluation.matches if (match.rule_id, match.level) == (rule.id, level)]
    is_right = any(match.decided for match in own) or (bool(own) and evaluation.action > rule.action)
    return Outcome("match", rule.id, example, f"{rule.action} by it", _found(evaluation), is_right, evaluation)


def _other(
    policy: ExecPolicy, rule: PolicyRule, level: Level, example: str | tuple[str, ...], context: EvaluationContext
) -> Outcome:
    evaluation = policy.evaluate(example, context=context)
    is_right = all((match.rule_id, match.level) != (rule.id, level) for match in evaluation.matches)
    return Outcome("not_match", rule.id, example, "no match of it", _found(evaluation), is_right, evaluation)


def _tested(policy: ExecPolicy, subject: str, test: RuleTest, context: EvaluationContext) -> Outcome:
    expected = f"{test.action} by {test.rule}" if test.rule else str(test.action)
    try:
        evaluation = policy.evaluate(test.command, context=context)
    except CommandError as error:
        return Outcome(
            "tests", subject, test.command, expected, f"no command: {error}", is_right=False, reason=test.reason
        )
    deciding = {match.rule_id for match in evaluation.matches if match.decided}
    is_right = evaluation.action is test.action and (not test.rule or test.rule in deciding)
    return Outcome("tests", subject, test.command, expected, _found(evaluation), is_right, evaluation, test.reason)


def _found(evaluation: PolicyEvaluation) -> str:
    names = dict.fromkeys(
        match.rule_id for match in evaluation.matches if match.decided and match.action is evaluation.action
    )
    by = f" by {', '.join(names)}" if names else ""
    return f"{evaluation.action}{by}"
