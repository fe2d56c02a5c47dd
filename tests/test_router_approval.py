"""
Approval through the router: what is asked, what is remembered, and what is recorded.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import sandboxkit.router._router as room
from sandboxkit.approval import CallbackApprover, GrantStore, RememberingApprover
from sandboxkit.audit import MemoryAudit
from sandboxkit.errors import ApprovalError
from sandboxkit.model import ApprovalReply, ApprovalRequest, Limits, NetworkPolicy, PolicyAction, SandboxSpec
from sandboxkit.policy import ExecPolicy
from sandboxkit.router import AutoSandboxRouter

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.model import Remember

pytestmark = [pytest.mark.anyio, pytest.mark.requires("bubblewrap")]


class Person:
    """
    Says yes, and for how long.
    """

    def __init__(self, remember: Remember = "once", *, store: GrantStore | None = None) -> None:
        self.asked: list[ApprovalRequest] = []
        self.remember = remember
        self.approver = RememberingApprover(CallbackApprover(self._answer), store=store)

    def _answer(self, request: ApprovalRequest) -> ApprovalReply:
        self.asked.append(request)
        return ApprovalReply(approved=True, reason="seen", remember=self.remember)


def router(person: Person, **options: Any) -> AutoSandboxRouter:
    options = {"policy": ExecPolicy.empty(PolicyAction.ASK), **options}
    return AutoSandboxRouter(approver=person.approver, **options)


def approvals(router: AutoSandboxRouter) -> list[tuple[str, str]]:
    assert isinstance(router.audit, MemoryAudit)
    found = [event.fields.get("approval") for event in router.audit.events() if event.kind == "decided"]
    return [(approval["origin"], approval["remember"]) for approval in found if approval]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "tool").write_text("#!/bin/sh\necho one\n")
    (tmp_path / "work" / "tool").chmod(0o755)
    return tmp_path / "work"


@pytest.fixture
def store(tmp_path: Path) -> GrantStore:
    return GrantStore(tmp_path / "state" / "grants.json")


async def test_what_a_session_remembers_is_recorded_so(work: Path) -> None:
    person = Person("session")
    asking = router(person)
    for _ in range(2):
        assert (await asking.route(["echo", "a"], cwd=work)).mode == "sandbox"
    await asking.route(["echo", "b"], cwd=work)
    assert [request.command for request in person.asked] == [("echo", "a"), ("echo", "b")]
    assert approvals(asking) == [("asked", "session"), ("session", "session"), ("asked", "session")]


async def test_what_is_remembered_for_good_counts_in_another_router(work: Path, store: GrantStore) -> None:
    first, second = router(Person("always", store=store)), router(Person(store=store))
    await first.route("touch made", cwd=work)
    (work / "made").unlink()
    await second.route("touch made", cwd=work)
    assert (work / "made").exists()
    assert approvals(first) == [("asked", "always")]
    assert approvals(second) == [("always", "always")]


async def test_a_remembered_answer_counts_for_this_box_only(work: Path, store: GrantStore) -> None:
    person = Person("always", store=store)
    asking = router(person)
    spec = SandboxSpec.read_only(work)
    (work / "below").mkdir()
    await asking.route("touch made", cwd=work, spec=spec)
    await asking.route("touch made", cwd=work, spec=spec)
    assert len(person.asked) == 1
    await asking.route("touch made", cwd=work, spec=SandboxSpec.workspace_write(work))
    await asking.route("touch made", cwd=work / "below", spec=spec)
    await asking.route("touch made", cwd=work, spec=spec, stdin=b"x")
    await asking.route("touch made", cwd=work, spec=SandboxSpec.read_only(work, limits=Limits(wall=5.0)))
    assert len(person.asked) == 5


async def test_a_program_of_the_workspace_is_never_remembered_for_good(work: Path, store: GrantStore) -> None:
    person = Person("always", store=store)
    for command in ("./tool", "sh tool", ["./tool"], "sh -c ./tool"):
        with pytest.raises(ApprovalError, match="which is not on offer"):
            await router(person).route(command, cwd=work)
    assert store.grants() == ()


async def test_a_program_that_was_changed_is_asked_again(work: Path) -> None:
    person = Person("session")
    asking = router(person)
    assert (await asking.route("./tool", cwd=work)).result.text() == "one\n"
    assert (await asking.route("./tool", cwd=work)).result.text() == "one\n"
    assert len(person.asked) == 1
    (work / "tool").write_text("#!/bin/sh\necho two\n")
    assert (await asking.route("./tool", cwd=work)).result.text() == "two\n"
    assert len(person.asked) == 2


async def test_a_script_that_was_changed_is_asked_again(work: Path) -> None:
    person = Person("session")
    asking = router(person)
    await asking.route("sh tool", cwd=work)
    (work / "tool").write_text("#!/bin/sh\necho two\n")
    await asking.route("sh tool", cwd=work)
    assert len(person.asked) == 2


async def test_a_script_that_changes_under_the_approvers_eyes_does_not_run(work: Path) -> None:
    def swap(request: ApprovalRequest) -> ApprovalReply:
        (work / "tool").write_text("#!/bin/sh\ntouch swapped\n")
        return ApprovalReply(approved=True)

    asking = AutoSandboxRouter(policy=ExecPolicy.empty(PolicyAction.ASK), approver=CallbackApprover(swap))
    with pytest.raises(ApprovalError, match="changed while approval was awaited; ask again"):
        await asking.route("sh tool", cwd=work)
    assert not (work / "swapped").exists()


async def test_a_box_that_was_approved_is_not_approved_away(work: Path) -> None:
    person = Person("session")
    asking = router(person, may_disable=True)
    await asking.route("touch made", cwd=work)
    asking.set_enabled(False)
    assert (await asking.route("touch made", cwd=work)).mode == "unsandboxed"
    assert [request.offer.mode for request in person.asked] == ["sandbox", "unsandboxed"]
    assert "always" in person.asked[1].offer.refused


async def test_isolation_that_is_switched_off_meanwhile_asks_again(work: Path) -> None:
    def switch(request: ApprovalRequest) -> ApprovalReply:
        asking.set_enabled(False)
        return ApprovalReply(approved=True)

    asking = AutoSandboxRouter(
        policy=ExecPolicy.empty(PolicyAction.ASK), approver=CallbackApprover(switch), may_disable=True
    )
    with pytest.raises(ApprovalError, match="changed while approval was awaited"):
        await asking.route("touch made", cwd=work)
    assert not (work / "made").exists()


async def test_no_box_writes_what_is_remembered(work: Path) -> None:
    store = GrantStore(work / "state" / "grants.json")
    asking = router(Person(store=store), policy=ExecPolicy.empty(PolicyAction.SANDBOX))
    script = "touch beside; touch state/grants.json || echo no file; mv state other || echo no move"
    result = (await asking.route(script, cwd=work)).result
    assert result.text() == "no file\nno move\n"
    assert (work / "beside").exists()
    assert os.listdir(work / "state") == []
    # The same without somebody who remembers: then it is a directory like any other.
    plain = AutoSandboxRouter(policy=ExecPolicy.empty(PolicyAction.SANDBOX))
    assert (await plain.route("touch state/grants.json", cwd=work)).result.exit_code == 0


async def test_no_box_writes_what_other_applications_remember(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "state").mkdir()
    monkeypatch.setattr(room, "default_folder", lambda: str(work / "state"))
    plain = AutoSandboxRouter(policy=ExecPolicy.empty(PolicyAction.SANDBOX))
    result = (await plain.route("touch beside; touch state/grants.json || echo no", cwd=work)).result
    assert (result.text(), (work / "beside").exists()) == ("no\n", True)


@pytest.mark.parametrize("answer", [True, False])
async def test_a_connection_that_a_spec_asks_about_is_put_to_the_approver(answer: bool) -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    asked: list[ApprovalRequest] = []

    def decide(request: ApprovalRequest) -> ApprovalReply:
        asked.append(request)
        return ApprovalReply(approved=answer)

    # A reserved name: what is approved is asked of no name service, and refused by its address.
    spec = SandboxSpec.isolated(network=NetworkPolicy(ask_hosts=("127.0.0.3",), permit_networks=("127.0.0.3/32",)))
    asking = AutoSandboxRouter(policy=ExecPolicy.empty(), approver=CallbackApprover(decide))
    result = (await asking.route("curl -sS --noproxy no http://127.0.0.3:8099/x", spec=spec)).result
    (request,) = asked
    assert request.action is not None
    assert request.action.words == ("network.connect", "GET http://127.0.0.3:8099/x", "by curl")
    assert request.offer.remember == ("once",)
    assert "asks about 127.0.0.3" in request.evaluation.reason
    assert [found.kind for found in result.violations] == ([] if answer else ["egress"])
    assert ("none of its 1 addresses answered" in result.text()) is answer
    assert (
        await AutoSandboxRouter(policy=ExecPolicy.empty()).route(
            "curl -sS --noproxy no http://127.0.0.3:8099/x", spec=spec
        )
    ).result.violations
