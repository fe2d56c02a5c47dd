"""
Where user namespaces are forbidden: bubblewrap cannot run, and the registry takes
Landlock by itself for a spec it keeps. The limit is set in a namespace of the test's own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.backends.landlock.conftest import IS_ROOT

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


CONTAINER = (
    "-all,+chown,+dac_override,+fsetid,+fowner,+mknod,+net_raw,+setgid,+setuid,+setfcap,+setpcap,+net_bind_service,"
    "+sys_chroot,+kill,+audit_write"
)
"""The capabilities of a container's root. Source: moby, oci/caps/defaults.go."""


def said(start: list[str], ws: Path) -> dict[str, Any]:
    """
    What the program says where *start* starts it.
    """
    if not shutil.which(start[0]):
        pytest.skip(f"{start[0]} is not installed")
    argv = [*start, sys.executable, "-c", PROGRAM, str(ws)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False)
    if "unshare failed" in done.stderr:
        pytest.skip(f"no user namespace can be made to forbid others in: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def check(answers: dict[str, Any], reason: str, ws: Path) -> None:
    """
    That Landlock was taken, held, and was not taken for a spec it does not keep.
    """
    assert answers["bubblewrap"][0] is False
    assert reason in answers["bubblewrap"][1]
    assert answers["landlock"][0] is True
    assert answers["ran"] == ["landlock", "CapEff:\t0000000000000000\n"]
    assert (ws / "made").exists()
    assert not (ws.parent / "outside").exists()
    kind, text = answers["refused"]
    assert kind == "EnforcementError"
    assert "landlock: process.isolation is partial, enforced is required" in text
    assert reason in text


def test_the_registry_takes_landlock_by_itself(ws: Path) -> None:
    start = ["unshare", "--user", "--map-root-user", "--", "sh", "-c", FORBID, "sh"]
    check(said(start, ws), "max_user_namespaces=0", ws)


@pytest.mark.skipif(not IS_ROOT, reason="only root can be a container's root")
def test_the_root_of_a_container_gets_landlock_too(ws: Path) -> None:
    answers = said(["setpriv", "--bounding-set", CONTAINER], ws)
    check(answers, "a root caller may not make a mount namespace here", ws)
