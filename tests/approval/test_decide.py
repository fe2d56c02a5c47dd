"""
Approval fails closed.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from typing import Any

import anyio
import pytest

from sandboxkit.approval import CallbackApprover, DenyApprover, decide
from sandboxkit.errors import ApprovalError, CommandDeniedError
from sandboxkit.model import ApprovalReply, ApprovalRequest, Approver, PolicyAction, PolicyEvaluation, SandboxSpec
from sandboxkit.shell import parse

pytestmark = pytest.mark.anyio

REQUEST = ApprovalRequest(
    PolicyEvaluation(PolicyAction.ASK, "installs packages", parse("npm install")), "/tmp", SandboxSpec.isolated()
)
YES = ApprovalReply(approved=True, reason="seen")


class AlwaysTrue:
    """
    Equal to everything, and true.
    """

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(True)

    def __bool__(self) -> bool:
        return True


class Changing(ApprovalReply):
    """
    Has its own idea of its attributes.
    """

    def __getattribute__(self, name: str) -> Any:
        return True if name == "approved" else super().__getattribute__(name)


async def ask(callback: Any, timeout: float = 5.0) -> ApprovalReply:  # noqa: ASYNC109 - what is tested
    return await decide(CallbackApprover(callback), REQUEST, timeout)


async def test_a_plain_function_may_say_yes_and_runs_in_a_thread() -> None:
    threads: list[int] = []

    def callback(request: ApprovalRequest) -> ApprovalReply:
        threads.append(threading.get_ident())
        assert request is REQUEST
        return YES

    assert await ask(callback) is YES
    assert threads != [threading.get_ident()]


async def test_a_coroutine_function_may_say_yes() -> None:
    async def callback(request: ApprovalRequest) -> ApprovalReply:
        await anyio.lowlevel.checkpoint()
        return YES

    assert await ask(callback) is YES
    assert await ask(functools.partial(callback)) is YES
    assert await ask(lambda request: callback(request)) is YES


async def test_an_object_with_an_async_call_may_say_yes() -> None:
    class Callback:
        async def __call__(self, request: ApprovalRequest) -> ApprovalReply:
            return YES

    assert await ask(Callback()) is YES


async def test_nobody_to_ask_is_a_no() -> None:
    with pytest.raises(ApprovalError, match="nobody to ask; give the router an approver") as caught:
        await decide(None, REQUEST, 5)
    assert caught.value.evaluation is REQUEST.evaluation
    assert isinstance(caught.value, CommandDeniedError)


async def test_a_deny_approver_says_no() -> None:
    assert isinstance(DenyApprover(), Approver)
    with pytest.raises(ApprovalError, match="declined: never on this host"):
        await decide(DenyApprover("never on this host"), REQUEST, 5)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (True, "answered with bool"),
        (None, "answered with NoneType"),
        ("yes", "answered with str"),
        (1, "answered with int"),
        ({"approved": True}, "answered with dict"),
        (ApprovalReply(approved=False), "declined"),
        (ApprovalReply(approved=False, reason="too late at night"), "declined: too late at night"),
        (ApprovalReply(approved=1), "declined"),  # type: ignore[arg-type]  # true, but not True
        (ApprovalReply(approved="yes"), "declined"),  # type: ignore[arg-type]  # likewise
        (ApprovalReply(approved=AlwaysTrue()), "declined"),  # type: ignore[arg-type]  # likewise
        (ApprovalReply(approved=True, reason=7), "declined"),  # type: ignore[arg-type]  # nothing to record
        (ApprovalReply(approved=True, remember="forever"), "does not say how long"),  # type: ignore[arg-type]  # no such choice
        (ApprovalReply(approved=True, remember=None), "does not say how long"),  # type: ignore[arg-type]  # likewise
        (ApprovalReply(approved=True, remember=["once"]), "does not say how long"),  # type: ignore[arg-type]  # likewise
        (ApprovalReply(approved=True, origin="heaven"), "does not say where it comes from"),  # type: ignore[arg-type]  # likewise
        (Changing(approved=True), "answered with Changing"),
        (ApprovalReply, "answered with type"),
    ],
)
async def test_whatever_is_not_a_plain_yes_is_a_no(answer: object, says: str) -> None:
    with pytest.raises(ApprovalError, match=says):
        await ask(lambda request: answer)


@pytest.mark.parametrize("error", [RuntimeError("boom"), TimeoutError("own"), KeyError("x"), RecursionError("deep")])
async def test_an_exception_is_a_no(error: Exception) -> None:
    def callback(request: ApprovalRequest) -> ApprovalReply:
        raise error

    with pytest.raises(ApprovalError, match=rf"the approver failed \({type(error).__name__}") as caught:
        await ask(callback)
    assert caught.value.__cause__ is error


async def test_an_exception_whose_text_fails_is_a_no() -> None:
    class Odd(Exception):  # noqa: N818 - its name is shown in the message
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def callback(request: ApprovalRequest) -> ApprovalReply:
        raise Odd

    with pytest.raises(ApprovalError, match=r"the approver failed \(Odd\)"):
        await ask(callback)


async def test_an_approver_may_refuse_in_its_own_words() -> None:
    def callback(request: ApprovalRequest) -> ApprovalReply:
        raise ApprovalError(request.evaluation, "not on a Sunday")

    with pytest.raises(ApprovalError, match=r"^denied: not on a Sunday$"):
        await ask(callback)


async def test_a_refusal_of_something_else_is_a_failure() -> None:
    other = PolicyEvaluation(PolicyAction.ASK, "another", parse("ls"))

    def callback(request: ApprovalRequest) -> ApprovalReply:
        raise ApprovalError(other, "not on a Sunday")

    with pytest.raises(ApprovalError, match="the approver failed") as caught:
        await ask(callback)
    assert caught.value.evaluation is REQUEST.evaluation


async def test_an_approver_that_gives_nothing_to_wait_for_is_a_no() -> None:
    class Immediate:
        def approve(self, request: ApprovalRequest) -> ApprovalReply:
            return YES

    with pytest.raises(ApprovalError, match=r"the approver failed \(TypeError"):
        await decide(Immediate(), REQUEST, 5)  # type: ignore[arg-type]  # what is tested


async def test_what_ends_the_application_is_no_answer() -> None:
    async def callback(request: ApprovalRequest) -> ApprovalReply:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await ask(callback)


async def test_an_async_exception_is_a_no() -> None:
    async def callback(request: ApprovalRequest) -> ApprovalReply:
        raise RuntimeError("boom")

    with pytest.raises(ApprovalError, match=r"RuntimeError: boom"):
        await ask(callback)


async def test_no_answer_in_time_is_a_no() -> None:
    async def callback(request: ApprovalRequest) -> ApprovalReply:
        await anyio.sleep(60)
        return YES

    with pytest.raises(ApprovalError, match=r"nobody answered within 0\.05 s"):
        await ask(callback, 0.05)


async def test_a_plain_function_that_blocks_does_not_hold_the_caller() -> None:
    release = threading.Event()

    def callback(request: ApprovalRequest) -> ApprovalReply:
        release.wait(10)
        return YES

    started = time.monotonic()
    with pytest.raises(ApprovalError, match="nobody answered"):
        await ask(callback, 0.05)
    assert time.monotonic() - started < 5
    release.set()


async def test_a_yes_after_the_deadline_is_a_no() -> None:
    class Stubborn:
        async def approve(self, request: ApprovalRequest) -> ApprovalReply:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.1)
            return YES

    with pytest.raises(ApprovalError, match="nobody answered"):
        await decide(Stubborn(), REQUEST, 0.05)


async def test_the_approvers_own_timeout_is_a_no() -> None:
    async def callback(request: ApprovalRequest) -> ApprovalReply:
        await anyio.sleep(60)
        return YES

    with pytest.raises(ApprovalError, match=r"the approver failed \(TimeoutError"):
        await decide(CallbackApprover(callback, timeout=0.05), REQUEST, 30)


@pytest.mark.parametrize("timeout", [0, -1, math.inf, math.nan])
async def test_a_timeout_that_bounds_nothing_is_a_no(timeout: float) -> None:  # noqa: ASYNC109 - what is tested
    with pytest.raises(ApprovalError, match="give a positive number"):
        await ask(lambda request: YES, timeout)
    with pytest.raises(ValueError, match="give a positive number"):
        CallbackApprover(lambda request: YES, timeout=timeout)


async def test_the_callers_cancellation_is_no_answer_at_all() -> None:
    async def callback(request: ApprovalRequest) -> ApprovalReply:
        await anyio.sleep(60)
        return YES

    with anyio.move_on_after(0.05) as scope:
        await ask(callback, 60)
    assert scope.cancelled_caught
