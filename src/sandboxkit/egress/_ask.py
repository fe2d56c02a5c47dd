"""
Questions to whoever approves, while a connection waits.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import anyio

__all__ = ["Ask", "EgressQuestion", "Questions"]

_log = logging.getLogger("sandboxkit.egress")


@dataclass(frozen=True, slots=True)
class EgressQuestion:
    """
    May this destination be reached?

    Attributes:
        identity: Who wants it: the name of the proxy.
        host: The canonical host.
        port: The port.
        rule: The rule that asks.
        reason: Why it asks, for people.
        request: For a request that can be seen its method and URL without the query,
            otherwise None: nobody will know what goes through.
    """

    identity: str
    host: str
    port: int
    rule: str | None
    reason: str
    request: str | None = None


Ask: TypeAlias = Callable[[EgressQuestion], Awaitable[bool]]
"""Answers a question; only True is a yes."""


@final
class Questions:
    """
    Asks once for each host, port and rule, and remembers the answer as long as it lives.
    There is one open question about a host and port at a time: connections that come
    meanwhile wait for its end.

    No approver, an exception, a deadline, and everything past *limit* questions are a no.

    Args:
        ask: Who answers, or None.
        timeout: Seconds a question stays open.
        limit: How many questions there may be.
    """

    def __init__(self, ask: Ask | None, *, timeout: float = 60.0, limit: int = 20) -> None:
        self._ask = ask
        self._timeout = timeout
        self._left = limit
        self._answers: dict[tuple[str, int, str | None], bool] = {}
        self._open: dict[tuple[str, int], anyio.Event] = {}

    async def answer(self, question: EgressQuestion) -> bool:
        """
        Whether *question* was answered with yes.
        """
        place = (question.host, question.port)
        key = (*place, question.rule)
        while place in self._open and key not in self._answers:
            await self._open[place].wait()
        if key in self._answers:
            return self._answers[key]
        if self._ask is None or self._left <= 0:
            return False
        self._left -= 1
        self._open[place] = anyio.Event()
        try:
            self._answers[key] = await self._asked(self._ask, question)
            return self._answers[key]
        finally:
            self._open.pop(place).set()

    async def _asked(self, ask: Ask, question: EgressQuestion) -> bool:
        with anyio.move_on_after(self._timeout):
            try:
                return await ask(question) is True
            except Exception:  # noqa: BLE001 - whatever an approver does, it is no yes
                _log.exception("the approver failed; %s:%d is refused", question.host, question.port)
                return False
        _log.warning("nobody answered within %g s; %s:%d is refused", self._timeout, question.host, question.port)
        return False
