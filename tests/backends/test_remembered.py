"""
What one process found out about the machine, and when the next one believes it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxkit import SandboxRegistry, SandboxSpec, sync
from sandboxkit.backends import _remembered as remembered
from sandboxkit.backends._registry import _Entry
from sandboxkit.backends._verification import VERIFIED, Verification
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.errors import SpecError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the built-in backends are for Linux")

_DURATION = """
import anyio
from sandboxkit.backends import SandboxRegistry
print(anyio.run(SandboxRegistry.default().active).verification.duration_s)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    Where it is kept.
    """
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path.resolve() / "runtime/sandboxkit/found"


def attacked() -> str:
    """
    How long the attack took that another process believes, to the last digit.
    """
    return subprocess.run(
        [sys.executable, "-c", _DURATION], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_the_next_process_believes_what_this_one_found(place: Path) -> None:
    first, second = attacked(), attacked()
    assert first == second
    assert {path.name for path in place.iterdir()} >= {"attack-bubblewrap", "bubblewrap"}
    remembered.forget()
    assert not list(place.iterdir())
    assert attacked() != first


def test_other_rights_are_other_circumstances(place: Path) -> None:
    remembered.remember("kind", [1])
    assert remembered.recall("kind") == [1]
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    other = 4096 if soft != 4096 else 8192
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (other if hard == resource.RLIM_INFINITY else 0, hard))
        assert remembered.recall("kind") is None or soft == 0
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert remembered.recall("kind") == [1]
    assert remembered.recall("kind", "another program") is None


@pytest.mark.parametrize("by", [-1.0, remembered.KEPT_SECONDS + 60])
def test_what_is_old_or_from_before_a_restart_is_not_believed(place: Path, by: float) -> None:
    remembered.remember("kind", [1])
    note = json.loads((place / "kind").read_text())
    note["at"] -= by if by > 0 else -60
    (place / "kind").write_text(json.dumps(note))
    assert remembered.recall("kind") is None


@pytest.mark.parametrize("content", ["", "[]", "null", '{"at": "now"}', "\0" * 100, "9" * 10_000])
def test_what_is_damaged_is_not_believed(place: Path, content: str) -> None:
    remembered.remember("kind", [1])
    (place / "kind").write_text(content)
    assert remembered.recall("kind") is None


def test_a_directory_that_others_can_write_is_not_believed(place: Path) -> None:
    remembered.remember("kind", [1])
    place.chmod(0o770)
    assert remembered.recall("kind") is None
    place.chmod(0o700)
    assert remembered.recall("kind") == [1]


def test_a_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    remembered.remember("kind", [1])
    (place / "kind").rename(tmp_path / "elsewhere")
    (place / "kind").symlink_to(tmp_path / "elsewhere")
    assert remembered.recall("kind") is None


def test_findings_that_leave_a_control_out_are_not_believed() -> None:
    whole = Verification.from_dict(
        {"findings": [[str(c), "enforced", ""] for c in VERIFIED], "failure": "", "duration_s": 1}
    )
    assert Verification.from_dict(whole.to_dict()) == whole
    short = whole.to_dict()
    short["findings"] = short["findings"][1:]
    with pytest.raises(ValueError, match="every control"):
        Verification.from_dict(short)


def test_a_box_cannot_write_it(place: Path, tmp_path: Path) -> None:
    remembered.remember("kind", [1])
    before = (place / "kind").read_text()
    target = f"{place}/kind"
    forged = ["/bin/sh", "-c", f"echo forged >{target} || mv {place} {place}.aside || rm {target}"]
    spec = SandboxSpec.workspace_write(tmp_path.resolve())
    assert sync.run(forged, spec=spec).exit_code != 0
    assert (place / "kind").read_text() == before
    assert subprocess.run(forged, check=False).returncode == 0  # outside the same works
    with pytest.raises(SpecError, match="keeps its notes"):
        sync.run(["/bin/true"], spec=SandboxSpec.workspace_write(place))


class Lying(BubblewrapBackend):
    """
    Of another class under the name of a built-in one.
    """


def test_only_this_librarys_own_backends_are_remembered(place: Path) -> None:
    async def circumstances(backend: BubblewrapBackend) -> str:
        entry = _Entry(lambda: backend, backend.name, 1)
        return entry._circumstances(await backend.detect())

    assert anyio.run(circumstances, BubblewrapBackend())
    assert anyio.run(circumstances, Lying()) == ""


def test_forgetting_in_a_registry_forgets_for_the_next_process(place: Path) -> None:
    first = attacked()
    SandboxRegistry.default().forget()
    assert attacked() != first
    assert os.path.exists(place / "attack-bubblewrap")
