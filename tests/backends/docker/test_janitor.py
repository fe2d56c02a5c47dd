"""
An application that is killed at any moment leaves no container.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.backends.docker.conftest import DEGRADED

from sandboxkit.testing.conformance._acts import importable

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.backends.docker import DockerBackend

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("SANDBOXKIT_DOCKER_KILLS", "12"))
AT_ONCE = 4
APPLICATION = """
import sys, anyio
from sandboxkit.backends.docker import DockerBackend
from sandboxkit.model import Control, SandboxSpec

async def main():
    spec = SandboxSpec.workspace_write(sys.argv[1], allow_degraded=[Control(name) for name in sys.argv[3:]])
    backend = DockerBackend(engine=sys.argv[2])
    while True:
        async with backend.open(spec) as box:
            await box.run(["true"])
            print("begun", flush=True)
            await box.run(["sleep", "0.1"])

anyio.run(main)
"""


async def test_applications_that_are_killed_leave_no_container(backend: DockerBackend, kind: str, ws: Path) -> None:
    degraded = [control.value for control in DEGRADED]
    chance = random.Random()
    seen = left = 0
    mine: set[int | None] = set()
    for _ in range(0, KILLS, AT_ONCE):
        applications = [
            subprocess.Popen(
                [sys.executable, "-c", APPLICATION, ws, kind, *degraded], stdout=subprocess.PIPE, env=importable()
            )
            for _ in range(AT_ONCE)
        ]
        mine.update(application.pid for application in applications)
        for application in applications:
            assert application.stdout is not None
            assert application.stdout.readline() == b"begun\n"
        for application in applications:
            time.sleep(chance.random() * 0.7)
            seen += len([found for found in await backend.list_active() if found.pid in mine])
            application.send_signal(signal.SIGKILL)
        for application in applications:
            application.wait()
            assert application.stdout is not None
            application.stdout.close()
        left += len(await backend.prune())
    deadline = time.monotonic() + 15
    while found := [
        one for one in await backend.list_active() if one.pid in mine
    ]:  # one whose making was under way when its maker died
        assert time.monotonic() < deadline, found
        left += len(await backend.prune())
        time.sleep(0.2)
    assert seen, "no application had a container when it was looked for"
    print(f"{KILLS} kills, {seen} containers seen, {left} removed by prune()")
