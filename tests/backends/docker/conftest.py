"""
The engines that the tests of this directory use, and images made without any registry.
"""

from __future__ import annotations

import gc
import importlib.util
import io
import os
import re
import subprocess
import sys
import tarfile
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.engine import VARIABLES

from sandboxkit.backends.docker import DockerBackend, DockerFacts
from sandboxkit.model import Control, SandboxSpec
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import docker

    from sandboxkit.backends.docker._facts import EngineName

BUSYBOX = "/bin/busybox"
DEGRADED = frozenset({Control.PROCESS_ISOLATION}) if os.geteuid() == 0 else frozenset()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """
    One event loop: the other one is tried by the conformance suite.
    """
    return "asyncio"


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """
    Collects what the SDK leaves open when it cannot connect, before it counts against
    another test: `UnixHTTPConnection.connect` closes no socket on an error.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session", params=["docker", "podman"])
def kind(request: pytest.FixtureRequest) -> EngineName:
    """
    The engine by its name: every test that asks for a backend is for both.
    """
    found: EngineName = request.param
    return found


@pytest.fixture(scope="session")
def make(kind: EngineName) -> Callable[..., DockerBackend]:
    """
    Makes backends of the engine.
    """
    return partial(DockerBackend, engine=kind)


@pytest.fixture(scope="session")
def backend(kind: EngineName, make: Callable[..., DockerBackend]) -> Iterator[DockerBackend]:
    """
    The backend, on the engine that DOCKER_HOST or CONTAINER_HOST names. What the engine was
    still making for an application that was killed is removed at the end.
    """
    found = make()
    detection = anyio.run(found.detect)
    if not detection.available:
        named = kind in os.environ.get("SANDBOXKIT_REQUIRE", "").replace(",", " ").split()
        (pytest.fail if named else pytest.skip)(f"{kind}: {detection.reason}; {detection.remedy}")
    yield found
    anyio.run(found.prune)


async def own_containers(backend: DockerBackend) -> list[str]:
    """
    The names of this process's containers; other tests run beside.
    """
    return [found.name for found in await backend.list_active() if found.pid == os.getpid()]


async def nothing_left(backend: DockerBackend) -> None:
    """
    Waits until the engine has removed this process's containers: Podman does it a moment
    after they have ended.
    """
    with anyio.fail_after(30):
        while await own_containers(backend):  # noqa: ASYNC110 - the engine does it
            await anyio.sleep(0.1)


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """
    A workspace.
    """
    workspace = tmp_path.resolve() / "ws"
    workspace.mkdir()
    return workspace


@pytest.fixture
def spec(ws: Path) -> SandboxSpec:
    """
    A box that writes the workspace.
    """
    return SandboxSpec.workspace_write(ws, allow_degraded=DEGRADED)


@pytest.fixture(scope="session")
def bounds(backend: DockerBackend) -> bool:
    """
    Whether the engine has control groups: rootless ones of version 1 have not.
    """
    facts = anyio.run(backend.detect).facts
    assert isinstance(facts, DockerFacts)
    return facts.cgroup > 0


@pytest.fixture(scope="session")
def client(kind: EngineName, backend: DockerBackend) -> Iterator[docker.APIClient]:
    """
    The engine, without this library.
    """
    import docker

    found = docker.APIClient(base_url=os.environ[VARIABLES[kind]], version="1.41")
    yield found
    found.close()


@pytest.fixture(scope="session")
def make_image(client: docker.APIClient) -> Iterator[Callable[[str, bytes], str]]:
    """
    Makes an image of an archive, and removes it afterwards.
    """
    made: list[str] = []

    def make(name: str, archive: bytes, *changes: str) -> str:
        client.import_image_from_data(archive, repository=name, tag="latest", changes=list(changes))
        made.append(f"{name}:latest")
        return made[-1]

    yield make
    for name in made:
        client.remove_image(name, force=True)


def _archive(
    files: dict[str, str],
    links: dict[str, str],
    trees: dict[str, str] | None = None,
    scripts: dict[str, str] | None = None,
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("tmp", "proc", "dev", "sys", "etc"):
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
        for target, source in files.items():
            archive.add(os.path.realpath(source), target.lstrip("/"))
        for target, source in (trees or {}).items():
            archive.add(source, target.lstrip("/"), filter=_standard)
        for path, text in (scripts or {}).items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.mode, member.size = 0o755, len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
        for path, text in links.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.type, member.linkname = tarfile.SYMTYPE, text
            archive.addfile(member)
    return buffer.getvalue()


@pytest.fixture(scope="session")
def shell_image(make_image: Callable[..., str]) -> str:
    """
    An image with a shell and no Python.
    """
    return make_image(f"sandboxkit-test-sh-{os.getpid()}", shell_archive(), "ENV PATH=/bin")


def shell_archive(scripts: dict[str, str] | None = None) -> bytes:
    """
    The content of such an image, and *scripts* by path.
    """
    if not os.path.exists(BUSYBOX):
        pytest.skip(f"not applicable: there is no {BUSYBOX} (Debian's busybox-static)")
    names = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"/bin/{name}": "busybox" for name in names if name != "busybox"}
    return _archive({"/bin/busybox": BUSYBOX}, links, scripts=scripts)


@pytest.fixture(scope="session")
def python_image(make_image: Callable[..., str]) -> str:
    """
    An image with the Python that runs the tests, and what it needs of the host.
    """
    return make_image(f"sandboxkit-test-python-{os.getpid()}", python_archive(), *PYTHON_CHANGES)


PYTHON_CHANGES = ("ENV PATH=/usr/local/bin:/bin", "ENV PYTHONHOME=/usr/local")


def python_archive() -> bytes:
    """
    The content of such an image.
    """
    python, version = interpreter(), f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = os.path.dirname(os.__file__)
    needed = [python, *map(str, Path(library, "lib-dynload").glob("*.so"))]
    if (engine := importlib.util.find_spec("_quickjs")) and engine.origin:
        needed.append(engine.origin)  # it is brought along, and needs what any system with this C library has
    said = subprocess.run(["ldd", *needed], capture_output=True, text=True, check=False).stdout
    files = {path: path for path in set(re.findall(r"(/[^\s:()]+\.so[^\s:()]*) \(", said))}
    files |= {"/usr/local/bin/python3": python}
    links = {}
    if os.path.exists(BUSYBOX):
        files["/bin/busybox"] = BUSYBOX
        links = {f"/bin/{name}": "busybox" for name in ("sh", "cat", "ls", "rm", "id", "sleep")}
    return _archive(files, links, {f"/usr/local/lib/{version}": library})


def _standard(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = set(member.name.split("/"))
    return None if parts & {"site-packages", "test", "__pycache__", "idlelib", "ensurepip", "lib2to3"} else member
