"""
The way out of one command in a container, whose box may reach listed hosts.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, final

import anyio

from sandboxkit.errors import BackendUnavailableError, BrokerError, SetupError
from sandboxkit.process import Serving, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sandboxkit.backends._way_out import WayOut
    from sandboxkit.backends.docker._session import Session
    from sandboxkit.model import Violation
    from sandboxkit.process import NamedDoor

__all__ = ["Outlet", "outlet"]

_SECONDS = 30.0


@final
class Outlet:
    """
    A proxy that a command in a container has for itself.

    Attributes:
        port: Its loopback port in the container.
    """

    def __init__(self, name: str, way_out: WayOut, listener: int, port: int) -> None:
        async def handed_out() -> int:
            return listener

        self._name = name
        self._way_out = way_out
        self._service = Serving(way_out.serve, handed_out, on_failure=self._failed)
        self._actions: list[Callable[[], object]] = []
        self.port = port

    def on_failure(self, action: Callable[[], object]) -> None:
        """
        Has *action* called where it fails, at once where it has.
        """
        self._actions.append(action)
        if self._service.failure is not None:
            action()

    def _failed(self) -> None:
        for action in self._actions:
            action()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """
        Serves it beside the block.
        """
        async with serving(self._service):
            yield

    async def end(self) -> tuple[Violation, ...]:
        """
        Ends it; what it refused.

        Raises:
            SetupError: It had failed before, and the command was ended for it.
        """
        await self._service.end()
        self.check()
        return self._way_out.violations()

    def check(self) -> None:
        """
        Raises:
            SetupError: It has failed.
        """
        if failure := self._service.failure:
            raise SetupError(
                self._name, f"the proxy of the command failed: {failure}; the command was ended"
            ) from failure


@asynccontextmanager
async def outlet(name: str, session: Session, door: NamedDoor, way_out: WayOut) -> AsyncIterator[Outlet]:
    """
    Has a listener made in a container and serves it meanwhile.

    Args:
        name: The engine's name.
        session: The stream to the container's agent.
        door: What it hands listeners out through.
        way_out: What serves it.

    Raises:
        BackendUnavailableError: The container has ended, or does not answer.
        SetupError: There is no listener.
    """
    try:
        with anyio.fail_after(_SECONDS):
            number, port = await session.listen()
        fd = door.take(number)
    except TimeoutError as exc:
        raise BackendUnavailableError(
            name,
            f"the container made no listener within {_SECONDS:g} s",
            "look at the engine's load, then run it again",
        ) from exc
    except OSError as exc:
        raise SetupError(name, f"the container cannot listen for its proxy: {exc.strerror}") from exc
    except BrokerError as exc:
        raise BackendUnavailableError(
            name, "the container ended before its next command", "look at the engine's log, then run it again"
        ) from exc
    if fd is None:
        raise SetupError(name, "the container handed out no listener for its proxy")
    found = Outlet(name, way_out, fd, port)
    async with found.serving():
        yield found
