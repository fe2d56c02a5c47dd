"""
Widen a box step by step: run a command, see what it was refused, add the lines that
would allow it, and run it again. A person decides about each line; here only those for
one directory are taken.

    python examples/explain.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import sandboxkit as sk

COMMAND = ["sh", "-c", "sort -n numbers >sorted/numbers; echo exit >.git/hooks/pre-commit; true"]


def refused(directory: Path, lines: set[str]) -> tuple[sk.Violation, ...]:
    """
    What the command is refused in a box that *lines* of a spec file widen.
    """
    file = directory / "box.toml"
    file.write_text("".join(f"{line}\n" for line in _merged(lines)))
    spec = sk.SandboxSpec.from_file(file)
    with sk.sync.open_sandbox(spec) as box:
        result = box.run(COMMAND, cwd=str(directory), explain=True)
    if not result.explained:
        print(f"  not everything is known: {result.explain_gap}")
    return result.violations


def _merged(lines: set[str]) -> list[str]:
    """
    One line for each key, which a spec file may have once.
    """
    values: dict[str, list[str]] = {}
    for line in sorted(lines):
        key, _, value = line.partition(" = ")
        values.setdefault(key, []).append(value.strip("[]"))
    return [f"{key} = [{', '.join(found)}]" for key, found in values.items()]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        for place in ("sorted", ".git/hooks"):
            (directory / place).mkdir(parents=True)
        (directory / "numbers").write_text("3\n1\n2\n")
        lines = {f'filesystem.read = ["{directory}"]'}
        for attempt in range(1, 4):
            found = refused(directory, lines)
            print(f"attempt {attempt}: {len(found)} refused")
            for one in found:
                print(f"  {one.kind} {one.target.replace(name, '.')}: {one.error}")
                print(f"    would be allowed by: {(one.spec_line or 'nothing').replace(name, '.')}")
            proposed = {one.spec_line for one in found if one.spec_line and str(directory) in one.spec_line}
            if proposed <= lines:
                break
            lines |= proposed
        print("made:", (directory / "sorted" / "numbers").read_text().split())


if __name__ == "__main__":
    main()
