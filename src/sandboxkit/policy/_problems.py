"""
Saying everything that is wrong with a file of rules, with the place of each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.model import Level, PolicyAction
from sandboxkit.policy._examples import example_problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic import ValidationError

    from sandboxkit.policy._rule import PolicyRule

__all__ = ["Lines", "rule_problems", "said", "set_problems"]

_RESERVED = ("builtin.", "floor.")


@dataclass(frozen=True, slots=True)
class Lines:
    """
    Where the rows and keys of a TOML file stand; empty for other sources.

    Found by the text alone, so a `[[rules]]` within a multi-line string counts too.
    """

    rows: tuple[int, ...] = ()
    keys: Mapping[tuple[int, str], int] | None = None

    @classmethod
    def of_toml(cls, text: str) -> Lines:
        """
        The lines of *text*, counted from 1.
        """
        rows: list[int] = []
        keys: dict[tuple[int, str], int] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if re.match(r"\s*\[\[\s*rules\s*\]\]", line):
                rows.append(number)
            elif found := re.match(r"\s*(?:\[\s*rules\s*\.\s*)?([A-Za-z_][\w-]*)\s*[=.\]]", line):
                keys.setdefault((len(rows) - 1, found[1]), number)
        return cls(tuple(rows), keys)

    def place(self, row: int, key: str = "") -> str:
        """
        ` (line …)` for the key of a row, or for the row, or nothing.
        """
        line = (self.keys or {}).get((row, key)) or (self.rows[row] if row < len(self.rows) else None)
        return f" (line {line})" if line else ""


def said(error: ValidationError) -> Iterator[tuple[str, str]]:
    """
    The key and the message of everything pydantic found, in the words of a file.
    """
    for problem in error.errors(include_url=False, include_context=False):
        keys = [str(part) for part in problem["loc"] if not _is_internal(str(part))]
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = "there is no such key"
        yield ".".join(keys), message


def _is_internal(part: str) -> bool:
    return bool(re.search(r"[\[(]", part)) or part in ("str", "constrained-str")


def rule_problems(rule: PolicyRule, level: Level) -> Iterator[tuple[str, str]]:
    """
    The key and the message of everything that is wrong with *rule* at *level*.
    """
    if level is not Level.BUILTIN:
        if rule.id.startswith(_RESERVED):
            yield "id", "ids that begin with 'builtin.' or 'floor.' are taken; choose another"
        if rule.direct:
            yield "direct", "only the built-in table says what may run outside a box; remove it"
    if level is Level.PROJECT:
        yield from _project_problems(rule)
    yield from example_problems(rule, level)


def _project_problems(rule: PolicyRule) -> Iterator[tuple[str, str]]:
    if rule.regex is not None:
        yield "regex", "project files may use prefix and glob only"
    if rule.action is PolicyAction.ALLOW:
        yield (
            "action",
            "project files can only make decisions stricter, so this rule never decides; use sandbox, ask or deny",
        )
    if rule.spec is not None:
        yield "spec", "project files cannot say anything about the box; remove it"


def set_problems(rules: Sequence[PolicyRule]) -> Iterator[tuple[int, str, str]]:
    """
    The index, the key and the message for every rule that repeats an id, or that
    can never decide because another matches the same commands and comes before it.
    """
    seen: dict[str, int] = {}
    for index, rule in enumerate(rules):
        if rule.id in seen:
            yield index, "id", f"rule {rule.id!r} is there already; choose another id, or use update_rule()"
            continue
        seen[rule.id] = index
    matchers: dict[object, list[int]] = {}
    for index, rule in enumerate(rules):
        if rule.enabled and seen.get(rule.id) == index:
            matchers.setdefault(_matcher(rule), []).append(index)
    for same in matchers.values():
        yield from _shadowed(rules, same)


def _matcher(rule: PolicyRule) -> object:
    constraints = rule.constraints.model_copy(update={"max_timeout": None})
    return rule.prefix, rule.glob, rule.regex, constraints.model_dump_json()


def _shadowed(rules: Sequence[PolicyRule], same: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    first = max(same, key=lambda index: (rules[index].rank, rules[index].action, -index))
    for index in same:
        one, other = rules[index], rules[first]
        if index == first or _adds(one, other):
            continue
        yield (
            index,
            "priority",
            f"it never decides: rule {other.id!r} matches the same commands and comes first; change or remove one of them",
        )


def _adds(one: PolicyRule, other: PolicyRule) -> bool:
    # Two rules that decide together may each bound the run in their own way.
    bounds = (one.spec, one.constraints.max_timeout)
    return (one.rank, one.action) == (other.rank, other.action) and bounds not in (
        (None, None),
        (other.spec, other.constraints.max_timeout),
    )
