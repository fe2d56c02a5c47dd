"""
Where user namespaces are forbidden: bubblewrap cannot run, and the registry takes
Landlock by itself for a spec it keeps. The limit is set in a namespace of the test's own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("backend")

PROGRAM = """
import json, os, sys
import anyio
from sandboxkit.backends import SandboxRegistry
from sandboxkit.errors import SandboxError
from sandboxkit.model import SandboxSpec

async def main():
    registry = SandboxRegistry.default()
    spec = SandboxSpec.workspace_write(sys.argv[1], allow_degraded={"process.isolation", "limits.processes"})
    said = {status.name: [status.available, status.reason] for status in await registry.list(spec)}
    async with registry.open(spec) as box:
        result = await box.run(["sh", "-c", "echo x >made; echo x 2>/dev/null >../outside; grep CapEff /proc/self/status"])
    said["ran"] = [result.backend, result.text()]
    try:
        await registry.active(SandboxSpec.workspace_write(sys.argv[1]))
    except SandboxError as error:
        said["refused"] = [type(error).__name__, str(error)]
    print(json.dumps(said))

anyio.run(main)
"""
FORBID = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'


def test_the_registry_takes_landlock_by_itself(ws: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed")
    inner = [sys.executable, "-c", PROGRAM, str(ws)]
    argv = [unshare, "--user", "--map-root-user", "--", "sh", "-c", FORBID, "sh", *inner]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False)
    if "unshare failed" in done.stderr:
        pytest.skip(f"no user namespace can be made to forbid others in: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["bubblewrap"][0] is False
    assert "max_user_namespaces=0" in said["bubblewrap"][1]
    assert said["landlock"][0] is True
    assert said["ran"] == ["landlock", "CapEff:\t0000000000000000\n"]
    assert (ws / "made").exists()
    assert not (ws.parent / "outside").exists()
    kind, text = said["refused"]
    assert kind == "EnforcementError"
    assert "landlock: process.isolation is partial, enforced is required" in text
    assert "max_user_namespaces=0" in text
