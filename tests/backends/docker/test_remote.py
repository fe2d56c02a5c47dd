"""
Engines that are reached over a network: a second one of our own, on loopback, by TCP with
TLS and through an sshd; and what goes wrong on the way there.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trustme
from tests.backends.docker.conftest import PYTHON_CHANGES, python_archive
from tests.backends.docker.test_windows import check, seen_there
from tests.conftest import STANDING
from tests.engine import Engine, engine
from tests.engine import why_not as no_engine

from sandboxkit.backends import SandboxRegistry
from sandboxkit.backends.docker import DockerBackend
from sandboxkit.errors import BackendUnavailableError, EnforcementError
from sandboxkit.model import Control, Grade, SandboxSpec, Termination
from sandboxkit.testing.conformance._acts import importable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NO_ENGINE = no_engine() or ("" if os.environ.get("DOCKER_HOST") else "left to the session that has an engine")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(200),
    pytest.mark.skipif(bool(NO_ENGINE), reason=f"not applicable: {NO_ENGINE}"),
    # The SDK closes no socket that it could not connect, and what is collected when is chance.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

IMAGE = "sandboxkit-test-remote:latest"
ENVIRONMENT = {"PATH": "/usr/local/bin:/bin", "PYTHONHOME": "/usr/local"}
SSHD = "/usr/sbin/sshd"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Remote:
    """
    An engine with an address by TCP and TLS.
    """

    engine: Engine
    port: int
    pems: Path

    @property
    def host(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"


def write_pems(directory: Path, authority: trustme.CA, *names: str, client: bool = True) -> Path:
    """
    What the `docker` command reads, and server.pem and server-key.pem for *names*.
    """
    directory.mkdir(exist_ok=True)
    authority.cert_pem.write_to_path(directory / "ca.pem")
    for prefix, cert in (("server-", authority.issue_cert(*names)), ("", authority.issue_cert("me@application"))):
        if prefix or client:
            cert.private_key_pem.write_to_path(directory / f"{prefix}key.pem")
            chain = b"".join(pem.bytes() for pem in cert.cert_chain_pems)
            (directory / f"{prefix}cert.pem").write_bytes(chain)
    return directory


def by_tls(pems: Path, port: int) -> list[str]:
    files = {"cacert": "ca", "cert": "server-cert", "key": "server-key"}
    return [
        *("-H", f"tcp://127.0.0.1:{port}", "--tlsverify"),
        *(word for option, name in files.items() for word in (f"--tls{option}", str(pems / f"{name}.pem"))),
    ]


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """
    The engine, with an image that has Python.
    """
    import docker

    pems = write_pems(tmp_path_factory.mktemp("pems") / "p", trustme.CA(), "127.0.0.1")
    port = free_port()
    with engine(options=by_tls(pems, port)) as found:
        client = docker.APIClient(base_url=found.host, version="auto")
        name, _, tag = IMAGE.partition(":")
        client.import_image_from_data(python_archive(), repository=name, tag=tag, changes=list(PYTHON_CHANGES))
        client.close()
        STANDING.add(found.pid)
        yield Remote(found, port, pems)
        STANDING.discard(found.pid)
        assert found.get("/containers/json?all=1") == [], "nothing is left on it"


@pytest.fixture
def tls(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> Remote:
    """
    The engine, as the environment of this process names it.
    """
    monkeypatch.setenv("DOCKER_HOST", remote.host)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(remote.pems))
    # Of another program; requests would believe it more than us.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(remote.pems / "server-cert.pem"))
    return remote


def test_an_application_on_windows_reaches_it(tls: Remote) -> None:
    check(seen_there(IMAGE))


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_box_there_has_copies(tls: Remote, ws: Path) -> None:
    (ws / "file").write_text("of the application")
    async with DockerBackend(IMAGE, workspace="copy").open(SandboxSpec.workspace_write(ws)) as box:
        for control in (
            Control.FS_READ,
            Control.FS_WRITE,
            Control.PROCESS_ISOLATION,
            Control.NET_NONE,
            Control.SYSCALLS,
        ):
            assert box.enforcement.grade(control) is Grade.ENFORCED, control
        script = "cat file; id -u; echo changed > file; touch /etc/x"
        result = await box.run(["sh", "-c", script], environment=ENVIRONMENT)
        said, _, who = result.text().strip().partition("application")
        assert (said, int(who) != 0) == ("of the ", True), "it is nobody's root, whoever calls"
        assert result.exit_code == 1, "the root cannot be written"
        assert await box.files.read("file") == b"changed\n"
        data = os.urandom(3_000_000)
        assert (await box.run(["cat"], stdin=data, environment=ENVIRONMENT)).stdout == data
        stopped = await box.run(["sh", "-c", "sleep 100 & sleep 100"], timeout=0.5, environment=ENVIRONMENT)
        assert stopped.termination is Termination.TIMED_OUT
        async with box.start(["cat"], stdin=subprocess.PIPE, environment=ENVIRONMENT) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            await process.stdin.send(b"hello")
            assert await process.stdout.receive() == b"hello"
            process.send_signal(signal.SIGTERM)
            assert (await process.wait()).signal == signal.SIGTERM
    assert (ws / "file").read_text() == "of the application"


async def test_what_needs_files_of_this_machine_is_absent_there(tls: Remote, ws: Path) -> None:
    spec = SandboxSpec.workspace_write(ws)
    backend = DockerBackend(IMAGE)
    detection = await backend.detect(spec)
    assert detection.available
    claim = backend.enforcement(spec, detection.facts)
    for control in (Control.FS_READ, Control.FS_WRITE, Control.FS_DENY_INSIDE_ALLOW, Control.NET_ALLOWLIST):
        assert claim.grade(control) is Grade.ABSENT, control
    with pytest.raises(EnforcementError, match="workspace='copy'"):
        async with backend.open(spec):
            pass
    nothing = SandboxSpec.isolated()
    async with backend.open(nothing) as box:
        assert (await box.run(["sh", "-c", ":"], environment=ENVIRONMENT)).ok
        assert box.enforcement.grade(Control.FS_WRITE) is Grade.ENFORCED


async def test_a_registry_passes_it_by_for_one_that_copies(tls: Remote, ws: Path) -> None:
    class Copying(DockerBackend):
        name = "docker-copying"

    registry = SandboxRegistry()
    registry.register(DockerBackend(IMAGE), 10)
    registry.register(Copying(IMAGE, workspace="copy"), 5)
    spec = SandboxSpec.workspace_write(ws)
    assert (await registry.active(spec)).backend.name == "docker-copying"
    first, second = await registry.list(spec)
    assert any("fs.write" in sentence for sentence in first.missing)
    assert all(found.grade is Grade.ENFORCED for found in second.verified), "the attack works with copies too"


async def test_the_hosts_own_system_is_not_shown_there(tls: Remote) -> None:
    detection = await DockerBackend().detect()
    assert not detection.available
    assert "socket of this machine" in detection.reason
    assert "workspace='copy'" in detection.remedy


async def test_its_containers_are_listed_and_pruned(tls: Remote, ws: Path) -> None:
    backend = DockerBackend(IMAGE, workspace="copy")
    async with backend.open(SandboxSpec.workspace_write(ws)) as box:
        (active,) = await backend.list_active()
        assert (active.id, active.pid, active.is_left) == (box.containers[0], os.getpid(), False)
        assert await backend.prune() == ()
    assert await backend.list_active() == ()


APPLICATION = """
import sys, anyio
from sandboxkit.backends.docker import DockerBackend
from sandboxkit.model import SandboxSpec

