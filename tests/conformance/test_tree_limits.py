"""
What all processes of a box together must not use up, where control groups can be made,
and that the same use is possible outside; and what is claimed where they cannot.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.conftest import Act

from sandboxkit.backends._cgroups import Cgroups, Hierarchy, cgroups
from sandboxkit.backends._launched import LaunchedSandbox
from sandboxkit.backends.bubblewrap import _MECHANISM, BubblewrapFacts, _trial
from sandboxkit.errors import SetupError
from sandboxkit.model import Control, Grade, Limits, SandboxSpec, Termination

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.conftest import Boxes

    from sandboxkit.backends.bubblewrap import BubblewrapBackend

pytestmark = pytest.mark.anyio
CPU, MEMORY, PROCESSES = Control.LIMITS_CPU, Control.LIMITS_MEMORY, Control.LIMITS_PROCESSES
FOUND = cgroups()
with_groups = pytest.mark.skipif(bool(FOUND.reason), reason=f"control groups: {FOUND.describe()}")
without_groups = pytest.mark.skipif(bool(FOUND.hierarchies), reason=f"control groups: {FOUND.describe()}")

MIB = 1 << 20
TAKE = Act(
    """
import mmap
size = arguments["mib"] << 20
def fill(block):
    block[::4096] = bytes(len(block[::4096]))
    kept.append(block)
