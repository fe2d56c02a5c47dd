"""
The streams of a started command in a container, as its application has them.

No descriptor reaches a container: what a command reads and writes comes in frames. What was
asked for as a pipe is handed out without one; a descriptor of the application's is carried.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from sandboxkit.backends._contract import PIPE
from sandboxkit.backends.docker import _agent as wire
from sandboxkit.errors import BrokerError
from sandboxkit.process import PipeReader, PipeWriter

if TYPE_CHECKING:
    from sandboxkit.backends.docker._session import Remote, Session

__all__ = ["ACK_BYTES", "CommandInput", "CommandOutput", "CommandStreams", "feed"]

ACK_BYTES = wire.WINDOW // 4
"""So much of a stream is taken before the agent is told that more may come."""
_CHUNK = 1 << 16
_CARRY_SECONDS = 2.0


async def feed(session: Session, remote: Remote, data: bytes | None) -> None:
    """
    Hands *data*, and then an end, to a command's input, as far as it lives to read it.
    """
    with contextlib.suppress(BrokerError):
        if data:
            await session.feed(remote, data)
        await session.feed(remote, b"")


class CommandInput(anyio.abc.ByteSendStream):
    """
    What a command reads.
    """

    def __init__(self, session: Session, remote: Remote) -> None:
        self._session, self._remote = session, remote
        self._is_closed = False

    async def send(self, item: bytes) -> None:
        """
        Hands over *item* whole, as fast as it is read.

        Raises:
            anyio.BrokenResourceError: The command has ended, or its container has.
            anyio.ClosedResourceError: This end was closed.
        """
        if self._is_closed:
            raise anyio.ClosedResourceError
        try:
            if item:
                await self._session.feed(self._remote, item)
        except BrokerError as exc:
            raise anyio.BrokenResourceError from exc
        if self._remote.is_over:
            raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        """
        Closes this end, so that the command reads an end of file.
        """
        if not self._is_closed:
            self._is_closed = True
            await feed(self._session, self._remote, None)


class CommandOutput(anyio.abc.ByteReceiveStream):
    """
    What a command writes to one of its streams, as it comes. What is not taken holds it up.
    """

    def __init__(self, session: Session, kind: int) -> None:
        self._session, self._kind = session, kind
        self._remote: Remote | None = None
        self._waiting: list[bytes] = []
        self._due = 0
        self._news = anyio.Event()
        self._is_ended = self._is_closed = False

    @property
    def is_due(self) -> bool:
        """
        Whether the agent has to be told that more may come.
        """
        return self._due >= ACK_BYTES

    def begin(self, remote: Remote) -> None:
        """
        Says whose output it is.
        """
        self._remote = remote

    def put(self, data: bytes) -> None:
        """
        Takes in what came; what nobody reads any more is dropped.
        """
        if self._is_closed:
            self._due += len(data)
        else:
            self._waiting.append(data)
            self._tell()

    def end(self) -> None:
        """
        Nothing more comes.
        """
        self._is_ended = True
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    async def receive(self, max_bytes: int = _CHUNK) -> bytes:
        """
        The next bytes.

        Raises:
            anyio.EndOfStream: The command has ended, or its container has.
            anyio.ClosedResourceError: This end was closed.
        """
        while not self._waiting:
            if self._is_closed:
                raise anyio.ClosedResourceError
            if self._is_ended:
                raise anyio.EndOfStream
            await self._news.wait()
        data = self._waiting.pop(0)
        if len(data) > max_bytes:
            self._waiting.insert(0, data[max_bytes:])
        self._due += len(data[:max_bytes])
        if self.is_due:
            await self.acknowledge()
        return data[:max_bytes]

    async def acknowledge(self) -> None:
        """
        Lets the command write as much again as was taken.
        """
        due, self._due = self._due, 0
        if self._remote is not None:
            await self._session.taken(self._remote, self._kind, due)

    async def aclose(self) -> None:
        """
        Closes this end: what the command writes from now on is dropped.
        """
        if not self._is_closed:
            self._is_closed = True
            self._due += sum(map(len, self._waiting))
            self._waiting.clear()
            self._tell()
            await self.acknowledge()


class CommandStreams:
    """
    The three streams of one command, by the words of `subprocess`: a descriptor, PIPE (-1),
    or None for nothing.

    Attributes:
        stdin: Where its input is written, where that was to be a pipe.
        stdout: Where its output is read, likewise.
        stderr: Likewise.
    """

    def __init__(self, session: Session, stdin: int | None, stdout: int | None, stderr: int | None) -> None:
        self._session = session
        self._wanted = stdin
        self._outputs = {kind: CommandOutput(session, kind) for kind in (wire.OUT, wire.ERR)}
        self._sinks = {wire.OUT: stdout, wire.ERR: stderr}
        self._carrying = 0
        self._carried = anyio.Event()
        self.stdin: CommandInput | None = None
        self.stdout = self._outputs[wire.OUT] if stdout == PIPE else None
        self.stderr = self._outputs[wire.ERR] if stderr == PIPE else None

    def put(self, kind: int, data: bytes) -> None:
        """
        Takes in what came of the command.
        """
        self._outputs[kind].put(data)

    def open(self, remote: Remote, tasks: anyio.abc.TaskGroup) -> None:
        """
        Begins to carry, as long as *tasks* last.
        """
        for output in self._outputs.values():
            output.begin(remote)
        tasks.start_soon(self._follow, remote)
        if self._wanted == PIPE:
            self.stdin = CommandInput(self._session, remote)
        elif self._wanted is None:
            tasks.start_soon(feed, self._session, remote, None)
        else:
            tasks.start_soon(self._carry_in, remote, os.dup(self._wanted))
        for kind, fd in self._sinks.items():
            if fd != PIPE:
                self._carrying += 1
                tasks.start_soon(self._carry_out, self._outputs[kind], None if fd is None else os.dup(fd))

    async def _follow(self, remote: Remote) -> None:
        """
        Reads what comes, whoever waits for it, until the command is over.
        """
        outputs = self._outputs.values()
        with contextlib.suppress(BrokerError):
            while not remote.is_over:
                await self._session.until(lambda: remote.is_over or any(output.is_due for output in outputs))
                for output in outputs:
                    await output.acknowledge()
        for output in outputs:
            output.end()

    async def _carry_in(self, remote: Remote, fd: int) -> None:
        reader = PipeReader(fd)
        try:
            with contextlib.suppress(BrokerError):
                async for data in reader:
                    await self._session.feed(remote, data)
                    if remote.is_over:
                        break
                await self._session.feed(remote, b"")
        finally:
            reader.close()

    async def _carry_out(self, output: CommandOutput, fd: int | None) -> None:
        """
        Hands on to *fd* what comes; what nobody reads any more is dropped.
        """
        writer = None if fd is None else PipeWriter(fd)
        try:
            async for data in output:
                if writer is not None:
                    with contextlib.suppress(anyio.BrokenResourceError):
                        await writer.send(data)
        finally:
            if writer is not None:
                writer.close()
            self._carrying -= 1
            if not self._carrying:
                self._carried.set()

    async def carried(self) -> None:
        """
        Waits until what a command that is over has written is where it was to go, but not
        long: whoever is to read it may wait for this.
        """
        if self._carrying:
            with anyio.move_on_after(_CARRY_SECONDS):
                await self._carried.wait()

    async def aclose(self) -> None:
        """
        Closes all of them.
        """
        for output in self._outputs.values():
            await output.aclose()
