"""
What the conformance tests share: the backend under test, and acts that are tried twice,
outside as a control and in a box.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandboxkit.backends._contract import Sandbox
    from sandboxkit.model import ExecResult, SandboxSpec

IS_ROOT = os.geteuid() == 0
PYTHON = (interpreter(), "-I", "-S", "-c")

_PREAMBLE = """
import ctypes, errno, json, os, socket, sys, time
arguments = json.loads(sys.argv[1])
answers = {}
libc = ctypes.CDLL(None, use_errno=True)

def code_of(error):
    return errno.errorcode.get(error.errno, str(error.errno))

def attempt(what, action, *values, **named):
    try:
        action(*values, **named)
    except OSError as error:
        answers[what] = code_of(error)
    else:
        answers[what] = "done"

def read(path):
    with open(path, "rb") as file:
        return file.read()

def write(path, text="x"):
    with open(path, "w") as file:
        file.write(text)

def kernel(function, *values):
    result = getattr(libc, function)(*values)
    if result < 0:
        raise OSError(ctypes.get_errno(), function)
    return result

"""
_EPILOGUE = "\nprint(json.dumps(answers))\n"

BOXED = """
import sys
import anyio
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.model import SandboxSpec
from sandboxkit.process import shutdown

async def main():
    async with BubblewrapBackend().open(SandboxSpec.workspace_write(sys.argv[1])) as box:
        result = await box.run(sys.argv[2:])
    shutdown()
    print(result.text(), result.text("stderr"))

anyio.run(main)
"""
"""A program of its own that runs one command in a box: workspace, then the command's words."""


@dataclass(frozen=True)
class Act:
    """
    A Python script that tries things and fills `answers`: "done", or the name of an error.
    """

    script: str

    def argv(self, arguments: Mapping[str, Any]) -> list[str]:
        return [*PYTHON, _PREAMBLE + self.script + _EPILOGUE, json.dumps(arguments)]

    def outside(self, /, **arguments: Any) -> dict[str, Any]:
        """
        The answers without a box: the control.
        """
        done = subprocess.run(self.argv(arguments), capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        return _answers(done.stdout)

    async def inside(self, box: Sandbox, /, **arguments: Any) -> dict[str, Any]:
        """
        The answers in *box*.
        """
        result = await box.run(self.argv(arguments), timeout=30)
        assert result.ok, (result.outcome, result.text("stderr"))
        return _answers(result.text())


def _answers(text: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(text.splitlines()[-1])
    return answers


@dataclass(frozen=True)
class Boxes:
    """
    Runs one command in one box.
    """

    backend: BubblewrapBackend

    async def run(self, spec: SandboxSpec, argv: Sequence[str], **options: Any) -> ExecResult:
        async with self.backend.open(spec) as box:
            return await box.run(argv, **options)

    async def act(self, spec: SandboxSpec, act: Act, **arguments: Any) -> dict[str, Any]:
        async with self.backend.open(spec) as box:
            return await act.inside(box, **arguments)


def running(marker: str) -> list[int]:
    """
    The processes of this machine that have *marker* among their words.
    """
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def gone(marker: str) -> bool:
    deadline = time.monotonic() + 2
    while running(marker) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not running(marker)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """
    One event loop: which one it is makes no difference to a box, and is tested elsewhere.
    """
    return "asyncio"


@pytest.fixture(scope="session")
def backend() -> BubblewrapBackend:
    """
    The backend; where it is unavailable its tests are skipped with the reason, or fail
    if `SANDBOXKIT_REQUIRE` names it.
    """
    found = BubblewrapBackend()
    detection = anyio.run(found.detect)
    if not detection.available:
        named = found.name in os.environ.get("SANDBOXKIT_REQUIRE", "").replace(",", " ").split()
        (pytest.fail if named else pytest.skip)(f"backend {found.name!r}: {detection.reason}; {detection.remedy}")
    return found


@pytest.fixture
def boxes(backend: BubblewrapBackend) -> Boxes:
    return Boxes(backend)


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """
    A workspace, empty, owned by whoever runs the tests.
    """
    workspace = tmp_path.resolve() / "ws"
    workspace.mkdir()
    return workspace


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """
    A directory beside the workspace that nothing lets a box see.
    """
    directory = tmp_path.resolve() / "outside"
    directory.mkdir()
    return directory


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    The user's home, for as long as the test: private, as root's is.
    """
    directory = tmp_path.resolve() / "home"
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(directory))
    return directory


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    Where quarantines are made, for as long as the test.
    """
    directory = tmp_path.resolve() / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    return directory


@pytest.fixture
def repository(ws: Path) -> Path:
    """
    The workspace as a git repository with one commit.
    """
    (ws / "README.md").write_text("hello\n")
    git(ws, "init", "-q", "-b", "main")
    git(ws, "config", "user.name", "Test")
    git(ws, "config", "user.email", "test@localhost")
    git(ws, "add", ".")
    git(ws, "commit", "-q", "-m", "first")
    return ws


def git(directory: Path, *words: str) -> str:
    """
    What git says outside, untouched by the user's own configuration.
    """
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *words], cwd=directory, env=environment, capture_output=True, text=True, check=True)
    return done.stdout
