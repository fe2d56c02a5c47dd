"""
What is particular to boxes in containers; the rest is the conformance suite's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.backends.docker.conftest import DEGRADED, nothing_left
from tests.backends.raw_bwrap import RawBwrap, only
from tests.engine import VARIABLES

from sandboxkit.backends import Detection, SandboxRegistry
from sandboxkit.backends.docker import DockerBackend
from sandboxkit.errors import (
    BackendError,
    CommandError,
    CommandFailedError,
    EnforcementError,
    ProgramNotExecutableError,
    ProgramNotFoundError,
)
from sandboxkit.model import Control, FilesystemPolicy, Grade, Limits, SandboxSpec, Termination
from sandboxkit.testing.conformance._acts import importable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import docker
    from docker import APIClient

    from sandboxkit.backends.docker._facts import EngineName

COMMANDS = int(os.environ.get("SANDBOXKIT_DOCKER_COMMANDS", "200"))

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(200)]


async def test_a_session_of_many_commands(backend: DockerBackend, spec: SandboxSpec) -> None:
    async with backend.open(spec) as box:
        containers = box.containers
        for number in range(COMMANDS):
            result = await box.run(["sh", "-c", f"exit {number % 7}"])
            assert result.exit_code == number % 7
        assert box.containers == containers
        assert len(containers) == 1
    await nothing_left(backend)


async def test_commands_of_a_box_run_at_once(backend: DockerBackend, spec: SandboxSpec) -> None:
    async with backend.open(spec) as box, anyio.create_task_group() as tasks:
        started = time.monotonic()
        for _ in range(5):
            tasks.start_soon(box.run, ["sleep", "1"])
    assert time.monotonic() - started < 4


async def test_a_command_that_ends_leaves_the_others(backend: DockerBackend, spec: SandboxSpec) -> None:
    async with backend.open(spec) as box, box.start(["sh", "-c", "sleep 2; echo done"]) as slow:
        for _ in range(5):
            await box.run(["sh", "-c", "sleep 100 & exit 0"])
        stopped = await box.run(["sh", "-c", "sleep 100 & sleep 100"], timeout=0.3)
        assert stopped.termination is Termination.TIMED_OUT
        assert (await slow.wait()).ok
        left = await box.run(["sh", "-c", "ps ax | grep -c '[s]leep 100'"])
        assert left.text() == "0\n"


async def test_streams_signals_and_descriptors(backend: DockerBackend, spec: SandboxSpec, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as target:
        async with backend.open(spec) as box:
            async with box.start(["cat"], stdin=subprocess.PIPE) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                await process.stdin.send(b"hello")
                assert await process.stdout.receive() == b"hello"
                await process.stdin.aclose()
                assert (await process.wait()).ok
            async with box.start(["echo", "to a file"], stdout=target.fileno()) as process:
                await process.wait()
            async with box.start(["sleep", "100"]) as process:
                process.send_signal(signal.SIGUSR1)
                result = await process.wait()
                assert (result.signal, result.termination) == (signal.SIGUSR1, Termination.SIGNALED)
    assert (tmp_path / "out").read_text() == "to a file\n"


async def test_much_goes_in_and_comes_out(backend: DockerBackend, spec: SandboxSpec) -> None:
    data = os.urandom(9_000_000)
    async with backend.open(spec) as box:
        assert (await box.run(["cat"], stdin=data)).stdout == data
        assert (await box.run(["true"], stdin=data)).ok


async def test_a_reader_that_does_not_read_holds_up_only_its_own(backend: DockerBackend, spec: SandboxSpec) -> None:
    async with backend.open(spec) as box, box.start(["yes"]) as process:
        for _ in range(20):
            assert (await box.run(["echo", "x"])).text() == "x\n"
        assert process.stdout is not None
        assert (await process.stdout.receive()).startswith(b"y\n")


async def test_memory_runs_out_and_the_box_goes_on(backend: DockerBackend, ws: Path, bounds: bool) -> None:
    spec = SandboxSpec.workspace_write(ws, limits=Limits(memory_bytes=64 << 20), allow_degraded=DEGRADED)
    if not bounds:
        with pytest.raises(EnforcementError, match=r"limits\.memory is partial"):
            await backend.execute(["true"], spec=spec)
        return
    fill = ["sh", "-c", "head -c 300000000 /dev/zero > /tmp/full; exit 3"]
    async with backend.open(spec) as box:
        assert box.enforcement.grade(Control.LIMITS_MEMORY) is Grade.ENFORCED
        result = await box.run(fill)
        assert result.termination is Termination.MEMORY_LIMIT, result
        assert result.usage is not None
        assert result.usage.oom_kills
        await box.run(["rm", "-f", "/tmp/full"])
        assert (await box.run(["true"])).ok
    assert subprocess.run(["sh", "-c", "head -c 300000000 /dev/zero | wc -c"], check=True, capture_output=True).stdout


async def test_nothing_of_the_engine_is_seen(backend: DockerBackend, kind: EngineName, ws: Path) -> None:
    socket = os.environ[VARIABLES[kind]].removeprefix("unix://")
    spec = SandboxSpec.workspace_write(ws, allow_degraded=DEGRADED)
    assert os.path.exists(socket)
    async with backend.open(spec) as box:
        assert not (await box.run(["test", "-r", socket])).ok


async def test_the_hosts_run_can_be_named(backend: DockerBackend) -> None:
    spec = SandboxSpec(filesystem=FilesystemPolicy(read=("/run",)), allow_degraded=DEGRADED)
    result = await backend.execute(["ls", "-A", "/run"], spec=spec)
    assert {*result.check().text().split()} & {*os.listdir("/run")}


NESTED = """
git init -q sub; echo '[core] fsmonitor = ./x' >> sub/.git/config
touch ready; until [ -e go ]; do sleep 0.02; done; echo evil >> AGENTS.md
"""


async def test_what_a_run_leaves_is_looked_at_as_for_other_boxes(
    backend: DockerBackend, spec: SandboxSpec, ws: Path
) -> None:
    (ws / "AGENTS.md").touch()
    async with backend.open(spec) as box:
        async with box.start(["sh", "-c", NESTED]) as process:
            with anyio.fail_after(60):
                while not (ws / "ready").exists():  # noqa: ASYNC110 - the command makes it
                    await anyio.sleep(0.02)
            (ws / "new").write_text("mine\n")
            (ws / "new").replace(ws / "AGENTS.md")
            (ws / "go").touch()
            result = await process.wait()
        again = await box.run(["sh", "-c", "echo evil >> AGENTS.md"])
    found = {violation.target: violation.kind for violation in result.violations}
    assert found == {
        str(ws / "AGENTS.md"): "protected-path-replaced",
        str(ws / "sub/.git"): "protected-path-created",
    }
    assert not (ws / "sub/.git/config").exists()
    assert result.enforcement.grade(Control.FS_DENY_INSIDE_ALLOW) is Grade.PARTIAL
    assert "1 paths were replaced from outside" in result.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)
    assert (again.violations, again.ok) == ((), False), "it is held again"


async def test_a_named_path_may_lie_in_what_is_shown_anyway(backend: DockerBackend, ws: Path) -> None:
    (ws / "inner").mkdir()
    reads = (ws, ws / "inner", "/usr/bin")
    filesystem = FilesystemPolicy(base="system", read=tuple(map(str, reads)))
    result = await backend.execute(
        ["ls", "-d", str(ws / "inner"), "/usr/bin"], spec=SandboxSpec(filesystem=filesystem, allow_degraded=DEGRADED)
    )
    assert result.check().text().split() == sorted([str(ws / "inner"), "/usr/bin"])


async def test_the_interpreter_that_is_missing_is_named(backend: DockerBackend, spec: SandboxSpec, ws: Path) -> None:
    (ws / "plain").write_text("#!/bin/sh\n")
    for name, named in (("script", "between"), ("between", "missing"), ("other", "plain")):
        (ws / name).write_text(f"#!{ws / named} -x\necho ran\n")
        (ws / name).chmod(0o755)
    (ws / "odd").write_bytes(b'#!/a", "errno": 0}\xff\x1b[0m\n')
    (ws / "odd").chmod(0o755)
    async with backend.open(spec) as box:
        path = {"PATH": f"{ws}/nothing:{ws}"}
        for name, guilty in (("script", ws / "missing"), ("other", ws / "plain"), ("odd", '/a",')):
            for argv in ([str(ws / name)], [name]):
                with pytest.raises(ProgramNotExecutableError, match="first line names the interpreter") as caught:
                    await box.run(argv, environment=path)
                assert repr(str(guilty)) in str(caught.value)
        with pytest.raises(ProgramNotExecutableError, match="it is not marked executable"):
            await box.run([str(ws / "plain")])
        with pytest.raises(ProgramNotFoundError):
            await box.run([str(ws / "missing")])


async def test_other_names(backend: DockerBackend, spec: SandboxSpec) -> None:
    assert await backend.is_available()
    assert (await backend.execute(["echo", "x"], spec=spec)).text() == "x\n"
    with pytest.raises(ProgramNotFoundError):
        await backend.execute(["no-such-program"], spec=spec)
    assert b"".join([chunk async for chunk in backend.stream(["seq", "3"], spec=spec)]) == b"1\n2\n3\n"
    with pytest.raises(CommandFailedError):
        _ = [chunk async for chunk in backend.stream(["false"], spec=spec)]
    async with backend.open(spec) as box:
        (active,) = [found for found in await backend.list_active() if found.pid == os.getpid()]
        assert (active.id, active.state, active.is_left) == (box.containers[0], "running", False)
        assert box.containers[0] not in await backend.prune()
        assert await backend.kill(active.name)
        assert not await backend.kill(active.name)
        assert (await box.run(["true"])).ok, "the box gets another container"


async def test_variables_that_are_none(backend: DockerBackend, spec: SandboxSpec) -> None:
    async with backend.open(spec) as box:
        for wrong in ({"A=B": "x"}, {"": "x"}, {"A": "x\0y"}):
            with pytest.raises(CommandError):
                await box.run(["env"], environment=wrong)
        assert (await box.run(["/usr/bin/env"], environment={"A": "x=y"})).text() == "A=x=y\n"


async def test_only_what_this_library_made_is_touched(
    backend: DockerBackend, client: docker.APIClient, shell_image: str
) -> None:
    foreign = client.create_container(shell_image, ["sleep", "100"], name=f"not-ours-{os.getpid()}")["Id"]
    try:
        assert foreign not in await backend.prune()
        with pytest.raises(BackendError, match="names no container of this library's"):
            await backend.kill(foreign)
        assert client.inspect_container(foreign)["Id"] == foreign
    finally:
        client.remove_container(foreign, force=True)


async def test_an_image_with_a_shell(
    backend: DockerBackend, make: Callable[..., DockerBackend], shell_image: str, ws: Path, bounds: bool
) -> None:
    boxed = make(shell_image)
    spec = SandboxSpec.workspace_write(ws, limits=Limits(max_output_bytes=1 << 16), allow_degraded=DEGRADED)
    (ws / "file").write_text("of the host")
    if not bounds:
        with pytest.raises(EnforcementError, match=r"limits\.(cpu|file_size|memory|processes) is absent"):
            await boxed.execute(["true"], spec=spec)
        return
    async with boxed.open(spec) as box:
        for control in (Control.LIMITS_MEMORY, Control.LIMITS_PROCESSES, Control.SYSCALLS, Control.LIMITS_WALL):
            assert box.enforcement.grade(control) is Grade.ENFORCED, control
        path = {"PATH": "/bin"}
        assert (await box.run(["cat", "file"], environment=path)).text() == "of the host"
        assert (await box.run(["cat"], stdin=b"in", environment=path)).text() == "in"
        assert (await box.run(["sh", "-c", "echo x >&2; exit 9"], environment=path)).exit_code == 9
        result = await box.run(["sh", "-c", "sleep 100 & sleep 100"], timeout=1, environment=path)
        assert result.termination is Termination.TIMED_OUT
        assert result.duration_s < 6
        flood = await box.run(["yes"], timeout=20, environment=path)
        assert (flood.termination, flood.truncated) == (Termination.OUTPUT_LIMIT, True)
        assert not (await box.run(["sh", "-c", "echo x > /bin/x"], environment=path)).ok
        with pytest.raises(BackendError, match=f"{shell_image}' has no python3.*use one that has it; use run"):
            box.start(["cat"])
    cpu = SandboxSpec.workspace_write(ws, limits=Limits(cpu=1), allow_degraded=DEGRADED)
    with pytest.raises(EnforcementError, match=r"limits\.cpu"):
        async with boxed.open(cpu):
            pass
    await nothing_left(backend)


async def test_a_copied_workspace_stays_in_the_container(
    make: Callable[..., DockerBackend], python_image: str, ws: Path, bounds: bool
) -> None:
    (ws / "dir").mkdir()
    (ws / "dir/file").write_text("of the host")
    (ws / "link").symlink_to("dir/file")
    (ws / "secret").write_text("secret")
    allowed = DEGRADED if bounds else {*DEGRADED, Control.LIMITS_MEMORY, Control.LIMITS_PROCESSES}
    fields = SandboxSpec.workspace_write(ws, allow_degraded=allowed).model_dump(exclude_unset=True)
    fields["filesystem"]["deny"] = (str(ws / "secret"),)
    spec = SandboxSpec(**fields)
    async with make(python_image, workspace="copy").open(spec) as box:
        run = ["python3", "-c", "print(open('link').read(), end=''); open('dir/file', 'w').write('changed')"]
        environment = {"PATH": "/usr/local/bin:/bin", "PYTHONHOME": "/usr/local"}
        result = await box.run(run, environment=environment)
        assert result.text() == "of the host", result
        assert await box.files.read(str(ws / "dir/file")) == b"changed"
        assert sorted(await box.files.list(str(ws))) == ["dir", "link"]
    assert (ws / "dir/file").read_text() == "of the host"


async def test_a_copied_workspace_needs_python_in_the_image(
    make: Callable[..., DockerBackend], shell_image: str
) -> None:
    detection = await make(shell_image, workspace="copy").detect()
    assert "has no python3" in detection.reason
    assert "workspace='bind'" in detection.remedy


docker_alone = pytest.mark.parametrize("kind", ["docker"], indirect=True)


@docker_alone
@pytest.mark.parametrize("has_python", [True, False])
async def test_processors_are_bounded(
    backend: DockerBackend, shell_image: str, spec: SandboxSpec, *, has_python: bool
) -> None:
    image = None if has_python else shell_image
    quota = ["sh", "-c", "cat /sys/fs/cgroup/cpu.max 2>/dev/null || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us"]
    environment = {"PATH": "/bin:/usr/bin"}
    async with DockerBackend(image).open(spec) as box:
        assert (await box.run(quota, environment=environment)).text().split()[0] in ("-1", "max")
    async with DockerBackend(image, cpus=0.25).open(spec) as box:
        assert (await box.run(quota, environment=environment)).text().split()[0] == "25000"
        result = await box.run(["sh", "-c", "while :; do :; done"], timeout=2, environment=environment)
        if has_python:
            assert result.usage is not None
            assert result.usage.tree_cpu_s is not None
            assert result.usage.tree_cpu_s < result.duration_s * 0.25 + 0.2


STOPPED = """
import sys, anyio
from sandboxkit.backends.docker import DockerBackend
from sandboxkit.model import Control, SandboxSpec

