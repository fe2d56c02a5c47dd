"""
What the tests of a box without namespaces share.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxkit.backends.landlock import LandlockBackend, LandlockFacts
from sandboxkit.model import Control, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

IS_ROOT = os.geteuid() == 0
OTHER_UID = 4242
SYSTEM_PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
"""One that a user whom root's caller becomes can reach."""
SHARED = frozenset({Control.PROCESS_ISOLATION} | ({Control.LIMITS_PROCESSES} if IS_ROOT else set()))
"""
What every spec must do without here: there is no pid namespace, and the kernel does not
count the processes of root, who keeps its own directories.
"""


def workspace(root: Path, *degraded: Control) -> SandboxSpec:
    return SandboxSpec.workspace_write(root, allow_degraded=SHARED | set(degraded))


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """
    One event loop: which one it is makes no difference to a box, and is tested elsewhere.
    """
    return "asyncio"


@pytest.fixture(scope="session")
def backend() -> LandlockBackend:
    """
    The backend, where the kernel scopes signals; below that it does not keep a spec.
    """
    found = LandlockBackend()
    detection = anyio.run(found.detect)
    facts = detection.facts
    if not detection.available or not isinstance(facts, LandlockFacts) or facts.abi < 6:
        named = "landlock" in os.environ.get("SANDBOXKIT_REQUIRE", "").replace(",", " ").split()
        (pytest.fail if named else pytest.skip)(f"backend 'landlock': {detection.reason}; {detection.remedy}")
    return found


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """
    A workspace, empty, owned by whoever runs the tests.
    """
    directory = tmp_path.resolve() / "ws"
    directory.mkdir()
    return directory


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """
    A directory beside the workspace, with a file.
    """
    directory = tmp_path.resolve() / "outside"
    directory.mkdir()
    (directory / "file").write_text("content")
    return directory


@pytest.fixture
def open_ws() -> Iterator[Path]:
    """
    A workspace that every user can reach.
    """
    root = Path(os.path.realpath(tempfile.mkdtemp()))
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)
