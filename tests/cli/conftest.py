"""
The real command, as a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = [sys.executable, "-W", "error", "-m", "sandboxkit"]


class Cli(Protocol):
    def __call__(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]: ...


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """
    Runs `sandboxkit` in a directory of its own; no call may show a traceback.
    """

    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        options = {"cwd": tmp_path, "stdin": subprocess.DEVNULL, "timeout": 50, **options}
        if "input" in options:
            del options["stdin"]
        done = subprocess.run([*PROGRAM, *arguments], capture_output=True, check=False, **options)
        assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
        return done

    return run


def record(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """
    The JSON object that is all of the output.
    """
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    return found
