"""
Every snippet of the documentation is a file that runs, and is shown somewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
SNIPPETS = sorted((DOCS / "snippets").glob("*.py"))
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
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_snippet_is_shown_and_every_shown_snippet_exists() -> None:
    shown = {name for page in DOCS.rglob("*.md") for name in INCLUDE.findall(page.read_text())}
    existing = {path.name for path in (DOCS / "snippets").iterdir() if path.is_file()}
    assert shown == existing
