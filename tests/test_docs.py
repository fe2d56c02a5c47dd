"""
Every snippet of the documentation is a file that runs, and is shown somewhere.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.extras import missing_extra

import sandboxkit
from sandboxkit import errors
from sandboxkit.cli import main
from sandboxkit.cli._exit import Exit
from sandboxkit.policy import PolicyRule, RuleConstraints
from sandboxkit.testing.conformance import BEHAVIOURS

DOCS = Path(__file__).resolve().parent.parent / "docs"
SNIPPETS = sorted((DOCS / "snippets").glob("*.py"))
SHOWN_CHECKS = sorted((DOCS / "snippets").glob("read_*.txt"))
CONSTRUCT = re.compile(r"^\| .+ \| `(.+)` \| (allow|sandbox|ask|deny) \|$", re.MULTILINE)
CONSTRUCTS = CONSTRUCT.findall((DOCS / "reference" / "shell-syntax.md").read_text())
INCLUDE = re.compile(r'--8<-- "docs/snippets/([\w.]+?)(?::\w+)?"')


@pytest.mark.requires("bubblewrap")
@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda path: path.stem)
def test_snippet_runs(snippet: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", str(snippet)],
        cwd=project,
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    if extra := missing_extra(snippet.name):
        assert f"pip install 'sandboxkit[{extra}]'" in done.stderr
        return
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("snippet", SHOWN_CHECKS, ids=lambda path: path.stem)
def test_a_shown_decision_is_what_is_printed(snippet: Path) -> None:
    prompt, _, shown = snippet.read_text().partition("\n")
    dollar, program, *arguments = shlex.split(prompt)
    assert (dollar, program) == ("$", "sandboxkit")
    done = subprocess.run(
        [sys.executable, "-m", "sandboxkit", *arguments],
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.stdout, done.stderr) == (shown, "")


@pytest.mark.parametrize(("command", "action"), CONSTRUCTS)
def test_a_construct_is_decided_as_the_reference_says(command: str, action: str) -> None:
    assert str(sandboxkit.ExecPolicy.default().evaluate(command).action) == action


def test_the_reference_has_constructs_of_every_action() -> None:
    page = (DOCS / "reference" / "shell-syntax.md").read_text()
    assert len(CONSTRUCTS) == len(re.findall(r"^\|.*\| (?:allow|sandbox|ask|deny) \|$", page, re.MULTILINE)) - 1
    assert {action for _, action in CONSTRUCTS} == {"allow", "sandbox", "ask", "deny"}


def test_every_snippet_is_shown_and_every_shown_snippet_exists() -> None:
    shown = {name for page in DOCS.rglob("*.md") for name in INCLUDE.findall(page.read_text())}
    existing = {path.name for path in (DOCS / "snippets").iterdir() if path.is_file()}
    assert shown == existing


def test_the_spec_example_has_every_field() -> None:
    spec = sandboxkit.SandboxSpec
    nested = {name: type(getattr(spec(), name)) for name in spec.model_fields}
    nested = {name: model for name, model in nested.items() if issubclass(model, BaseModel)}
    expected = set(spec.model_fields) | {
        f"{name}.{key}" for name, model in nested.items() for key in model.model_fields
    }
    example = tomllib.loads((DOCS / "snippets" / "spec.toml").read_text())
    found = set(example) | {f"{name}.{key}" for name in nested for key in example[name]}
    assert found == expected


def test_the_spec_example_states_the_defaults(tmp_path: Path) -> None:
    example = tomllib.loads((DOCS / "snippets" / "spec.toml").read_text())
    (tmp_path / "secrets").mkdir()
    spec = sandboxkit.SandboxSpec.from_dict(example, base=tmp_path)
    default = sandboxkit.SandboxSpec()
    assert spec.filesystem.protect == default.filesystem.protect
    assert spec.filesystem.tmp_bytes == default.filesystem.tmp_bytes
    assert spec.environment.inherit == default.environment.inherit
    assert spec.process == default.process
    assert spec.limits.model_copy(update={"cpu": None}) == default.limits


def test_the_rules_example_is_right_and_has_every_key() -> None:
    example = DOCS / "snippets" / "rules.toml"
    sandboxkit.ExecPolicy.from_files(user=example)
    rules = tomllib.loads(example.read_text())["rules"]
    given = {key for rule in rules for key in rule} | {key for rule in rules for key in rule.get("constraints", ())}
    assert given == (set(PolicyRule.model_fields) | set(RuleConstraints.model_fields)) - {"direct"}


def test_the_reference_has_every_public_name() -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    documented = set(re.findall(r"^::: sandboxkit\.(\w+)$", page, re.MULTILINE)) | set(errors.__all__) | {"__version__"}
    assert documented - {"errors"} == set(sandboxkit.__all__)


def test_the_reference_has_every_control() -> None:
    page = (DOCS / "reference" / "enforcement.md").read_text().partition("\n## ")[0]
    assert re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE) == [str(control) for control in sandboxkit.Control]


def test_the_reference_has_every_exit_code_and_verb(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "reference" / "cli.md").read_text()
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == set(Exit) - {Exit.DONE}
    assert main(["--help"]) == 0
    verbs = re.findall(r"^    (\w+) ", capsys.readouterr().out, re.MULTILINE)
    assert verbs == re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)


def test_the_table_of_what_is_enforced_where_is_current() -> None:
    page = DOCS / "reference" / "enforced-where.md"
    script = runpy.run_path(str(DOCS / "hooks" / "enforced_where.py"))
    assert page.read_text() == script["page"](), "run: python docs/hooks/enforced_where.py"


def test_every_test_a_page_names_exists() -> None:
    for page in DOCS.rglob("*.md"):
        for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text()):
            is_behaviour = "/conformance/" in path and name.removeprefix("test_") in BEHAVIOURS
            is_there = is_behaviour or f"def {name}(" in (DOCS.parent / path).read_text()
            assert not name or is_there, f"{page.name}: {path}::{name}"
            assert (DOCS.parent / path).is_file(), f"{page.name}: {path}"
