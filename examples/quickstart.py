"""
The shortest way in: run a command in a directory it may write, and see what held it.

    python examples/quickstart.py
"""

from __future__ import annotations

import tempfile

import sandboxkit as sk


def main() -> None:
    with tempfile.TemporaryDirectory() as workspace:
        spec = sk.SandboxSpec.workspace_write(workspace)

        result = sk.sync.run("echo hello > greeting.txt && cat greeting.txt", spec=spec, cwd=workspace)
        print(result.text().strip(), "-", result.outcome)

        result = sk.sync.run(["touch", "/srv/surprise"], spec=spec, cwd=workspace)
        print(result.text("stderr").strip(), "-", result.outcome)

        try:
            sk.sync.run("rm -rf /", spec=spec, cwd=workspace)
        except sk.CommandDeniedError as refusal:
            print(refusal)

        print(f"\nheld by {result.backend}:")
        for control, state in result.enforcement:
            print(f"  {control:24}{state.grade}")


if __name__ == "__main__":
    main()