async def main():
    async with DockerBackend(sys.argv[1], workspace="copy").open(SandboxSpec.workspace_write(sys.argv[2])) as box:
        async with box.start(["sleep", "100"], environment={"PATH": "/bin"}):
            print("begun", flush=True)
            await anyio.sleep(100)

anyio.run(main)
"""


async def test_an_application_that_is_killed_leaves_nothing_there(tls: Remote, ws: Path) -> None:
    words = [sys.executable, "-c", APPLICATION, IMAGE, str(ws)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=importable()) as application:
        assert application.stdout is not None
        assert application.stdout.readline() == b"begun\n"
        assert len(await DockerBackend().list_active()) == 1
        application.kill()
    with anyio.fail_after(20):
        while await DockerBackend().list_active():  # noqa: ASYNC110 - the engine does it
            await anyio.sleep(0.1)


# --- what goes wrong with TLS ----------------------------------------------------------


async def why_not(**settings: Any) -> tuple[str, str]:
    started = time.monotonic()
    found = await DockerBackend(IMAGE, workspace="copy", timeout=5, **settings).detect()
    assert not found.available
    assert time.monotonic() - started < 15
    return found.reason, found.remedy


async def test_an_engine_of_another_authority(tls: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CERT_PATH", str(write_pems(tmp_path / "other", trustme.CA(), "127.0.0.1")))
    reason, remedy = await why_not()
    assert "certificate is not signed by the known authority" in reason
    assert "DOCKER_CERT_PATH" in remedy
    # The authority that other programs believe does not count for ours.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tls.pems / "ca.pem"))
    assert "certificate is not signed" in (await why_not())[0]


async def test_no_certificate_of_ones_own(tls: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "half"
    directory.mkdir()
    (directory / "ca.pem").write_bytes((tls.pems / "ca.pem").read_bytes())
    monkeypatch.setenv("DOCKER_CERT_PATH", str(directory))
    reason, remedy = await why_not()
    assert "does not take this application's certificate" in reason
    assert "key.pem" in remedy


async def test_a_certificate_of_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pems = write_pems(tmp_path / "pems", trustme.CA(), "another.example")
    port = free_port()
    monkeypatch.setenv("DOCKER_CERT_PATH", str(pems))
    with engine(options=by_tls(pems, port)):
        reason, _ = await why_not(host=f"tcp://127.0.0.1:{port}")
    assert "another machine's" in reason


async def test_without_tls_where_it_is_spoken(tls: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_TLS_VERIFY")
    monkeypatch.delenv("DOCKER_CERT_PATH")
    reason, remedy = await why_not()
    assert "speaks TLS alone" in reason
    assert "DOCKER_TLS_VERIFY" in remedy


async def test_with_tls_where_it_is_not_spoken(tls: Remote) -> None:
    """
    A server that answers in clear text.
    """
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        async def answer() -> None:
            while True:
                await anyio.wait_readable(server)
                with server.accept()[0] as connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            reason, _ = await why_not(host=f"tcp://127.0.0.1:{server.getsockname()[1]}")
            tasks.cancel_scope.cancel()
    assert "does not speak TLS" in reason


async def test_an_engine_that_dies_during_a_run_there(
    tmp_path: Path, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import docker

    pems, port = write_pems(tmp_path / "pems", trustme.CA(), "127.0.0.1"), free_port()
    monkeypatch.setenv("DOCKER_CERT_PATH", str(pems))
    with engine(options=by_tls(pems, port)) as own:
        client = docker.APIClient(base_url=own.host, version="auto")
        client.import_image_from_data(python_archive(), repository="own", tag="latest", changes=list(PYTHON_CHANGES))
        client.close()
        backend = DockerBackend("own:latest", host=f"tcp://127.0.0.1:{port}", workspace="copy", timeout=5)
        async with backend.open(SandboxSpec.workspace_write(ws)) as box:
            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:

                    async def kill() -> None:
                        await anyio.sleep(1)
                        os.kill(own.pid, signal.SIGKILL)

                    tasks.start_soon(kill)
                    with pytest.raises(BackendUnavailableError, match="went away during the run"):
                        await box.run(["sleep", "60"], environment=ENVIRONMENT)


# --- by ssh ----------------------------------------------------------------------------

BY_SSH = """
import json, sys, time, anyio
from sandboxkit.backends.docker import DockerBackend
from sandboxkit.errors import SandboxError
from sandboxkit.model import SandboxSpec

