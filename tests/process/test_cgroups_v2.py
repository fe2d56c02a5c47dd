"""
Version 2 of control groups, on a tree of this kernel. What takes a controller that version
1 has on this machine (memory, pids) cannot be run here; everything else is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends._cgroups import Cgroups, Hierarchy, control_groups
from sandboxkit.model import Control, Grade, Limits, Termination
from sandboxkit.process import broker_pid, direct_plan, run, shutdown
from sandboxkit.process._leaves import Leaves, Names, end, get, members, number, put, remove

if TYPE_CHECKING:
    from collections.abc import Iterator


def _tree() -> str | None:
    """
    Where version 2 is mounted and this user may make groups.
    """
    rows = (row.split() for row in Path("/proc/self/mountinfo").read_text().splitlines())
    points = [row[4] for row in rows if row[row.index("-") + 1] == "cgroup2"]
    return next((point for point in points if os.access(f"{point}/cgroup.procs", os.W_OK)), None)


TREE = _tree() if sys.platform == "linux" else None
pytestmark = pytest.mark.skipif(TREE is None, reason="no cgroup2 tree in which this user may make groups")
ORDINARY = 4242


@pytest.fixture
def base() -> Iterator[str]:
    """
    A group of its own, which is gone afterwards with all in it.
    """
    path = f"{TREE}/sandboxkit-test-{os.getpid()}-{time.monotonic_ns()}"
    os.mkdir(path)
    yield path
    shutdown()
    end(path)
    for inner in sorted((str(found) for found in Path(path).rglob("*") if found.is_dir()), reverse=True):
        remove(inner)
    deadline = time.monotonic() + 5
    while not remove(path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(path)


def sleeper(group: str, script: str = "sleep 60 & sleep 60") -> subprocess.Popen[bytes]:
    """
    A shell and its child in *group*.
    """
    started = subprocess.Popen(["/bin/sh", "-c", f"echo $$ >{group}/cgroup.procs; {script}"])
    deadline = time.monotonic() + 5
    while len(members(group)) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    return started


def test_a_group_ends_at_one_stroke(base: str) -> None:
    process = sleeper(base)
    assert len(members(base)) >= 2
    assert number(f"{base}/cgroup.events", "populated") == 1
    assert not remove(base)  # it is not empty
    end(base)
    assert process.wait(5) == -9
    deadline = time.monotonic() + 5
    while number(f"{base}/cgroup.events", "populated") and time.monotonic() < deadline:
        time.sleep(0.005)
    assert number(f"{base}/cgroup.events", "populated") == 0
    assert members(base) == []


def test_what_is_frozen_is_ended_too(base: str) -> None:
    process = sleeper(base)
    put(f"{base}/cgroup.freeze", "1")
    end(base)
    assert process.wait(5) == -9


def test_numbers_are_read_from_files_of_one_number_and_of_rows(base: str) -> None:
    assert number(f"{base}/cgroup.freeze", "") == 0
    assert number(f"{base}/cgroup.events", "frozen") == 0
    assert number(f"{base}/cgroup.stat", "nr_descendants") == 0
    assert number(f"{base}/cpu.stat", "usage_usec") == 0
    assert number(f"{base}/cgroup.max.depth", "") is None  # "max" is no number
    assert number(f"{base}/cgroup.events", "missing") is None
    assert number(f"{base}/of.no.kernel", "") is None


def test_a_limit_is_read_back_and_a_refused_one_told(base: str) -> None:
    def order(value: int, file: str = "cgroup.max.descendants", *, is_optional: bool = False) -> dict[str, object]:
        group = {
            "base": base,
            "home": TREE,
            "controls": ["limits.processes"],
            "limits": [(file, value, is_optional)],
            "settled": [("cgroup.max.descendants", 1)],
            "figures": [("depth", "cgroup.stat", "nr_descendants", 1)],
            "shortage": "",
        }
        return {"groups": [group], "required": [], "cpu_us": None}

    names = Names()
    leaves = Leaves(order(2), names)
    leaves.arm(order(2))
    ((_, path),) = leaves.rows
    assert (get(f"{path}/cgroup.max.descendants"), leaves.failed) == ("2\n", {})
    leaves.settle()
    assert get(f"{path}/cgroup.max.descendants") == "1\n"
    assert leaves.figures() == {"depth": 0}
    assert leaves.remove()
    for file, value in (("cgroup.max.descendants", -1), ("pids.max", 5)):
        refused = Leaves(order(value, file), names)
        refused.arm(order(value, file))
        assert list(refused.failed) == ["limits.processes"]
        assert refused.remove()
    lesser = Leaves(order(5, "memory.swap.max", is_optional=True), names)
    lesser.arm(order(5, "memory.swap.max", is_optional=True))
    assert (lesser.failed, lesser.remove()) == ({}, True)


SPIN = """
import os, time
for _ in range(4):
    if not os.fork():
        while time.process_time() < 0.6:
            pass
        os._exit(0)
