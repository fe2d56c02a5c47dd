"""
Rules that bound a number: what the caller counted, or what can be counted in a command.
"""

from __future__ import annotations

import pytest

from sandboxkit.errors import PolicyError
from sandboxkit.model import Command, EvaluationContext, PolicyAction, SimpleCommand
from sandboxkit.policy import ExecPolicy
from sandboxkit.policy._numbers import with_parts


def policy(action: str = "ask", **numbers: float) -> ExecPolicy:
    rule = {"id": "many", "prefix": ["scrape"], "action": action, "constraints": {"more_than": numbers}}
    return ExecPolicy.from_dict({"rules": [rule], "default": "sandbox"})


def urls(count: int) -> list[str]:
    return ["scrape", *(f"https://example.com/{number}" for number in range(count))]


@pytest.mark.parametrize(("count", "action"), [(2, "sandbox"), (3, "ask")])
def test_urls_are_counted(count: int, action: str) -> None:
    assert str(policy(urls=2).evaluate(urls(count)).action) == action


def test_urls_within_one_word_are_counted_too() -> None:
    assert policy(urls=1).evaluate(["scrape", "--all=http://a/ HTTPS://b/"]).action is PolicyAction.ASK


@pytest.mark.parametrize(("count", "action"), [(3, "sandbox"), (4, "ask")])
def test_arguments_are_those_behind_the_matcher(count: int, action: str) -> None:
    assert str(policy(arguments=3).evaluate(["scrape", *["x"] * count]).action) == action


@pytest.mark.parametrize(("given", "action"), [(25, "sandbox"), (25.5, "ask")])
def test_a_number_of_the_caller(given: float, action: str) -> None:
    context = EvaluationContext(numbers={"pages": given})
    assert str(policy(pages=25).evaluate("scrape", context=context).action) == action


def test_the_callers_number_comes_before_the_counted_one() -> None:
    context = EvaluationContext(numbers={"urls": 1})
    assert policy(urls=2).evaluate(urls(9), context=context).action is PolicyAction.SANDBOX


@pytest.mark.parametrize("numbers", [{}, {"pages": float("nan")}])
def test_a_number_nobody_gave_is_not_known(numbers: dict[str, float]) -> None:
    context = EvaluationContext(numbers=numbers)
    assert policy("deny", pages=25).evaluate("scrape", context=context).action is PolicyAction.DENY
    assert policy("allow", pages=25).evaluate("scrape", context=context).action is PolicyAction.SANDBOX


def test_all_numbers_must_be_greater() -> None:
    both = policy(urls=1, arguments=3)
    assert both.evaluate(urls(3)).action is PolicyAction.SANDBOX
    assert both.evaluate(urls(4)).action is PolicyAction.ASK


def test_parts_are_counted_over_the_whole_command() -> None:
    command = Command("scrape; scrape", (SimpleCommand(("scrape",)),) * 2)
    context = with_parts(EvaluationContext(numbers={"pages": 1}), command)
    assert context.numbers == {"parts": 2, "pages": 1}
    assert policy(parts=1).evaluate("scrape", context=context).action is PolicyAction.ASK


def test_a_context_with_numbers_can_be_a_key() -> None:
    assert len({EvaluationContext(numbers={"a": 1}), EvaluationContext(numbers={"a": 1})}) == 1


@pytest.mark.parametrize("numbers", [{"Urls": 1}, {"": 1}, {"urls": "1"}, {"urls": True}, {"urls": float("inf")}])
def test_conditions_that_are_none(numbers: dict[str, object]) -> None:
    rule = {"id": "r", "prefix": ["a"], "action": "ask", "constraints": {"more_than": numbers}}
    with pytest.raises(PolicyError, match=r"constraints\.more_than"):
        ExecPolicy.from_dict({"rules": [rule]})
