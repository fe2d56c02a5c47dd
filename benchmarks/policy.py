"""
What a decision costs, next to the start of a process.

    python benchmarks/policy.py [--quick] [--json] [--check]

Every command of the test corpora is decided; the memory of a policy is either new for
each (uncached) or has seen it (cached). What is told of each command is the median over
the rounds, and the first time of the process by itself: tables are made ready when
something first asks for them. Nothing fails on timing unless `--check` is given.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandboxkit import EvaluationContext, ExecPolicy, SandboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

CORPUS = Path(__file__).parent.parent / "tests" / "corpus"
CONTEXT = EvaluationContext(cwd="/home/dev/project", home="/home/dev", workspace_roots=("/home/dev/project",))
LIMITS_US = {"uncached p50": 50.0, "uncached p99": 300.0, "cached p50": 2.0}
LIMIT_WORST_MS = 5.0
WORST = {
    "100,000 commands": "true;" * 100_000,
    "nesting 10,000": "$(" * 10_000,
    "a 10 MB string": "x" * 10_000_000,
    "10,000 characters of commands": "a;" * 5_000,
    "10,000 characters of pipes": "a|" * 5_000,
    "10,000 characters of words": "a " * 5_000,
}


def corpus() -> list[str | list[str]]:
    """
    Every command of the corpora.
    """
    rows = [
        json.loads(line)
        for name in ("policy_bypass.jsonl", "policy_ok.jsonl")
        for line in (CORPUS / name).read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    return [row.get("argv") or row["command"] for row in rows]


def seconds(policy: ExecPolicy, command: str | list[str], context: EvaluationContext = CONTEXT) -> float:
    """
    How long the decision about *command* takes.
    """
    started = time.perf_counter()
    try:  # noqa: SIM105 - `suppress` would be measured too
        policy.evaluate(command, context=context)
    except SandboxError:
        pass
    return time.perf_counter() - started


def seconds_of_process() -> float:
    """
    How long a process takes that does nothing.
    """
    started = time.perf_counter()
    subprocess.run(["/bin/true"], check=True)
    return time.perf_counter() - started


def percentile(times: Sequence[float], share: float) -> float:
    """
    The time that *share* of *times* does not exceed, in microseconds.
    """
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e6


def benchmark(rounds: int = 9) -> dict[str, Any]:
    """
    All figures: microseconds of a decision, milliseconds of the worst and of the first round.
    """
    commands = corpus()
    policy = ExecPolicy.default()
    uncached: list[list[float]] = []
    for number in range(rounds + 1):
        # Another context, so that no decision is remembered.
        context = EvaluationContext(CONTEXT.cwd, CONTEXT.home, CONTEXT.workspace_roots, user=f"user{number}")
        uncached.append([seconds(policy, each, context) for each in commands])
    first, *others = uncached
    usual = [statistics.median(times) for times in zip(*others, strict=True)]
    for each in commands:
        seconds(policy, each)
    texts = [each for each in commands if isinstance(each, str)]
    cached = [statistics.median(seconds(policy, each) for _ in range(5)) for each in texts[-400:]]
    process = [seconds_of_process() for _ in range(50)]
    worst = {name: min(seconds(policy, text) for _ in range(3)) * 1e3 for name, text in WORST.items()}
    figures = {
        "uncached p50": percentile(usual, 0.50),
        "uncached p99": percentile(usual, 0.99),
        "first time p50": percentile(first, 0.50),
        "first time p99": percentile(first, 0.99),
        "cached p50": percentile(cached, 0.50),
        "process p50": percentile(process, 0.50),
    }
    first_ms = {"all commands": sum(first) * 1e3, "the slowest": max(first) * 1e3}
    return {"commands": len(commands), "us": figures, "first_ms": first_ms, "worst_ms": worst}


def show(found: dict[str, Any]) -> None:
    """
    Prints *found* as a table.
    """
    process = found["us"]["process p50"]
    print(f"{found['commands']} commands{'us':>20}{'of a process':>15}{'limit':>8}")
    for name, value in found["us"].items():
        limit = LIMITS_US.get(name)
        print(f"{name:18}{value:>16.1f}{value / process:>14.1%} {limit if limit is not None else '-':>8}")
    print(f"\n{'first time in the process':32}{'ms':>8}")
    for name, value in found["first_ms"].items():
        print(f"{name:32}{value:>8.2f}")
    print(f"\n{'worst':32}{'ms':>8}{'limit':>8}")
    for name, value in found["worst_ms"].items():
        print(f"{name:32}{value:>8.2f}{LIMIT_WORST_MS:>8}")


def main() -> int:
    """
    Runs the benchmark.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="take fewer rounds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="end with 1 where a limit is exceeded")
    options = parser.parse_args()
    found = benchmark(rounds=1 if options.quick else 9)
    print(json.dumps(found, indent=2)) if options.json else show(found)
    exceeded = [name for name, limit in LIMITS_US.items() if found["us"][name] > limit]
    exceeded += [name for name in list(WORST)[:3] if found["worst_ms"][name] > LIMIT_WORST_MS]
    return int(options.check and bool(exceeded))


if __name__ == "__main__":
    sys.exit(main())
