"""
Control groups of a run: everything it starts is inside, the launcher is not, and
nothing of them is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxkit.backends._cgroups import Cgroups, Hierarchy, _directory, _mount, _unified, cgroups, control_groups
from sandboxkit.errors import SetupError
from sandboxkit.model import Control, ControlGroups, Grade, Limits, SandboxSpec, Termination
from sandboxkit.process import broker_pid, direct_plan, run, shutdown
from sandboxkit.process._leaves import Leaves, Names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.model import LaunchPlan

FOUND = cgroups()
MIB = 1 << 20
HOG = f"{sys.executable} -c 'b = bytearray(200 << 20); b[::4096] = bytes(len(b[::4096])); print(1)'"
needs_groups = pytest.mark.skipif(bool(FOUND.reason), reason=f"control groups: {FOUND.describe()}")
needs_place = pytest.mark.skipif(
    bool(FOUND.reason) or any(row.scope for row in FOUND.hierarchies),
    reason=f"the application itself may make no group: {FOUND.describe()}",
)
NAMED = {Control.LIMITS_MEMORY: Grade.ENFORCED, Control.LIMITS_PROCESSES: Grade.ENFORCED}


def leaves(broker: int | None) -> list[str]:
    """
    The groups of that broker; other tests have brokers too.
    """
    return sorted(
        f"{base}/{name}"
        for row in FOUND.hierarchies
        for base in bases(row, broker)
        for name in next(os.walk(base), ("", [], []))[1]
        if name.startswith("sandboxkit-") and name.split("-")[2:3] == [str(broker)]
    )


def bases(row: Hierarchy, broker: int | None) -> list[str]:
    """
    Where that broker makes its groups in that hierarchy. systemd may be removing them.
    """
    if not row.scope:
        return [row.base]
    found = (directory for directory, _, _ in os.walk(f"{row.base}/user.slice"))
    return [directory for directory in found if fnmatch(directory, f"*/sandboxkit-*-{broker}-*.scope")]


def groups(found: Cgroups = FOUND, required: dict[Control, Grade] | None = None, **limits: Any) -> ControlGroups:
    made = control_groups(Limits(**limits), required or {}, found)
    assert made is not None
    return made


def order(made: ControlGroups) -> dict[str, Any]:
    return asdict(made)


def plan(script: str, made: ControlGroups | None = None) -> LaunchPlan:
    bare = direct_plan(["/bin/sh", "-c", script], environment={"PATH": "/usr/bin:/bin"}, cwd="/")
    return replace(bare, groups=made)


def nowhere(tmp_path: Path) -> Cgroups:
    """
    Hierarchies in which no group can be made.
    """
    missing = str(tmp_path / "missing")
    return Cgroups((Hierarchy(1, ("memory", "pids", "cpuacct"), missing, missing),), "", "")


@pytest.fixture(autouse=True)
def no_group_left_behind() -> Iterator[None]:
    shutdown()
    yield
    broker = broker_pid()
    shutdown()  # a broker waits in the groups of its next run
    assert leaves(broker) == []


@needs_groups
@pytest.mark.anyio
async def test_all_of_a_run_is_inside_and_the_launcher_is_not() -> None:
    def own(pid: int | str) -> list[str]:
        return Path(f"/proc/{pid}/cgroup").read_text().splitlines()

    script = "cat /proc/self/cgroup; (setsid cat /proc/self/cgroup) & wait"
    outside = await run(plan(script))
    assert outside.stdout.decode().splitlines() == own("self") * 2
    inside = await run(plan(script, groups(memory_bytes=256 * MIB)))
    rows = inside.stdout.decode().splitlines()
    half = len(rows) // 2
    assert rows[:half] == rows[half:]
    assert sum("/sandboxkit-" in row for row in rows[:half]) == len(FOUND.hierarchies)
    broker = broker_pid()
    assert broker is not None
    assert not {row for row in own(broker) if "/sandboxkit-" in row} & set(rows)


@needs_groups
@pytest.mark.anyio
async def test_the_figures_come_back() -> None:
    outcome = await run(plan(HOG, groups(memory_bytes=1024 * MIB, cpu=60)))
    message = outcome.usage
    assert outcome.exit_code == 0
    assert message is not None
    assert (message.max_rss_bytes, message.oom_kills) == (None, 0)
    assert (message.tree_memory_peak_bytes or 0) > 200 * MIB
    assert (message.tree_cpu_s or 0) > 0.001


@needs_groups
@pytest.mark.anyio
async def test_memory_is_bounded_and_the_counter_says_so() -> None:
    outcome = await run(plan(HOG, groups(memory_bytes=64 * MIB)))
    assert outcome.termination is Termination.MEMORY_LIMIT
    assert (await run(plan(HOG))).exit_code == 0


@needs_groups
@pytest.mark.anyio
async def test_who_outlives_the_want_of_memory_is_ended_too() -> None:
    outcome = await run(plan(f"{HOG}; sleep 60", groups(memory_bytes=64 * MIB)), timeout=30)
    assert outcome.termination is Termination.MEMORY_LIMIT
    assert outcome.exit_code is None
    assert outcome.usage is None or outcome.usage.max_rss_bytes is None


@needs_groups
@pytest.mark.anyio
async def test_processor_time_ends_a_run() -> None:
    outcome = await run(plan("while :; do :; done & while :; do :; done", groups(cpu=0.5)), timeout=20)
    assert outcome.termination is Termination.CPU_LIMIT
    assert outcome.usage is not None
    assert 0.5 <= (outcome.usage.tree_cpu_s or 0) < 1.5


@needs_groups
@pytest.mark.anyio
async def test_fifty_runs_leave_no_group() -> None:
    for _ in range(50):
        assert (await run(plan("true", groups()))).exit_code == 0
    broker = broker_pid()
    assert len(leaves(broker)) == len(FOUND.hierarchies)  # those of the next
    shutdown()
    assert leaves(broker) == []


@pytest.mark.anyio
async def test_a_limit_that_must_hold_is_not_run_without(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"control group in .*missing: No such file"):
        await run(plan("true", groups(nowhere(tmp_path), NAMED)))


@pytest.mark.anyio
async def test_a_limit_that_may_be_weaker_is_run_and_told(tmp_path: Path) -> None:
    outcome = await run(plan("true", groups(nowhere(tmp_path))))
    assert outcome.exit_code == 0
    assert set(outcome.unheld) == {"limits.memory", "limits.processes"}
    assert "No such file" in outcome.unheld["limits.memory"]


@needs_place
def test_a_group_has_its_limits_and_is_removed() -> None:
    asked = order(groups(memory_bytes=64 * MIB, processes=5))
    made = Leaves(asked, Names())
    made.arm(asked)
    paths = [Path(path) for _, path in made.rows]
    texts = {
        file.name: file.read_text().strip() for path in paths for file in path.glob("*") if file.name == "pids.max"
    }
    assert texts == {"pids.max": "8"}
    assert made.report()["failed"] == {}
    assert made.remove()
    assert not any(path.exists() for path in paths)


@needs_groups
@pytest.mark.anyio
async def test_a_refused_limit_that_must_hold_leaves_nothing() -> None:
    asked = groups(required=NAMED)
    refused = [replace(group, limits=tuple((file, -5, False) for file, _, _ in group.limits)) for group in asked.groups]
    with pytest.raises(SetupError, match=r"control group in .*Invalid argument"):
        await run(plan("true", replace(asked, groups=tuple(refused))))


@needs_groups
@pytest.mark.anyio
async def test_a_run_without_groups_is_not_bounded_by_those_of_the_next() -> None:
    assert (await run(plan("true", groups(memory_bytes=64 * MIB)))).exit_code == 0
    first = await run(plan(f"sleep 0.5; {HOG}"))
    assert (first.exit_code, first.usage) == (0, None)


@needs_place
def test_only_what_dead_brokers_left_is_removed() -> None:
    base = Path(FOUND.hierarchies[0].base)
    names = Names()
    dead = subprocess.Popen(["true"])
    dead.wait()
    cases = {
        base / f"{names.space}{dead.pid}-1-1": False,
        base / f"{names.space}{os.getpid()}-1-1": False,
        base / names.new(): True,
        base / f"sandboxkit-1-{dead.pid}-1-1": True,
    }
    try:
        for path in cases:
            path.mkdir()
        Names().clean(str(base))
        assert {path: path.exists() for path in cases} == cases
    finally:
        for path in cases:
            with suppress(FileNotFoundError):
                path.rmdir()


APPLICATION = """
import anyio
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.model import SandboxSpec
from sandboxkit.process import broker_pid

