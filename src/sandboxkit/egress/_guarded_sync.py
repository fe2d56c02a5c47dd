"""
The blocking twin of the guarded client. Imported when it is used.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, final

import httpx2
from anyio.from_thread import start_blocking_portal

from sandboxkit.egress._guarded import DEADLINE, GuardedTransport, redirect_flow
from sandboxkit.guard import canonical_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from anyio.from_thread import BlockingPortal

    from sandboxkit.guard import EgressPolicy

__all__ = ["GuardedSyncClient", "GuardedSyncTransport"]


@final
class GuardedSyncTransport(httpx2.BaseTransport):
    """
    `GuardedTransport` for a blocking client: it runs in an event loop of its own, in a thread.

    Args:
        policy: Decides about requests and addresses.
        options: As `GuardedTransport` takes them.
    """

    def __init__(self, policy: EgressPolicy, **options: Any) -> None:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal("asyncio"))
            self._inner = self._portal.call(lambda: GuardedTransport(policy, **options))
            self._stack = stack.pop_all()
        self.limits = self._inner.limits

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """
        Sends one request; see `GuardedTransport.handle_async_request`.
        """
        same = httpx2.Request(
            request.method,
            request.url,
            headers=request.headers,
            content=request.read() or None,
            extensions=request.extensions,
        )
        answer = self._portal.call(self._inner.handle_async_request, same)
        return httpx2.Response(
            answer.status_code,
            headers=answer.headers,
            stream=_Stream(self._portal, answer.stream),
            extensions=answer.extensions,
        )

    def close(self) -> None:
        """
        Closes the connections and ends the thread.
        """
        with self._stack:
            self._portal.call(self._inner.aclose)


@final
class _Stream(httpx2.SyncByteStream):
    def __init__(self, portal: BlockingPortal, stream: Any) -> None:
        self._portal = portal
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        pieces: AsyncIterator[bytes] = aiter(self._stream)

        async def following() -> bytes | None:
            return await anext(pieces, None)

        while (piece := self._portal.call(following)) is not None:
            yield piece

    def close(self) -> None:
        self._portal.call(self._stream.aclose)


@final
class GuardedSyncClient(httpx2.Client):
    """
    The client that `guarded_sync_client` makes.
    """

    def __init__(self, transport: GuardedSyncTransport, **options: Any) -> None:
        self._limits = transport.limits
        super().__init__(transport=transport, trust_env=False, timeout=self._limits.total_timeout, **options)

    def build_request(self, method: str, url: httpx2.URL | str, **parts: Any) -> httpx2.Request:
        """
        As in httpx2; a URL given as text is read strictly before httpx2 sees it.

        Raises:
            UrlError: *url* cannot be read in one way only.
        """
        return super().build_request(method, str(canonical_url(str(url))), **parts)

    def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        auth: Any = httpx2.USE_CLIENT_DEFAULT,
        follow_redirects: Any = httpx2.USE_CLIENT_DEFAULT,
    ) -> httpx2.Response:
        """
        As `GuardedClient.send`.
        """
        follow = self.follow_redirects if follow_redirects is httpx2.USE_CLIENT_DEFAULT else follow_redirects
        # The clock of asyncio, in which the transport runs.
        request.extensions = {**request.extensions, DEADLINE: time.monotonic() + self._limits.total_timeout}
        flow = redirect_flow(request, auth, follow=follow, limits=self._limits, cookies=self.cookies)
        request, auth = next(flow)
        while True:
            answer = super().send(request, stream=True, auth=auth, follow_redirects=False)
            try:
                request, auth = flow.send(answer)
            except StopIteration:
                if not stream:
                    answer.read()
                return answer
            except BaseException:
                answer.close()
                raise
            answer.close()
