"""
What is looked for before a rule or a row of the floor is tried saves time alone: whoever
tries all of them decides the same.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxkit.model import EvaluationContext
from sandboxkit.policy._builtin import builtin_floor, builtin_layer
from sandboxkit.policy._decide import decide
from sandboxkit.policy._facts import Facts
from sandboxkit.policy._layer import Layer, RuleSet
from sandboxkit.policy._match import CompiledRule
from sandboxkit.policy._policy import ExecPolicy
from sandboxkit.shell import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandboxkit.policy._floor import Floor, FloorRule
    from sandboxkit.policy._subject import Subject

CORPUS = Path(__file__).parents[1] / "corpus"
CONTEXT = EvaluationContext(cwd="/srv/work", home="/home/user", workspace_roots=("/srv/work",))
COMMANDS = [
    row["command"]
    for name in ("policy_ok", "policy_bypass", "policy_more_ok", "policy_more_bypass")
    for row in map(json.loads, (CORPUS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
    if "command" in row
]
WORDS = sorted({word for command in COMMANDS for word in command.split()})


class PatientLayer(Layer):
    """
    The rules of a layer without what is known of their patterns, and without an index.
    """

    @classmethod
    def like(cls, layer: Layer) -> PatientLayer:
        nothing = Facts(None, (), is_usual=True, begins=None, needs=None)
        rules = tuple(CompiledRule.of(rule, layer.level, nothing) for rule in layer.rules if rule.enabled)
        general = type(layer.general)(rules)
        return cls(layer.level, layer.rules, {}, general, layer.digest, layer.counts)

    def candidates(self, subject: Subject) -> tuple[CompiledRule, ...]:
        return tuple(rule for rule in self.general.rules if subject.unknown or begins(rule, subject))


def begins(rule: CompiledRule, subject: Subject) -> bool:
    """
    Whether *subject*, whose words are all known, begins with the prefix of *rule*.
    """
    first, *others = rule.prefix or [frozenset((subject.name,))]
    named = subject.name in first or subject.argv[0] in first
    return (
        named
        and all(word in choice for word, choice in zip(subject.argv[1:], others, strict=False))
        and (len(subject.argv) > len(others))
    )


def patient_floor(floor: Floor) -> Floor:
    """
    *floor* whose rows are all tried.
    """

    def waits(rules: Iterable[FloorRule]) -> tuple[FloorRule, ...]:
        return tuple(replace(rule, trigger=None) for rule in rules)

    by_program = {name: waits(rules) for name, rules in floor.by_program.items()}
    return replace(floor, by_program=by_program, general=waits(floor.general), alarm=None)


@pytest.fixture(scope="module")
def rule_sets() -> tuple[RuleSet, RuleSet]:
    """
    The built-in rules, and the same without shortcuts.
    """
    quick = ExecPolicy.default()._rules
    assert isinstance(quick, RuleSet)
    return quick, replace(quick, floor=patient_floor(builtin_floor()), builtin=PatientLayer.like(builtin_layer()))


def difference(sets: tuple[RuleSet, RuleSet], command: str | Sequence[str], platform: str) -> str | None:
    """
    What the two say about *command*, where that is not the same.
    """
    context = replace(CONTEXT, platform=platform)
    quick, patient = (decide(rules, parse(command), context, OrderedDict()) for rules in sets)
    return None if quick.action is patient.action else f"{command!r}: {quick.action}, but {patient.action}"


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_on_known_commands_they_agree(rule_sets: tuple[RuleSet, RuleSet], platform: str) -> None:
    commands = COMMANDS[:: 4 if platform == "linux" else 20]
    assert [found for command in commands if (found := difference(rule_sets, command, platform))] == []


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from(["linux", "darwin"]),
)
def test_on_words_put_together_they_agree(
    rule_sets: tuple[RuleSet, RuleSet], words: list[str], is_text: bool, platform: str
) -> None:
    assert difference(rule_sets, " ".join(words) if is_text else words, platform) is None
