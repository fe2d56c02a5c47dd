"""
`EgressProxy`: the one way out for programs that have no network of their own.
"""

from __future__ import annotations

import logging
import secrets
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import anyio
from anyio.abc import SocketAttribute

from sandboxkit.egress._ask import Questions
from sandboxkit.egress._dial import Dialer
from sandboxkit.egress._gate import Gate
from sandboxkit.egress._interception import Interception, Trust
from sandboxkit.egress._plain import serve_plain
from sandboxkit.egress._record import ProxyLimits
from sandboxkit.egress._relay import TunnelEndedError
from sandboxkit.egress._socks import VERSION, serve_socks
from sandboxkit.egress._stream import Unread
from sandboxkit.errors import MissingExtraError, SandboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from anyio.abc import ByteStream, Listener, TaskStatus

    from sandboxkit.egress._ask import Ask
    from sandboxkit.egress._dial import Connector
    from sandboxkit.egress._event import OnEvent
    from sandboxkit.egress._intercept import Interceptor
    from sandboxkit.egress._resolve import Resolver
    from sandboxkit.egress._upstream import UpstreamProxy
    from sandboxkit.guard import Address, EgressPolicy

__all__ = ["EgressProxy", "ProxyAddress"]

_log = logging.getLogger("sandboxkit.egress")
_TLS_RECORD = 22
_BUSY = b"HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\nContent-Length: 39\r\nConnection: close\r\n\r\nsandboxkit: too many connections at once"


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """
    Where a proxy listens.

    Attributes:
        host: Its address.
        port: Its port.
        token: What a client must show; any user name goes with it.
    """

    host: str
    port: int
    token: str = field(repr=False)

    @property
    def http_url(self) -> str:
        """
        For `HTTP_PROXY` and `HTTPS_PROXY`.
        """
        return f"http://sandboxkit:{self.token}@{self.host}:{self.port}"

    @property
    def socks_url(self) -> str:
        """
        For `ALL_PROXY`; names are resolved by the proxy.
        """
        return f"socks5h://sandboxkit:{self.token}@{self.host}:{self.port}"


