"""
An approver that does not ask the same twice.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, final

import anyio.to_thread

from sandboxkit.approval._decide import problem_of
from sandboxkit.approval._limits import why_not_always, writable_root
from sandboxkit.approval._question import asked_text
from sandboxkit.approval._store import MAX_SECONDS, MAX_TEXT, RememberedGrant
from sandboxkit.approval._turn import turn
from sandboxkit.errors import ApprovalError, GrantNotFoundError, GrantStoreError
from sandboxkit.model import ApprovalOffer, ApprovalReply
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxkit.approval._store import GrantStore
    from sandboxkit.model import ApprovalRequest, Approver, Grant, Remember

__all__ = ["RememberingApprover"]

DAY = 86400.0


@final
class RememberingApprover:
    """
    Asks another approver, and answers by itself what that one has approved before: for
    this session or for good.

    A remembered answer counts for exactly the same: the words or text, the directory,
    the workspace, the box, the input, the files of its programs and scripts and the rule
    set (`Grant`). Otherwise the other approver is asked again.

    `always` is on offer only where nothing a box may write decides what runs: not for a
    program, script or build file in a writable root, nor for a shell, interpreter or
    wrapper by itself; and only while the store lies outside every writable root. An
    answer that is not on offer is a no. Where the store cannot be trusted, nothing in
    it is a yes: the question says why, in `offer.refused["always"]`.

    What a program loads besides (modules, configuration), its network peers and the
    application's own variables are not part of what is remembered.

    Args:
        inner: Who is asked what is not remembered.
        store: Where `always` is kept; None offers only `session`.
        session: Whether `session` is on offer; not worth it where the application ends
            after one command.
        always_seconds: How long `always` counts, in seconds. 30 days: long enough not to
            be asked daily, short enough that nobody has to remember to revoke it.
        clock: Gives the seconds since the epoch.
    """

    def __init__(
        self,
        inner: Approver,
        *,
        store: GrantStore | None = None,
        session: bool = True,
        always_seconds: float = 30 * DAY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not 1 <= always_seconds <= MAX_SECONDS:
            raise ValueError(f"always_seconds {always_seconds}: give a number of seconds from 1 to 366 days")
        self._inner = inner
        self._store = store
        self._choices: tuple[Remember, ...] = ("once", "session") if session else ("once",)
        self._always_seconds = always_seconds
        self._clock = clock
        self._session: dict[str, RememberedGrant] = {}
        self._pid = os.getpid()
        if store is not None:
            with contextlib.suppress(GrantStoreError):  # said when somebody is asked
                store.prepare()  # before a box could make a directory of that name

    @property
    def paths(self) -> tuple[str, ...]:
        """
        What no box may ever write: where approvals are kept.
        """
        return self._store.paths if self._store is not None else ()

    async def approve(self, request: ApprovalRequest) -> ApprovalReply:
        """
        What is remembered about *request*, or else what the other approver answers.

        Raises:
            ApprovalError: It answered with a choice that is not on offer.
            GrantStoreError: Its `always` could not be kept.
        """
        grant = request.offer.grant
        if grant is None:
            return await self._inner.approve(request)
        # Whoever asks the same meanwhile waits for the answer, which may count for both.
        async with turn(id(self), grant.digest):
            return await self._answer(request, grant)

    async def _answer(self, request: ApprovalRequest, grant: Grant) -> ApprovalReply:
        if found := self._sessions().get(grant.digest):
            return ApprovalReply(approved=True, reason=_remembered(found), origin="session")
        refusal = await anyio.to_thread.run_sync(self._refusal, request, grant)
        if refusal is None:
            try:
                if found := await anyio.to_thread.run_sync(self._found, grant.digest):
                    return ApprovalReply(approved=True, reason=_remembered(found), origin="always")
            except GrantStoreError as exc:
                refusal = str(exc)
        offer = self._offer(request.offer, refusal)
        reply = await self._inner.approve(replace(request, offer=offer))
        if problem_of(reply) is None:
            await self._keep(reply, request, offer, grant)
        return reply

    def grants(self) -> tuple[RememberedGrant, ...]:
        """
        What is remembered for this session; what is kept for good is in the store.
        """
        return tuple(self._sessions().values())

    def revoke(self, grant_id: str) -> RememberedGrant:
        """
        Forgets what is remembered for this session under this id, and says what it was.

        Raises:
            GrantNotFoundError: Nothing is.
        """
        session = self._sessions()
        found = next((grant for grant in session.values() if grant_id in (grant.id, grant.digest)), None)
        if found is None:
            raise GrantNotFoundError("this session", grant_id)
        del session[found.digest]
        return found

    def clear(self) -> int:
        """
        Forgets everything of this session, and says how many approvals that were.
        """
        session = self._sessions()
        count = len(session)
        session.clear()
        return count

    def _sessions(self) -> dict[str, RememberedGrant]:
        if self._pid != os.getpid():  # a forked child is another session
            self._session, self._pid = {}, os.getpid()
        return self._session

    def _refusal(self, request: ApprovalRequest, grant: Grant) -> str | None:
        """
        Why `always` is neither looked for nor on offer.
        """
        if self._store is None:
            return "there is no store to keep it in; give RememberingApprover a GrantStore"
        for path in self._store.paths:
            if root := writable_root(path, grant.spec):
                return f"the store {self._store.path!r} lies in {root!r}, which a box may write; keep it elsewhere"
        return why_not_always(grant, request.evaluation.command)

    def _found(self, digest: str) -> RememberedGrant | None:
        return self._store.find(digest) if self._store is not None else None

    def _offer(self, offer: ApprovalOffer, refusal: str | None) -> ApprovalOffer:
        if refusal is not None:
            return replace(offer, remember=self._choices, refused={"always": refusal}, always_seconds=None)
        return replace(offer, remember=(*self._choices, "always"), refused={}, always_seconds=self._always_seconds)

    async def _keep(self, reply: ApprovalReply, request: ApprovalRequest, offer: ApprovalOffer, grant: Grant) -> None:
        choice: Remember = reply.remember
        if choice not in offer.remember:
            because = offer.refused.get(choice, "it is not remembered here")
            raise ApprovalError(
                request.evaluation,
                f"the answer was {choice!r}, which is not on offer: {because}; on offer: {', '.join(offer.remember)}",
            )
        now = self._clock()
        kept = RememberedGrant(
            digest=grant.digest,
            command=_shown(asked_text(request)),
            cwd=grant.cwd,
            created=now,
            expires=now + self._always_seconds if choice == "always" else math.inf,
            reason=_shown(reply.reason),
        )
        if choice == "session":
            self._sessions()[grant.digest] = kept
        elif choice == "always" and self._store is not None:
            await anyio.to_thread.run_sync(self._store.add, kept)


def _remembered(grant: RememberedGrant) -> str:
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(grant.created))
    return f"remembered since {when}" + (f": {grant.reason}" if grant.reason else "")


def _shown(text: str) -> str:
    masked = SecretRegistry().mask(text)
    return masked if len(masked) <= MAX_TEXT else f"{masked[:MAX_TEXT]}…"
