"""
Our side of the stream to a container's agent: frames, and the commands they are about.

Whoever waits for something reads: the first one that waits takes what comes and hands it
to whom it is for, the others wait for their turn. So nothing runs in the background, and a
box needs no task group of its own.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import struct
import time
from typing import TYPE_CHECKING, Any, Final

import anyio

from sandboxkit.backends._proxied import PROXY_PORT
from sandboxkit.backends.docker import _agent as wire
from sandboxkit.backends.docker import _replies as replies
from sandboxkit.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxkit.backends.docker._channel import SocketStream
    from sandboxkit.process import PipeReader, PipeWriter

__all__ = ["Remote", "Session"]

_ENGINE_HEAD = struct.Struct(">BxxxI")
_STDERR = 2
_SEND_SECONDS = 30.0
_FRAME = 1 << 15
_LAST_WORDS = 4000
_PORTS: Final = range(PROXY_PORT, PROXY_PORT + 256)
"""Each command that runs at one time has a proxy of its own; this many can."""
_GONE = "the container ended, or the engine went away, during the run"


class Remote:
    """
    One command, as far as the agent has told of it.

    Attributes:
        is_started: Whether it has become the command.
        failure: The step that failed, its errno, and the interpreter a script named in vain, where it never did.
        end: How it ended, once it has.
        on_output: Called with what it writes, as it comes.
        started: When it was ordered, on the monotonic clock.
    """

    def __init__(self, ident: int, on_output: Callable[[int, bytes], None]) -> None:
        self.ident = ident
        self.on_output = on_output
        self.is_started = False
        self.failure: tuple[str, int, str] | None = None
        self.end: Mapping[str, Any] | None = None
        self.room = wire.WINDOW
        self.untaken = {wire.OUT: 0, wire.ERR: 0}
        self.started = time.monotonic()

    @property
    def is_over(self) -> bool:
        """
        Whether nothing more comes of it.
        """
        return self.end is not None or self.failure is not None


class Session:
    """
    The stream to one container.

    Args:
        reader: What comes from the engine.
        writer: What goes to it.

    Attributes:
        report: What is in force in it, once that was said.
        is_lost: Whether nothing more comes of it.
        fault: What was said there that is not of the agreed form; empty for nothing.
    """

    def __init__(self, reader: PipeReader | SocketStream, writer: PipeWriter | SocketStream) -> None:
        self._reader = reader
        self._writer = writer
        self._raw = bytearray()
        self._frames = bytearray()
        self._said = b""
        self._put: Callable[[int, bytes], bool] = self._hold
        self._turn = anyio.Lock()
        self._news = anyio.Event()
        self._sending = anyio.Lock()
        self._commands: dict[int, Remote] = {}
        self._listeners: dict[int, Mapping[str, Any]] = {}
        self._last = 0
        self._places = 0
        self.report: Mapping[str, Any] | None = None
        self.is_lost = False
        self.fault = ""

    @property
    def said(self) -> str:
        """
        The last of what came on the container's stderr.
        """
        return self._said.decode(errors="replace").strip()

    @property
    def is_idle(self) -> bool:
        """
        Whether no command runs.
        """
        return not self._commands

    async def greet(
        self, files: Mapping[str, str], places: tuple[str, ...], program: bytes, *, door: str, is_counted: bool
    ) -> Mapping[str, Any]:
        """
        What is in force in the container, once the agent runs.

        Args:
            program: The seccomp filter it puts on itself and all it starts; none if empty.
            files: Content by path, to be written there first.
            places: Paths whose device and inode are told, in the same order.
            door: The socket file there that it hands listeners out through; empty is none.
            is_counted: Whether the container has control groups of its own.

        Raises:
            BrokerError: The agent did not come up.
        """
        hello = {
            "files": list(files.items()),
            "places": places,
            "door": door,
            "filter": base64.b64encode(program).decode(),
            "is_counted": is_counted,
        }
        self._places = len(places)
        await self._send(wire.HELLO, 0, json.dumps(hello).encode())
        await self.until(lambda: self.report is not None)
        return self.report or {}

    async def listen(self) -> tuple[int, int]:
        """
        Has the agent make a listener and hand it out; the number it has there, and its port.

        Raises:
            OSError: It could not.
            BrokerError: The container is gone.
        """
        self._last += 1
        number = self._last
        self._listeners[number] = {}
        try:
            await self._send(wire.LISTEN, number, json.dumps({"ports": [*_PORTS]}).encode())
            await self.until(lambda: bool(self._listeners[number]))
            found = self._listeners[number]
        finally:
            del self._listeners[number]
        if "errno" in found:
            raise OSError(found["errno"], os.strerror(found["errno"]))
        return number, found["port"]

    async def order(self, order: Mapping[str, Any], on_output: Callable[[int, bytes], None]) -> Remote:
        """
        Orders a command; `until` sees what becomes of it.
        """
        self._last += 1
        remote = Remote(self._last, on_output)
        self._commands[remote.ident] = remote
        await self._send(wire.RUN, remote.ident, json.dumps(order).encode())
        return remote

    async def feed(self, remote: Remote, data: bytes) -> None:
        """
        Hands *data* to the command's input, as fast as it is read; none is its end.
        """
        if not data:
            await self._send(wire.IN, remote.ident, b"")
        view = memoryview(data)
        while view and not remote.is_over:
            await self.until(lambda: remote.room > 0 or remote.is_over)
            part = view[: min(_FRAME, remote.room)]
            remote.room -= len(part)
            view = view[len(part) :]
            if part:
                await self._send(wire.IN, remote.ident, bytes(part))

    async def taken(self, remote: Remote, kind: int, count: int) -> None:
        """
        Lets the command write *count* more bytes to one of its streams.
        """
        remote.untaken[kind] -= count
        if count and not remote.is_over:
            await self._send(wire.ACK, remote.ident, bytes([kind]) + struct.pack("!I", count))

    async def signal(self, remote: Remote, number: int) -> None:
        """
        Sends signal *number* to the command.
        """
        await self._send(wire.SIGNAL, remote.ident, bytes([number]))

    async def kill(self, remote: Remote, because: str) -> None:
        """
        Ends the command and all it started.
        """
        await self._send(wire.KILL, remote.ident, because.encode())

    async def until(self, is_true: Callable[[], bool]) -> None:
        """
        Reads until *is_true*.

        Raises:
            BrokerError: The stream has ended: the container is gone, or said what has no meaning.
        """
        while not is_true():
            if self.is_lost:
                raise BrokerError(self.fault or _GONE)
            await self._read()

    async def follow(self, put: Callable[[int, bytes], bool]) -> None:
        """
        Reads to the end of the stream of a container without an agent, or until *put* wants
        no more of what comes on stdout (1) and stderr (2).
        """
        self._put, is_wanted = put, True
        while is_wanted:
            try:
                is_wanted = self._split(await self._reader.receive())
            except ValueError as exc:
                self._break(exc)
                return
            except (anyio.EndOfStream, anyio.ClosedResourceError, OSError):
                return

    async def write(self, data: bytes) -> None:
        """
        Hands *data* to the input of a container without an agent.
        """
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await self._writer.send(data)

    async def is_alive(self) -> bool:
        """
        Whether the stream has not ended, as far as can be seen without waiting.
        """
        if not self.is_lost and not self._turn.locked():
            self._turn.acquire_nowait()
            try:
                with anyio.move_on_after(0):
                    await self._once()
            finally:
                self._hand_over()
        return not self.is_lost

    async def _read(self) -> None:
        """
        Takes what comes next, or waits until somebody else has.
        """
        if self._turn.locked():
            # Not by queueing for the turn: what was read may be for one behind the next.
            await self._news.wait()
            return
        self._turn.acquire_nowait()
        try:
            await self._once()
        finally:
            self._hand_over()

    async def _once(self) -> None:
        """
        Takes what has come. What the stream holds is read before this waits for anything.
        """
        try:
            self._take(await self._reader.receive())
        except (anyio.EndOfStream, anyio.ClosedResourceError, OSError):
            self.is_lost = True

    def _hand_over(self) -> None:
        self._turn.release()
        news, self._news = self._news, anyio.Event()
        news.set()

    def forget(self, remote: Remote) -> None:
        """
        Takes no more notice of a command.
        """
        self._commands.pop(remote.ident, None)

    def close(self) -> None:
        """
        Ends the stream, and with it the container.
        """
        self.is_lost = True
        self._writer.close()
        self._reader.close()

    async def _send(self, kind: int, ident: int, content: bytes) -> None:
        # A frame that was begun must be ended, or the next one would not be read as one.
        with anyio.CancelScope(shield=True), anyio.move_on_after(_SEND_SECONDS) as scope:
            async with self._sending:
                await self._write(wire.HEAD.pack(kind, ident, len(content)) + content)
        if scope.cancelled_caught:
            self.close()

    async def _write(self, data: bytes) -> None:
        """
        Sends, and takes meanwhile what comes: Podman's conmon reads nothing while it cannot
        write, so each end would wait for the other.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_reading)
            try:
                await self._writer.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                self.is_lost = True
            tasks.cancel_scope.cancel()

    async def _keep_reading(self) -> None:
        while not self.is_lost:
            await self._read()

    def _take(self, data: bytes) -> None:
        try:
            self._split(data)
            self._read_frames()
        except ValueError as exc:
            self._break(exc)

    def _break(self, exc: ValueError) -> None:
        self.fault = (
            f"the first process of the container broke the rules of the stream to it ({exc}), so the container was ended; "
            "use an image whose python3 is known"
        )
        self.close()

    def _hold(self, stream: int, content: bytes) -> bool:
        if stream == _STDERR:
            self._said = (self._said + content)[-_LAST_WORDS:]
        else:
            self._frames += content
        return True

    def _split(self, data: bytes) -> bool:
        """
        Takes the engine's own framing off, which tells stdout and stderr apart; whether
        more is wanted.

        Source: Docker Engine API, ContainerAttach, "Stream format".
        """
        self._raw += data
        is_wanted = True
        while len(self._raw) >= _ENGINE_HEAD.size:
            stream, length = _ENGINE_HEAD.unpack_from(self._raw)
            _check_length(length)
            if len(self._raw) < _ENGINE_HEAD.size + length:
                break
            content = bytes(self._raw[_ENGINE_HEAD.size : _ENGINE_HEAD.size + length])
            del self._raw[: _ENGINE_HEAD.size + length]
            is_wanted = self._put(stream, content) and is_wanted
        return is_wanted

    def _read_frames(self) -> None:
        while len(self._frames) >= wire.HEAD.size:
            kind, ident, length = wire.HEAD.unpack_from(self._frames)
            _check_length(length)
            if len(self._frames) < wire.HEAD.size + length:
                return
            content = bytes(self._frames[wire.HEAD.size : wire.HEAD.size + length])
            del self._frames[: wire.HEAD.size + length]
            self._hear(kind, ident, content)

    def _hear(self, kind: int, ident: int, content: bytes) -> None:
        """
        Raises:
            ValueError: It is nothing that may be said.
        """
        if kind == wire.READY:
            self.report = self.report or replies.report(content, self._places)
            return
        if ident in self._listeners:
            self._listeners[ident] = replies.listener(content)
            return
        remote = self._commands.get(ident)
        if remote is None or remote.is_over:
            return
        if kind in (wire.OUT, wire.ERR):
            self._put_out(remote, kind, content)
        elif kind == wire.STARTED:
            remote.is_started = True
        elif kind == wire.TAKEN:
            remote.room += replies.count(content)
        elif kind == wire.END:
            remote.end = replies.end(content)
        elif kind == wire.FAILED:
            remote.failure = replies.failure(content)

    def _put_out(self, remote: Remote, kind: int, content: bytes) -> None:
        """
        Hands on what a command wrote, no more of it than the agent may have under way: it is
        kept in memory until somebody takes it.
        """
        remote.untaken[kind] += len(content)
        if remote.untaken[kind] > wire.WINDOW:
            raise ValueError("it sends more of a command's output than it may")
        remote.on_output(kind, content)


def _check_length(length: int) -> None:
    if length > replies.MOST_BYTES:
        raise ValueError(f"a frame of {length} bytes")
