"""
A tool for a language model: one coroutine that takes a command and answers with text.

The model reads what was decided and why, so that it can try something else; what it
asks for never runs outside the box, and never without the policy's consent.

    python examples/agent_tool.py
"""

from __future__ import annotations

import asyncio
import tempfile

import sandboxkit as sk

LONGEST_ANSWER = 4000


class CommandTool:
    """
    Runs a model's commands in one directory.
    """

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self._spec = sk.SandboxSpec.workspace_write(workspace, limits=sk.Limits(wall=30))
        self._router = sk.AutoSandboxRouter(approver=sk.CallbackApprover(self._approve))

    async def __call__(self, command: str) -> str:
        """
        What the model is told about *command*.
        """
        try:
            routed = await self._router.route(command, spec=self._spec, cwd=self._workspace)
        except sk.CommandDeniedError as refusal:
            return f"not run: {refusal}"
        except sk.SandboxError as failure:
            return f"not run, and not because of the command: {failure}"
        result = routed.result
        lines = [f"{result.outcome}, in {routed.backend} ({routed.evaluation.reason})"]
        lines += [
            f"{name}:\n{result.text(name)[:LONGEST_ANSWER]}" for name in ("stdout", "stderr") if result.text(name)
        ]
        return "\n".join(lines)

    async def _approve(self, request: sk.ApprovalRequest) -> sk.ApprovalReply:
        # Ask a person here. Saying nothing, failing and answering too late all mean no.
        return sk.ApprovalReply(approved=False, reason="nobody is watching this example")


async def main() -> None:
    with tempfile.TemporaryDirectory() as workspace:
        tool = CommandTool(workspace)
        for command in (
            "echo 'print(6 * 7)' > answer.py && python3 answer.py",
            "cat ~/.ssh/id_ed25519",
            "git push --force",
            "no-such-program",
        ):
            print(f"> {command}\n{await tool(command)}\n")


if __name__ == "__main__":
    asyncio.run(main())
