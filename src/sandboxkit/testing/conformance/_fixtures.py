"""
The fixtures behaviours ask for, and what a named deviation does to them.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

import anyio
import pytest

from sandboxkit.backends import attack
from sandboxkit.errors import SandboxError
from sandboxkit.model import Control, Enforcement, Grade, SandboxSpec
from sandboxkit.testing.conformance._acts import Boxes, git
from sandboxkit.testing.conformance._behaviours import BEHAVIOURS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from sandboxkit.backends import SandboxBackend

FIXTURES: Final = (
    "anyio_backend",
    "backend",
    "bounded",
    "boxes",
    "confined",
    "conformance_deviation",
    "crash_count",
    "home",
    "outside",
    "prompt_s",
    "repository",
    "run_count",
    "state",
    "verified",
    "ws",
)
"""The names of all of them; `backend_factory` and `deviations` are the user's own."""

__all__ = [*FIXTURES, "FIXTURES"]

_NOT_KEPT: Final = (
    AssertionError,
    ExceptionGroup,  # one of the others, out of several boxes at once
    SandboxError,
    TimeoutError,
    pytest.fail.Exception,
    subprocess.CalledProcessError,  # an application of its own that opens boxes says it by its exit code
)
"""How a behaviour shows that it is not kept. Any other exception is a defect, in a deviation too."""

_CONFINING: Final = {
    Control.PROCESS_ISOLATION: Grade.PARTIAL,  # the attack, which lowers it, looks for a signal that gets out
    Control.PROCESS_KILL_TREE: Grade.ENFORCED,
    Control.PROCESS_NESTED_USERNS: Grade.ENFORCED,
    Control.SYSCALLS: Grade.ENFORCED,
    Control.LIMITS_OUTPUT: Grade.PARTIAL,
}
"""What keeps in the acts that would harm a host."""


@pytest.fixture(autouse=True)
def conformance_deviation(request: pytest.FixtureRequest, deviations: Mapping[str, str]) -> None:
    """
    Turns a behaviour that `deviations` names into the check that it is not kept.
    """
    if unknown := sorted(name for name in deviations if name.partition("[")[0] not in BEHAVIOURS):
        pytest.fail(f"deviations names no behaviour of this version: {', '.join(unknown)}", pytrace=False)
    if reason := _reason(request.node.name.removeprefix("test_"), deviations):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True, raises=_NOT_KEPT))


def _reason(name: str, deviations: Mapping[str, str]) -> str | None:
    """
    Why the behaviour, or this case of it, is not kept; None where it must be.
    """
    reason = deviations.get(name, deviations.get(name.partition("[")[0]))
    if reason is not None and not reason.strip():
        pytest.fail(f"the deviation {name!r} has no reason; say why it is not kept", pytrace=False)
    return reason


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    Where a backend keeps what it moves away, for as long as the test.
    """
    directory = tmp_path.resolve() / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    return directory


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """
    One event loop: which one it is makes no difference to a box, and is tested elsewhere.
    """
    return "asyncio"


@pytest.fixture(scope="session")
def backend(backend_factory: Callable[[], SandboxBackend]) -> SandboxBackend:
    """
    The backend; where it is unavailable its tests are skipped with the reason, or fail
    if `SANDBOXKIT_REQUIRE` names it.
    """
    found = backend_factory()
    detection = anyio.run(found.detect)
    if not detection.available:
        named = found.name in os.environ.get("SANDBOXKIT_REQUIRE", "").replace(",", " ").split()
        (pytest.fail if named else pytest.skip)(f"backend {found.name!r}: {detection.reason}; {detection.remedy}")
    return found


@pytest.fixture
def boxes(backend: SandboxBackend, backend_factory: Callable[..., SandboxBackend]) -> Boxes:
    """
    Boxes of the backend under test.
    """
    return Boxes(backend, backend_factory)


@pytest.fixture(scope="session")
def verified(backend: SandboxBackend, tmp_path_factory: pytest.TempPathFactory) -> Enforcement:
    """
    What the backend claims for a box with a workspace, lowered by what the verifying
    attack, which harms nothing, found; nothing at all where that could not be carried out.
    """
    spec = SandboxSpec.workspace_write(tmp_path_factory.mktemp("verified"))

    async def ask() -> Enforcement:
        claim = backend.enforcement(spec, (await backend.detect(spec)).facts)
        found = await attack(backend)
        return Enforcement({}) if found.failure else found.apply(claim)

    return anyio.run(ask)


@pytest.fixture
def confined(request: pytest.FixtureRequest, verified: Enforcement, deviations: Mapping[str, str]) -> None:
    """
    For a behaviour that would harm the host in a box that does not hold: kill all its
    processes, unmount its file systems, write without end. It is tried only where what
    keeps that in was verified or, of the limits, claimed; elsewhere it fails untried.
    """
    _fail_untried(request, verified.missing(_CONFINING), deviations)


@pytest.fixture
def bounded(request: pytest.FixtureRequest, verified: Enforcement, deviations: Mapping[str, str]) -> None:
    """
    Likewise for a behaviour that forks without end.
    """
    _fail_untried(request, verified.missing({**_CONFINING, Control.LIMITS_PROCESSES: Grade.PARTIAL}), deviations)


def _fail_untried(request: pytest.FixtureRequest, missing: tuple[str, ...], deviations: Mapping[str, str]) -> None:
    if missing:
        if reason := _reason(request.node.name.removeprefix("test_"), deviations):
            pytest.xfail(reason)  # a mark that a fixture sets says nothing of the fixtures after it
        pytest.fail(f"not tried, because it would harm the host: {'; '.join(missing)}", pytrace=False)


@pytest.fixture(scope="session")
def crash_count() -> int:
    """
    How often the application is killed at a random moment.
    """
    return 16


@pytest.fixture(scope="session")
def run_count() -> int:
    """
    How many runs must leave nothing.
    """
    return 200


@pytest.fixture(scope="session")
def prompt_s() -> float:
    """
    How many seconds what a cancelled run started may go on. A backend whose boxes another
    program makes and ends may need more, and says so by a fixture of its own.
    """
    return 1.0


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