def children():
    # Each takes less than the limit of one process.
    for _ in range(8):
        if not os.fork():
            fill(bytearray(size // 8))
            time.sleep(2)
            os._exit(0)
    for _ in range(8):
        answers["statuses"] = answers.get("statuses", 0) | os.wait()[1]
def memfd():
    fd = os.memfd_create("bomb")
    for _ in range(arguments["mib"]):
        os.write(fd, bytes(1 << 20))
def shm():
    path = f"/dev/shm/sandboxkit-bomb-{os.getpid()}"
    with open(path, "wb", buffering=0) as file:
        os.unlink(path)
        for _ in range(arguments["mib"]):
            file.write(bytes(1 << 20))
kept = []
ways = {
    "anonymous": lambda: fill(memoryview(mmap.mmap(-1, size))),
    "children": children,
    "memfd": memfd,
    "shm": shm,
}
attempt("took", ways[arguments["way"]])
"""
)


def spec_with(ws: Path, **limits: Any) -> SandboxSpec:
    return SandboxSpec.workspace_write(ws, limits=Limits(**limits))


@with_groups
@pytest.mark.parametrize("way", ["anonymous", "children", "memfd", "shm"])
async def test_a_bomb_of_memory_ends_at_the_limit_of_the_tree(boxes: Boxes, ws: Path, way: str) -> None:
    argv = TAKE.argv({"way": way, "mib": 192})
    result = await boxes.run(spec_with(ws, memory_bytes=64 * MIB), argv, timeout=20)
    usage = result.usage
    assert not result.ok
    assert result.termination is Termination.MEMORY_LIMIT, (result.outcome, result.text("stderr"))
    assert usage is not None
    assert usage.oom_kills is not None
    assert 60 * MIB < (usage.tree_memory_peak_bytes or 0) <= 64 * MIB
    assert result.enforcement.grade(MEMORY) is Grade.ENFORCED
    assert "limit of memory, having used" in result.outcome


@with_groups
async def test_who_takes_more_and_more_is_ended_and_the_figure_told(boxes: Boxes, ws: Path) -> None:
    # It would only see a MemoryError if the limit of one process came first.
    script = Act("kept = []\nfor _ in range(200):\n    kept.append(b'x' * (1 << 20))")
    result = await boxes.run(spec_with(ws, memory_bytes=64 * MIB), script.argv({}), timeout=20)
    assert result.termination is Termination.MEMORY_LIMIT, (result.outcome, result.text("stderr"))
    assert script.outside() == {}


@pytest.mark.parametrize("way", ["anonymous", "children", "memfd", "shm"])
def test_as_much_memory_is_there_outside(way: str) -> None:
    outside = TAKE.outside(way=way, mib=192)
    assert (outside["took"], outside.get("statuses", 0)) == ("done", 0)


@with_groups
async def test_what_fits_is_no_bomb(boxes: Boxes, ws: Path) -> None:
    result = await boxes.run(spec_with(ws, memory_bytes=128 * MIB), TAKE.argv({"way": "memfd", "mib": 40}))
    assert result.ok, result.text("stderr")
    usage = result.usage
    assert usage is not None
    assert (usage.oom_kills, usage.refused_processes) == (0, 0)
    assert (usage.tree_memory_peak_bytes or 0) > 40 * MIB
    assert (usage.tree_cpu_s or 0) > 0


SPIN = Act(
    """
children = []
for _ in range(4):
    pid = os.fork()
    if not pid:
        while time.process_time() < 0.7:
            pass
        os._exit(0)
    children.append(pid)
answers["statuses"] = sum(os.waitpid(pid, 0)[1] for pid in children)
"""
)


@with_groups
async def test_processor_time_is_summed_over_the_tree(boxes: Boxes, ws: Path) -> None:
    # 4 children, none of which uses a second by itself.
    result = await boxes.run(spec_with(ws, cpu=1), SPIN.argv({}), timeout=30)
    assert SPIN.outside() == {"statuses": 0}
    assert result.termination is Termination.CPU_LIMIT, result.outcome
    assert result.exit_code is None
    assert result.usage is not None
    assert 1 <= (result.usage.tree_cpu_s or 0) < 2
    assert "limit of processor time, having used" in result.outcome
    assert result.enforcement.grade(CPU) is Grade.ENFORCED


@with_groups
async def test_processes_are_counted_where_the_boxs_own_limit_does_not_bind(boxes: Boxes, ws: Path) -> None:
    # RLIMIT_NPROC binds no process whose uid is the host's root.
    spec = SandboxSpec.isolated(limits=Limits(processes=16), allow_degraded=frozenset({Control.PROCESS_ISOLATION}))
    script = Act(
        """
children = []
def bomb():
    for _ in range(64):
        children.append(os.fork())
        if not children[-1]:
            time.sleep(60)
            os._exit(0)
attempt("forking", bomb)
for pid in children:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
answers["children"] = len(children)
"""
    )
    result = await boxes.run(spec, script.argv({}), timeout=20)
    assert result.ok, result.text("stderr")
    assert '"forking": "EAGAIN"' in result.text()
    assert script.outside() == {"forking": "done", "children": 64}
    assert result.usage is not None
    assert (result.usage.refused_processes or 0) > 0
    assert result.enforcement.grade(PROCESSES) is Grade.ENFORCED


@with_groups
@pytest.mark.parametrize("code", [0, 3])
async def test_who_fails_at_the_limit_of_processes_is_told_so_with_the_figure(
    boxes: Boxes, ws: Path, code: int
) -> None:
    # Who makes do with what it gets did not end there.
    script = Act(
        """
def bomb():
    for _ in range(64):
        if not os.fork():
            time.sleep(60)
            os._exit(0)
attempt("forking", bomb)
print(answers["forking"], flush=True)
os._exit(arguments["code"] if answers["forking"] == "EAGAIN" else 0)
"""
    )
    result = await boxes.run(spec_with(ws, processes=20), script.argv({"code": code}), timeout=20)
    assert (result.text().strip(), result.exit_code) == ("EAGAIN", code)
    usage = result.usage
    assert usage is not None
    assert (usage.refused_processes, usage.tree_processes_peak) == (1, 22)  # bwrap, and the child that waits
    assert result.termination is (Termination.PROCESS_LIMIT if code else Termination.EXITED)
    if code:
        assert result.outcome == "exited with code 3 at its limit of processes, which refused it 1 more"


@with_groups
async def test_as_many_processes_as_the_limit_says_are_had(boxes: Boxes, ws: Path) -> None:
    for number in (1, 2, 5):
        script = "; ".join(["sleep 0.5 &"] * (number - 1)).replace("&;", "&") + " wait"
        result = await boxes.run(spec_with(ws, processes=number), ["sh", "-c", script], timeout=20)
        assert result.ok, result.text("stderr")
        assert result.usage is not None
        assert result.usage.refused_processes == 0
        # The launcher leaves while the command runs already, and may have been counted with all of it.
        assert result.usage.tree_processes_peak in (number + 2, number + 3)


@with_groups
async def test_a_fork_bomb_cannot_outgrow_the_tree(boxes: Boxes, ws: Path) -> None:
    bomb = "f() { f | f & }; f; while :; do f; sleep 0.1; done"
    result = await boxes.run(spec_with(ws, processes=30), ["bash", "-c", bomb], timeout=1)
    assert result.termination in (Termination.TIMED_OUT, Termination.EXITED, Termination.PROCESS_LIMIT)
    assert result.duration_s < 8
    peak = result.usage.tree_processes_peak if result.usage else None
    assert peak is None or peak <= 33


@without_groups
async def test_without_groups_the_limits_of_one_process_hold_and_are_called_partial(boxes: Boxes, ws: Path) -> None:
    spec = spec_with(ws, memory_bytes=64 * MIB, cpu=5)
    result = await boxes.run(spec, TAKE.argv({"way": "memfd", "mib": 1}))
    assert result.ok, result.text("stderr")
    assert {result.enforcement.grade(MEMORY), result.enforcement.grade(CPU)} == {Grade.PARTIAL}
    assert FOUND.reason in result.enforcement.reason(MEMORY)
    missing = result.enforcement.missing(spec.requirements())
    assert [sentence.split()[0] for sentence in missing] == ["limits.cpu", "limits.memory"] or len(missing) == 2
    assert result.usage is not None
    assert result.usage.tree_memory_peak_bytes is None


def unusable(tmp_path: Path) -> Cgroups:
    """
    Hierarchies in which no group can be made, whatever was found.
    """
    missing = str(tmp_path / "missing")
    return Cgroups((Hierarchy(1, ("memory", "pids", "cpuacct"), missing, missing),))


async def test_a_group_that_cannot_be_made_lowers_what_is_said(
    backend: BubblewrapBackend, ws: Path, tmp_path: Path
) -> None:
    spec = SandboxSpec.workspace_write(ws)
    found = (await backend.detect(spec)).facts
    assert isinstance(found, BubblewrapFacts)
    box = LaunchedSandbox(_MECHANISM, spec, replace(found, cgroups=unusable(tmp_path)))
    assert box.enforcement.grade(MEMORY) is Grade.ENFORCED
    result = await box.run(["true"])
    assert result.ok
    assert result.enforcement.grade(MEMORY) is Grade.PARTIAL
    assert "No such file or directory" in result.enforcement.reason(MEMORY)


async def test_a_group_that_cannot_be_made_refuses_the_run_whose_spec_names_the_limit(
    backend: BubblewrapBackend, ws: Path, tmp_path: Path
) -> None:
    spec = spec_with(ws, memory_bytes=64 * MIB)
    found = (await backend.detect(spec)).facts
    assert isinstance(found, BubblewrapFacts)
    box = LaunchedSandbox(_MECHANISM, spec, replace(found, cgroups=unusable(tmp_path)))
    with pytest.raises(SetupError, match=r"control group in .*missing.*allow_degraded"):
        await box.run(["touch", str(ws / "ran")])
    assert not (ws / "ran").exists()


async def test_detection_does_not_claim_groups_that_a_first_box_did_not_get(
    backend: BubblewrapBackend, tmp_path: Path
) -> None:
    found = (await backend.detect()).facts
    assert isinstance(found, BubblewrapFacts)
    tried = await _trial(replace(found, cgroups=unusable(tmp_path)))
    assert isinstance(tried, BubblewrapFacts)
    assert tried.cgroups.hierarchies == ()
    assert "No such file or directory" in tried.cgroups.reason
