"""
The listener that a box hands out, and who serves it beside the command.

Source: unix(7) SCM_RIGHTS, socket(7) SO_ACCEPTCONN.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
from typing import TYPE_CHECKING, TypeAlias

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

__all__ = ["Door", "LoopbackDoor", "NamedDoor", "Serve", "Serving", "serving"]

Serve: TypeAlias = "Callable[[int], Awaitable[None]]"
"""Serves the listener behind a descriptor, which it owns, until it is cancelled."""

_NUMBER = struct.Struct("!I")
_log = logging.getLogger("sandboxkit.process")


class Door:
    """
    A pair of sockets: a box hands its listener out through one, the other is read here.
    """

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)

    def fileno(self) -> int:
        """
        The descriptor for the box.
        """
        return self._theirs.fileno()

    def close_far_end(self) -> None:
        """
        Closes the box's end here, once it has it, so that its end is seen.
        """
        self._theirs.close()

    async def listener(self) -> int | None:
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

    def close(self) -> None:
        """
        Lets go of both ends.
        """
        self._ours.close()
        self._theirs.close()


class LoopbackDoor:
    """
    A listener on a port of the machine's own loopback, for a box that has no other. It is
    there before the box, and every program of the machine reaches it: whoever serves it asks
    for a token.

    Attributes:
        port: Its port.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    async def listener(self) -> int:
        """
        The descriptor of the listener, which is the caller's then.
        """
        return self._listener.detach()

    def close(self) -> None:
        """
        Closes it, unless somebody took it.
        """
        self._listener.close()


class NamedDoor:
    """
    A socket file for one process of a container, which hands listeners out through it: each
    with a number, by which it is asked for here. Once that process has come, nobody else gets
    in: the file is gone, and what is mounted of it answers nobody.

    Args:
        path: The file, which is made, in a directory that nobody else may enter.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._stream: socket.socket | None = None
        self._kept: dict[int, int] = {}
        self._waiting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._waiting.setblocking(False)
            self._bind(path)
            os.chmod(path, 0o666)  # noqa: S103 - the directory is closed; a container's user may be another
            self._waiting.listen(1)
        except BaseException:
            self.close()
            raise

    def _bind(self, path: str) -> None:
        """
        Source: unix(7): an address has 108 bytes, which a directory may have by itself.
        """
        directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._waiting.bind(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        finally:
            os.close(directory)

    def admit(self) -> None:
        """
        Lets in who has connected, and closes the door behind it.

        Raises:
            BlockingIOError: Nobody has.
        """
        self._stream, _ = self._waiting.accept()
        self._stream.setblocking(False)
        self._shut()

    def take(self, number: int) -> int | None:
        """
        The listener with *number*, which is the caller's then; None where it has not come.
        """
        with contextlib.suppress(BlockingIOError):
            while self._stream is not None:
                data, fds, _, _ = socket.recv_fds(self._stream, _NUMBER.size, 1, socket.MSG_CMSG_CLOEXEC)
                if not fds:
                    break
                self._kept[_NUMBER.unpack(data)[0]] = fds[0]
        return self._kept.pop(number, None)

    def _shut(self) -> None:
        self._waiting.close()
        path, self._path = self._path, ""  # another door may have the name afterwards
        if path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def close(self) -> None:
        """
        Lets go of it, and of the listeners nobody took.
        """
        self._shut()
        if self._stream is not None:
            self._stream.close()
        while self._kept:
            os.close(self._kept.popitem()[1])


class Serving:
    """
    Waits for the listener of one box and has it served.

    Args:
        serve: Serves it.
        listener: Gives its descriptor; None where the box ended without one.
        on_failure: Called where the service fails.

    Attributes:
        failure: What ended the service before the command; None where nothing did.
    """

    def __init__(
        self, serve: Serve, listener: Callable[[], Awaitable[int | None]], *, on_failure: Callable[[], object]
    ) -> None:
        self._serve = serve
        self._listener = listener
        self._on_failure = on_failure
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self.failure: Exception | None = None

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
            self._ended.set()

    async def end(self) -> None:
        """
        Ends the service and waits for that: afterwards everything it did is recorded.
        """
        self._scope.cancel()
        await self._ended.wait()


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
