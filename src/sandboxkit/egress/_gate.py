"""
Decides about what a proxy is asked for, asks where a rule says so, and keeps the record.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, final

import anyio

from sandboxkit.egress._ask import EgressQuestion
from sandboxkit.egress._record import Record
from sandboxkit.egress._relay import TunnelEndedError
from sandboxkit.errors import EgressDeniedError, SandboxError
from sandboxkit.guard import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.egress._ask import Questions
    from sandboxkit.egress._dial import Connection, Dialer
    from sandboxkit.egress._event import OnEvent
    from sandboxkit.egress._intercept import Interceptor
    from sandboxkit.guard import Code, EgressPolicy, Url

__all__ = ["Gate"]

_SHOWN = 200
"""Characters kept of what is said of a request that cannot be read."""


@final
class Gate:
    """
    What the HTTP and the SOCKS side of a proxy share.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        *,
        identity: str,
        dialer: Dialer,
        questions: Questions,
        on_event: OnEvent | None,
        interceptor: Interceptor | None = None,
    ) -> None:
        self.policy = policy
        self.identity = identity
        self.interceptor = interceptor
        self._dialer = dialer
        self._questions = questions
        self._on_event = on_event

    @contextmanager
    def recording(self, protocol: str, destination: str, method: str | None = None) -> Iterator[Record]:
        """
        A record that is handed on however the block ends.
        """
        record = Record(self.identity, protocol, destination, method)
        try:
            yield record
        except (SandboxError, TunnelEndedError, OSError, anyio.BrokenResourceError, anyio.EndOfStream) as exc:
            record.failed(exc)
            raise
        finally:
            if self._on_event is not None:
                self._on_event(record.event())

    def unread(self, protocol: str, why: str, *, of: str = "a request", code: Code = "url") -> None:
        """
        Records what could not be read, and so was not decided about.
        """
        if self._on_event is not None:
            verdict = Verdict.deny(ascii(why)[1:-1][:_SHOWN], code=code)
            self._on_event(Record(self.identity, protocol, of, verdict=verdict).event())

    async def open_request(self, url: Url, method: str, record: Record) -> Connection:
        """
        A connection for one request.

        Raises:
            EgressError: It is refused, or fails.
        """
        await self.approve_request(url, method, record)
        return await self.open_approved(url.host, url.port, record)

    async def approve_request(self, url: Url, method: str, record: Record) -> None:
        """
        Decides about one request, and asks where a rule does.

        Raises:
            EgressDeniedError: It is refused.
        """
        record.host, record.port = url.host, url.port
        record.verdict = self.policy.decide(url, method=method)
        await self._approve(record, url.host, url.port, f"{method} {url.origin}{url.path}")

    async def open_tunnel(self, host: str, port: int, record: Record) -> tuple[Connection, bool]:
        """
        A connection whose contents nobody looks at, apart from its first bytes; and whether
        those must be TLS, because only a rule about https allows it.

        Raises:
            EgressError: It is refused, or fails.
        """
        record.host, record.port = host, port
        record.verdict, must_be_tls = self.policy.decide_tunnel(host, port), False
        if record.verdict.action == "deny":
            secure = self.policy.decide_tunnel(host, port, scheme="https")
            if secure.action != "deny":
                record.verdict, must_be_tls = secure, True
        await self._approve(record, host, port, None)
        return await self.open_approved(host, port, record), must_be_tls

    def foresee(self, host: str, port: int, record: Record) -> None:
        """
        Refuses a tunnel in which no request could be allowed, before anything is said in it.

        Raises:
            EgressDeniedError: There could be none.
        """
        record.verdict = self.policy.decide_inspected(host, port)
        if record.verdict.action == "deny":
            unseen = self.policy.decide_tunnel(host, port)
            if unseen.action == "deny":
                raise EgressDeniedError(record.destination, record.verdict)
            record.verdict = unseen

    async def _approve(self, record: Record, host: str, port: int, request: str | None) -> None:
        verdict = record.verdict
        if verdict.action == "ask":
            question = EgressQuestion(self.identity, host, port, verdict.rule, verdict.reason, request)
            if await self._questions.answer(question):
                record.verdict = Verdict.allow(f"{verdict.reason}, and it was approved", rule=verdict.rule)
                return
        if not verdict.allowed:
            raise EgressDeniedError(record.destination, verdict)

    async def open_approved(self, host: str, port: int, record: Record) -> Connection:
        """
        A connection for what was approved.

        Raises:
            EgressError: It fails, or leads where the policy forbids.
        """
        connection = await self._dialer.connect(host, port)
        record.address = str(connection.address)
        return connection
