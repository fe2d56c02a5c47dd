"""
Where an engine is, by the words of the `docker` command: addresses, contexts, certificates.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends.docker import DockerBackend
from sandboxkit.backends.docker._endpoint import Certificates, Endpoint, endpoint
from sandboxkit.backends.docker._tunnel import meaning, ssh_argv
from sandboxkit.errors import BackendUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

PEMS = ("ca.pem", "cert.pem", "key.pem")


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    An empty directory for what the `docker` command keeps, and no variable of it.
    """
    for name in ("HOST", "CONTEXT", "CERT_PATH", "TLS_VERIFY"):
        monkeypatch.delenv(f"DOCKER_{name}", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path


def context(root: Path, name: str, host: str, *pems: str, **more: object) -> None:
    """
    Makes a context as `docker context create` does.
    """
    ident = hashlib.sha256(name.encode()).hexdigest()
    for kind in ("meta", "tls"):
        (root / "contexts" / kind / ident / "docker").mkdir(parents=True)
    meta = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, **more}}}
    (root / "contexts/meta" / ident / "meta.json").write_text(json.dumps(meta))
    for pem in pems:
        (root / "contexts/tls" / ident / "docker" / pem).touch()


def refused(host: str | None = None) -> BackendUnavailableError:
    with pytest.raises(BackendUnavailableError) as caught:
        endpoint(host)
    assert caught.value.remedy
    return caught.value


