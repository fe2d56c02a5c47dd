"""
What a box without namespaces cannot keep, and says so with the reason and the remedy.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.backends.landlock.conftest import IS_ROOT, OTHER_UID, SHARED, workspace
from tests.conformance.conftest import Act

from sandboxkit.backends.landlock import LandlockBackend, LandlockFacts
from sandboxkit.errors import BackendUnavailableError, EnforcementError, SpecError
from sandboxkit.model import Control, FilesystemPolicy, Grade, Limits, NetworkPolicy, SandboxSpec

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def refusal(backend: LandlockBackend, spec: SandboxSpec) -> str:
    with pytest.raises(EnforcementError) as caught:
        async with backend.open(spec) as box:
            await box.run(["true"])
    return str(caught.value)


async def test_a_pid_namespace_is_not_promised(backend: LandlockBackend, ws: Path) -> None:
    said = await refusal(backend, SandboxSpec.workspace_write(ws))
    assert "process.isolation is partial, enforced is required (no pid namespace" in said
    assert "list in allow_degraded" in said


@pytest.mark.parametrize(
    ("control", "reason"),
    [
        (Control.NET_ALLOWLIST, "knows ports and no hosts"),
        (Control.FS_OVERLAY, "has no layers"),
        (Control.LIMITS_MEMORY, "counts each process by itself"),
        (Control.LIMITS_CPU, "counts each process by itself"),
    ],
)
async def test_what_is_required_beyond_it_is_refused(
    backend: LandlockBackend, ws: Path, control: Control, reason: str
) -> None:
    spec = SandboxSpec.workspace_write(ws, allow_degraded=SHARED, require={control: Grade.ENFORCED})
    said = await refusal(backend, spec)
    assert f"{control} is " in said
    assert reason in said


async def test_a_named_limit_that_holds_for_each_process_only_is_refused(backend: LandlockBackend, ws: Path) -> None:
    spec = SandboxSpec.workspace_write(ws, allow_degraded=SHARED, limits=Limits(memory_bytes=1 << 30))
    assert "limits.memory is partial, enforced is required" in await refusal(backend, spec)


async def test_a_denied_path_in_a_writable_directory_is_refused(backend: LandlockBackend, ws: Path) -> None:
    (ws / "secret").write_text("canary")
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=(str(ws),), deny=(f"{ws}/secret",)), allow_degraded=SHARED)
    said = await refusal(backend, spec)
    assert f"{ws}/secret must not be written, inside the writable {ws}" in said
    assert "name smaller directories in filesystem.write, or list fs.deny_inside_allow" in said


async def test_a_denied_path_that_is_missing_or_elsewhere_is_no_obstacle(
    backend: LandlockBackend, ws: Path, outside: Path
) -> None:
    filesystem = FilesystemPolicy(write=(str(ws),), deny=(f"{ws}/missing", str(outside)))
    async with backend.open(SandboxSpec(filesystem=filesystem, allow_degraded=SHARED)) as box:
        result = await box.run(["sh", "-c", f"echo x >{ws}/missing; cat {outside}/file"])
    assert result.exit_code == 1
    assert [violation.target for violation in result.violations] == [f"{ws}/missing"]


DENIED = Act("""
root = arguments["root"]
attempt("read", read, root + "/secret")
attempt("beside", read, root + "/sub/file")
attempt("hard link", os.link, root + "/secret", root + "/sub/link")
attempt("take", os.rename, root + "/secret", root + "/sub/taken")
attempt("take back", os.rename, root + "/sub/taken", root + "/secret")
attempt("through link", read, root + "/alias")
attempt("new", write, root + "/new")
attempt("new beside", write, root + "/sub/new")
""")


def divided(ws: Path) -> None:
    (ws / "sub").mkdir()
    (ws / "sub" / "file").write_text("x")
    (ws / "secret").write_text("canary")
    (ws / "alias").symlink_to(ws / "secret")


async def test_a_denied_path_in_a_readable_directory_is_held(backend: LandlockBackend, ws: Path) -> None:
    divided(ws)
    spec = SandboxSpec(filesystem=FilesystemPolicy(read=(str(ws),), deny=(f"{ws}/secret",)), allow_degraded=SHARED)
    async with backend.open(spec) as box:
        assert box.enforcement.grade(Control.FS_DENY_INSIDE_ALLOW) is Grade.ENFORCED
        inside = await DENIED.inside(box, root=str(ws))
    control = DENIED.outside(root=str(ws))
    assert set(control.values()) == {"done"}
    assert {what for what, answer in inside.items() if answer == "done"} == {"beside"}


async def test_where_the_spec_lets_it_a_denied_path_is_held_in_a_writable_one_too(
    backend: LandlockBackend, ws: Path
) -> None:
    divided(ws)
    filesystem = FilesystemPolicy(write=(str(ws),), deny=(f"{ws}/secret",))
    spec = SandboxSpec(filesystem=filesystem, allow_degraded=SHARED | {Control.FS_DENY_INSIDE_ALLOW})
    async with backend.open(spec) as box:
        inside = await DENIED.inside(box, root=str(ws))
    control = DENIED.outside(root=str(ws))
    assert {what: answer for what, answer in control.items() if answer != "done"} == {}
    assert {what for what, answer in inside.items() if answer == "done"} == {"beside", "new beside"}


async def test_protected_names_in_a_writable_directory_are_refused_or_looked_at(
    backend: LandlockBackend, ws: Path
) -> None:
    (ws / ".git" / "hooks").mkdir(parents=True)
    (ws / ".git" / "config").write_text("[core]\n")
    assert f"{ws}/.git/config and 1 more must not be written" in await refusal(backend, workspace(ws))
    async with backend.open(workspace(ws, Control.FS_DENY_INSIDE_ALLOW)) as box:
        quiet = await box.run(["sh", "-c", "cat .git/config; echo x >file"])
        hooked = await box.run(["sh", "-c", "echo x >.git/hooks/pre-commit"])
        later = await box.run(["true"])
    assert quiet.ok
    assert (quiet.violations, later.violations) == ((), ())
    assert [violation.target for violation in hooked.violations] == [f"{ws}/.git/hooks"]
    assert hooked.enforcement.grade(Control.FS_DENY_INSIDE_ALLOW) is Grade.PARTIAL
    assert hooked.enforcement.grade(Control.FS_WRITE) is Grade.ENFORCED


async def test_the_host_network_has_no_way_to_sockets_of_the_host(backend: LandlockBackend, ws: Path) -> None:
    spec = SandboxSpec.workspace_write(ws, allow_degraded=SHARED, network=NetworkPolicy(mode="host"))
    act = Act("""
