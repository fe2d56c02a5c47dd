"""
Every decision about the test corpora, a line of JSON each, to compare two builds.

    python benchmarks/decisions.py [--rounds N] > decisions.jsonl

Texts that fit no corpus follow the rows: rows joined, cut and put into each other, from a
fixed seed, so that two builds are asked the same.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sandboxkit import EvaluationContext, ExecPolicy, SandboxError

if TYPE_CHECKING:
    from collections.abc import Iterator

CORPUS = Path(__file__).parent.parent / "tests" / "corpus"
CONTEXT = EvaluationContext(cwd="/home/dev/project", home="/home/dev", workspace_roots=("/home/dev/project",))
JOINS = ("; ", " && ", " | ", "\n", " & ", " ", "", " > ", " || ")
AROUND = ("$({})", "sh -c '{}'", "( {} )", "if {}; then ls; fi", "sudo {}", "`{}`", "{}\\", '"{}"', "f() {{ {}; }}; f")


def rows() -> list[str | list[str]]:
    """
    The commands of every corpus.
    """
    found = [
        json.loads(line)
        for path in sorted(CORPUS.glob("policy*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    return [row.get("argv") or row["command"] for row in found]


def mixed(count: int, seed: int = 0) -> Iterator[str]:
    """
    *count* texts made of the rows.
    """
    rng = random.Random(seed)
    texts = [each for each in rows() if isinstance(each, str)]
    for _ in range(count):
        text = rng.choice(texts) + rng.choice(JOINS) + rng.choice(texts)
        if rng.random() < 0.5:
            text = rng.choice(AROUND).format(text)
        if rng.random() < 0.3:
            cut = rng.randrange(len(text))
            text = text[:cut] + text[cut + rng.randrange(4) :]
        yield text


def decision(policy: ExecPolicy, command: str | list[str]) -> dict[str, object]:
    """
    All of the evaluation, with the parts as they were read; or the error.
    """
    try:
        found = policy.evaluate(command, context=CONTEXT)
    except SandboxError as error:
        return {"command": command, "error": f"{type(error).__name__}: {error}"}
    return {"command": command, **found.to_dict(), "parts read": [asdict(part) for part in found.command.parts]}


def main() -> int:
    """
    Prints the decisions.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000, help="how many texts follow the rows")
    options = parser.parse_args()
    policy = ExecPolicy.default()
    for command in (*rows(), *mixed(options.rounds)):
        print(json.dumps(decision(policy, command), sort_keys=True, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
