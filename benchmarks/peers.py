"""
What a cold boxed command costs, next to other sandboxes on the same machine.

    python benchmarks/peers.py [--quick] [--json] [--check] [--path DIRECTORY]

Compared are bare bwrap, `srt` (npm @anthropic-ai/sandbox-runtime), `codex sandbox` (npm
@openai/codex), and sandlock and nono-py (PyPI), as far as they are found here: programs
on PATH or in DIRECTORY, packages in this environment. Each keeps its own defaults with one
writable directory and the network off; none of them bounds all that a box of ours does.
Each round runs every candidate once, in an order that turns. Nothing fails on timing
unless `--check` is given.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from sandboxkit import AutoSandboxRouter, SandboxSpec, sync
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxkit.model import LaunchPlan

TRUE = "/bin/true"
READABLE = tuple(path for path in ("/usr", "/bin", "/lib", "/lib64", "/etc") if os.path.isdir(path))
NAMESPACES = "--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try --unshare-net"
BWRAP = ("bwrap", *NAMESPACES.split(), "--die-with-parent", "--new-session")
BARE = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")

SANDLOCK = """
import sys, sandlock
sandlock.Sandbox(fs_readable=sys.argv[2].split(":"), fs_writable=[sys.argv[1]]).run(["/bin/true"])
"""
NONO = """
import sys, nono_py
caps = nono_py.CapabilitySet()
for path in sys.argv[2].split(":"):
    caps.allow_path(path, nono_py.AccessMode.READ)