attempt("listen", lambda: socket.create_server(("127.0.0.1", 0)).close())
attempt("unix", lambda: socket.socket(socket.AF_UNIX).close())
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close())
""")
    async with backend.open(spec) as box:
        inside = await act.inside(box)
        assert box.enforcement.grade(Control.NET_NONE) is Grade.ABSENT
    assert inside["listen"] == "done"
    assert inside["unix"] == "EACCES"
    assert inside["packet"] != "done"


async def test_a_closed_kernel_is_unavailable_with_the_remedy() -> None:
    backend = LandlockBackend(max_abi=0)
    found = await backend.detect()
    assert not found.available
    assert "Linux 5.13" in found.remedy
    with pytest.raises(BackendUnavailableError, match="Linux 5"):
        async with backend.open(SandboxSpec.isolated()):
            pass


async def test_a_directory_that_is_not_shown_is_no_place_to_start(backend: LandlockBackend, ws: Path) -> None:
    async with backend.open(workspace(ws)) as box:
        with pytest.raises(SpecError, match="not visible in the box"):
            await box.run(["true"], cwd="/var")


IDS = Act("""
answers["ids"] = [os.getresuid(), os.getresgid(), os.getgroups()]
answers["capabilities"] = [line for line in read("/proc/self/status").decode().splitlines() if line.startswith("CapEff")]
attempt("shadow", read, "/etc/shadow")
attempt("core pattern", open, "/proc/sys/kernel/core_pattern", "w")
attempt("setuid", os.setuid, 0)
""")


@pytest.mark.skipif(not IS_ROOT, reason="only root has a uid to give up")
async def test_roots_own_directory_takes_root_without_capabilities(backend: LandlockBackend, ws: Path) -> None:
    async with backend.open(workspace(ws)) as box:
        inside = await IDS.inside(box)
    control = IDS.outside()
    assert (control["shadow"], control["core pattern"]) == ("done", "done")
    assert inside["ids"][0] == [0, 0, 0]
    assert inside["capabilities"] == ["CapEff:\t0000000000000000"]
    assert (inside["shadow"], inside["core pattern"]) == ("EACCES", "EACCES")
    assert "keeps uid 0" in box.enforcement.reason(Control.PROCESS_ISOLATION)


@pytest.mark.skipif(not IS_ROOT, reason="only root has a uid to give up")
async def test_a_directory_of_one_user_takes_that_user(backend: LandlockBackend, open_ws: Path) -> None:
    os.chown(open_ws, OTHER_UID, OTHER_UID)
    async with backend.open(SandboxSpec.workspace_write(open_ws, allow_degraded={Control.PROCESS_ISOLATION})) as box:
        result = await box.run(["sh", "-c", "id -u; id -G; echo x >made; cat <<E >$TMPDIR/x; cat $TMPDIR/x\nhere\nE"])
    assert result.text().split() == [str(OTHER_UID), str(OTHER_UID), "here"]
    assert (open_ws / "made").stat().st_uid == OTHER_UID


async def test_these_facts_are_not_anothers(backend: LandlockBackend) -> None:
    found = await backend.detect()
    assert isinstance(found.facts, LandlockFacts)
    assert found.facts.to_dict()["landlock_abi"] == found.facts.abi
    from sandboxkit.backends import Facts

    with pytest.raises(SpecError, match="another backend's"):
        backend.enforcement(SandboxSpec.isolated(), Facts())
