"""
What a boxed command costs, next to the things it is made of.

    python benchmarks/run.py [--quick] [--json] [--check]

Each round runs every candidate once, in an order that turns, so that a slow moment of
the machine hits them all. Nothing fails on timing unless `--check` is given.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import anyio

from sandboxkit import AuditEvent, AutoSandboxRouter, JsonlAudit, MemoryAudit, SandboxSpec, sync
from sandboxkit.audit import AuditKey
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable

TRUE = "/bin/true"
ALLOWANCE_PYTHON = 1.5
"""Starts of a bare Python the library may take beyond bwrap: its in-box child is one."""
ALLOWANCE_MS = 4.0
IMPORT_LIMIT_MS = 60.0

RECORD: dict[str, Any] = {
    "pid": 4242,
    "uid": 1000,
    "command": "npm install express --save-dev",
    "opaque": None,
    "cwd": "/home/somebody/project",
    "home": "/home/somebody",
    "workspace_roots": ("/home/somebody/project",),
    "action": "sandbox",
    "reason": "it installs packages, whose scripts run",
    "rules": ["builtin:npm.install"],
    "rules_digest": "5e" * 32,
    "spec": {"filesystem": {"write": ["/home/somebody/project"]}},
    "outcome": "run",
    "mode": "sandbox",
    "backend": "bubblewrap",
    "enforcement": {"limits.memory": "partial", "limits.cpu": "partial"},
}
"""A usual record of a decision."""

FIRST_RUN = """
import time
started = time.perf_counter()
from sandboxkit import SandboxSpec, sync
sync.run(["/bin/true"], spec=SandboxSpec.workspace_write(".")).check()
print(time.perf_counter() - started)
"""


@dataclass(frozen=True)
class Row:
    """
    One candidate's times in milliseconds, and p50 over that of the last candidate.
    """

    name: str
    p50_ms: float
    p95_ms: float
    ratio: float


@dataclass(frozen=True)
class Bar:
    """
    A figure and the most it may be.
    """

    name: str
    value_ms: float
    limit_ms: float

    @property
    def is_kept(self) -> bool:
        return self.value_ms <= self.limit_ms


def measured(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """
    Milliseconds of every candidate in every round.
    """
    names = list(candidates)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-2, rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            started = time.perf_counter()
            candidates[name]()
            if number >= 0:  # the rounds before warm the caches
                times[name].append((time.perf_counter() - started) * 1000)
    return times


def rows(times: dict[str, list[float]]) -> list[Row]:
    """
    The candidates, each compared with the last.
    """
    base = statistics.median(list(times.values())[-1])
    found = []
    for name, values in times.items():
        p50 = statistics.median(values)
        found.append(Row(name, p50, sorted(values)[int(len(values) * 0.95)], p50 / base))
    return found


def record_costs(directory: str, rounds: int) -> list[Row]:
    """
    What a record of a decision costs, beside the write of as many bytes.
    """
    event = AuditEvent("decided", uuid.uuid4().hex, time.time(), RECORD)
    sink = JsonlAudit(os.path.join(directory, "audit.jsonl"))
    keyed = JsonlAudit(os.path.join(directory, "keyed.jsonl"), key=AuditKey(os.urandom(32)))
    ring = MemoryAudit()
    sink.write(event)
    with open(os.path.join(directory, "audit.jsonl"), "rb") as log, open(os.path.join(directory, "bare"), "ab") as bare:
        line, fd = log.read(), bare.fileno()
        return rows(
            measured(
                {
                    "JsonlAudit.write": lambda: sink.write(event),
                    "the same with a key": lambda: keyed.write(event),
                    "MemoryAudit.write": lambda: ring.write(event),
                    "bare write(2)": lambda: os.write(fd, line),
                },
                rounds * 10,
            )
        )


def box_uid(spec: SandboxSpec) -> int | None:
    """
    The uid the library gives the command, where the caller is root.
    """

    async def explained() -> int | None:
        found = await AutoSandboxRouter().explain([TRUE], spec=spec, cwd=spec.filesystem.write[0])
        staging = found.plan.staging if found.plan else None
        return staging.uid if staging else None

    return anyio.run(explained)


def bare_bwrap(uid: int | None) -> Callable[[], object]:
    """
    bwrap with the namespaces of a box and nothing else, as the same user.
    """
    words = "bwrap --unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try --unshare-net "
    words += f"--die-with-parent --new-session --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp -- {TRUE}"
    who: dict[str, Any] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    return lambda: subprocess.run(words.split(), check=True, env={"PATH": os.defpath}, **who)


def benchmark(rounds: int) -> dict[str, Any]:
    """
    Everything that is printed.
    """
    with tempfile.TemporaryDirectory() as directory:
        spec = SandboxSpec.workspace_write(directory)
        python = interpreter()
        with sync.open_sandbox(spec) as box:
            run = rows(
                measured(
                    {
                        "sandboxkit.sync.run": lambda: sync.run([TRUE], spec=spec, cwd=directory).check(),
                        "run in an open box": lambda: box.run([TRUE]).check(),
                        "bare bwrap": bare_bwrap(box_uid(spec)),
                        "python3 -I -S -c pass": lambda: subprocess.run([python, "-I", "-S", "-c", "pass"], check=True),
                        "subprocess.run": lambda: subprocess.run([TRUE], check=True),
                    },
                    rounds,
                )
            )
        first = subprocess.run([sys.executable, "-c", FIRST_RUN], check=True, capture_output=True, cwd=directory).stdout
    imports = rows(
        measured(
            {
                "import sandboxkit": lambda: subprocess.run([sys.executable, "-c", "import sandboxkit"], check=True),
                "pass": lambda: subprocess.run([sys.executable, "-c", "pass"], check=True),
            },
            max(10, rounds // 4),
        )
    )
    with tempfile.TemporaryDirectory() as directory:
        records = record_costs(directory, rounds)
    ours, _, bwrap, bare_python, _ = (row.p50_ms for row in run)
    shares = {"bare bwrap": bwrap, "one start of python": bare_python, "everything else": ours - bwrap - bare_python}
    bars = [
        Bar("a run", ours, bwrap + ALLOWANCE_PYTHON * bare_python + ALLOWANCE_MS),
        Bar("the import", imports[0].p50_ms - imports[1].p50_ms, IMPORT_LIMIT_MS),
    ]
    return {
        "run": run,
        "import": imports,
        "record": records,
        "shares": shares,
        "bars": bars,
        "first_run_ms": float(first) * 1000,
    }


def show(found: dict[str, Any], rounds: int) -> None:
    """
    The tables.
    """
    print(
        f"{TRUE}, {rounds} rounds, {os.cpu_count()} processors, {'root' if os.geteuid() == 0 else 'an ordinary user'}\n"
    )
    for part in ("run", "import"):
        print(f"{'':24}{'p50 ms':>10}{'p95 ms':>10}{'ratio':>8}")
        for row in found[part]:
            print(f"{row.name:24}{row.p50_ms:10.2f}{row.p95_ms:10.2f}{row.ratio:8.2f}")
        print()
    print(f"{'':24}{'p50 us':>10}{'p95 us':>10}{'ratio':>8}")
    for row in found["record"]:
        print(f"{row.name:24}{row.p50_ms * 1000:10.1f}{row.p95_ms * 1000:10.1f}{row.ratio:8.1f}")
    print()
    total = found["run"][0].p50_ms
    print("a run is made of")
    for name, share in found["shares"].items():
        print(f"  {name:22}{share:10.2f} ms{share / total:8.0%}")
    print(f"\nthe first run of a process, with import, detection and attack: {found['first_run_ms']:.0f} ms\n")
    for bar in found["bars"]:
        print(
            f"{bar.name}: {bar.value_ms:.2f} ms of at most {bar.limit_ms:.2f} ms: {'kept' if bar.is_kept else 'NOT KEPT'}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--check", action="store_true", help="end with 1 where a bar is not kept")
    options = parser.parse_args()
    rounds = 20 if options.quick else 200
    found = benchmark(rounds)
    if options.json:
        as_json = {name: [asdict(row) for row in found[name]] for name in ("run", "import", "record", "bars")}
        print(json.dumps({**found, **as_json, "rounds": rounds}, indent=2))
    else:
        show(found, rounds)
    return int(options.check and not all(bar.is_kept for bar in found["bars"]))


if __name__ == "__main__":
    raise SystemExit(main())
