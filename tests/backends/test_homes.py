"""
Credentials are denied in every home the application could read, not only in the one HOME
names.
"""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

import pytest

from sandboxkit.backends import _survey
from sandboxkit.backends._host import homes
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.backends.landlock import LandlockBackend
from sandboxkit.model import Control, SandboxSpec

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.backends import SandboxBackend

pytestmark = pytest.mark.anyio

SHARED = frozenset({Control.PROCESS_ISOLATION, Control.LIMITS_PROCESSES})


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest, require: Any) -> SandboxBackend:
    require(request.param)
    return BubblewrapBackend() if request.param == "bubblewrap" else LandlockBackend()


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    A home beside the one HOME names.
    """
    home = tmp_path.resolve() / "other"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "key").write_text("secret")
    (home / "notes").write_text("notes")
    (tmp_path / "named").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path.resolve() / "named"))
    monkeypatch.setattr(_survey, "homes", lambda: (str(home),))
    return home


@pytest.mark.parametrize("named", ["the home", "above it"])
async def test_credentials_of_another_home_are_denied(named: str, backend: SandboxBackend, other: Path) -> None:
    assert (other / ".ssh" / "key").read_text() == "secret"
    spec = SandboxSpec.read_only(other if named == "the home" else other.parent, allow_degraded=SHARED)
    async with backend.open(spec) as box:
        result = await box.run(["sh", "-c", f"cat {other}/notes; cat {other}/.ssh/key"])
    assert (result.stdout, result.text("stderr").count("ermission denied")) == (b"notes", 1)


async def test_a_spec_that_names_exactly_them_reads_them(backend: SandboxBackend, other: Path) -> None:
    spec = SandboxSpec.read_only(other, other / ".ssh", allow_degraded=SHARED)
    async with backend.open(spec) as box:
        result = await box.run(["cat", f"{other}/.ssh/key"])
    assert result.stdout == b"secret"


def test_the_homes_are_those_of_the_user_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert os.path.realpath(pwd.getpwuid(os.geteuid()).pw_dir) in homes()
