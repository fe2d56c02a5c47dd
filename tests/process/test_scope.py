"""
A group of the broker's own that systemd gives a user who may make none, and what happens
where it does not.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends._cgroups import Cgroups, Hierarchy, cgroups, control_groups
from sandboxkit.errors import SetupError
from sandboxkit.model import Control, Grade, Limits, Termination
from sandboxkit.process import broker_pid, direct_plan, run, shutdown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.model import LaunchPlan

pytestmark = pytest.mark.anyio
FOUND = cgroups()
SCOPE = next((row for row in FOUND.hierarchies if row.scope), None)
with_manager = pytest.mark.skipif(SCOPE is None, reason=f"no scope is asked of systemd here: {FOUND.describe()}")
MIB = 1 << 20
HOG = f"{sys.executable} -c 'b = bytearray(200 << 20); b[::4096] = bytes(len(b[::4096])); print(1)'"
NAMED = {Control.LIMITS_MEMORY: Grade.ENFORCED}


@pytest.fixture(autouse=True)
def fresh_broker() -> Iterator[None]:
    shutdown()
    yield
    shutdown()


def plan(script: str, found: Cgroups, required: dict[Control, Grade] | None = None, **limits: int) -> LaunchPlan:
    bare = direct_plan(["/bin/sh", "-c", script], environment={"PATH": "/usr/bin:/bin"}, cwd="/")
    return replace(bare, groups=control_groups(Limits(**limits), required or {}, found))


def group(pid: int | str) -> str:
    """
    The directory of the group *pid* is in, where version 2 is mounted.
    """
    assert SCOPE is not None
    rows = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return SCOPE.base + next(row[3:] for row in rows if row.startswith("0::"))


def gone(path: str) -> bool:
    deadline = time.monotonic() + 10
    while os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not os.path.exists(path)


@with_manager
async def test_the_broker_goes_into_a_scope_and_the_application_stays() -> None:
    before = group("self")
    outcome = await run(plan("cat /proc/self/cgroup", FOUND, memory_bytes=256 * MIB))
    broker = broker_pid()
    assert broker is not None
    scope = group(broker).rpartition("/sandboxkit-")[0]
    assert scope.endswith(".scope")
    assert f"/sandboxkit-{os.stat('/proc/self/ns/pid').st_ino}-{broker}-" in scope
    assert group("self") == before
    assert f"{scope.removeprefix(SCOPE.base if SCOPE else '')}/sandboxkit-" in outcome.stdout.decode()
    assert os.stat(scope).st_uid == os.geteuid()
    shutdown()
    assert gone(scope)


@with_manager
async def test_a_bomb_ends_at_the_limit_and_lives_without() -> None:
    outcome = await run(plan(HOG, FOUND, NAMED, memory_bytes=64 * MIB), timeout=60)
    assert outcome.termination is Termination.MEMORY_LIMIT
    assert outcome.usage is not None
    assert 60 * MIB < (outcome.usage.tree_memory_peak_bytes or 0) <= 64 * MIB
    assert (await run(plan(HOG, Cgroups()), timeout=60)).exit_code == 0


@with_manager
@pytest.mark.parametrize("is_application_killed", [False, True])
async def test_what_is_killed_leaves_no_scope(is_application_killed: bool) -> None:
    application = """
import anyio
from sandboxkit import SandboxSpec, open_sandbox
from sandboxkit.process import broker_pid

async def main():
    async with open_sandbox(SandboxSpec.isolated()) as box, box.start(["sh", "-c", "echo ready; sleep 600"]) as process:
        await process.stdout.receive()
        print(broker_pid(), flush=True)
        await process.wait()

anyio.run(main)
"""
    with subprocess.Popen([sys.executable, "-c", application], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        broker = int(process.stdout.readline())
        scope = group(broker).rpartition("/")[0]
        assert scope.endswith(".scope")
        assert len([path for path in Path(scope).iterdir() if path.is_dir()]) == 3  # home, the box's, the next one's
        os.kill(process.pid if is_application_killed else broker, signal.SIGKILL)
        if not is_application_killed:
            process.kill()
    assert gone(scope)


@with_manager
async def test_the_next_broker_gets_a_scope_of_its_own() -> None:
    scopes = []
    for _ in range(2):
        assert (await run(plan("true", FOUND))).exit_code == 0
        scopes.append(group(broker_pid() or 0).rpartition("/")[0])
        shutdown()
    assert scopes[0] != scopes[1]
    assert all(map(gone, scopes))


def asked_at(bus: Path) -> Cgroups:
    return Cgroups((Hierarchy(2, ("memory", "pids", "cpuacct"), "/sys/fs/cgroup", "", scope=str(bus)),), "", "")


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Path]:
    """
    The socket of a manager that does not answer.
    """
    path = tmp_path / "bus"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield path


async def test_a_limit_that_must_hold_is_not_run_where_no_scope_is_had(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    with pytest.raises(SetupError, match=r"control group in a scope of systemd: .*No such file"):
        await run(plan(f"touch {marker}", asked_at(tmp_path / "missing"), NAMED, memory_bytes=64 * MIB))
    assert not marker.exists()


async def test_a_limit_that_may_be_weaker_is_told_and_asked_for_once(silent: Path) -> None:
    began = time.monotonic()
    for _ in range(3):
        outcome = await run(plan("cat /proc/self/cgroup", asked_at(silent), memory_bytes=64 * MIB), timeout=60)
        assert outcome.exit_code == 0
        assert "sandboxkit" not in outcome.stdout.decode()
        assert outcome.unheld["limits.memory"].startswith("control group in a scope of systemd: ")
    assert time.monotonic() - began < 12


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_a_bus_of_another_user_is_not_asked(tmp_path: Path) -> None:
    bus = tmp_path / "bus"
    script = f"import os, socket, time; os.setuid(4242); s = socket.socket(socket.AF_UNIX); s.bind({str(bus)!r}); s.listen(); print(1, flush=True); time.sleep(60)"
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    tmp_path.chmod(0o777)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            with pytest.raises(SetupError, match=r"uid 4242's"):
                await run(plan("true", asked_at(bus), NAMED, memory_bytes=64 * MIB))
        finally:
            other.kill()
