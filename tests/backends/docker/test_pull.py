"""
Images are fetched when the pull policy says so and never else: from a registry on loopback,
which writes down what it was asked for.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from tests.backends.docker.conftest import DEGRADED, shell_archive

from sandboxkit.model import Control, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import docker

    from sandboxkit.backends.docker import DockerBackend

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(200)]
NAME = "sandboxkit-test-pull"
UNBOUNDED = frozenset({Control.LIMITS_CPU, Control.LIMITS_FILE_SIZE, Control.LIMITS_MEMORY, Control.LIMITS_PROCESSES})
"""What nobody bounds in an image without Python, where the engine has no control groups."""
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Registry(ThreadingHTTPServer):
    """
    As much of a registry as one image takes.

    Source: distribution, "HTTP API V2", "Image Manifest V 2, Schema 2".
    """

    daemon_threads = True

    def __init__(self, archive: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        layer = gzip.compress(archive, mtime=0)
        about = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(archive)]},
        }
        config = json.dumps(about).encode()
        rows = [
            {"mediaType": kind, "size": len(data), "digest": digest(data)}
            for kind, data in ((CONFIG, config), (LAYER, layer))
        ]
        told = {"schemaVersion": 2, "mediaType": MANIFEST, "config": rows[0], "layers": rows[1:]}
        manifest = json.dumps(told).encode()
        self.asked: list[str] = []
        self.content = {
            "/v2/": ("application/json", b"{}"),
            f"/v2/{NAME}/manifests/one": (MANIFEST, manifest),
            f"/v2/{NAME}/manifests/{digest(manifest)}": (MANIFEST, manifest),
            f"/v2/{NAME}/blobs/{digest(config)}": (CONFIG, config),
            f"/v2/{NAME}/blobs/{digest(layer)}": (LAYER, layer),
        }

    @property
    def image(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}/{NAME}:one"


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.wfile.write(self.answer())

    def answer(self) -> bytes:
        self.server.asked.append(self.path)
        kind, data = self.server.content.get(self.path, ("text/plain", b""))
        self.send_response(200 if data else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", digest(data))
        self.end_headers()
        return data

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


@contextmanager
def registry(archive: bytes) -> Iterator[Registry]:
    with Registry(archive) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join()


async def test_an_image_is_fetched_when_the_policy_says_so(
    backend: DockerBackend, make: Callable[..., DockerBackend], client: docker.APIClient, bounds: bool
) -> None:
    spec = SandboxSpec.isolated(allow_degraded=DEGRADED if bounds else DEGRADED | UNBOUNDED)
    with registry(shell_archive()) as found:
        try:
            never = await make(found.image).detect()
            assert not never.available
            assert found.image in never.reason
            assert "pull='never'" in never.reason
            assert found.asked == []

            missing = make(found.image, pull="missing", timeout=60)
            assert (await missing.execute(["echo", "fetched"], spec=spec)).check().text() == "fetched\n"
            assert any("/blobs/" in path for path in found.asked)

            found.asked.clear()
            for again in (missing, make(found.image, pull="missing"), make(found.image)):
                assert (await again.detect()).available
            assert found.asked == []

            assert (await make(found.image, pull="always", timeout=60).detect()).available
            assert any(path.endswith("/manifests/one") for path in found.asked)

            other = await make(found.image.replace(":one", ":two"), pull="missing", timeout=60).detect()
            assert not other.available
            assert ":two" in other.reason
            assert "correct its name" in other.remedy
        finally:
            client.remove_image(found.image, force=True)


HELPER = """#!/bin/sh
cat > /dev/null
echo "$1" >> '{log}'
echo "credentials not found in native keychain"
exit 1
"""


@pytest.mark.parametrize("kind", ["docker"], indirect=True)
async def test_the_docker_commands_configuration_starts_and_adds_nothing(
    make: Callable[..., DockerBackend],
    client: docker.APIClient,
    shell_image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Its credential helper is a program, and its proxies would be variables of the container.
    """
    log, helper = tmp_path / "log", tmp_path / "docker-credential-of-a-test"
    helper.write_text(HELPER.format(log=log))
    helper.chmod(0o755)
    proxies = {"default": {"httpProxy": "http://127.0.0.1:1", "httpsProxy": "http://127.0.0.1:1"}}
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "of-a-test", "proxies": proxies}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    spec = SandboxSpec.isolated(allow_degraded=DEGRADED)
    result = await make(shell_image).execute(["/bin/sh", "-c", "env"], spec=spec)
    assert "PATH=" in result.check().text()
    assert "proxy" not in result.text().lower()
    async with make().open(spec) as box:
        (container,) = box.containers
        assert not client.inspect_container(container)["Config"]["Env"]
    assert not log.exists()
    with registry(shell_archive()) as found:
        try:
            assert (await make(found.image, pull="missing", timeout=60).detect()).available
        finally:
            client.remove_image(found.image, force=True)
    assert set(log.read_text().split()) == {"get"}, "who asks for an image to be fetched has it asked"
