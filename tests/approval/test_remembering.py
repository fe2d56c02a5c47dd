"""
What was approved before is not asked again, and only that.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from sandboxkit.approval import GrantStore, RememberedGrant, RememberingApprover, decide, grant_for
from sandboxkit.errors import ApprovalError, GrantNotFoundError
from sandboxkit.model import (
    ApprovalOffer,
    ApprovalReply,
    ApprovalRequest,
    Approver,
    Command,
    FilesystemPolicy,
    PolicyAction,
    PolicyEvaluation,
    SandboxSpec,
    SimpleCommand,
    ToolAction,
)

pytestmark = pytest.mark.anyio
DAY = 86400.0


class Person:
    """
    Answers as told, and remembers what was asked.
    """

    def __init__(self, **answer: Any) -> None:
        self.answer: Any = ApprovalReply(**{"approved": True, "reason": "seen", **answer})
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalReply:
        self.asked.append(request)
        await anyio.lowlevel.checkpoint()
        reply: ApprovalReply = self.answer
        return reply


def request(*words: str, spec: SandboxSpec | None = None, cwd: str = "/tmp", **fields: Any) -> ApprovalRequest:
    argv = words or ("git", "push")
    command = Command(None, (SimpleCommand(argv),), argv=argv)
    evaluation = PolicyEvaluation(PolicyAction.ASK, "pushes", command, rules_digest="f" * 64)
    box = spec or SandboxSpec()
    grant = grant_for(
        evaluation,
        command=argv,
        argv=argv,
        cwd=cwd,
        search="/usr/bin:/bin",
        workspace_roots=(),
        spec=box,
        mode="sandbox",
        stdin=None,
    )
    return ApprovalRequest(evaluation, cwd, box, ApprovalOffer("sandbox", replace(grant, **fields)))


@pytest.fixture
def store(tmp_path: Path) -> GrantStore:
    return GrantStore(tmp_path / "state" / "grants.json")


async def ask(approver: Approver, asked: ApprovalRequest | None = None) -> ApprovalReply:
    return await decide(approver, asked or request(), 10)


async def test_once_is_not_remembered(store: GrantStore) -> None:
    person = Person()
    approver = RememberingApprover(person, store=store)
    assert isinstance(approver, Approver)
    for _ in range(2):
        assert (await ask(approver)).origin == "asked"
    assert len(person.asked) == 2
    assert (approver.grants(), store.grants()) == ((), ())


async def test_a_session_is(store: GrantStore) -> None:
    person = Person(remember="session")
    approver = RememberingApprover(person, store=store)
    assert (await ask(approver)).origin == "asked"
    again = await ask(approver)
    assert (again.origin, again.approved) == ("session", True)
    assert "remembered since" in again.reason
    assert len(person.asked) == 1
    assert store.grants() == ()
    assert (await ask(RememberingApprover(person, store=store))).origin == "asked"


@pytest.mark.parametrize(("remember", "times"), [("once", 3), ("session", 1), ("always", 1)])
async def test_one_answer_counts_for_all_who_asked_meanwhile(store: GrantStore, remember: str, times: int) -> None:
    person = Person(remember=remember)
    approver = RememberingApprover(person, store=store)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask, approver)
    assert len(person.asked) == times


async def test_always_outlives_the_approver(store: GrantStore) -> None:
    person = Person(remember="always")
    assert (await ask(RememberingApprover(person, store=store, always_seconds=DAY))).origin == "asked"
    again = await ask(RememberingApprover(person, store=GrantStore(store.path)))
    assert (again.origin, again.reason.endswith(": seen")) == ("always", True)
    (kept,) = store.grants()
    assert (kept.command, kept.cwd, kept.expires - kept.created) == ("git push", "/tmp", DAY)


async def test_always_expires(store: GrantStore) -> None:
    now = 1e9
    person = Person(remember="always")
    store = GrantStore(store.path, clock=lambda: now)
    approver = RememberingApprover(person, store=store, always_seconds=DAY, clock=lambda: now)
    await ask(approver)
    now += DAY - 1
    assert (await ask(approver)).origin == "always"
    now += 1
    assert (await ask(approver)).origin == "asked"


@pytest.mark.parametrize("remember", ["session", "always"])
@pytest.mark.parametrize(
    "other",
    [
        request("git", "push", "-f"),
        request("git push"),
        request(cwd="/"),
        request(spec=SandboxSpec.isolated()),
        request(rules_digest="0" * 64),
        request(workspace_roots=("/srv",)),
        request(stdin_digest="0" * 64),
        request(executables=()),
        request(search="/bin:/usr/bin"),
    ],
)
async def test_something_else_is_asked(store: GrantStore, other: ApprovalRequest, remember: str) -> None:
    person = Person(remember=remember)
    approver = RememberingApprover(person, store=store)
    await ask(approver)
    person.answer = ApprovalReply(approved=False)
    with pytest.raises(ApprovalError, match="declined"):
        await ask(approver, other)
    assert (await ask(approver)).origin == remember


async def test_a_box_that_is_switched_off_is_something_else(store: GrantStore) -> None:
    person = Person(remember="always")
    approver = RememberingApprover(person, store=store)
    await ask(approver)
    person.answer = ApprovalReply(approved=False)
    with pytest.raises(ApprovalError):
        await ask(approver, request(mode="unsandboxed"))
    assert person.asked[-1].offer.refused == {"always": "it would run without a box"}


@pytest.mark.parametrize(
    "answer",
    [
        ApprovalReply(approved=False, remember="always"),
        ApprovalReply(approved=1, remember="always"),  # type: ignore[arg-type]  # true, but not True
        ApprovalReply(approved="yes", remember="session"),  # type: ignore[arg-type]  # likewise
        True,
        None,
    ],
)
async def test_what_is_no_yes_is_not_remembered(store: GrantStore, answer: Any) -> None:
    person = Person()
    person.answer = answer
    approver = RememberingApprover(person, store=store)
    for _ in range(2):
        with pytest.raises(ApprovalError):
            await ask(approver)
    assert len(person.asked) == 2
    assert (approver.grants(), store.grants()) == ((), ())


async def test_the_offer_says_what_may_be_remembered(store: GrantStore) -> None:
    person = Person()
    await ask(RememberingApprover(person, store=store, always_seconds=5 * DAY))
    offer = person.asked[0].offer
    assert (offer.remember, offer.refused, offer.always_seconds) == (("once", "session", "always"), {}, 5 * DAY)
    await ask(RememberingApprover(person, store=store), request("bash"))
    offer = person.asked[1].offer
    assert (offer.remember, offer.always_seconds) == (("once", "session"), None)
    assert "'bash' is a shell or an interpreter" in offer.refused["always"]
    await ask(RememberingApprover(person))
    assert person.asked[2].offer.refused == {
        "always": "there is no store to keep it in; give RememberingApprover a GrantStore"
    }


async def test_a_session_need_not_be_on_offer(store: GrantStore) -> None:
    person = Person(remember="session")
    with pytest.raises(ApprovalError, match="which is not on offer: it is not remembered here; on offer: once, always"):
        await ask(RememberingApprover(person, store=store, session=False))
    person.answer = ApprovalReply(approved=True)
    await ask(RememberingApprover(person, store=store, session=False), request("bash"))
    assert person.asked[1].offer.remember == ("once",)


async def test_always_where_it_is_not_on_offer_is_a_no(store: GrantStore) -> None:
    approver = RememberingApprover(Person(remember="always"), store=store)
    with pytest.raises(ApprovalError, match=r"the answer was 'always', which is not on offer: 'bash' is a shell"):
        await ask(approver, request("bash"))
    assert store.grants() == ()
    assert (await ask(RememberingApprover(Person(remember="session"), store=store), request("bash"))).approved


async def test_a_shell_is_not_looked_up_either(store: GrantStore) -> None:
    # However it came into the file.
    asked = request("bash")
    assert asked.offer.grant
    digest = asked.offer.grant.digest
    store = GrantStore(store.path, clock=lambda: 1000.0)
    store.add(RememberedGrant(digest, "bash", "/tmp", 1000.0, 2000.0))
    person = Person()
    person.answer = ApprovalReply(approved=False)
    with pytest.raises(ApprovalError):
        await ask(RememberingApprover(person, store=store), asked)


@pytest.mark.parametrize("where", [".", "..", "link"])
async def test_a_store_that_a_box_may_write_is_not_used(tmp_path: Path, where: str) -> None:
    folder = tmp_path / "state"
    store = GrantStore(folder / "grants.json")
    await ask(RememberingApprover(Person(remember="always"), store=store))
    (tmp_path / "link").symlink_to(folder)
    root = str((folder / where).resolve()) if where != "link" else str(folder)
    store = GrantStore(tmp_path / "link" / ".." / "state" / "grants.json") if where == "link" else store
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=(root,)))
    person = Person(remember="always")
    with pytest.raises(ApprovalError, match=r"the store '.*' lies in '.*', which a box may write; keep it elsewhere"):
        await ask(RememberingApprover(person, store=store), request(spec=spec))
    assert "keep it elsewhere" in person.asked[0].offer.refused["always"]


async def test_a_store_that_cannot_be_trusted_asks_again(store: GrantStore) -> None:
    person = Person(remember="always")
    await ask(RememberingApprover(person, store=store))
    os.chmod(store.path, 0o644)
    person.answer = ApprovalReply(approved=True)
    assert (await ask(RememberingApprover(person, store=store))).origin == "asked"
    assert "chmod 0600" in person.asked[-1].offer.refused["always"]
    os.chmod(store.path, 0o600)
    Path(store.path).write_text("{")
    assert (await ask(RememberingApprover(person, store=store))).origin == "asked"
    assert "move it away" in person.asked[-1].offer.refused["always"]


async def test_an_always_that_cannot_be_kept_is_a_no(tmp_path: Path) -> None:
    class Late(Person):
        async def approve(self, asked: ApprovalRequest) -> ApprovalReply:
            os.chmod(tmp_path / "state", 0o755)  # while somebody thinks about it
            return await super().approve(asked)

    store = GrantStore(tmp_path / "state" / "grants.json")
    with pytest.raises(ApprovalError, match=r"the approver failed \(GrantStoreError: .* chmod 0700"):
        await ask(RememberingApprover(Late(remember="always"), store=store))


async def test_the_directory_is_there_before_any_box(tmp_path: Path) -> None:
    approver = RememberingApprover(Person(), store=GrantStore(tmp_path / "state" / "grants.json"))
    assert (tmp_path / "state").is_dir()
    assert approver.paths == (str(tmp_path / "state"), str(tmp_path / "state" / "grants.json"))
    assert RememberingApprover(Person()).paths == ()


async def test_a_session_can_be_looked_at_and_revoked() -> None:
    approver = RememberingApprover(Person(remember="session"))
    await ask(approver)
    await ask(approver, request("ls"))
    first, second = approver.grants()
    assert (first.command, second.command, first.to_dict()["expires"]) == ("git push", "ls", None)
    assert approver.revoke(first.id) == first
    with pytest.raises(GrantNotFoundError, match="this session"):
        approver.revoke(first.id)
    assert (await ask(approver)).origin == "asked"
    assert approver.clear() == 2
    assert (await ask(approver, request("ls"))).origin == "asked"


async def test_a_forked_child_is_another_session() -> None:
    code = """