for _ in range(4):
    os.wait()
"""


@pytest.mark.anyio
async def test_processor_time_of_a_whole_tree_ends_a_run(base: str) -> None:
    found = Cgroups((Hierarchy(2, ("cpuacct",), base, str(TREE)),), "", "")
    groups = control_groups(Limits(cpu=1), {Control.LIMITS_CPU: Grade.ENFORCED}, found)
    assert groups is not None
    plan = replace(direct_plan([sys.executable, "-c", SPIN], environment={}, cwd="/"), groups=groups)
    shutdown()  # so that the next broker knows of no other groups
    outcome = await run(plan, timeout=30)
    assert outcome.termination is Termination.CPU_LIMIT
    assert outcome.usage is not None
    assert 1 <= (outcome.usage.tree_cpu_s or 0) < 2
    assert outcome.usage.tree_cpu_s == pytest.approx(outcome.usage.cpu_user_s + outcome.usage.cpu_system_s, abs=0.05)
    assert (await run(replace(plan, groups=None), timeout=30)).exit_code == 0
    broker = broker_pid()
    shutdown()
    assert not [name for name in os.listdir(base) if name.startswith("sandboxkit-") and f"-{broker}-" in name]


@pytest.mark.anyio
async def test_a_run_is_inside_from_its_first_instruction_and_nothing_of_it_stays(base: str) -> None:
    found = Cgroups((Hierarchy(2, ("cpuacct",), base, str(TREE)),), "", "")
    groups = control_groups(Limits(), {}, found)
    assert groups is not None
    script = "cat /proc/self/cgroup; setsid sleep 60 & setsid cat /proc/self/cgroup"
    plan = replace(
        direct_plan(["/bin/sh", "-c", script], environment={"PATH": "/usr/bin:/bin"}, cwd="/"), groups=groups
    )
    shutdown()
    outcome = await run(plan, timeout=3)
    own = [row for row in outcome.stdout.decode().splitlines() if row.startswith("0::")]
    assert own
    assert all(f"/{os.path.basename(base)}/sandboxkit-" in row for row in own)
    shutdown()
    assert [path for path in Path(base).iterdir() if path.is_dir()] == []


DELEGATED = """
import json, os, sys
home, uid = sys.argv[1], int(sys.argv[2])
open(f"{home}/cgroup.procs", "w").write("0")
os.setgroups([]); os.setgid(uid); os.setuid(uid)
os.environ["HOME"] = "/nonexistent"
from sandboxkit import Limits, SandboxSpec, sync
from sandboxkit.backends._cgroups import cgroups
result = sync.run([sys.executable, "-c", sys.argv[3]], spec=SandboxSpec.isolated(limits=Limits(cpu=1)), cwd="/tmp")
print(json.dumps([cgroups().describe(), result.termination, str(result.enforcement.grade("limits.cpu")), result.usage.tree_cpu_s]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can delegate a group to somebody else")
def test_an_ordinary_user_bounds_the_processor_time_of_a_tree_in_a_delegated_group(base: str) -> None:
    home = f"{base}/scope"
    os.mkdir(home)
    for directory in (base, home):
        os.chown(directory, ORDINARY, ORDINARY)
        for name in ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
            os.chown(f"{directory}/{name}", ORDINARY, ORDINARY)
    command = [sys.executable, "-c", DELEGATED, home, str(ORDINARY), SPIN]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and ("Permission denied" in done.stderr or "No module named" in done.stderr):
        pytest.skip("another user may not read this interpreter's files")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f'["v2 cpuacct in {home}", "cpu_limit", "enforced", 1')
    with suppress(FileNotFoundError):
        os.rmdir(home)


def test_the_order_that_goes_to_the_broker_has_all_it_reads() -> None:
    found = Cgroups((Hierarchy(2, ("memory", "pids", "cpuacct"), "/base", "/home"),), "", "")
    groups = control_groups(Limits(cpu=1, processes=8), {}, found)
    assert groups is not None
    assert asdict(groups)["groups"][0].keys() == {
        "base",
        "home",
        "controls",
        "limits",
        "settled",
        "figures",
        "shortage",
        "scope",
    }
