"""
Images and containers that somebody else made, and made to deceive.
"""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.backends.docker.conftest import DEGRADED, PYTHON_CHANGES, nothing_left, shell_archive
from tests.engine import engine, why_not

from sandboxkit.backends.docker import DockerBackend, DockerFacts
from sandboxkit.backends.docker._labels import own_labels
from sandboxkit.errors import BackendError, BackendUnavailableError, SandboxError, SetupError
from sandboxkit.model import Control, FilesystemPolicy, SandboxSpec, Termination

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import docker


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(200)]
PATH = {"PATH": "/usr/local/bin:/bin", "PYTHONHOME": "/usr/local"}
docker_alone = pytest.mark.parametrize("kind", ["docker"], indirect=True)


def allowed(bounds: bool) -> frozenset[Control]:
    return DEGRADED if bounds else DEGRADED | {Control.LIMITS_MEMORY, Control.LIMITS_PROCESSES}


def volumes(client: docker.APIClient) -> set[str]:
    return {row["Name"] for row in client.volumes()["Volumes"] or ()}


FILL = """
import sys
try:
    with open("/data/much", "wb") as file:
        while file.write(bytes(1 << 20)):
            if file.tell() > 8 << 20:
                print("without a bound")
                break
except OSError as error:
    print(error.strerror)
"""


async def test_a_volume_of_the_image_is_memory_of_a_size(
    make: Callable[..., DockerBackend],
    client: docker.APIClient,
    make_image: Callable[..., str],
    python_image: str,
    bounds: bool,
) -> None:
    image = make_image(f"sandboxkit-test-volume-{os.getpid()}", shell_archive(), "ENV PATH=/bin", "VOLUME /data/")
    before = volumes(client)
    config = {"ReadonlyRootfs": True, "NetworkMode": "none"}
    words = ["/bin/sh", "-c", "echo x > /data/file && cat /data/file"]
    plain = client.create_container_from_config({"Image": image, "Cmd": words, "HostConfig": config})["Id"]
    try:
        client.start(plain)
        assert client.wait(plain)["StatusCode"] == 0, "the engine makes it writable, on its disk"
        assert volumes(client) > before
    finally:
        client.remove_container(plain, force=True, v=True)
    files = FilesystemPolicy(tmp_bytes=4 << 20)
    spec = SandboxSpec(filesystem=files, allow_degraded=allowed(bounds))
    other = client.create_container(python_image, ["true"])["Id"]
    try:
        name = f"sandboxkit-test-pyvolume-{os.getpid()}"
        made = client.commit(other, name, changes=[*PYTHON_CHANGES, "VOLUME /data"])["Id"]
    finally:
        client.remove_container(other, force=True)
    try:
        async with make(made).open(spec) as box:
            assert volumes(client) == before
            result = await box.run(["python3", "-c", FILL], environment=PATH)
            assert result.text() == "No space left on device\n", result
    finally:
        client.remove_image(made, force=True)
    await nothing_left(make())


@pytest.fixture
def impostor(make_image: Callable[..., str]) -> Callable[[str, str], str]:
    """
    Makes an image whose python3 is a script.
    """

    def made(name: str, script: str) -> str:
        begin = '#!/bin/sh\ncase "$4" in "import ctypes"*) exit 0 ;; esac\n'
        archive = shell_archive({"/bin/python3": begin + script})
        return make_image(f"sandboxkit-test-{name}-{os.getpid()}", archive, "ENV PATH=/bin")

    return made


IMPOSTORS = {
    "garbage": ("cat >/dev/null & echo no frame at all, and long enough for one; sleep 100", SetupError, "a frame of"),
    "a flood": ("cat >/dev/null & yes", SetupError, "a frame of"),
    "its end": ("echo the last words >&2; exit 3", SetupError, "the last words|it ended and said nothing"),
    "silence": ("cat >/dev/null & sleep 100", BackendUnavailableError, "did not answer within"),
    "a wrong answer": (
        r"""cat >/dev/null & printf '\020\0\0\0\0\0\0\0\002{}'; sleep 100""",
        SetupError,
        "broke the rules",
    ),
}


@docker_alone
@pytest.mark.parametrize("name", IMPOSTORS)
async def test_an_image_whose_python_is_none(
    name: str, make: Callable[..., DockerBackend], impostor: Callable[[str, str], str], bounds: bool
) -> None:
    script, error, said = IMPOSTORS[name]
    backend = make(impostor(name.replace(" ", "-"), script), timeout=4)
    with anyio.fail_after(60):
        with pytest.raises(error, match=said) as found:
            async with backend.open(SandboxSpec.isolated(allow_degraded=allowed(bounds))):
                pass
        assert isinstance(found.value, SandboxError)
    await nothing_left(make())


@docker_alone
async def test_an_agent_that_ends_nothing_is_ended(
    backend: DockerBackend, spec: SandboxSpec, client: docker.APIClient, ws: Path
) -> None:
    """
    Frozen, it obeys no order to end what it has started. The one who waits is not kept waiting.
    """
    fields = spec.model_dump(exclude_unset=True)
    bounded = SandboxSpec(**{**fields, "limits": {"wall": 0.5}, "allow_degraded": spec.allow_degraded})
    async with backend.open(bounded) as box, box.start(["sleep", "100"]) as process:
        (frozen,) = box.containers
        client.pause(frozen)
        with anyio.fail_after(60):
            assert (await process.wait()).termination is Termination.TIMED_OUT
    await nothing_left(backend)


