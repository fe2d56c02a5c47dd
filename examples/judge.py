"""
A judge: checks submissions to a programming contest, each in a box of its own.

A submission sees the system's own files and its directory, has no network, and is held
to a time, a memory and a number of processes. Verdicts are the usual ones.

    python examples/judge.py
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import sandboxkit as sk


@dataclass(frozen=True)
class Case:
    """
    What a submission reads, and what it must write.
    """

    given: str
    wanted: str


TASK = "Read numbers, write their sum."
CASES = (Case("1 2 3\n", "6\n"), Case("\n", "0\n"), Case("-5 5 1000000\n", "1000000\n"))

SUBMISSIONS = {
    "right": "print(sum(map(int, input().split())))",
    "wrong": "print(6)",
    "not a program": "print(",
    "crashes": "print(1 // 0)",
    "never ends": "while True: pass",
    "takes all memory": "data = bytearray(2 << 30)\nprint(len(data))",
    "talks too much": "while True: print('x' * 1000)",
    "wants the network": "import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=1)",
}


def judge(source: str) -> str:
    """
    The verdict on a submission.
    """
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "main.py").write_text(source)
        spec = sk.SandboxSpec.read_only(
            directory,
            limits=sk.Limits(wall=2, memory_bytes=256 << 20, processes=64, max_output_bytes=1 << 16),
            # Without a cgroup of its own the memory of each process is limited, not their sum.
            allow_degraded=frozenset({sk.Control.LIMITS_MEMORY, sk.Control.LIMITS_PROCESSES}),
        )
        with sk.sync.open_sandbox(spec) as box:
            check = "import ast, sys; ast.parse(open(sys.argv[1]).read())"
            if not box.run(["python3", "-c", check, "main.py"], cwd=directory).ok:
                return "compile error"
            for number, case in enumerate(CASES, start=1):
                result = box.run(["python3", "main.py"], stdin=case.given.encode(), cwd=directory)
                if problem := verdict(result, case):
                    return f"{problem} on case {number}"
    return "accepted"


def verdict(result: sk.ExecResult, case: Case) -> str | None:
    """
    What is wrong with *result*, or None.
    """
    match result.termination:
        case sk.Termination.TIMED_OUT | sk.Termination.CPU_LIMIT:
            return "time limit exceeded"
        case sk.Termination.OUTPUT_LIMIT:
            return "output limit exceeded"
        case sk.Termination.MEMORY_LIMIT:
            return "memory limit exceeded"
        case _ if b"MemoryError" in result.stderr:
            return "memory limit exceeded"
        case _ if not result.ok:
            return f"runtime error ({result.outcome})"
        case _ if result.truncated:
            return "output limit exceeded"
        case _:
            return None if result.text() == case.wanted else "wrong answer"


def main() -> None:
    print(TASK)
    for name, source in SUBMISSIONS.items():
        print(f"  {name:20}{judge(source)}")


if __name__ == "__main__":
    main()
