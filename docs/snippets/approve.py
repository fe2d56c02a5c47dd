from pathlib import Path

import anyio

import sandboxkit as sk

policy = sk.ExecPolicy.from_dict({"rules": [{"id": "touch", "prefix": ["touch"], "action": "ask"}]})


async def ask(request: sk.ApprovalRequest) -> sk.ApprovalReply:
    print(f"{request.command!r} in {request.cwd}:", *(match.reason for match in request.reasons))
    print("may be remembered:", ", ".join(request.offer.remember))
    for choice, why in request.offer.refused.items():
        print(f"not {choice}: {why}")
    return sk.ApprovalReply(approved=True, reason="the owner said so", remember="always")


store = sk.GrantStore(Path.home() / ".local/state/example/grants.json")  # outside of what any box may write
approver = sk.RememberingApprover(sk.CallbackApprover(ask, timeout=60), store=store, always_seconds=7 * 86400)
router = sk.AutoSandboxRouter(policy=policy, approver=approver)


async def main() -> None:
    for _ in range(2):  # the second time nobody is asked
        await router.route("touch made", spec=sk.SandboxSpec.workspace_write("."))
    (grant,) = store.grants()
    assert grant.command == "touch made"
    store.revoke(grant.id)


anyio.run(main)
