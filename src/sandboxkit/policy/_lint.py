"""
What is doubtful in a file of rules, beside what is wrong with it.
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

from sandboxkit.errors import CommandError, PolicyError
from sandboxkit.model import Level, PolicyAction
from sandboxkit.policy._examples import floor_denies
from sandboxkit.policy._load import read_file
from sandboxkit.policy._match import CompiledRule
from sandboxkit.policy._numbers import COUNTED
from sandboxkit.policy._problems import Problem, located
from sandboxkit.policy._rule_source import RuleSource
from sandboxkit.policy._shadow import covers
from sandboxkit.shell import starts_others

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandboxkit.policy._rule import PolicyRule

__all__ = ["CHECKS", "lint_file", "warnings_of"]

_LINE = re.compile(r"\bline (\d+)")
_MAX_WORDS = 20
_EMPTY = "it says nothing; give it rules, or take it away"
_MAX_PAIRS = 100_000

CHECKS = {
    "mistake": "the file is refused",
    "empty": "the file holds no rules, no tests and no default",
    "no-reason": "a rule says neither `reason` nor `name`",
    "no-examples": "a rule has no `match`, or no `not_match`",
    "broad": "a rule takes more than anybody can foresee",
    "unindexed": "a glob or regex does not begin with a program, so it is asked about every command",
    "repeats": "a rule says what another one says already",
    "half-shadowed": "a strict rule below a loose one only counts for programs outside the trusted directories",
    "floor": "the floor denies some of what a rule would let run",
    "number": "a condition on a number holds for every command that does not give it",
}
"""
What the checks are called, and what each finds.
"""


def lint_file(source: str, level: Level) -> tuple[Problem, ...]:
    """
    Everything that is wrong with the file *source*, read for *level*, and what is
    doubtful about its rules that are right; in the order of its lines.

    A file that cannot be read, or is no TOML or JSON, is one mistake.
    """
    try:
        file = read_file(source, level)
    except PolicyError as error:
        return tuple(_unreadable(problem) for problem in error.problems)
    rules = file.found.rules
    warnings = [Problem(_EMPTY, check="empty")] if file.found == RuleSource() and not file.problems else []
    warnings += [
        located(file.numbers[index], rules[index], key, message, file.lines, check=check)
        for index, key, check, message in warnings_of(rules, level)
    ]
    return tuple(sorted((*file.problems, *warnings), key=lambda problem: (problem.line or 0, bool(problem.check))))


def _unreadable(problem: str) -> Problem:
    found = _LINE.search(problem)
    return Problem(problem, line=int(found[1]) if found else None)


def warnings_of(rules: Sequence[PolicyRule], level: Level) -> Iterator[tuple[int, str, str, str]]:
    """
    The index, the key, the check and the message of everything doubtful about *rules*.
    """
    compiled = [CompiledRule.of(rule, level) for rule in rules]
    for index, rule in enumerate(compiled):
        for key, check, message in _doubts(rule):
            yield index, key, check, message
    yield from _pairs([(index, rule) for index, rule in enumerate(compiled) if rule.rule.enabled])


def _doubts(compiled: CompiledRule) -> Iterator[tuple[str, str, str]]:
    rule = compiled.rule
    if not rule.reason and not rule.name:
        yield "", "no-reason", "it has no reason; whoever reads the decision wants to know why"
    if not rule.match or not rule.not_match:
        missing = " and ".join(key for key in ("match", "not_match") if not getattr(rule, key))
        yield "", "no-examples", f"it has no {missing}; examples are checked whenever the file is read"
    yield from _breadth(compiled)
    if compiled.programs is None:
        key = "glob" if rule.glob is not None else "regex"
        yield key, "unindexed", "it is asked about every command; begin it with the program's name, and a blank"
        strange = [name for name in rule.constraints.more_than if name not in COUNTED]
        if strange and compiled.is_strict:
            yield (
                "constraints.more_than",
                "number",
                f"commands that do not give {' or '.join(strange)} count as more; name the program that gives it",
            )
    if rule.action is not PolicyAction.DENY:
        yield from _floored(rule)


def _breadth(compiled: CompiledRule) -> Iterator[tuple[str, str, str]]:
    rule = compiled.rule
    key = "glob" if rule.glob is not None else "regex" if rule.regex is not None else "prefix"
    pattern = rule.glob or (rule.regex or "").replace(".*", "*")
    if key != "prefix" and not pattern.strip("*"):
        yield key, "broad", f'it takes every command; for that, there is the file\'s default = "{rule.action}"'
        return
    is_listed = rule.constraints.allowed_arguments is not None or rule.constraints.denied_arguments
    if rule.action is not PolicyAction.ALLOW or is_listed:
        return
    if key != "prefix" and pattern.endswith("*"):
        yield (
            key,
            "broad",
            "it allows any arguments, also ones that write or run something; list them in allowed_arguments",
        )
    elif key == "prefix" and len(compiled.prefix) == 1 and (carriers := _carriers(compiled)):
        yield (
            key,
            "broad",
            f"{', '.join(carriers)} can start any program, and all of them are allowed; list allowed_arguments",
        )


def _carriers(compiled: CompiledRule) -> list[str]:
    return sorted(word for word in compiled.prefix[0] if starts_others(word))


def _floored(rule: PolicyRule) -> Iterator[tuple[str, str, str]]:
    for number, example in enumerate(rule.match):
        try:
            if floor_denies(example):
                yield f"match.{number}", "floor", f"{example!r}: the floor denies it, whatever this rule says"
        except CommandError:
            continue  # that is a mistake, and reported as one
    words = [(given,) if isinstance(given, str) else given for given in rule.prefix or ()]
    lines = product(*(alternatives[:_MAX_WORDS] for alternatives in words)) if len(words) > 1 else ()
    denied = next((line for line in lines if floor_denies(line)), None)
    if denied:
        yield "prefix", "floor", f"{' '.join(denied)!r}: the floor denies it, whatever this rule says"


def _pairs(rules: list[tuple[int, CompiledRule]]) -> Iterator[tuple[int, str, str, str]]:
    left = _MAX_PAIRS
    for index, rule in rules:
        for other_index, other in rules:
            left -= 1
            if index != other_index and (found := _pair(rule, other)):
                yield index, "priority", *found
                break
        if left < 0:
            return


def _pair(rule: CompiledRule, other: CompiledRule) -> tuple[str, str] | None:
    """
    What is doubtful about *rule* because of *other*.
    """
    programs = rule.prefix[0] if rule.prefix else frozenset[str]()
    order, above = (rule.rank, rule.rule.action), (other.rank, other.rule.action)
    if order == above and rule.rule.spec == other.rule.spec and covers(other, rule, programs):
        return "repeats", f"rule {other.rule.id!r} says the same about all it matches"
    if rule.is_strict and not other.is_strict and other.rank > rule.rank and _covers_loosely(other, rule, programs):
        message = (
            f"rule {other.rule.id!r} comes first and lets the same commands run; "
            f"this one only counts for programs of that name elsewhere. Give it a priority above {other.rank}"
        )
        return "half-shadowed", message
    return None


def _covers_loosely(one: CompiledRule, strict: CompiledRule, programs: frozenset[str]) -> bool:
    """
    Whether the loose *one* would cover *strict* if both were loose.
    """
    loose = strict.rule.model_copy(update={"action": one.rule.action})
    return covers(one, CompiledRule.of(loose, Level.USER), programs)
