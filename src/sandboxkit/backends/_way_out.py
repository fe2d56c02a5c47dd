"""
The way out of one command's box: a proxy in this process, and what went through it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from secrets import token_urlsafe
from typing import TYPE_CHECKING, final

import anyio
from anyio.abc import Listener, SocketListener, SocketStream

from sandboxkit.egress import EgressProxy, Injection, Interception
from sandboxkit.errors import CommandError, SpecError
from sandboxkit.guard import EgressPolicy
from sandboxkit.model import Violation, is_literal
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from anyio.abc import TaskGroup

    from sandboxkit.egress import Ask, EgressEvent, OnEvent, Resolver
    from sandboxkit.model import NetworkPolicy

__all__ = ["WayOut"]

_ASK_SECONDS = 60.0
_QUESTIONS = 20
_CONNECTIONS = 128
"""
Connections of one box at one time, of which each takes two descriptors of this process: a
box must not use up what the application has, often 1024. More wait in the box.
"""
_LONGEST_S = 30 * 86400.0
_MARGIN_S = 3600.0
"""
How long the authority of a proxy that looks into TLS lasts: as long as its command may run,
or where nothing bounds that, a month; and an hour more.
"""
_KEPT = 100
"""Different refusals of one run that its result names."""


@final
class WayOut:
    """
    Serves the listener of one box under *network* and keeps what was refused.

    Args:
        network: What the spec lists.
        identity: Who it is for, in questions and events.
        ask: Answers where a rule asks; None is a no.
        on_egress: Gets each event as well.
        resolver: The name service; None is the machine's.
        secrets: Has the values of what *network* injects.
        ssl_context: Verifies the real hosts where the proxy looks into TLS; None takes the
            authorities of the system.
        lasting: Seconds the command may run; None is no bound.
        wants_token: Whether clients must show a token: others reach the listener as well.

    Attributes:
        token: That token, or None.

    Raises:
        MissingExtraError: The extra `egress` is not installed.
        SpecError: A secret of *network* is unknown here.
        PolicyError: A secret is not for the host it is to go to.
        FileNotFoundError: The system has no certificate authorities, and none were given.
    """

    def __init__(
        self,
        network: NetworkPolicy,
        *,
        identity: str,
        ask: Ask | None = None,
        on_egress: OnEvent | None = None,
        resolver: Resolver | None = None,
        secrets: SecretRegistry | None = None,
        ssl_context: ssl.SSLContext | None = None,
        lasting: float | None = None,
        wants_token: bool = False,
    ) -> None:
        self.token = token_urlsafe(24) if wants_token else None
        self._secrets = _known(network, secrets)
        self._network = network
        self._policy = EgressPolicy.of_network(network)
        self._on_egress = on_egress
        self._refused: dict[tuple[str, str], Violation] = {}
        self._dropped = 0
        self._proxy = EgressProxy(
            self._policy,
            identity=identity,
            ask=ask,
            ask_timeout=_ASK_SECONDS,
            max_questions=_QUESTIONS,
            on_event=self._note,
            resolver=resolver,
            intercept=network.intercepts
            and Interception(
                secrets=self._secrets,
                injections=tuple(map(Injection.of, network.inject)),
                ssl_context=ssl_context,
                valid_s=(_LONGEST_S if lasting is None else lasting) + _MARGIN_S,
            ),
        )

    @property
    def authority(self) -> bytes:
        """
        The certificate by which the box knows a proxy that looks into its TLS; empty where
        it does not.
        """
        return b"".join(self._proxy.trust("/").files.values()) if self._network.intercepts else b""

    def keep_out(self, argv: Iterable[str], environment: Mapping[str, str], stdin: bytes | None) -> None:
        """
        Refuses a command that would be handed the value of a secret beside its placeholder,
        in any spelling that masking knows.

        Raises:
            SpecError: A variable holds one.
            CommandError: A word or the input holds one.
        """
        rows = self._network.inject
        if not rows:
            return
        replaced = {row.stands_in()[0] for row in rows}
        known = self._secrets.masker(only={row.secret for row in rows})

        def holds(text: str | bytes) -> bool:
            data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
            return known.whole(data) != data

        open_variables = [name for name, text in environment.items() if name not in replaced and holds(text)]
        if open_variables:
            raise SpecError(
                *(
                    f"environment: {name} holds the value of a secret that is injected; leave it out"
                    for name in open_variables
                )
            )
        if any(map(holds, argv)) or (stdin is not None and holds(stdin)):
            raise CommandError("it holds the value of a secret that is injected; let it use the variable instead")

    async def serve(self, fd: int) -> None:
        """
        Serves the listener behind *fd*, and closes it in the end.
        """
        await self._proxy.serve(_Bounded(await SocketListener.from_socket(fd)), token=self.token)

    def violations(self) -> tuple[Violation, ...]:
        """
        What was refused, each destination and reason once.
        """
        found = tuple(self._refused.values())
        if not self._dropped:
            return found
        rest = f"{self._dropped} more connections were refused than are listed"
        return (*found, Violation("egress", "…", rest, call="proxy", count=self._dropped))

    def _note(self, event: EgressEvent) -> None:
        if not event.verdict.allowed and event.verdict.code != "token":
            self._refuse(event)  # whoever shows none is anybody on the machine, or tries without first
        if self._on_egress is not None:
            self._on_egress(event)

    def _refuse(self, event: EgressEvent) -> None:
        key = (event.destination, event.verdict.reason)
        if before := self._refused.get(key):
            self._refused[key] = replace(before, count=before.count + 1)
        elif len(self._refused) >= _KEPT:
            self._dropped += 1
        else:
            self._refused[key] = _violation(event, self._line(event))

    def _line(self, event: EgressEvent) -> str | None:
        """
        The line that would let it through; None where a rule, a name, a port or an address
        is what stands against it, or more than these lists.
        """
        if event.verdict.code != "default" or event.host is None or self._network.within:
            return None
        if is_literal(event.host) and not self._policy.judge((event.host,)).allowed:
            return None
        host = f"[{event.host}]" if ":" in event.host else event.host
        return f'network.allow_hosts = ["{host}:{event.port}"]'


def _known(network: NetworkPolicy, secrets: SecretRegistry | None) -> SecretRegistry:
    """
    *secrets*, if it has all that *network* injects.

    Raises:
        SpecError: It has not.
    """
    registry = secrets if secrets is not None else SecretRegistry()
    missing = sorted({row.secret for row in network.inject} - set(registry.names()))
    if missing:
        raise SpecError(
            *(
                f"network.inject: no value of the secret {name} is known here; give one to the backend "
                "(SandboxRegistry.default(secrets=...)), on the command line as a variable of that name"
                for name in missing
            )
        )
    return registry


@final
class _Bounded(Listener[SocketStream]):
    """
    *listener*, of which no more connections are taken than there may be.
    """

    def __init__(self, listener: SocketListener) -> None:
        self._listener = listener
        self._room = anyio.Semaphore(_CONNECTIONS)

    async def serve(self, handler: Callable[[SocketStream], Any], task_group: TaskGroup | None = None) -> None:
        """
        Has *handler* serve each connection in *task_group*.
        """

        async def one(stream: SocketStream) -> None:
            try:
                await handler(stream)
            finally:
                self._room.release()

        async with AsyncExitStack() as stack:
            group = task_group
            if group is None:
                group = await stack.enter_async_context(anyio.create_task_group())
            while True:
                await self._room.acquire()
                try:
                    stream = await self._listener.accept()
                except BaseException:
                    self._room.release()
                    raise
                group.start_soon(one, stream)

    async def aclose(self) -> None:
        """
        Closes the listener.
        """
        await self._listener.aclose()


def _violation(event: EgressEvent, line: str | None) -> Violation:
    rule = f" (rule {event.verdict.rule})" if event.verdict.rule else ""
    unanswered = ", and nobody approved" if event.verdict.action == "ask" else ""
    method = f"{event.method} " if event.method else ""
    return Violation(
        "egress",
        event.destination,
        f"{method}by {event.protocol} was refused to {event.identity}: {event.verdict.reason}{rule}{unanswered}",
        spec_line=line,
        call=event.protocol,
    )
