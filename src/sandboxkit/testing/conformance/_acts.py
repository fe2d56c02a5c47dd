"""
What behaviours are made of: boxes of the backend under test, and acts that are tried
twice, outside as a control and in a box.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sandboxkit.backends import Sandbox, SandboxBackend
    from sandboxkit.model import ExecResult, SandboxSpec

IS_ROOT = os.geteuid() == 0
PYTHON = (interpreter(), "-I", "-S", "-c")

PATIENCE_S = 55.0
"""
After how many seconds a box is given up: a backend may know no deadline.
"""

REFUSED = frozenset({"EACCES", "EPERM", "EROFS", "ENOENT", "EXDEV"})
"""
The answers of a refusal. Which of them it is depends on the mechanism: a read-only
mount, a right that was given up, a path that is not there.
"""

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
import pickle, sys
import anyio
from sandboxkit.model import SandboxSpec
from sandboxkit.process import shutdown

async def main():
    backend = pickle.loads(bytes.fromhex(sys.argv[1]))()
    async with backend.open(SandboxSpec.workspace_write(sys.argv[2])) as box:
        result = await box.run(sys.argv[3:])
    shutdown()
    sys.stdout.write(result.text())
    sys.stderr.write(result.text("stderr"))

anyio.run(main)
"""
"""
A program of its own that runs one command in a box: the factory, the workspace, then the
command's words.
"""


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
    Runs one command in one box of the backend under test.

    Attributes:
        backend: The backend.
        factory: What made it; importable, so that another process can make one too.
    """

    backend: SandboxBackend
    factory: Callable[..., SandboxBackend]

    def outward(self, **options: Any) -> Boxes:
        """
        Those of a backend that is handed *options* for the way out: `secrets` with the values
        of what specs inject, and `ssl_context`, which verifies the real hosts.
        """
        try:
            made: SandboxBackend = self.factory(**options)
        except TypeError as exc:
            pytest.fail(f"backend_factory cannot be given {', '.join(options)}: {exc}", pytrace=False)
        return Boxes(made, self.factory)

    async def run(self, spec: SandboxSpec, argv: Sequence[str], **options: Any) -> ExecResult:
        with anyio.fail_after(PATIENCE_S):
            async with self.backend.open(spec) as box:
                return await box.run(argv, **options)

    async def act(self, spec: SandboxSpec, act: Act, **arguments: Any) -> dict[str, Any]:
        with anyio.fail_after(PATIENCE_S):
            async with self.backend.open(spec) as box:
                return await act.inside(box, **arguments)

    def program(self, source: str, *words: str, python: str = sys.executable) -> list[str]:
        """
        A program of its own, *source*, whose first argument is the pickled factory.

        Raises:
            TypeError: The factory cannot be pickled.
        """
        try:
            pickled = pickle.dumps(self.factory)
        except (pickle.PicklingError, AttributeError) as exc:
            raise TypeError(
                f"backend_factory gave {self.factory!r}, which another process cannot import; give a class, "
                "a function of a module, or a functools.partial of one"
            ) from exc
        return [python, "-c", source, pickled.hex(), *words]


def importable() -> dict[str, str]:
    """
    An environment in which another process imports what this one can.
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


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
    """
    Whether nothing with *marker* runs any more, within two seconds; what does is ended then.
    """
    deadline = time.monotonic() + 2
    while (left := running(marker)) and time.monotonic() < deadline:
        time.sleep(0.01)
    if left:
        end(marker)
    return not left


def end(marker: str) -> int:
    """
    Ends what runs with *marker*, and what that has just started; returns how many it were.
    What was started a moment ago and is not there yet is waited for, two seconds at most.
    """
    deadline = time.monotonic() + 2
    ended: set[int] = set()
    while (left := running(marker)) or (not ended and time.monotonic() < deadline):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended.update(left)
        time.sleep(0.01)
    return len(ended)


def git(directory: Path, *words: str) -> str:
    """
    What git says outside, untouched by the user's own configuration.
    """
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *words], cwd=directory, env=environment, capture_output=True, text=True, check=True)
    return done.stdout