async def main():
    image, host, ws, path = sys.argv[1:]
    backend = DockerBackend(image, host=host, workspace="copy", timeout=10)
    started = time.monotonic()
    found = await backend.detect()
    said = {"available": found.available, "reason": found.reason, "remedy": found.remedy}
    if found.available:
        async with backend.open(SandboxSpec.workspace_write(ws)) as box:
            result = await box.run(["cat", "file"], environment={"PATH": path})
            said["read"] = result.text()
            said["denied"] = not (await box.run(["sh", "-c", "echo x > /etc/x"], environment={"PATH": path})).ok
    print(json.dumps({**said, "seconds": time.monotonic() - started}))

anyio.run(main)
"""
SETTINGS = """
HostKey {root}/host
AuthorizedKeysFile {root}/authorized
PidFile {root}/sshd.pid
ListenAddress 127.0.0.1:{port}
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowStreamLocalForwarding {forwards}
"""


@dataclass(frozen=True)
class Sshd:
    """
    An sshd of our own, and a directory of settings for clients in the place of /etc/ssh.
    """

    root: Path
    port: int

    @property
    def url(self) -> str:
        return f"ssh://root@127.0.0.1:{self.port}"

    def application(self, program: str, *words: str, known: bool = True, key: str = "user") -> dict[str, Any]:
        """
        What starts a Python *program* whose ssh uses these settings.
        """
        place = self.root / f"etc-{known}-{key}"
        place.mkdir(exist_ok=True)
        kind, _, blob = (self.root / "host.pub").read_text().partition(" ")
        (place / "known").write_text(f"[127.0.0.1]:{self.port} {kind} {blob}" if known else "")
        settings = {"IdentityFile": self.root / key, "IdentitiesOnly": "yes", "UserKnownHostsFile": place / "known"}
        (place / "ssh_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        # ssh knows no variable for its settings, and the machine's are not to be touched.
        shown = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
        script = 'mount --bind "$1" /etc/ssh; shift; exec "$@"'
        environ = {name: text for name, text in os.environ.items() if not name.startswith(("DOCKER_", "SSH_"))}
        argv = [*shown, script, "sh", str(place), sys.executable, "-c", program, IMAGE, *words]
        return {"args": argv, "env": {**environ, **importable()}, "text": True}

    def said(self, host: str, ws: Path, *, known: bool = True, key: str = "user") -> dict[str, Any]:
        """
        What an application says that uses the engine at *host*.
        """
        started = self.application(BY_SSH, host, str(ws), ENVIRONMENT["PATH"], known=known, key=key)
        done = subprocess.run(**started, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["seconds"] < 30
        return found

    def clients(self) -> str:
        """
        The pids of what runs ssh to it.
        """
        words = ["pgrep", "-f", f"ssh .*-p {self.port} "]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout


@pytest.fixture(scope="module")
def make_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Sshd]]:
    """
    Starts one, for whom sockets are forwarded (`yes`) or not (`no`).
    """
    if not os.path.exists(SSHD):
        pytest.skip(f"not applicable: there is no {SSHD} (Debian's openssh-server)")
    os.makedirs("/run/sshd", exist_ok=True)
    started: list[subprocess.Popen[bytes]] = []

    def make(forwards: str) -> Sshd:
        root = tmp_path_factory.mktemp("sshd")
        for name in ("host", "user", "stranger"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", root / name], check=True)
        (root / "authorized").write_text((root / "user.pub").read_text())
        found = Sshd(root, free_port())
        (root / "settings").write_text(SETTINGS.format(root=root, port=found.port, forwards=forwards))
        started.append(subprocess.Popen([SSHD, "-D", "-f", root / "settings"], stderr=subprocess.DEVNULL))
        STANDING.add(started[-1].pid)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", found.port)) == 0:
                    return found
            time.sleep(0.05)
        raise RuntimeError("sshd did not come up")

    yield make
    for server in started:
        STANDING.discard(server.pid)
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def sshd(make_sshd: Callable[[str], Sshd]) -> Sshd:
    """
    One that forwards.
    """
    return make_sshd("yes")


async def test_a_box_by_ssh(sshd: Sshd, remote: Remote, ws: Path) -> None:
    (ws / "file").write_text("of the application")
    found = sshd.said(f"{sshd.url}{remote.engine.host.removeprefix('unix://')}", ws)
    assert found["available"], found
    assert (found["read"], found["denied"]) == ("of the application", True)
    assert sshd.clients() == "", "the tunnel ends with the box"


async def test_an_application_that_is_killed_leaves_no_tunnel(sshd: Sshd, remote: Remote, ws: Path) -> None:
    program = APPLICATION.replace("(sys.argv[1], ", "(sys.argv[1], host=sys.argv[3], ")
    host = f"{sshd.url}{remote.engine.host.removeprefix('unix://')}"
    with subprocess.Popen(**sshd.application(program, str(ws), host), stdout=subprocess.PIPE) as application:
        assert application.stdout is not None
        assert application.stdout.readline() == "begun\n"
        assert sshd.clients()
        application.kill()
    with anyio.fail_after(20):
        while sshd.clients() or remote.engine.get("/containers/json?all=1"):  # noqa: ASYNC110 - others do it
            await anyio.sleep(0.1)


async def test_an_unknown_host_key(sshd: Sshd, remote: Remote, ws: Path) -> None:
    found = sshd.said(f"{sshd.url}{remote.engine.host.removeprefix('unix://')}", ws, known=False)
    assert not found["available"]
    assert "host key is unknown here" in found["reason"]
    assert "known_hosts" in found["remedy"]


async def test_a_key_that_is_not_taken(sshd: Sshd, remote: Remote, ws: Path) -> None:
    found = sshd.said(f"{sshd.url}{remote.engine.host.removeprefix('unix://')}", ws, key="stranger")
    assert "takes none of this user's keys" in found["reason"]
    assert "ssh-add" in found["remedy"]


async def test_no_engine_on_the_machine(sshd: Sshd, ws: Path) -> None:
    found = sshd.said(f"{sshd.url}/nonexistent/docker.sock", ws)
    assert "no engine listens there" in found["reason"]
    assert found["remedy"]


async def test_no_sshd_on_the_machine(sshd: Sshd, ws: Path) -> None:
    found = sshd.said(f"ssh://root@127.0.0.1:{free_port()}", ws)
    assert "no sshd answers there" in found["reason"]
    assert found["remedy"]


async def test_an_sshd_that_forwards_nothing(make_sshd: Callable[[str], Sshd], remote: Remote, ws: Path) -> None:
    strict = make_sshd("no")
    found = strict.said(f"{strict.url}{remote.engine.host.removeprefix('unix://')}", ws)
    assert "sshd forwards none" in found["reason"]
    assert "AllowStreamLocalForwarding" in found["remedy"]
