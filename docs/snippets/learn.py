import asyncio
import os

import sandboxkit as sk


class InWorkspace:
    """
    Approves what lies in the working directory.
    """

    async def approve(self, request: sk.ApprovalRequest) -> sk.ApprovalReply:
        line, _ = request.action.arguments if request.action else ("", "")
        approved = line.startswith("filesystem.") and f'"{os.getcwd()}' in line
        return sk.ApprovalReply(approved=approved, reason="only the working directory")


async def main() -> None:
    lesson = await sk.learn_spec("mkdir -p build && date >build/stamp", approver=InWorkspace())
    print(lesson.passed, lesson.runs, "runs")
    print(lesson.spec.to_toml())


asyncio.run(main())
