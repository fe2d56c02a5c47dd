"""
Tools ask by the same door.
"""

from __future__ import annotations

import pytest

from sandboxkit.approval import CallbackApprover, permit
from sandboxkit.errors import ApprovalError, CommandDeniedError
from sandboxkit.model import ApprovalReply, ApprovalRequest, EvaluationContext, PolicyAction, ToolAction
from sandboxkit.policy import ExecPolicy

pytestmark = pytest.mark.anyio

POLICY = ExecPolicy.from_dict(
    {
        "rules": [
            {
                "id": "many-pages",
                "prefix": ["scraper.fetch"],
                "action": "ask",
                "constraints": {"more_than": {"pages": 25}},
            },
            {"id": "no-posting", "prefix": ["scraper.post"], "action": "deny"},
        ]
    }
)


def fetch(pages: int) -> ToolAction:
    return ToolAction("scraper.fetch", ("https://example.com",), {"pages": pages})


async def test_a_number_decides_whether_somebody_is_asked() -> None:
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> ApprovalReply:
        asked.append(request)
        return ApprovalReply(approved=True)

    approver = CallbackApprover(approve)
    await permit(fetch(25), policy=POLICY, approver=approver)
    assert asked == []
    evaluation = await permit(fetch(26), policy=POLICY, approver=approver)
    assert evaluation.action is PolicyAction.ASK
    (request,) = asked
    assert request.action == fetch(26)
    assert request.command == ("scraper.fetch", "https://example.com")
    assert [match.rule_id for match in request.reasons] == ["many-pages"]
    assert request.offer.remember == ("once",)


async def test_nobody_to_ask_is_a_no() -> None:
    with pytest.raises(ApprovalError, match="nobody to ask"):
        await permit(fetch(26), policy=POLICY, approver=None)


async def test_what_is_denied_is_not_asked() -> None:
    with pytest.raises(CommandDeniedError) as caught:
        await permit(ToolAction("scraper.post"), policy=POLICY, approver=None)
    assert not isinstance(caught.value, ApprovalError)


async def test_the_actions_numbers_come_before_those_of_the_place() -> None:
    context = EvaluationContext(numbers={"pages": 1})
    with pytest.raises(ApprovalError):
        await permit(fetch(26), policy=POLICY, approver=None, context=context)
