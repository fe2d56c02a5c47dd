"""
Whatever a rule file holds, it is taken or refused with all its mistakes.
"""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxkit.errors import PolicyError
from sandboxkit.model import KeyLines, Level
from sandboxkit.policy import ExecPolicy
from sandboxkit.policy._dump import as_toml
from sandboxkit.policy._lint import lint_file

if TYPE_CHECKING:
    from pathlib import Path

WORDS = st.sampled_from(["git", "push", "ls", "a b", "-x", "*", "**", "", "R", "./x", "é", "rm -rf /", "\n"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=6,
)
PATTERNS = st.text(st.sampled_from("ab *?.|()[]{}\\+'$;,1^-"), max_size=12)
RULES = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["a", "b", "c", "builtin.x"]),
        "action": st.sampled_from(["allow", "sandbox", "ask", "deny"]),
    },
    optional={
        "prefix": st.one_of(VALUES, st.lists(st.one_of(WORDS, st.lists(WORDS, max_size=2)), max_size=3)),
        "glob": st.one_of(VALUES, PATTERNS),
        "regex": st.one_of(VALUES, PATTERNS),
        "priority": st.one_of(VALUES, st.integers(0, 3)),
        "enabled": VALUES,
        "match": st.one_of(VALUES, st.lists(st.one_of(WORDS, PATTERNS), max_size=2)),
        "not_match": VALUES,
        "constraints": st.one_of(
            VALUES,
            st.fixed_dictionaries(
                {},
                optional={
                    "allowed_arguments": st.lists(WORDS, max_size=2),
                    "denied_arguments": st.lists(WORDS, max_size=2),
                    "max_operands": st.integers(0, 2),
                    "more_than": st.dictionaries(WORDS, st.integers(0, 3), max_size=2),
                },
            ),
        ),
        "spec": VALUES,
        "surprise": VALUES,
    },
)
FILES = st.fixed_dictionaries(
    {"rules": st.one_of(VALUES, st.lists(st.one_of(RULES, VALUES), max_size=4))},
    optional={"version": VALUES, "default": VALUES, "tests": VALUES, "$schema": VALUES, "x": VALUES},
)


@given(st.one_of(FILES, VALUES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_json(tmp_path: Path, data: object) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(data, indent=1))
    mistakes = [problem for problem in lint_file(str(path), Level.USER) if not problem.check]
    lines = len(path.read_text().splitlines())
    assert all(problem.line is None or 1 <= problem.line <= lines for problem in mistakes)
    policy, refused = _taken(path)
    assert len(mistakes) == len(refused)
    if policy and all(rule.spec is None for rule in policy.rules(Level.USER)):
        again = ExecPolicy.from_dict(tomllib.loads(as_toml(policy.rules(Level.USER))))
        assert again.rules(Level.USER) == policy.rules(Level.USER)


def _taken(path: Path) -> tuple[ExecPolicy | None, tuple[str, ...]]:
    try:
        return ExecPolicy.from_files(user=path), ()
    except PolicyError as error:
        return None, error.problems


@given(st.text(st.sampled_from("[]{}\"'=.,#\\ \nabrules01-"), max_size=80))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_toml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    lint_file(str(path), Level.PROJECT)
    KeyLines(text, is_json=False)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = KeyLines(text, is_json=False)
    assert all(lines.line((key,)) is not None for key in data)