async def test_labels_of_an_image_make_no_container_ours(
    backend: DockerBackend, client: docker.APIClient, make_image: Callable[..., str]
) -> None:
    """
    A container has the labels of its image; so whoever made that could have others' removed.
    """
    gone = {**own_labels(), "sandboxkit.owner": "another-boot/1/1"}
    odd = {**own_labels(), "sandboxkit.owner": "another-boot/\N{SUPERSCRIPT TWO}/1"}
    foreign = []
    try:
        for number, labels in enumerate((gone, odd)):
            name = f"sandboxkit-test-labels-{number}-{os.getpid()}"
            image = make_image(name, shell_archive(), *(f'LABEL {key}="{text}"' for key, text in labels.items()))
            foreign.append(client.create_container(image, ["/bin/sleep", "100"], name=name)["Id"])
            seen = client.inspect_container(foreign[-1])["Config"]["Labels"]
            assert seen["sandboxkit.owner"] == labels["sandboxkit.owner"], "the engine gives it them"
        assert not {*foreign} & {*await backend.prune()}
        assert not {*foreign} & {found.id for found in await backend.list_active()}
        for one in foreign:
            with pytest.raises(BackendError, match="names no container of this library's"):
                await backend.kill(one)
            assert client.inspect_container(one)["Id"] == one
    finally:
        for one in foreign:
            client.remove_container(one, force=True)


async def test_labels_that_say_nothing_keep_nobody_from_pruning(
    backend: DockerBackend, client: docker.APIClient, shell_image: str
) -> None:
    labels = {**own_labels(), "sandboxkit.owner": "another-boot/\N{SUPERSCRIPT TWO}/1"}
    name = f"sandboxkit-{os.getpid():016x}"
    odd = client.create_container(shell_image, ["/bin/sleep", "100"], name=name, labels=labels)["Id"]
    try:
        assert odd not in await backend.prune()
        (found,) = [found for found in await backend.list_active() if found.id == odd]
        assert (found.pid, found.is_left) == (None, False)
        with pytest.raises(BackendError):
            await backend.kill("")
        with pytest.raises(BackendError):
            await backend.kill(odd[:4])
    finally:
        client.remove_container(odd, force=True)


@docker_alone
async def test_a_copy_of_this_machine_keeps_its_containers(
    backend: DockerBackend, client: docker.APIClient, shell_image: str
) -> None:
    """
    Two machines of one image have one id; where they share an engine, only the boot differs.
    """
    labels = {**own_labels(), "sandboxkit.owner": "another-boot/1/1"}
    made = {}
    for number, what in enumerate(("runs", "was never started")):
        name = f"sandboxkit-{(number << 32) + os.getpid():016x}"
        made[what] = client.create_container(shell_image, ["/bin/sleep", "100"], name=name, labels=labels)["Id"]
    try:
        client.start(made["runs"])
        assert made["runs"] not in await backend.prune()
        left = {found.id for found in await backend.list_active()}
        assert made["runs"] in left
        assert made["was never started"] not in left  # another test's prune() may have been first
    finally:
        client.remove_container(made["runs"], force=True)


async def test_another_image_under_our_name_is_not_taken(spec: SandboxSpec) -> None:
    """
    An archive that somebody loads into the engine brings names with it. On an engine of its
    own: the image is everybody's.
    """
    import docker

    if reason := why_not() or ("" if os.environ.get("DOCKER_HOST") else "left to the session that has an engine"):
        pytest.skip(f"not applicable: {reason}")
    with engine() as own, closing(docker.APIClient(own.host, version="1.41")) as client:

        async def used() -> str:
            async with DockerBackend(host=own.host).open(spec) as box:
                (container,) = box.containers
                return str(client.inspect_container(container)["Image"])

        ours = await used()
        (name,) = client.inspect_image(ours)["RepoTags"]
        repository, _, tag = name.rpartition(":")
        client.import_image_from_data(shell_archive(), repository=repository, tag=tag)
        foreign = client.inspect_image(name)["Id"]
        assert foreign != ours
        assert await used() not in (foreign, "")
        assert client.inspect_image(name)["Id"] != foreign


PROBED = """#!/bin/sh
case "$(cat /proc/version)" in *gVisor*|*"4.4.0"*) exit 0 ;; *) exit 1 ;; esac
"""


@docker_alone
async def test_an_image_is_looked_into_by_the_runtime_of_its_boxes(
    make: Callable[..., DockerBackend], backend: DockerBackend, make_image: Callable[..., str]
) -> None:
    """
    Who wants gVisor around an image does not have it started by another runtime first.
    """
    if shutil.which("runsc") is None:
        pytest.skip("not applicable: there is no runsc here (Debian's runsc)")
    archive = shell_archive({"/bin/python3": PROBED})
    image = make_image(f"sandboxkit-test-probed-{os.getpid()}", archive, "ENV PATH=/bin")
    found = {}
    for runtime in (None, "runsc"):
        facts = (await make(image, runtime=runtime, timeout=60).detect()).facts
        assert isinstance(facts, DockerFacts)
        found[runtime] = facts.supervisor
    assert found == {None: "sh", "runsc": "python"}
