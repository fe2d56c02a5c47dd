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
    from collections.abc import Sequence
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


ROUTER = """
import json, sys
import anyio
from sandboxkit import AutoSandboxRouter, SandboxSpec
from sandboxkit.errors import EnforcementError

async def main():
    lesser = SandboxSpec.workspace_write(sys.argv[1], allow_degraded={"process.isolation", "limits.processes"})
    router = AutoSandboxRouter()
    result = (await router.route(["sh", "-c", "echo x >made"], spec=lesser)).result
    said = {"backend": result.backend, "isolation": str(result.enforcement.grade("process.isolation")), "ok": result.ok}
    try:
        await router.route(["sh", "-c", "echo x >never"], spec=SandboxSpec.workspace_write(sys.argv[1]))
    except EnforcementError as error:
        said["refused"] = str(error)
    print(json.dumps(said))

anyio.run(main)
"""

CONTAINER = (
    "-all,+chown,+dac_override,+fsetid,+fowner,+mknod,+net_raw,+setgid,+setuid,+setfcap,+setpcap,+net_bind_service,"
    "+sys_chroot,+kill,+audit_write"
)
"""The capabilities of a container's root. Source: moby, oci/caps/defaults.go."""


NO_NAMESPACES = ("unshare", "--user", "--map-root-user", "--", "sh", "-c", FORBID, "sh")


def started(start: Sequence[str], *argv: str) -> subprocess.CompletedProcess[str]:
    """
    *argv* where *start* starts it.
    """
    if not shutil.which(start[0]):
        pytest.skip(f"{start[0]} is not installed")
    done = subprocess.run([*start, *argv], capture_output=True, text=True, timeout=50, check=False)
    if "unshare failed" in done.stderr:
        pytest.skip(f"no user namespace can be made to forbid others in: {done.stderr.strip()}")
    return done


def said(start: Sequence[str], ws: Path, program: str = PROGRAM) -> dict[str, Any]:
    """
    What the program says where *start* starts it.
    """
    done = started(start, sys.executable, "-c", program, str(ws))
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
    check(said(NO_NAMESPACES, ws), "max_user_namespaces=0", ws)


def test_the_router_steps_down_only_where_the_spec_says_so(ws: Path) -> None:
    answers = said(NO_NAMESPACES, ws, ROUTER)
    refused = answers.pop("refused")
    assert answers == {"backend": "landlock", "isolation": "partial", "ok": True}
    assert [path.name for path in ws.iterdir()] == ["made"]
    assert "landlock: process.isolation is partial, enforced is required" in refused
    assert "bubblewrap: user namespaces are" in refused
    assert "max_user_namespaces=0" in refused


def test_doctor_says_why_a_default_spec_runs_nowhere() -> None:
    done = started(NO_NAMESPACES, sys.executable, "-m", "sandboxkit", "doctor")
    *_, bubblewrap, landlock, docker, podman, rest = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "")
    assert bubblewrap.startswith("a default spec does not run in bubblewrap: user namespaces are")
    assert landlock.startswith("a default spec does not run in landlock: process.isolation is partial")
    assert docker.startswith("a default spec does not run in docker: ")
    assert podman.startswith("a default spec does not run in podman: ")
    assert rest.startswith("commands can be run here only under a spec with allow_degraded = ['process.isolation'")


@pytest.mark.skipif(not IS_ROOT, reason="only root can be a container's root")
def test_the_root_of_a_container_gets_landlock_too(ws: Path) -> None:
    answers = said(["setpriv", "--bounding-set", CONTAINER], ws)
    check(answers, "a root caller may not make a mount namespace here", ws)
