"""
Saying everything that is wrong with rules, with the place of each.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.model import Level, PolicyAction, is_inside
from sandboxkit.policy._arguments import ArgumentSet
from sandboxkit.policy._canonical import can_match
from sandboxkit.policy._examples import example_problems
from sandboxkit.policy._shadow import shadows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import ValidationError

    from sandboxkit.model import KeyLines
    from sandboxkit.policy._rule import PolicyRule

__all__ = ["Problem", "located", "rule_problems", "said", "set_problems"]

_NO_LINE = (
    "no command matches it: one program is seen at a time, its words with one blank between them, "
    "and a word with other characters than letters, digits and @%+=:,./_- in single quotes"
)
_RESERVED = ("builtin.", "floor.")


@dataclass(frozen=True, slots=True)
class Problem:
    """
    Something that is wrong, or doubtful, with a file of rules.

    Attributes:
        message: What, and what to do about it.
        key: The key, with dots between its parts, or an empty string.
        row: The number of the rule or test from 0, or None for the file as a whole.
        rule_id: The rule's id as far as it has one.
        line: The line from 1, where it is known.
        check: Names the kind of a warning; empty for a mistake, for which the file
            is refused.
        table: What `row` counts: `rules` or `tests`.
    """

    message: str
    key: str = ""
    row: int | None = None
    rule_id: str | None = None
    line: int | None = None
    check: str = ""
    table: str = "rules"

    def __str__(self) -> str:
        titled = f" {self.rule_id!r}" if self.rule_id is not None else ""
        line = f"line {self.line}" if self.line else ""
        row = "" if self.row is None else f"{self.table}[{self.row}]{titled}{line and f' ({line})'}"
        place = row or line
        return (f"{place}: " if place else "") + (f"{self.key}: " if self.key else "") + self.message

    def to_dict(self) -> dict[str, object]:
        """
        A JSON-ready form.
        """
        return {
            "line": self.line,
            self.table: self.row,
            "id": self.rule_id,
            "key": self.key,
            "message": self.message,
            "check": self.check or "mistake",
        }


def located(
    row: int,
    given: object,
    key: str,
    message: str,
    lines: KeyLines | None = None,
    *,
    check: str = "",
    table: str = "rules",
) -> Problem:
    """
    The problem with *key* of the rule number *row*, which is *given* as a mapping or a
    `PolicyRule`; an empty key means the rule as a whole.
    """
    path = tuple(int(part) if part.isdecimal() else part for part in key.split(".")) if key else ()
    rule_id = given.get("id") if isinstance(given, dict) else getattr(given, "id", None)
    line = lines.line((table, row, *path)) if lines else None
    return Problem(message, key, row, rule_id if isinstance(rule_id, str) else None, line, check, table)


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


def rule_problems(rule: PolicyRule, level: Level, *, looks_into: bool = True) -> Iterator[tuple[str, str]]:
    """
    The key and the message of everything that is wrong with *rule* at *level*.

    Args:
        rule: The rule.
        level: Whose it is.
        looks_into: Whether to find out if its pattern can match anything, which takes
            the longest.
    """
    if level is not Level.BUILTIN:
        if rule.id.startswith(_RESERVED):
            yield "id", "ids that begin with 'builtin.' or 'floor.' are taken; choose another"
        if rule.direct:
            yield "direct", "only the built-in table says what may run outside a box; remove it"
    if level is Level.PROJECT:
        yield from _project_problems(rule)
    yield from _vain_problems(rule, looks_into=looks_into)
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


def _vain_problems(rule: PolicyRule, *, looks_into: bool) -> Iterator[tuple[str, str]]:
    """
    What keeps *rule* from ever applying, whatever the command.
    """
    if looks_into and not can_match(rule):
        yield (
            "regex" if rule.regex is not None else "glob",
            _NO_LINE,
        )
    constraints = rule.constraints
    if "**" in constraints.denied_arguments:
        yield "constraints.denied_arguments", "'**' takes every command, so the rule never applies; name what is meant"
    allowed = constraints.allowed_arguments
    if allowed is not None and _refuses_its_own_words(rule, allowed):
        yield (
            "constraints.allowed_arguments",
            "the glob has arguments that are not in the list, so the rule never applies",
        )
    if _has_no_place(rule):
        yield "constraints.denied_directories", "they hold every allowed directory, so the rule never applies"


def _refuses_its_own_words(rule: PolicyRule, allowed: tuple[str, ...]) -> bool:
    """
    Whether a glob without stars, so one that matches one command only, has words that
    the constraints refuse.
    """
    glob = rule.glob
    if glob is None or re.search(r"[*?'\"]", glob):
        return False
    return not ArgumentSet.of(allowed).admits(glob.split(" ")[1:], rule.constraints.max_operands)


def _has_no_place(rule: PolicyRule) -> bool:
    # A strict rule also applies where the directory is not known.
    allowed, denied = rule.constraints.allowed_directories, rule.constraints.denied_directories
    if not allowed or rule.action >= PolicyAction.ASK:
        return False
    return all(any(_is_within(inner, outer) for outer in denied) for inner in allowed)


def _is_within(inner: str, outer: str) -> bool:
    inner, outer = posixpath.normpath(inner), posixpath.normpath(outer)
    if ".." in f"{inner}/{outer}".split("/"):
        return False
    return inner[0] == outer[0] and is_inside(inner, outer)


def set_problems(rules: Sequence[PolicyRule], level: Level = Level.USER) -> Iterator[tuple[int, str, str]]:
    """
    The index, the key and the message for every rule that repeats an id, or that can
    never decide because others of its level match all it matches and come before it.
    """
    seen: dict[str, int] = {}
    repeated: list[int] = []
    for index, rule in enumerate(rules):
        if rule.id in seen:
            repeated.append(index)
            yield index, "id", f"rule {rule.id!r} is there already; choose another id, or use update_rule()"
        seen.setdefault(rule.id, index)
    kept = [(index, rule) for index, rule in enumerate(rules) if index not in repeated]
    for shadow in shadows([rule for _, rule in kept], level):
        index = kept[shadow.index][0]
        others = [kept[by][1] for by in shadow.by]
        yield index, "priority", _shadowed(others)


def _shadowed(others: Sequence[PolicyRule]) -> str:
    names = " and ".join(f"rule {other.id!r}" for other in others)
    verb = "match all that it matches and come" if len(others) > 1 else "matches all that it matches and comes"
    return f"it never decides: {names} {verb} first; change or remove one of them"
