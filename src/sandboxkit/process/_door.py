"""
The listener that a box hands out, and who serves it beside the command.

Source: unix(7) SCM_RIGHTS, socket(7) SO_ACCEPTCONN.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import TYPE_CHECKING, TypeAlias

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

__all__ = ["Serve", "Serving", "serving"]

Serve: TypeAlias = "Callable[[int], Awaitable[None]]"
"""Serves the listener behind a descriptor, which it owns, until it is cancelled."""

_log = logging.getLogger("sandboxkit.process")


class Serving:
    """
    Waits for the listener of one box and has it served.

    Attributes:
        failure: What ended the service before the command; None where nothing did.
    """

    def __init__(self, serve: Serve, *, on_failure: Callable[[], object]) -> None:
        self._serve = serve
        self._on_failure = on_failure
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self.failure: Exception | None = None

    @property
    def door(self) -> int:
        """
        The descriptor for the box.
        """
        return self._theirs.fileno()

    def close_far_end(self) -> None:
        """
        Closes the box's end here, once it has it, so that its end is seen.
        """
        self._theirs.close()

    async def run(self) -> None:
        """
        Serves until `end` is called. A service that fails ends the command.
        """
        try:
            with self._scope:
                fd = await self._listener()
                if fd is not None:
                    await self._serve(fd)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the command cannot go on without its way out
            _log.exception("the service of a box failed")
            self.failure = exc
            self._on_failure()
        finally:
            self.close()
            self._ended.set()

    async def _listener(self) -> int | None:
        """
        The descriptor of the listener; None where the box ended without one.
        """
        while True:
            try:
                _, fds, _, _ = socket.recv_fds(self._ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                await anyio.wait_readable(self._ours)
                continue
            return fds[0] if fds else None

    async def end(self) -> None:
        """
        Ends the service and waits for that: afterwards everything it did is recorded.
        """
        self._scope.cancel()
        await self._ended.wait()

    def close(self) -> None:
        """
        Lets go of both ends.
        """
        self._ours.close()
        self._theirs.close()


@contextlib.asynccontextmanager
async def serving(service: Serving) -> AsyncIterator[None]:
    """
    Runs *service* beside the block, which raises what it raises and not a group of it.
    """
    problem: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.run)
        try:
            yield
        except (Exception, KeyboardInterrupt, SystemExit) as exc:  # noqa: BLE001 - it is the caller's own
            problem = exc  # raised below: the group would wrap it
        finally:
            tasks.cancel_scope.cancel()
    if problem is not None:
        raise problem