caps.allow_path(sys.argv[1], nono_py.AccessMode.READ_WRITE)
caps.block_network()
nono_py.sandboxed_exec(caps, ["/bin/true"], cwd=sys.argv[1])
"""
OURS = """
import sys
from sandboxkit import SandboxSpec, sync
sync.run(["/bin/true"], spec=SandboxSpec.workspace_write(sys.argv[1]), cwd=sys.argv[1]).check()
"""


@dataclass(frozen=True)
class Row:
    """
    One candidate: wall time, CPU time of all its processes that were waited for, and the
    largest resident set of one of them (None where it is not a process of its own).
    """

    name: str
    p50_ms: float
    p95_ms: float
    cpu_ms: float | None = None
    largest_mib: float | None = None


@dataclass(frozen=True)
class Sample:
    """
    One run of a process.
    """

    wall_ms: float
    cpu_ms: float
    largest_mib: float


MEASURED = """
import json, os, sys, time
started = time.perf_counter()
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
_, status, used = os.wait4(pid, 0)
wall = time.perf_counter() - started
print(json.dumps([os.waitstatus_to_exitcode(status), wall, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""
"""
Starts the program from a small process: what is forked from a large one counts as large.
"""


def process(argv: list[str], directory: str) -> Sample:
    """
    Runs *argv* in *directory*, and fails where it does.
    """
    helper = [sys.executable, "-I", "-S", "-c", MEASURED, *argv]
    done = subprocess.run(helper, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    code, wall, cpu, largest = json.loads(done.stdout)
    if code:
        raise SystemExit(f"{argv[0]} ended with {code}: {done.stderr.decode(errors='replace')[-500:]}")
    return Sample(wall * 1000, cpu * 1000, largest / 1024)


def in_turn(candidates: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[Any]]:
    """
    What every candidate returned in every round.
    """
    names = list(candidates)
    found: dict[str, list[Any]] = {name: [] for name in names}
    for number in range(-1, rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            value = candidates[name]()
            if number >= 0:  # the round before warms the caches
                found[name].append(value)
    return found


def timed(call: Callable[[], object]) -> Callable[[], float]:
    """
    *call*, which returns its milliseconds instead.
    """

    def measured() -> float:
        started = time.perf_counter()
        call()
        return (time.perf_counter() - started) * 1000

    return measured


def row(name: str, samples: list[Any]) -> Row:
    """
    The figures of a candidate.
    """
    walls = sorted(sample.wall_ms if isinstance(sample, Sample) else sample for sample in samples)
    p50, p95 = statistics.median(walls), walls[int(len(walls) * 0.95)]
    if not isinstance(samples[0], Sample):
        return Row(name, p50, p95)
    cpu = statistics.median(sample.cpu_ms for sample in samples)
    return Row(name, p50, p95, cpu, statistics.median(sample.largest_mib for sample in samples))


# -- the candidates -------------------------------------------------------------------


def programs(directory: str, path: str) -> dict[str, list[str]]:
    """
    The candidates that are processes of their own, and were found.
    """
    found = {
        "sandboxkit run": [sys.executable, "-m", "sandboxkit", "run", "--", TRUE],
        "python with sandboxkit": [sys.executable, "-c", OURS, directory],
        "bare bwrap": [*BWRAP, *BARE, "--", TRUE],
    }
    if srt := shutil.which("srt", path=path):
        found["srt"] = [srt, TRUE]
    if codex := shutil.which("codex", path=path):
        found["codex sandbox"] = [codex, "sandbox", "--", TRUE]
    for package, program in (("sandlock", SANDLOCK), ("nono_py", NONO)):
        if importlib.util.find_spec(package):
            found[f"python with {package}"] = [sys.executable, "-c", program, directory, ":".join(READABLE)]
    return found


def calls(directory: str, owner: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """
    The candidates a running application can call.
    """
    spec = SandboxSpec.workspace_write(directory)
    found: dict[str, Callable[[], object]] = {
        "sandboxkit.sync.run": lambda: sync.run([TRUE], spec=spec, cwd=directory).check(),
        "bare bwrap": lambda: subprocess.run([*BWRAP, *BARE, "--", TRUE], check=True, **owner),
    }
    for package, program in (("sandlock", SANDLOCK), ("nono_py", NONO)):
        if importlib.util.find_spec(package):
            code = compile(program.replace("sys.argv", "argv"), package, "exec")
            argv = ["", directory, ":".join(READABLE)]
            found[package] = partial(exec, code, {"argv": argv})
    return found


# -- where the time goes --------------------------------------------------------------


def planned(directory: str) -> LaunchPlan:
    """
    How the library would start the command.
    """

    async def explained() -> LaunchPlan | None:
        spec = SandboxSpec.workspace_write(directory)
        return (await AutoSandboxRouter().explain([TRUE], spec=spec, cwd=directory)).plan

    plan = anyio.run(explained)
    if plan is None:
        raise SystemExit("no backend can run the command here; `sandboxkit doctor` says why")
    return plan


def mounts(plan: LaunchPlan) -> list[str]:
    """
    The file tree of *plan* in bwrap's words. What it would hand over by a descriptor is
    bound from /dev/null, which costs as much.
    """
    words: list[str] = []
    for mount in plan.mounts:
        match mount.kind:
            case "proc" | "dev" | "tmpfs" | "remount-ro":
                words += [f"--{mount.kind}", mount.target]
            case "data" | "file":
                words += ["--ro-bind", "/dev/null", mount.target]
            case _:
                words += [f"--{mount.kind}", mount.source, mount.target]
    return words


def shares(directory: str, rounds: int) -> dict[str, float]:
    """
    The milliseconds of a run by what they are for, each the difference of two medians.
    """
    python, plan = interpreter(), planned(directory)
    spec = SandboxSpec.workspace_write(directory)
    steps = {
        "exec": [TRUE],
        "namespaces": [*BWRAP, "--bind", "/", "/", "--", TRUE],
        "mounts": [*BWRAP, *mounts(plan), "--", TRUE],
        "python": [python, "-I", "-S", "-c", "pass"],
    }
    candidates = {name: timed(partial(subprocess.run, argv, check=True)) for name, argv in steps.items()}
    candidates["run"] = timed(lambda: sync.run([TRUE], spec=spec, cwd=directory).check())
    found = in_turn(candidates, rounds)
    p50 = {name: statistics.median(times) for name, times in found.items()}
    parts = {
        "exec": p50["exec"],
        "namespaces": p50["namespaces"] - p50["exec"],
        "mounts": p50["mounts"] - p50["namespaces"],
        "the in-box child": p50["python"] - p50["exec"],
    }
    return {**parts, "plan, limits, checks": p50["run"] - sum(parts.values())}


# -- the report -----------------------------------------------------------------------


def as_box(plan: LaunchPlan) -> dict[str, Any]:
    """
    The user that the library's command runs as, where the caller is root.
    """
    if plan.staging is None or plan.staging.uid is None:
        return {}
    return {"user": plan.staging.uid, "group": plan.staging.uid, "extra_groups": []}


def benchmark(rounds: int, path: str) -> dict[str, Any]:
    """
    All figures.
    """
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        owner = as_box(planned(directory))
        found = programs(directory, path)
        alone = in_turn(
            {name: partial(process, argv, directory) for name, argv in found.items()},
            max(5, rounds // 4),
        )
        called = in_turn({name: timed(call) for name, call in calls(directory, owner).items()}, rounds)
        where = shares(directory, rounds)
    return {
        "calls": [row(name, times) for name, times in called.items()],
        "processes": [row(name, samples) for name, samples in alone.items()],
        "shares_ms": where,
        "missing": [name for name in ("srt", "codex") if not shutil.which(name, path=path)]
        + [name for name in ("sandlock", "nono_py") if not importlib.util.find_spec(name)],
    }


def behind(found: dict[str, Any]) -> list[str]:
    """
    The peers that a run of ours is not ahead of, of those it must be.
    """
    ours = found["calls"][0].p50_ms
    return [each.name for each in found["processes"] if each.name in ("srt", "codex sandbox") and each.p50_ms < ours]


def show(found: dict[str, Any], rounds: int) -> None:
    """
    Prints the tables.
    """
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    print(f"{TRUE}, {rounds} rounds, {os.cpu_count()} processors, {who}\n")
    print(f"{'called by an application':28}{'p50 ms':>10}{'p95 ms':>10}")
    for each in found["calls"]:
        print(f"{each.name:28}{each.p50_ms:>10.2f}{each.p95_ms:>10.2f}")
    print(f"\n{'a process of its own':28}{'p50 ms':>10}{'p95 ms':>10}{'CPU ms':>10}{'MiB':>8}")
    for each in found["processes"]:
        print(f"{each.name:28}{each.p50_ms:>10.2f}{each.p95_ms:>10.2f}{each.cpu_ms:>10.1f}{each.largest_mib:>8.1f}")
    total = sum(found["shares_ms"].values())
    print(f"\n{'a run of sandboxkit is':28}{'ms':>10}")
    for name, value in found["shares_ms"].items():
        print(f"{name:28}{value:>10.2f}{value / total:>10.0%}")
    if found["missing"]:
        print(f"\nnot found here: {', '.join(found['missing'])}")
    for name in behind(found):
        print(f"\nNOT ahead of {name}")


def main() -> int:
    """
    Runs the benchmark.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="take fewer rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--check", action="store_true", help="end with 1 where a run is not ahead of srt and codex")
    parser.add_argument("--path", metavar="DIRECTORY", help="where srt and codex are, besides PATH")
    options = parser.parse_args()
    rounds = 20 if options.quick else 100
    path = os.pathsep.join(filter(None, (options.path, os.environ.get("PATH", os.defpath))))
    found = benchmark(rounds, path)
    if options.json:
        tables = {name: [asdict(each) for each in found[name]] for name in ("calls", "processes")}
        print(json.dumps({**found, **tables, "rounds": rounds}, indent=2))
    else:
        show(found, rounds)
    return int(options.check and bool(behind(found)))


if __name__ == "__main__":
    sys.exit(main())
