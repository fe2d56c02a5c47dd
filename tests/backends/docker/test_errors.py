"""
An engine that is not there, refuses, stays silent, is full or dies: a typed error, in time.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.backends.docker.conftest import DEGRADED
from tests.engine import engine, why_not

from sandboxkit.backends.docker import DockerBackend
from sandboxkit.errors import BackendUnavailableError
from sandboxkit.model import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(200),
    # The SDK closes no socket that it could not connect, and what is collected when is chance.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NO_ENGINE = why_not() or ("" if os.environ.get("DOCKER_HOST") else "left to the session that has an engine")
own_engine = pytest.mark.skipif(bool(NO_ENGINE), reason=f"not applicable: {NO_ENGINE}")


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("unix:///nonexistent/docker.sock", "no engine listens there"),
        ("tcp://127.0.0.1:1", "no engine answers there"),
        ("tcp://no-such-host.invalid:2375", "the host of its address does not exist"),
        ("nonsense://x", "correct DOCKER_HOST"),
        ("tcp://", "DOCKER_HOST"),
    ],
)
async def test_a_wrong_address(host: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    started = time.monotonic()
    detection = await DockerBackend(timeout=5).detect()
    assert not detection.available
    assert said in f"{detection.reason}; {detection.remedy}"
    assert host.partition("://")[0] in detection.reason
    assert detection.remedy
    assert time.monotonic() - started < 15


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """
    A socket that takes every connection and never says a word.
    """
    path = os.path.relpath(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(50)
        yield f"unix://{os.path.abspath(path)}"


async def test_a_silent_engine_is_given_up_in_time(silent: str) -> None:
    started = time.monotonic()
    detection = await DockerBackend(host=silent, timeout=1).detect()
    assert not detection.available
    assert "did not say what it is within 1 s" in detection.reason
    assert "timeout" in detection.remedy
    assert time.monotonic() - started < 8


@pytest.mark.skipif(os.geteuid() == 0, reason="not applicable: root may open every socket")
async def test_a_socket_of_somebody_else(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        os.chmod(tmp_path / "s", 0)
        detection = await DockerBackend(host=f"unix://{tmp_path}/s").detect()
    assert "may not open the engine's socket" in detection.reason
    assert "group" in detection.remedy


async def test_a_missing_image_is_named_and_not_pulled(backend: DockerBackend) -> None:
    detection = await DockerBackend("no-such-image:1.2").detect()
    assert "'no-such-image:1.2'" in detection.reason
    assert "docker pull no-such-image:1.2" in detection.remedy
    failed = await DockerBackend("no-such-image:1.2", pull="missing", timeout=30).detect()
    assert not failed.available


async def test_a_missing_runtime_is_named(backend: DockerBackend) -> None:
    detection = await DockerBackend(runtime="no-such-runtime").detect()
    assert "no runtime 'no-such-runtime'" in detection.reason
    assert "add-runtime" in detection.remedy


async def test_without_the_sdk_the_extra_is_named(tmp_path: Path) -> None:
    script = (
        "import sys, anyio; sys.modules['docker'] = None\n"
        "from sandboxkit.backends.docker import DockerBackend\n"
        "found = anyio.run(DockerBackend(host='tcp://127.0.0.1:1').detect)\n"
        "print(found.available, found.remedy)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False pip install 'sandboxkit[docker]'\n"


@own_engine
async def test_an_engine_that_dies_during_a_run(ws: Path) -> None:
    with engine() as own:
        spec = SandboxSpec.workspace_write(ws, allow_degraded=DEGRADED)
        killer = threading.Timer(1.5, os.kill, (own.pid, signal.SIGKILL))
        started = time.monotonic()
        async with DockerBackend(host=own.host, timeout=5).open(spec) as box:
            killer.start()
            with pytest.raises(BackendUnavailableError, match="went away during the run") as caught:
                await box.run(["sleep", "60"])
        assert "engine's log" in caught.value.remedy
        assert time.monotonic() - started < 30


@own_engine
async def test_a_full_disk(ws: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=True)
    try:
        with engine(data=disk) as own:
            spec = SandboxSpec.workspace_write(ws, allow_degraded=DEGRADED)
            fill = ["dd", "if=/dev/zero", f"of={disk}/ballast", "bs=4k"]
            assert subprocess.run(fill, check=False, capture_output=True).returncode
            with pytest.raises(BackendUnavailableError, match="disk is full") as caught:
                async with DockerBackend(host=own.host).open(spec):
                    pass
            assert "docker system" in caught.value.remedy
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
