"""
Rules that can never decide, because others of their level match all they match.

Only what is certain is found. Not found: a glob or regex within another that does not
show it letter by letter, constraints that differ and yet hold for the same commands,
and several rules that cover another only together, unless each takes whole programs of
it. What other levels say is not looked at: their files may change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product
from typing import TYPE_CHECKING

from sandboxkit.model import Level, PolicyAction
from sandboxkit.policy._glob import glob_pattern
from sandboxkit.policy._match import CompiledRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandboxkit.policy._rule import PolicyRule

__all__ = ["Shadow", "covers", "shadows"]

_MAX_COMPARISONS = 50_000
"""
Beyond that many, the rest of a very large set is taken unseen.
"""
_MAX_LINES = 200
_BARE = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")


@dataclass(frozen=True, slots=True)
class Shadow:
    """
    A rule that never decides.

    Attributes:
        index: Which rule.
        by: The rules that come before it, by their indices.
    """

    index: int
    by: tuple[int, ...]


def shadows(rules: Sequence[PolicyRule], level: Level) -> Iterator[Shadow]:
    """
    Every enabled rule of *rules*, which are all of *level*, that never decides.
    """
    compiled = [_Numbered(index, _ready(rule, level)) for index, rule in enumerate(rules) if rule.enabled]
    by_program: dict[str, list[_Numbered]] = {}
    general = [numbered for numbered in compiled if not numbered.rule.prefix]
    for numbered in compiled:
        for word in numbered.rule.prefix[0] if numbered.rule.prefix else ():
            by_program.setdefault(word, []).append(numbered)
    left = _MAX_COMPARISONS
    for numbered in compiled:
        found: list[int] = []
        for words in _programs(numbered.rule):
            others = [*(by_program[min(words)] if words else ()), *general]
            left -= len(others)
            first = next((other.index for other in others if _comes_first(other, numbered, words)), None)
            if first is None:
                break
            found.append(first)
        else:
            yield Shadow(numbered.index, tuple(dict.fromkeys(found)))
        if left < 0:
            return


def _ready(rule: PolicyRule, level: Level) -> CompiledRule:
    # Patterns are compared as they are written; compiling them would take the longest.
    bare = rule.model_copy(update={"glob": None, "regex": None})
    return replace(CompiledRule.of(bare, level), rule=rule)


@dataclass(frozen=True, slots=True)
class _Numbered:
    index: int
    rule: CompiledRule


def _programs(rule: CompiledRule) -> Iterator[frozenset[str]]:
    """
    The programs of a prefix one by one, each as all the words that name it; nothing
    but an empty set for other rules.
    """
    first = (rule.rule.prefix or ("",))[0]
    for word in (first,) if isinstance(first, str) else first:
        yield frozenset((word, word.lower())) & rule.prefix[0] if rule.prefix else frozenset()


def _comes_first(one: _Numbered, other: _Numbered, programs: frozenset[str]) -> bool:
    """
    Whether *other* never decides about *programs* where *one* is in force.
    """
    if one.index == other.index or other.rule.rule.direct:
        return False  # that a tool may run outside a box counts wherever the row matches
    first, second = one.rule.rule, other.rule.rule
    if _order(one.rule) == _order(other.rule):
        return one.index < other.index and _matcher(first) == _matcher(second) and not _adds(second, first)
    return _order(one.rule) > _order(other.rule) and covers(one.rule, other.rule, programs)


def _order(rule: CompiledRule) -> tuple[int, PolicyAction]:
    # Of the project's rules the strictest counts, whatever its priority.
    return 0 if rule.level is Level.PROJECT else rule.rank, rule.rule.action


def _matcher(rule: PolicyRule) -> object:
    return rule.prefix, rule.glob, rule.regex, _conditions(rule)


def _conditions(rule: PolicyRule) -> str:
    return rule.constraints.model_copy(update={"max_timeout": None}).model_dump_json()


def _adds(one: PolicyRule, other: PolicyRule) -> bool:
    # Two rules that decide together may each bound the run in their own way.
    bounds = (one.spec, one.constraints.max_timeout)
    return bounds not in ((None, None), (other.spec, other.constraints.max_timeout))


def covers(one: CompiledRule, other: CompiledRule, programs: frozenset[str]) -> bool:
    """
    Whether *one* certainly applies wherever *other* does, for *programs* of it.

    A strict rule also applies where it is not known whether it matches, and to any
    program of that name, so a loose one never covers it.
    """
    if other.is_strict and not one.is_strict:
        return False
    if other.level is Level.BUILTIN and other.rule.action is PolicyAction.ALLOW and not one.is_strict:
        return False  # it also asks about other programs of that name
    if one.constraints and not _same_conditions(one, other):
        return False
    if one.prefix:
        return _longer_prefix(one, other, programs)
    return _covered_by_pattern(one, other, programs)


def _same_conditions(one: CompiledRule, other: CompiledRule) -> bool:
    is_aligned = (len(one.prefix) or 1) == (len(other.prefix) or 1)
    return is_aligned and _conditions(one.rule) == _conditions(other.rule)


def _longer_prefix(one: CompiledRule, other: CompiledRule, programs: frozenset[str]) -> bool:
    if not 0 < len(one.prefix) <= len(other.prefix) or not programs <= one.prefix[0]:
        return False
    return all(inner <= outer for outer, inner in zip(one.prefix[1:], other.prefix[1:], strict=False))


def _covered_by_pattern(one: CompiledRule, other: CompiledRule, programs: frozenset[str]) -> bool:
    if other.rule.regex is not None and one.rule.regex == other.rule.regex:
        return True
    glob = "*" if one.rule.regex == ".*" else one.rule.glob
    if glob is None:
        return False
    if not glob.strip("*"):
        # Of words that are not known yet only a strict pattern says what a prefix does.
        return one.is_strict or not other.prefix
    if other.rule.glob is not None:
        return _holds(glob, other.rule.glob)
    return one.is_strict and bool(other.prefix) and _holds_prefix(glob, other, programs)


def _holds_prefix(glob: str, other: CompiledRule, programs: frozenset[str]) -> bool:
    words = [programs, *other.prefix[1:]]
    if any(not _BARE.fullmatch(word) for alternatives in words for word in alternatives):
        return False
    lines = [" ".join(line) for line in islice(product(*words), _MAX_LINES + 1)]
    return len(lines) <= _MAX_LINES and all(_holds(glob, line) and _holds(glob, f"{line} *") for line in lines)


def _holds(glob: str, other: str) -> bool:
    """
    Whether *glob* takes all that the glob *other* takes, shown letter by letter: a star
    of the one can only stand within a star of the other.
    """
    return _literally(glob).fullmatch(other) is not None


@lru_cache(maxsize=4096)
def _literally(glob: str) -> re.Pattern[str]:
    return glob_pattern(glob, one="[^*]")