async def main():
    async with BubblewrapBackend().open(SandboxSpec.isolated()) as box:
        async with box.start(["/bin/sh", "-c", "sleep 600 & setsid sleep 600 & echo ready; sleep 600"]) as process:
            await process.stdout.receive()
            print(broker_pid(), flush=True)
            await process.wait()

anyio.run(main)
"""


def gone(paths: list[str]) -> bool:
    deadline = time.monotonic() + 5
    while any(map(os.path.exists, paths)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(os.path.exists, paths))


@needs_groups
@pytest.mark.anyio
@pytest.mark.requires("bubblewrap")
@pytest.mark.parametrize("is_broker_killed", [False, True])
async def test_a_killed_application_leaves_no_group(is_broker_killed: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", APPLICATION], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        broker = int(process.stdout.readline())
        made = leaves(broker)
        assert len(made) == 2 * len(FOUND.hierarchies)  # the box's, and those of the next
        if is_broker_killed:
            os.kill(broker, signal.SIGKILL)
        process.kill()
    if is_broker_killed:
        if not any(row.scope for row in FOUND.hierarchies):  # systemd needs no next broker
            assert all(map(os.path.exists, made))
        shutdown()  # the next broker cleans up
        time.sleep(1)
        assert (await run(plan("true", groups()))).exit_code == 0
    assert gone(made)


def test_the_plan_says_what_is_made() -> None:
    spec = SandboxSpec.isolated(limits=Limits(memory_bytes=64 * MIB, cpu=2))
    found = Cgroups((Hierarchy(2, ("memory", "pids", "cpuacct"), "/base", "/home"),), "", "")
    made = control_groups(spec.limits, spec.requirements(), found)
    assert made is not None
    (group,) = made.groups
    assert (group.base, group.home) == ("/base", "/home")
    assert group.limits == (
        ("memory.max", 64 * MIB, False),
        ("memory.swap.max", 0, True),
        ("memory.oom.group", 1, True),
        ("pids.max", 515, False),
    )
    assert group.settled == (("pids.max", 514),)
    assert (made.required, made.cpu_us) == (("limits.cpu", "limits.memory"), 2_000_000)


def test_where_none_can_be_made_none_is_planned() -> None:
    assert control_groups(Limits(), {}, Cgroups()) is None


def test_what_was_found_is_said() -> None:
    assert Cgroups((), "why").describe() == "none: why"
    assert Cgroups((Hierarchy(1, ("pids",), "/b", "/b"),), "why").describe() == "v1 pids in /b"
    assert cgroups() == cgroups().refreshed()


@needs_groups
@pytest.mark.anyio
async def test_many_runs_at_once_have_a_group_each_and_leave_none() -> None:
    outputs: list[bytes] = []

    async def one() -> None:
        outputs.append((await run(plan("grep -e pids: -e ^0:: /proc/self/cgroup; sleep 0.2", groups()))).stdout)

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(one)
    assert len(set(outputs)) == 30
    broker = broker_pid()
    shutdown()
    assert leaves(broker) == []


def test_version_2_is_used_where_a_group_above_hands_down_what_is_needed(tmp_path: Path) -> None:
    # The files of a hierarchy, as a delegated one looks to who reads it.
    home = tmp_path / "user" / "scope"
    home.mkdir(parents=True)
    for directory, handed in ((tmp_path, "cpu memory pids"), (tmp_path / "user", "memory pids"), (home, "")):
        (directory / "cgroup.subtree_control").write_text(handed)
        (directory / "cgroup.procs").write_text("")
    row = f"42 30 0:38 / {tmp_path} rw,relatime - cgroup2 cgroup2 rw"
    mount = _mount(row)
    assert mount is not None
    found = _unified({"": "/user/scope"}, [mount])
    assert found is not None
    assert (found.version, found.base, found.home) == (2, str(tmp_path / "user"), str(home))
    assert _unified({"": "/../elsewhere"}, [mount]) is None
    assert found.controllers == ("memory", "pids", "cpuacct")
    (tmp_path / "user" / "cgroup.subtree_control").write_text("pids")
    (tmp_path / "cgroup.subtree_control").write_text("cpu")
    found = _unified({"": "/user/scope"}, [mount])
    assert found is not None
    assert (found.controllers, found.base) == (("pids", "cpuacct"), str(tmp_path / "user"))
    (tmp_path / "user" / "cgroup.subtree_control").write_text("")
    found = _unified({"": "/user/scope"}, [mount])
    assert found is not None  # processor time is counted without a controller
    assert (found.controllers, found.base) == (("cpuacct",), str(home))


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("/", "/", "/sys/fs/cgroup/pids"),
        ("/", "/a/b", "/sys/fs/cgroup/pids/a/b"),
        ("/docker/1", "/docker/1", "/sys/fs/cgroup/pids"),
        ("/docker/1", "/docker/1/a", "/sys/fs/cgroup/pids/a"),
        ("/docker/1", "/docker/12", None),
        ("/", "/../a", None),
    ],
)
def test_a_group_is_found_below_what_is_mounted(root: str, path: str, expected: str | None) -> None:
    mount = _mount(f"39 31 0:36 {root} /sys/fs/cgroup/pids rw,relatime shared:4 - cgroup cgroup rw,pids")
    assert mount is not None
    assert _directory(mount, path) == expected
