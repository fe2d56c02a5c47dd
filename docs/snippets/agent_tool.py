from typing import Any

import anyio

import sandboxkit as sk


async def ask_the_user(request: sk.ApprovalRequest) -> sk.ApprovalReply:
    print(f"{request.evaluation.command.text!r} wants to run in {request.cwd}: {request.evaluation.reason}")
    return sk.ApprovalReply(approved=False, reason="nobody is at the keyboard")


router = sk.AutoSandboxRouter(
    policy=sk.ExecPolicy.default(),
    approver=sk.CallbackApprover(ask_the_user),
    audit=sk.JsonlAudit("audit.jsonl"),
)


async def run_command(command: str) -> dict[str, Any]:
    """
    The tool as the model sees it: always an answer, never an exception.
    """
    try:
        routed = await router.route(command, spec=sk.SandboxSpec.workspace_write("."), timeout=30)
    except sk.CommandDeniedError as denied:
        return {"error": f"not run: {denied}"}
    except sk.SandboxError as broken:  # no backend, nothing that keeps the spec, did not start
        return {"error": f"could not be run: {broken}"}
    result = routed.result
    return {"outcome": result.outcome, "stdout": result.text(), "stderr": result.text("stderr")}


async def main() -> None:
    built = await run_command("echo hello | tr a-z A-Z")
    assert built == {"outcome": "exited with code 0", "stdout": "HELLO\n", "stderr": ""}
    assert "not run" in (await run_command("rm -rf ~"))["error"]


anyio.run(main)