@final
class EgressProxy:
    """
    A proxy that lets through what a policy allows: HTTP CONNECT, HTTP requests with an
    absolute URL, and SOCKS5, on one port. It resolves names itself, dials only addresses
    it has checked, compares the name a TLS client asks for with that of its tunnel, and
    never uses another proxy, whatever the environment says.

    One listener is one identity: give each box a listener that only it can reach.

    It looks into TLS only with `intercept`. Without, hosts that hide behind an allowed one
    on the same server are beyond it; what an allowed host does with what it is sent always is.

    Args:
        policy: Decides about destinations.
        intercept: Whether to stand in for https hosts, so that rules about methods and
            paths hold there too and secrets can be put in: True, or how. Clients must
            trust the certificate in `trust`, send the name of their tunnel, and speak
            first; inside is HTTP/1.1. Programs that pin certificates refuse it.
        identity: Stands in events and questions.
        ask: Answers where a rule asks; without it such a rule denies.
        ask_timeout: Seconds for an answer.
        max_questions: How many questions there may be as long as the proxy lives.
        limits: Bounds.
        on_event: Gets each event; must return at once and not raise.
        resolver: See `Dialer`.
        connector: See `Dialer`.
        own: See `Dialer`.
        upstream: See `Dialer`. No variable of the environment ever names one.

    Raises:
        MissingExtraError: The extra `egress` is not installed.
        PolicyError: An injection is wrong.
        FileNotFoundError: The system has no certificate authorities, and none were given.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        *,
        intercept: bool | Interception = False,
        identity: str = "proxy",
        ask: Ask | None = None,
        ask_timeout: float = 60.0,
        max_questions: int = 20,
        limits: ProxyLimits | None = None,
        on_event: OnEvent | None = None,
        resolver: Resolver | None = None,
        connector: Connector | None = None,
        own: Collection[Address] | None = None,
        upstream: UpstreamProxy | None = None,
    ) -> None:
        _require_h11()
        self._limits = limits or ProxyLimits()
        self._gate = Gate(
            policy,
            identity=identity,
            dialer=Dialer(policy, resolver=resolver, connector=connector, own=own, upstream=upstream),
            questions=Questions(ask, timeout=ask_timeout, limit=max_questions),
            on_event=on_event,
            interceptor=_interceptor(intercept),
        )
        self._open = 0

    def trust(self, directory: str) -> Trust:
        """
        The files and variables by which a box accepts this proxy's certificates.

        Args:
            directory: Where in the box the file will be; an absolute path.

        Raises:
            ValueError: The proxy does not intercept, or the path is relative.
        """
        if self._gate.interceptor is None:
            raise ValueError("this proxy does not look into TLS; make it with intercept=True")
        if not directory.startswith("/"):
            raise ValueError(f"{directory!r} is a relative path; write it from the root of the box")
        return Trust.at(directory, self._gate.interceptor.authority.certificate)

    async def serve(
        self,
        listener: Listener[ByteStream],
        *,
        token: str | None = None,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """
        Serves *listener* until it is cancelled, then closes it.

        Args:
            listener: Only those who may use the proxy should reach it.
            token: What clients must show, where others reach the listener as well.
            task_status: For `TaskGroup.start`.
        """

        async def one(stream: ByteStream) -> None:
            try:
                await self.handle(stream, token=token)
            except Exception:  # noqa: BLE001 - it ends this connection and no other one
                _log.exception("%s: a connection failed", self._gate.identity)

        async with listener:
            task_status.started()
            await serve_plain(listener, one)

    @asynccontextmanager
    async def listening(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[ProxyAddress]:
        """
        Listens on a loopback port, which every process of the machine reaches: so clients
        must show the token of the address, which its URLs contain.
        """
        token = secrets.token_urlsafe(24)
        listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: self.serve(listener, token=token, task_status=task_status))
            yield ProxyAddress(host, int(listener.extra(SocketAttribute.local_port)), token)
            tasks.cancel_scope.cancel()

    async def handle(self, stream: ByteStream, *, token: str | None = None) -> None:
        """
        Serves one client connection and closes it.
        """
        if self._open >= self._limits.connections:
            await _turn_away(stream)
            return
        self._open += 1
        client = Unread(stream)
        try:
            if await self._spoken(client, token):
                await client.farewell()
            else:
                client.reset_on_close()
        finally:
            self._open -= 1
            with anyio.CancelScope(shield=True):
                await client.abort()

    async def _spoken(self, client: Unread, token: str | None) -> bool:
        """
        Whether *client* got to know everything: otherwise its connection is reset, so that
        it does not take what came for the whole.
        """
        try:
            await self._speak(client, token)
        except SandboxError as exc:
            _log.info("%s: %s", self._gate.identity, exc)
        except TunnelEndedError as exc:
            _log.info("%s: %s", self._gate.identity, exc)
            return False
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError):
            return False  # one side left; what was under way is in its event
        except Exception:  # noqa: BLE001 - it ends this connection and no other one
            _log.exception("%s: a connection failed", self._gate.identity)
            return False
        return True

    async def _speak(self, client: Unread, token: str | None) -> None:
        from sandboxkit.egress._http import serve_http

        first = b""
        with anyio.move_on_after(self._limits.header_timeout):
            first = await client.exactly(1)
        if not first:
            return
        if first[0] == _TLS_RECORD:
            self._gate.unread("http", "TLS to the proxy itself, which it does not speak")
            return
        client.put_back(first)
        if first[0] == VERSION:
            await serve_socks(self._gate, client, limits=self._limits, token=token)
        else:
            await serve_http(self._gate, client, limits=self._limits, token=token)


async def _turn_away(stream: ByteStream) -> None:
    client = Unread(stream)
    with suppress(anyio.BrokenResourceError, OSError):
        await client.send(_BUSY)
        await client.farewell()
    await client.abort()


def _interceptor(intercept: bool | Interception) -> Interceptor | None:
    if intercept is False:
        return None
    from sandboxkit.egress._intercept import Interceptor

    return Interceptor(Interception() if intercept is True else intercept)


def _require_h11() -> None:
    try:
        import cryptography  # noqa: F401 - whether it is there
        import h11  # noqa: F401 - likewise
    except ImportError:
        raise MissingExtraError("egress", "sandboxkit.egress.EgressProxy") from None
