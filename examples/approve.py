"""
Who is asked, what a yes covers, and what is never remembered for good.

    python examples/approve.py              # an answer is made up for each question
    python examples/approve.py --terminal   # you are asked
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile

import sandboxkit as sk

POLICY = sk.ExecPolicy.from_dict(
    {
        "rules": [
            {"id": "files", "prefix": ["touch"], "action": "ask", "reason": "makes files"},
            {"id": "shells", "prefix": ["sh"], "action": "ask", "reason": "runs whatever it is given"},
        ]
    }
)


class Scripted:
    """
    Says yes, for as long as it may.
    """

    async def approve(self, request: sk.ApprovalRequest) -> sk.ApprovalReply:
        longest = request.offer.remember[-1]
        print(f"  asked: {'; '.join(match.reason for match in request.reasons)}; answer: yes, {longest}")
        if "always" in request.offer.refused:
            print(f"  not for good: {request.offer.refused['always']}")
        return sk.ApprovalReply(approved=True, remember=longest)


async def main() -> None:
    person: sk.Approver = sk.TerminalApprover() if "--terminal" in sys.argv else Scripted()
    with tempfile.TemporaryDirectory() as workspace, tempfile.TemporaryDirectory() as state:
        store = sk.GrantStore(os.path.join(state, "grants.json"))
        router = sk.AutoSandboxRouter(policy=POLICY, approver=sk.RememberingApprover(person, store=store))
        spec = sk.SandboxSpec.workspace_write(workspace)
        for command in ("touch a", "touch a", "touch b", "sh -c 'echo hello'", "sh -c 'echo hello'"):
            print(f"> {command}")
            try:
                routed = await router.route(command, spec=spec, cwd=workspace)
            except sk.ApprovalError as refused:
                print(f"  not run: {refused}")
            else:
                print(f"  {routed.result.outcome}")
        print("kept for good:", ", ".join(grant.command for grant in store.grants()))


if __name__ == "__main__":
    asyncio.run(main())
