"""
Asks at the terminal of its session, as a process of its own, and says how it went: one
line of JSON for each question. Options come as JSON in the first argument.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import termios
import time
from typing import Any

import anyio

from sandboxkit.approval import TerminalApprover, decide
from sandboxkit.errors import ApprovalError
from sandboxkit.model import ApprovalOffer, ApprovalRequest, Command, Grant, PolicyAction, PolicyEvaluation, SandboxSpec

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])


def request(number: int) -> ApprovalRequest:
    text = OPTIONS.get("command", f"npm install x{number}")
    evaluation = PolicyEvaluation(PolicyAction.ASK, "installs packages", Command(text, ()))
    spec = SandboxSpec.isolated()
    grant = Grant(text, "/tmp", (), spec, (), "f" * 64)
    offer = ApprovalOffer("sandbox", grant, tuple(OPTIONS.get("offer", ["once"])), {"always": "it says so"})
    return ApprovalRequest(evaluation, "/tmp", spec, offer)


def report(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def ask(number: int) -> None:
    approver = TerminalApprover(timeout=OPTIONS.get("timeout"))
    try:
        reply = await decide(approver, request(number), OPTIONS.get("limit", 20))
    except ApprovalError as exc:
        report(approved=False, error=str(exc), command=exc.evaluation.command.text)
    else:
        report(approved=reply.approved, remember=reply.remember, command=request(number).command)


def modes() -> object:
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    found = termios.tcgetattr(fd)
    os.close(fd)
    return found


async def main() -> None:
    before, ticks = modes(), 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.01)
            ticks += 1

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        with anyio.move_on_after(OPTIONS.get("cancel")) as scope:
            async with anyio.create_task_group() as questions:
                for number in range(OPTIONS.get("questions", 1)):
                    questions.start_soon(ask, number)
        group.cancel_scope.cancel()
    report(cancelled=scope.cancelled_caught, ticks=ticks, restored=modes() == before)


if OPTIONS.get("keep_on"):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
time.sleep(OPTIONS.get("wait", 0))
anyio.run(main, backend=OPTIONS["backend"])
