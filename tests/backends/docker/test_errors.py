"""
An engine that is not there, refuses, stays silent, is full or dies: a typed error, in time.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.backends.docker.conftest import DEGRADED
from tests.engine import VARIABLES, Engine, engine, why_not

from sandboxkit.backends.docker import DockerBackend
from sandboxkit.backends.docker._endpoint import endpoint
from sandboxkit.errors import BackendUnavailableError
from sandboxkit.model import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sandboxkit.backends.docker._facts import EngineName

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(200),
    # The SDK closes no socket that it could not connect, and what is collected when is chance.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KINDS: tuple[EngineName, ...] = ("docker", "podman")
both = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def own(kind: EngineName) -> Iterator[Engine]:
    """
    An engine that a test may break.
    """
    if reason := why_not(kind) or ("" if os.environ.get(VARIABLES[kind]) else "left to the session that has an engine"):
        pytest.skip(f"not applicable: {reason}")
    with engine(kind) as found:
        yield found


@both
@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("unix:///nonexistent/engine.sock", "no engine listens there"),
        ("tcp://127.0.0.1:1", "no engine answers there"),
        ("tcp://no-such-host.invalid:2375", "the host of its address does not exist"),
        ("nonsense://x", "correct {variable}"),
        ("tcp://", "{variable}"),
    ],
)
async def test_a_wrong_address(host: str, said: str, kind: EngineName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES[kind], host)
    started = time.monotonic()
    detection = await DockerBackend(engine=kind, timeout=5).detect()
    assert not detection.available
    assert said.format(variable=VARIABLES[kind]) in f"{detection.reason}; {detection.remedy}"
    assert host.partition("://")[0] in detection.reason
    assert detection.remedy
    assert time.monotonic() - started < 15


async def test_where_podman_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket_file = tmp_path / "podman/podman.sock"
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if not os.path.exists("/run/podman/podman.sock"):
        detection = await DockerBackend(engine="podman").detect()
        assert detection.reason == f"unix://{socket_file}: no engine listens there"
        assert "systemctl --user start podman.socket" in detection.remedy
        assert "CONTAINER_HOST" in detection.remedy
    socket_file.parent.mkdir()
    socket_file.touch()
    assert endpoint(None, "podman").host == f"unix://{socket_file}"
    monkeypatch.setenv("CONTAINER_HOST", "unix:///of/the/variable")
    assert endpoint(None, "podman").host == "unix:///of/the/variable"
    assert endpoint("unix:///of/the/argument", "podman").host == "unix:///of/the/argument"


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


@both
async def test_a_silent_engine_is_given_up_in_time(silent: str, kind: EngineName) -> None:
    started = time.monotonic()
    detection = await DockerBackend(host=silent, engine=kind, timeout=1).detect()
    assert not detection.available
    assert "did not say what it is within 1 s" in detection.reason
    assert "timeout" in detection.remedy
    assert time.monotonic() - started < 8


ODD_ENGINES = (
    b"",
    b"<html>",
    b"[1]",
    b'{"CgroupVersion": "two"}',
    b'{"SecurityOptions": 5}',
    b'{"Runtimes": 5}',
)


@contextmanager
def odd_engine(path: Path, told: bytes) -> Iterator[str]:
    """
    Something that answers a ping as an engine does, and *told* to all else.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = b"OK" if self.path.endswith("/_ping") else told
            self.send_response(200)
            self.send_header("Api-Version", "1.41")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def address_string(self) -> str:
            return "a socket"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    with socketserver.ThreadingUnixStreamServer(os.path.relpath(path), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            server.shutdown()
            thread.join()


@both
async def test_an_engine_that_answers_something_else(kind: EngineName, tmp_path: Path) -> None:
    for number, told in enumerate(ODD_ENGINES):
        with odd_engine(tmp_path / str(number), told) as host:
            backend = DockerBackend(host=host, engine=kind, timeout=5)
            detection = await backend.detect()
            assert not detection.available, told
            assert host in detection.reason, told
            assert detection.remedy, told
            with pytest.raises(BackendUnavailableError):
                await backend.list_active()


async def test_an_engine_with_containers_of_windows(tmp_path: Path) -> None:
    told = json.dumps({"OSType": "windows", "Architecture": "x86_64", "ServerVersion": "27.0"}).encode()
    with odd_engine(tmp_path / "engine", told) as host:
        detection = await DockerBackend("image", host=host, workspace="copy", timeout=5).detect()
    assert "containers are windows's" in detection.reason
    assert "containers of Linux" in detection.remedy


@both
@pytest.mark.skipif(os.geteuid() == 0, reason="not applicable: root may open every socket")
async def test_a_socket_of_somebody_else(tmp_path: Path, kind: EngineName) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        os.chmod(tmp_path / "s", 0)
        detection = await DockerBackend(host=f"unix://{tmp_path}/s", engine=kind).detect()
    assert "may not open the engine's socket" in detection.reason
    assert {"docker": "usermod -aG docker", "podman": "systemctl --user start"}[kind] in detection.remedy


async def test_the_other_engine_is_told_apart(kind: EngineName, backend: DockerBackend) -> None:
    other = next(name for name in KINDS if name != kind)
    detection = await DockerBackend(host=os.environ[VARIABLES[kind]], engine=other).detect()
    assert not detection.available
    assert f"{kind} answers there, not {other}" in detection.reason
    assert detection.remedy == f"use DockerBackend(engine={kind!r})"


@pytest.mark.usefixtures("backend")
async def test_a_missing_image_is_named_and_not_pulled(kind: EngineName, make: Callable[..., DockerBackend]) -> None:
    detection = await make("no-such-image:1.2").detect()
    assert "'no-such-image:1.2'" in detection.reason
    assert f"{kind} pull no-such-image:1.2" in detection.remedy
    # With nothing to fetch from: the test stays on this machine.
    failed = await make("127.0.0.1:1/no-such-image:1.2", pull="missing", timeout=30).detect()
    assert not failed.available
    assert "cannot be pulled" in failed.reason


@pytest.mark.usefixtures("backend")
async def test_a_missing_runtime_is_named(kind: EngineName, make: Callable[..., DockerBackend]) -> None:
    detection = await make(runtime="no-such-runtime").detect()
    assert "'no-such-runtime'" in detection.reason
    assert {"docker": "dockerd --add-runtime", "podman": "podman --runtime NAME"}[kind] in detection.remedy


async def test_without_the_sdk_the_extra_is_named(tmp_path: Path) -> None:
    script = (
        "import sys, anyio; sys.modules['docker'] = None\n"
        "from sandboxkit.backends.docker import DockerBackend\n"
        "found = anyio.run(DockerBackend(host='tcp://127.0.0.1:1').detect)\n"
        "print(found.available, found.remedy)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False pip install 'sandboxkit[docker]'\n"


@both
async def test_an_engine_that_dies_during_a_run(own: Engine, ws: Path) -> None:
    spec = SandboxSpec.workspace_write(ws, allow_degraded=DEGRADED)
    killer = threading.Timer(1.5, os.kill, (own.pid, signal.SIGKILL))
    started = time.monotonic()
    async with backend_of(own).open(spec) as box:
        killer.start()
        with pytest.raises(BackendUnavailableError, match="went away during the run") as caught:
            await box.run(["sleep", "60"])
    assert "engine's log" in caught.value.remedy
    assert time.monotonic() - started < 30


@both
async def test_an_engine_that_stands_still(own: Engine, ws: Path) -> None:
    spec = SandboxSpec.workspace_write(ws, allow_degraded=DEGRADED)
    backend = backend_of(own)
    detection = await backend.detect(spec)
    os.kill(own.pid, signal.SIGSTOP)
    started = time.monotonic()
    try:
        with pytest.raises(BackendUnavailableError, match="within 5 s") as caught:
            async with backend.open_detected(spec, detection):
                pass
        assert "timeout" in caught.value.remedy
        assert time.monotonic() - started < 20
    finally:
        os.kill(own.pid, signal.SIGCONT)
    assert (await backend.execute(["true"], spec=spec)).ok
    with anyio.fail_after(30):  # what it was asked for in vain is made, and removed then
        while await backend.list_active():  # noqa: ASYNC110 - the engine does it
            await anyio.sleep(0.1)


@both
async def test_a_full_disk(kind: EngineName, ws: Path, tmp_path: Path) -> None:
    if reason := why_not(kind) or ("" if os.environ.get(VARIABLES[kind]) else "left to the session that has an engine"):
        pytest.skip(f"not applicable: {reason}")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=True)
    try:
        with engine(kind, data=disk) as own:
            spec = SandboxSpec.workspace_write(ws, allow_degraded=DEGRADED)
            fill = ["dd", "if=/dev/zero", f"of={disk}/ballast", "bs=4k"]
            assert subprocess.run(fill, check=False, capture_output=True).returncode
            with pytest.raises(BackendUnavailableError, match="disk is full") as caught:
                async with backend_of(own, timeout=20).open(spec):
                    pass
            assert f"{kind} system" in caught.value.remedy
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def backend_of(own: Engine, timeout: float = 5) -> DockerBackend:
    """
    The backend for an engine of a test's own.
    """
    return DockerBackend(host=own.host, timeout=timeout, engine=own.kind)
