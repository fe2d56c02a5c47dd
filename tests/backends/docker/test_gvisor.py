"""
gVisor, through ptrace: its kernel answers instead of the host's, and what it does not bound
here is said.
"""

from __future__ import annotations

import os
import platform
import shutil
from typing import TYPE_CHECKING

import pytest

from sandboxkit.errors import EnforcementError
from sandboxkit.model import Control, Grade, Limits, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sandboxkit.backends.docker import DockerBackend

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(120),
    # Podman's interface lets nobody choose a runtime.
    pytest.mark.parametrize("kind", ["docker"], indirect=True, scope="session"),
]


@pytest.fixture
def gvisor(backend: DockerBackend, make: Callable[..., DockerBackend]) -> DockerBackend:
    """
    The backend with gVisor.
    """
    if shutil.which("runsc") is None:
        named = "runsc" in os.environ.get("SANDBOXKIT_REQUIRE", "").replace(",", " ").split()
        (pytest.fail if named else pytest.skip)("not applicable: there is no runsc here (Debian's runsc)")
    return make(runtime="runsc", timeout=60)


async def test_its_own_kernel_runs_the_command(gvisor: DockerBackend, backend: DockerBackend, ws: Path) -> None:
    spec = SandboxSpec.workspace_write(ws, allow_degraded=frozenset(Control))
    async with gvisor.open(spec) as box:
        assert box.enforcement.grade(Control.SYSCALLS) is Grade.ENFORCED
        assert "gVisor" in box.enforcement.reason(Control.SYSCALLS)
        result = await box.run(["sh", "-c", "uname -r; echo written > file"])
        assert result.text().strip() not in ("", platform.release())
        assert not (await box.run(["sh", "-c", "echo x > /usr/x"])).ok
    assert (ws / "file").read_text() == "written\n"
    assert (await backend.execute(["uname", "-r"], spec=spec)).text().strip() == platform.release()


async def test_what_it_does_not_bound_is_refused(gvisor: DockerBackend, ws: Path) -> None:
    allowed = frozenset({Control.PROCESS_ISOLATION, Control.LIMITS_PROCESSES, Control.LIMITS_CPU})
    spec = SandboxSpec.workspace_write(ws, limits=Limits(memory_bytes=64 << 20), allow_degraded=allowed)
    with pytest.raises(EnforcementError, match=r"limits\.memory"):
        await gvisor.execute(["true"], spec=spec)