def test_the_order_of_the_docker_command(configuration: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert endpoint(None) == Endpoint("unix:///var/run/docker.sock")
    context(configuration, "far", "ssh://far")
    (configuration / "config.json").write_text('{"currentContext": "far"}')
    assert endpoint(None).host == "ssh://far"
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    assert endpoint(None).host == "unix:///var/run/docker.sock"
    monkeypatch.setenv("DOCKER_HOST", "tcp://of-the-environment:2375")
    assert endpoint(None) == Endpoint("tcp://of-the-environment:2375")
    assert endpoint("unix:///given").host == "unix:///given"


def test_the_real_command_makes_what_is_read(configuration: Path) -> None:
    words = ["docker", "context", "create", "made", "--docker", "host=tcp://127.0.0.1:2376"]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except FileNotFoundError:
        context(configuration, "made", "tcp://127.0.0.1:2376")
    (configuration / "config.json").write_text('{"currentContext": "made"}')
    assert endpoint(None).host == "tcp://127.0.0.1:2376"


def test_certificates_of_the_environment(configuration: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    assert "ca.pem" in refused("tcp://far:2376").reason
    (configuration / "ca.pem").touch()
    assert endpoint("tcp://far:2376").certificates == Certificates(f"{configuration}/ca.pem")
    (configuration / "cert.pem").touch()
    assert "only one of cert.pem and key.pem" in refused("tcp://far:2376").reason
    (configuration / "key.pem").touch()
    pair = (f"{configuration}/cert.pem", f"{configuration}/key.pem")
    assert endpoint("tcp://far:2376").certificates == Certificates(f"{configuration}/ca.pem", pair)
    assert endpoint("unix:///x").certificates is None
    assert endpoint("ssh://far").certificates is None


def test_a_path_to_certificates_is_enough_for_tls(configuration: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The SDK would take them and not check the engine's.
    """
    (configuration / "ca.pem").touch()
    monkeypatch.setenv("DOCKER_CERT_PATH", str(configuration))
    assert endpoint("tcp://far:2376").certificates == Certificates(f"{configuration}/ca.pem")
    assert not endpoint("tcp://far:2376").is_open
    monkeypatch.delenv("DOCKER_CERT_PATH")
    assert endpoint("tcp://far:2376").is_open


def test_a_context_brings_its_certificates(configuration: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context(configuration, "far", "tcp://far:2376", *PEMS, SkipTLSVerify=False)
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    found = endpoint(None)
    assert found.certificates is not None
    assert found.certificates.ca.endswith("/docker/ca.pem")
    assert found.certificates.client is not None


def test_a_context_that_checks_nothing_is_refused(configuration: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context(configuration, "far", "tcp://far:2376", *PEMS, SkipTLSVerify=True)
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    assert "does not check the engine's certificate" in refused().reason


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", "{", "cannot be read"),
        ("config.json", "[]", "holds no object"),
        ("config.json", '{"currentContext": "nowhere"}', "no docker context 'nowhere'"),
    ],
)
def test_what_cannot_be_read_is_named(configuration: Path, name: str, content: str, said: str) -> None:
    (configuration / name).write_text(content)
    assert said in refused().reason


def test_a_context_of_another_kind(configuration: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context(configuration, "far", "")
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    assert "names no engine" in refused().reason


def test_a_context_needs_no_sdk(configuration: Path) -> None:
    context(configuration, "gone", f"unix://{configuration}/none")
    (configuration / "config.json").write_text('{"currentContext": "gone"}')
    script = (
        "import sys, anyio; sys.modules['docker'] = None\n"
        "from sandboxkit.backends.docker import DockerBackend\n"
        "print(anyio.run(DockerBackend().detect).reason)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "no engine listens there" in done.stdout


def test_the_line_of_ssh() -> None:
    argv = ssh_argv("docker", "ssh://me@far:2222/run/engine.sock", "/tmp/s", 7)
    assert argv[0].endswith("/ssh")
    assert argv[-8:] == ("-l", "me", "-p", "2222", "-L", "/tmp/s:/run/engine.sock", "--", "far")
    assert "BatchMode=yes" in argv
    assert "ConnectTimeout=7" in argv
    assert ssh_argv("docker", "ssh://far", "/tmp/s", 7)[-3:] == ("/tmp/s:/var/run/docker.sock", "--", "far")
    assert ssh_argv("podman", "ssh://far", "/tmp/s", 7)[-3:] == ("/tmp/s:/run/podman/podman.sock", "--", "far")


@pytest.mark.parametrize(
    "host",
    [
        "ssh://",
        "ssh://:22",
        "ssh://-oProxyCommand=x",
        "ssh://-l@far",
        "ssh://me:word@far",
        "ssh://far:port",
        "ssh://far?x=1",
    ],
)
def test_an_address_by_ssh_that_is_none(host: str) -> None:
    with pytest.raises(BackendUnavailableError, match="no address by ssh") as caught:
        ssh_argv("docker", host, "/tmp/s", 7)
    assert "word" not in caught.value.reason


def test_what_ssh_says_is_told_apart() -> None:
    said = {
        "Host key verification failed.": "host key",
        "me@far: Permission denied (publickey).": "keys",
        "ssh: connect to host far port 22: Connection refused": "no sshd",
        "ssh: Could not resolve hostname far: Name or service not known": "does not exist",
        "channel 1: open failed: connect failed: open failed": "no engine listens",
        "channel 1: open failed: administratively prohibited: open failed": "sshd forwards none",
    }
    for words, reason in said.items():
        found = meaning("docker", words)
        assert found is not None
        assert reason in found[0]
    assert meaning("docker", "Warning: something else") is None


@pytest.mark.anyio
async def test_what_is_said_of_a_way_to_podman_names_podman() -> None:
    with pytest.raises(BackendUnavailableError, match="no address by ssh") as caught:
        ssh_argv("podman", "ssh://", "/tmp/s", 7)
    assert caught.value.backend == "podman"
    found = meaning("podman", "ssh: Could not resolve hostname far: Name or service not known")
    assert found is not None
    assert "CONTAINER_HOST" in found[1]
    image = DockerBackend("x", engine="podman", workspace="copy", host="ssh://127.0.0.1:1", timeout=5)
    detection = await image.detect()
    assert (detection.available, detection.reason) == (False, "ssh://127.0.0.1:1: no sshd answers there")


@pytest.mark.anyio
async def test_a_box_of_the_hosts_system_needs_an_engine_here() -> None:
    detection = await DockerBackend(host="tcp://127.0.0.1:1", timeout=5).detect()
    assert not detection.available
    assert detection.remedy


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "-x",
        "--privileged",
        "../containers/x",
        "a/../b",
        "a/./b",
        "x y",
        "x?force=1",
        "x#",
        "x%2e",
        "x\n",
        "/x",
        "x/",
        "a" + "_" * 500 + "!",
    ],
)
def test_what_is_no_name_of_an_image(name: str) -> None:
    with pytest.raises(ValueError, match="no name of an image"):
        DockerBackend(name)


@pytest.mark.parametrize(
    "name",
    [
        "python:3.12-slim",
        "localhost:5000/a/b_c/d-e.f__g--h:Tag_1.0-x",
        f"python@sha256:{'0a' * 32}",
        f"sha256:{'0a' * 32}",
        "0a1b2c3d4e5f",
        "x:_odd..tag-1.-",
        "ghcr.io/o/r:v1@sha256:" + "0" * 64,
    ],
)
def test_what_is_one(name: str) -> None:
    assert DockerBackend(name).name == "docker"
