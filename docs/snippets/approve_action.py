import anyio

import sandboxkit as sk

policy = sk.ExecPolicy.from_dict(
    {
        "rules": [
            {
                "id": "many-pages",
                "prefix": ["scraper.fetch"],
                "action": "ask",
                "reason": "that is a lot of pages",
                "constraints": {"more_than": {"pages": 25}},
            }
        ]
    }
)


async def ask(request: sk.ApprovalRequest) -> sk.ApprovalReply:
    assert request.action is not None
    return sk.ApprovalReply(approved=request.action.numbers["pages"] < 100)


async def fetch(site: str, pages: int) -> None:
    action = sk.ToolAction("scraper.fetch", (site,), {"pages": pages})
    await sk.permit(action, policy=policy, approver=sk.CallbackApprover(ask))


async def main() -> None:
    await fetch("https://example.com", 25)  # no rule asks
    await fetch("https://example.com", 40)  # a rule asks, and the answer is yes
    try:
        await fetch("https://example.com", 400)
    except sk.ApprovalError as refused:
        print(refused)
    else:
        raise AssertionError


anyio.run(main)
