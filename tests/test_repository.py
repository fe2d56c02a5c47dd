"""
What must hold for every file of the repository. Runs in a checkout only.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "sandboxkit"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SINGLE_FILES = [
    "confine/_child.py",
    "process/_box.py",
    "confine/_seated.py",
    "process/_broker.py",
    "process/_keeper.py",
    "process/_leaves.py",
    "process/_scope.py",
    "process/_staging.py",
    "process/_starting.py",
    "process/_tracer.py",
]
FRAGMENT = re.compile(r"[\w-]+\.(security|breaking|added|changed|fixed)\.md")
TEST_COMMAND = "pip install nox && nox"

# In two halves, so that this file does not hold what it looks for.
FORBIDDEN = {
    "a path of a developer's machine": re.compile(r"(?<![\w}~])/" + r"(work|farm)/|/" + r"root/\.pyenv"),
    "the host of a package registry": re.compile(
        r"pypi\." + r"org|files\.python" + r"hosted|registry\.npm" + r"js|crates" + r"\.io"
    ),
}


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def lines(suffixes: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """
    Every line of the tracked text files, with its place.
    """
    found = []
    for path in tracked():
        if not suffixes or path.suffix in suffixes:
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                continue  # binary data
            found += [(f"{path.relative_to(ROOT)}:{n}", line) for n, line in enumerate(text.splitlines(), 1)]
    return found


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    assert [(place, line) for place, line in lines() if FORBIDDEN[what].search(line)] == []


def test_every_ignore_has_its_reason_on_the_line() -> None:
    ignore = re.compile(
        r"#\s*(noqa|type: ignore|pragma: no cover)\b(:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*|\[[\w\-, ]+\])?(?P<rest>.*)"
    )
    bare = []
    for place, line in lines((".py",)):
        found = ignore.search(line)
        if found and len(found["rest"].strip(" -#")) < 8 and "test_repository" not in place:
            bare.append((place, line.strip()))
    assert bare == []


def test_every_lint_ignore_in_the_configuration_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    section = text[text.index("[tool.ruff.lint.per-file-ignores]") : text.index("[tool.mypy]")]
    section += text[text.index("\nignore = [") : text.index("[tool.ruff.lint.flake8-tidy-imports]")]
    rows = [line for line in section.splitlines() if re.search(r'"[A-Z]+\d*"', line)]
    assert rows
    assert [line for line in rows if "#" not in line] == []


def test_the_changelog_names_the_version() -> None:
    assert f"## {PROJECT['project']['version']} " in (ROOT / "CHANGELOG.md").read_text()


def test_changelog_fragments_are_named_by_kind() -> None:
    names = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    assert [name for name in names if not FRAGMENT.fullmatch(name)] == []


@pytest.mark.parametrize("name", SINGLE_FILES)
def test_what_starts_bare_imports_only_the_standard_library(name: str) -> None:
    tree = ast.parse((PACKAGE / name).read_text())
    for_types = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    nodes = [node for top in tree.body if top not in for_types for node in ast.walk(top)]
    imports = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imports |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    beside = {"_leaves"} if name == "process/_broker.py" else set()
    assert {name.partition(".")[0] for name in imports} <= sys.stdlib_module_names | beside


def test_every_backend_is_named_in_the_import_contracts() -> None:
    folders = {
        path.name for path in (PACKAGE / "backends").iterdir() if path.is_dir() and not path.name.startswith("_")
    }
    protected = [c for c in PROJECT["tool"]["importlinter"]["contracts"] if c["type"] == "protected"]
    assert {f"sandboxkit.backends.{name}" for name in folders} == set(protected[0]["protected_modules"])


def test_ci_runs_the_command_the_readme_gives() -> None:
    assert TEST_COMMAND in (ROOT / "README.md").read_text()
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith(TEST_COMMAND)
