"""
`sandboxkit backends` with plug-ins: a bad one is reported, and changes nothing for the others.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.conftest import record

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

HEAD = """
import anyio
from sandboxkit.backends import Detection, SandboxBackend, hookimpl
from sandboxkit.model import Control, ControlState, Enforcement, Grade

class Backend(SandboxBackend):
    name = "NAME"
    async def detect(self, spec=None):
        return Detection(True, "it says so")
    def enforcement(self, spec, facts):
        return Enforcement({control: ControlState(Grade.ENFORCED, "it says so") for control in Control})
    def plan(self, invocation, spec, facts):
        raise NotImplementedError
    def open(self, spec):
        raise NotImplementedError

@hookimpl
def sandboxkit_register_backends():
    return [Backend()]
"""

# It has no box at all: the command runs as it is, and every control is claimed.
LYING = """
import contextlib, os, time
from sandboxkit.backends import Sandbox
from sandboxkit.model import ExecResult, SandboxSpec, Termination

class NoBox(Sandbox):
    enforcement = property(lambda self: Backend().enforcement(self.spec, None))
    spec = None
    async def run(self, argv, *, stdin=None, cwd=None, timeout=None, environment=None, explain=False, discard=False):
        done = await anyio.run_process(argv, input=stdin or b"", check=False, cwd=cwd)
        return ExecResult(done.returncode, None, Termination.EXITED, done.stdout, done.stderr, False, 0.1, "NAME", self.enforcement)

@contextlib.asynccontextmanager
async def opened(self, spec):
    box = NoBox()
    box.spec = spec
    yield box

Backend.open = opened
"""
SLOW = """
async def detect(self, spec=None):
    await anyio.sleep(3600)
Backend.detect = detect
"""


@pytest.fixture
def plugins(tmp_path: Path) -> dict[str, str]:
    """
    An environment in which plug-ins of each kind are installed.
    """
    sources = {
        "broken": "raise RuntimeError('out of order')",
        "nameclash": HEAD.replace("NAME", "bubblewrap"),
        "slow": HEAD.replace("NAME", "slow") + SLOW,
        "lying": (HEAD + LYING).replace("NAME", "lying"),
    }
    for name, source in sources.items():
        (tmp_path / f"plugin_{name}.py").write_text(source)
        info = tmp_path / f"plugin_{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plugin_{name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[sandboxkit.backends]\n{name} = plugin_{name}\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}


def test_bad_plugins_are_reported_and_change_nothing(cli: Cli, plugins: dict[str, str]) -> None:
    names = ("broken", "nameclash", "missing", "slow", "lying")
    allowed = [word for name in names for word in ("--allow", name)]
    done = cli("backends", *allowed, "--json", env=plugins)
    found = record(done)
    assert done.returncode == 1
    assert sorted(found["not_loaded"]) == ["broken", "missing", "nameclash"]
    assert "RuntimeError: out of order" in found["not_loaded"]["broken"]
    assert "a backend of this name is registered already" in found["not_loaded"]["nameclash"]
    assert "no installed package offers it" in found["not_loaded"]["missing"]
    backends: dict[str, Any] = {backend["name"]: backend for backend in found["backends"]}
    assert "detect() did not answer within" in backends["slow"]["reason"]
    lie = backends["lying"]["enforcement"]["fs.write"]
    assert lie["grade"] != "enforced"
    assert "the attack wrote a file outside" in lie["reason"]
    alone = record(cli("backends", "--json"))
    untouched = {backend["name"]: backend["available"] for backend in alone["backends"]}
    assert {name: backends[name]["available"] for name in untouched} == untouched
    assert list(backends)[: len(untouched)] == list(untouched)


def test_no_plugin_is_loaded_that_is_not_allowed(cli: Cli, plugins: dict[str, str]) -> None:
    done = cli("backends", env=plugins)
    assert done.returncode == 0
    assert b"slow" not in done.stdout
    text = cli("backends", "--allow", "broken", "--allow", "lying", env=plugins).stdout.decode()
    assert "a default spec is run by: " in text
    assert "lying lacks: " in text
    assert "the attack wrote a file outside" in text
    assert "not loaded: plug-in 'broken': loading plugin_broken failed: RuntimeError: out of order" in text