import os
from sandboxkit.approval import RememberedGrant, RememberingApprover
approver = RememberingApprover(None)
approver._sessions()["a"] = RememberedGrant("a", "x", "/", 0.0, 1.0)
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
print(len(approver.grants()), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == ["0", "1"]


async def test_the_digest_is_the_same_in_every_process(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.approval.test_remembering import request
from sandboxkit.model import Control, SandboxSpec
spec = SandboxSpec.isolated(allow_degraded=frozenset({{Control.LIMITS_MEMORY, Control.LIMITS_CPU, Control.ENV}}))
print(request("make", "-f", "x.mk", "--o=/usr/bin/git", "-C/usr/bin/env", spec=spec).offer.grant.digest)
"""
    environ = [{**os.environ, "PYTHONHASHSEED": str(seed)} for seed in range(5)]
    found = {
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout for env in environ
    }
    assert len(found) == 1


async def test_secrets_are_not_written_down(store: GrantStore) -> None:
    token = "ghp_" + "a1B2" * 9
    approver = RememberingApprover(Person(remember="always", reason=f"for {token}"), store=store)
    await ask(approver, request("curl", "-H", f"Authorization: Bearer {token}", "https://example.com"))
    assert token not in Path(store.path).read_text()


async def test_a_long_command_is_shortened_and_still_exact(store: GrantStore) -> None:
    approver = RememberingApprover(Person(remember="always"), store=store)
    await ask(approver, request("ls", "x" * 5000))
    assert len(store.grants()[0].command) == 501
    assert (await ask(approver, request("ls", "x" * 4999 + "y"))).origin == "asked"
    assert (await ask(approver, request("ls", "x" * 5000))).origin == "always"


async def test_the_action_of_a_tool_is_asked_each_time(store: GrantStore) -> None:
    person = Person(remember="session")
    approver = RememberingApprover(person, store=store)
    words = ("scraper.fetch", "x")
    evaluation = PolicyEvaluation(PolicyAction.ASK, "many", Command(None, (SimpleCommand(words),), argv=words))
    asked = ApprovalRequest.for_action(ToolAction("scraper.fetch", ("x",), {"pages": 40}), evaluation)
    for _ in range(2):
        assert (await ask(approver, asked)).origin == "asked"


@pytest.mark.parametrize("seconds", [1.0, 366 * DAY])
@pytest.mark.parametrize("now", [0.1, 1.7e9 + 1 / 3, 9e11])
async def test_the_shortest_and_the_longest_can_be_kept(store: GrantStore, seconds: float, now: float) -> None:
    store = GrantStore(store.path, clock=lambda: now)
    approver = RememberingApprover(Person(remember="always"), store=store, always_seconds=seconds, clock=lambda: now)
    await ask(approver)
    assert (await ask(approver)).origin == "always"


@pytest.mark.parametrize("seconds", [0, 0.5, -1, float("nan"), float("inf"), 367 * DAY])
async def test_always_is_bounded(seconds: float) -> None:
    with pytest.raises(ValueError, match="from 1 to 366 days"):
        RememberingApprover(Person(), always_seconds=seconds)
