"""
The streams between the application and a command.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import anyio.abc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["CHUNK", "End", "PipeReader", "PipeWriter", "Streams", "open_streams", "pipe_from_us", "pipe_to_us"]

CHUNK = 1 << 16
_PIPE = -1


def _close(fd: int) -> None:
    """
    Closes *fd* and wakes whoever waits for it, for whom nothing would come any more.
    """
    with contextlib.suppress(anyio.NoEventLoopError):
        anyio.notify_closing(fd)
    os.close(fd)


class PipeReader(anyio.abc.ByteReceiveStream):
    """
    What a command writes, as it comes.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd

    async def receive(self, max_bytes: int = CHUNK) -> bytes:
        """
        The next bytes.

        Raises:
            anyio.EndOfStream: Every process that could write has ended.
            anyio.ClosedResourceError: This end was closed.
        """
        while True:
            if self._fd < 0:
                raise anyio.ClosedResourceError
            try:
                data = os.read(self._fd, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._fd)
                continue
            if not data:
                raise anyio.EndOfStream
            return data

    def close(self) -> None:
        """
        Closes this end now.
        """
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _close(fd)

    async def aclose(self) -> None:
        """
        Closes this end.
        """
        self.close()


class PipeWriter(anyio.abc.ByteSendStream):
    """
    What a command reads.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd

    async def send(self, item: bytes) -> None:
        """
        Hands over *item* whole.

        Raises:
            anyio.BrokenResourceError: Nothing in the box reads any more.
            anyio.ClosedResourceError: This end was closed.
        """
        view = memoryview(item)
        while view:
            if self._fd < 0:
                raise anyio.ClosedResourceError
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._fd)
            except BrokenPipeError as exc:
                raise anyio.BrokenResourceError from exc

    def close(self) -> None:
        """
        Closes this end now, so that the command reads an end of file.
        """
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _close(fd)

    async def aclose(self) -> None:
        """
        Closes this end.
        """
        self.close()


class End:
    """
    The end of a pipe that goes to the command.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        """
        Closes it now.
        """
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def pipe_to_us(ends: contextlib.ExitStack | contextlib.AsyncExitStack) -> tuple[PipeReader, End]:
    """
    A pipe the command writes; *ends* closes what is left of it.
    """
    ours, theirs = os.pipe()
    reader, end = PipeReader(ours), End(theirs)
    ends.callback(reader.close)
    ends.callback(end.close)
    return reader, end


def pipe_from_us(ends: contextlib.ExitStack) -> tuple[PipeWriter, End]:
    """
    A pipe the command reads; *ends* closes what is left of it.
    """
    theirs, ours = os.pipe()
    writer, end = PipeWriter(ours), End(theirs)
    ends.callback(writer.close)
    ends.callback(end.close)
    return writer, end


@dataclass(slots=True)
class Streams:
    """
    A started command's streams: ours, and the descriptors that go to it.

    Attributes:
        stdin: Where its input is written, or None.
        stdout: Where its output is read, or None.
        stderr: Likewise.
        stdin_fd: What it reads, or None for an empty input.
        stdout_fd: What it writes.
        stderr_fd: Likewise.
    """

    stdin: PipeWriter | None
    stdout: PipeReader | None
    stderr: PipeReader | None
    stdin_fd: int | None
    stdout_fd: int
    stderr_fd: int
    _far: tuple[End, ...]

    def close_far_ends(self) -> None:
        """
        Closes the command's ends here, once it has them, so that its end is seen.
        """
        for end in self._far:
            end.close()


@contextlib.asynccontextmanager
async def open_streams(stdin: int | None, stdout: int | None, stderr: int | None) -> AsyncIterator[Streams]:
    """
    Streams by the words of `subprocess`: a descriptor, PIPE (-1), or None for nothing.
    """
    with contextlib.ExitStack() as ends:
        far: list[End] = []
        feed = None
        if stdin == _PIPE:
            feed, end = pipe_from_us(ends)
            far.append(end)
            stdin = end.fd
        readers: list[PipeReader | None] = []
        fds: list[int] = []
        for wanted in (stdout, stderr):
            reader, fd = _output(wanted, ends, far)
            readers.append(reader)
            fds.append(fd)
        yield Streams(feed, readers[0], readers[1], stdin, fds[0], fds[1], tuple(far))


def _output(wanted: int | None, ends: contextlib.ExitStack, far: list[End]) -> tuple[PipeReader | None, int]:
    if wanted == _PIPE:
        reader, end = pipe_to_us(ends)
        far.append(end)
        return reader, end.fd
    if wanted is not None:
        return None, wanted
    end = End(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
    ends.callback(end.close)
    return None, end.fd