async def main():
    spec = SandboxSpec.workspace_write(sys.argv[1], allow_degraded=[Control(name) for name in sys.argv[2:]])
    async with DockerBackend().open(spec) as box:
        print("open", flush=True)
        print((await box.run(["sleep", "100"], timeout=2)).termination, flush=True)

anyio.run(main)
"""


@docker_alone
async def test_the_deadline_holds_inside_while_the_application_is_stopped(backend: DockerBackend, ws: Path) -> None:
    words = [sys.executable, "-c", STOPPED, str(ws), *(control.value for control in DEGRADED)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=importable()) as application:
        assert application.stdout is not None
        assert application.stdout.readline() == "open\n"
        (active,) = [found for found in await backend.list_active() if found.pid == application.pid]
        with sdk() as client, anyio.fail_after(30):
            while not asleep(client, active.id):  # noqa: ASYNC110 - another program does it
                await anyio.sleep(0.05)
            application.send_signal(signal.SIGSTOP)
            while asleep(client, active.id):  # noqa: ASYNC110 - likewise
                await anyio.sleep(0.05)
        application.send_signal(signal.SIGCONT)
        assert application.stdout.readline() == "timed_out\n"
    assert application.returncode == 0


@docker_alone
async def test_the_deadline_holds_outside_while_the_container_is_frozen(
    backend: DockerBackend, spec: SandboxSpec
) -> None:
    async with backend.open(spec) as box:
        (frozen,) = box.containers
        with sdk() as client:
            client.pause(frozen)
        started = time.monotonic()
        result = await box.run(["true"], timeout=1)
        assert result.termination is Termination.TIMED_OUT
        assert time.monotonic() - started < 30
        assert (await box.run(["true"])).ok, "the box gets another container"
        assert frozen not in box.containers
    await nothing_left(backend)


@contextlib.contextmanager
def sdk() -> Iterator[APIClient]:
    """
    Another client of the same engine.
    """
    import docker

    client = docker.APIClient(base_url=os.environ["DOCKER_HOST"], version="auto")
    yield client
    client.close()


def asleep(client: APIClient, container: str) -> bool:
    """
    Whether sleep(1) runs in a container.
    """
    return any("sleep" in row[-1] for row in client.top(container)["Processes"])


@docker_alone
async def test_memory_files_are_of_a_size(backend: DockerBackend, ws: Path) -> None:
    files = FilesystemPolicy(write=(str(ws),), tmp_bytes=8 << 20)
    fill = ["sh", "-c", 'for d in /tmp /dev/shm "$HOME"; do head -c 30000000 /dev/zero > $d/f || stat -c %s $d/f; done']
    async with backend.open(SandboxSpec(filesystem=files, allow_degraded=DEGRADED)) as box:
        sizes = (await box.run(fill)).text().split()
    assert len(sizes) == 3
    assert all(int(size) <= 8 << 20 for size in sizes)


@docker_alone
async def test_it_is_taken_where_the_backends_above_are_missing_or_hold_less(
    backend: DockerBackend, spec: SandboxSpec
) -> None:
    above = RawBwrap(claim=only(limits_memory=Grade.PARTIAL), called="above")
    registry = SandboxRegistry()
    registry.register(backend, 20)
    registry.register(above, 100)
    assert (await registry.active(spec)).backend is above
    bounded = SandboxSpec(**{**spec.model_dump(exclude_unset=True), "limits": {"memory_bytes": 64 << 20}})
    taken = await registry.active(bounded)
    assert taken.backend is backend
    assert "limits.memory is partial" in taken.others["above"]
    above.found = Detection(False, "it is not here", "install it")
    registry.forget()
    taken = await registry.active(spec)
    assert taken.backend is backend
    assert "it is not here" in taken.others["above"]
    async with taken.open(spec) as box:
        assert (await box.run(["true"])).backend == "docker"
