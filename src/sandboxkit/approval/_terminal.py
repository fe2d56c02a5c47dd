"""
Asks a person at the terminal.
"""

from __future__ import annotations

import contextlib
import errno
import locale
import math
import os
import stat
import sys
import time
from typing import TYPE_CHECKING, final

import anyio

from sandboxkit.approval._question import MAX_CHARS, NO_WORDS, answer_of, asked_text, prompt, question
from sandboxkit.approval._turn import turn
from sandboxkit.errors import ApprovalError
from sandboxkit.model import ApprovalReply

if sys.platform != "win32":
    import termios

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.model import ApprovalRequest

__all__ = ["TerminalApprover"]

_INTERRUPT = b"\x03"
_LONGEST_ANSWER = 256


class _NoTerminal(Exception):  # noqa: N818 - not an error of the tree: it never leaves this module
    """
    There is nobody to ask, and why.
    """


@final
class TerminalApprover:
    r"""
    Asks the person at the terminal of this process, and takes nothing but an explicit
    answer for a yes.

    The question shows the exact command, with everything escaped that a terminal would
    obey or hide (`\x1b`, `\u200b`), carets under what the rules saw, the directory, the
    box, and what each answer would grant. End of file, Ctrl-C (which ends nothing else
    while the question stands) and any other input are a no. What was typed before the
    question was shown is thrown away.

    One question stands at a time: the others of this process wait for their turn, and
    their timeouts count meanwhile. Other processes at the same terminal are not kept
    out, nor are programs that write to it: do not run commands of others with that
    terminal as their output, except in a box, whose output you are handed.

    Waiting blocks neither the event loop (asyncio or trio) nor cancellation.

    Args:
        terminal: The terminal's path. `/dev/tty` is the one this process was started
            from, whatever its standard streams are.
        timeout: Seconds a question stands before it is a no; None leaves that to
            whoever asks (the router: 300 s).
    """

    def __init__(self, terminal: str = "/dev/tty", *, timeout: float | None = None) -> None:
        if timeout is not None and not 0 < timeout < math.inf:
            raise ValueError(f"timeout {timeout}: give a positive number of seconds")
        self._path = terminal
        self._timeout = timeout

    async def approve(self, request: ApprovalRequest) -> ApprovalReply:
        """
        What the person answers.

        Raises:
            ApprovalError: There is no terminal to ask at, or the command is too long to
                be shown.
        """
        if len(asked_text(request)) > MAX_CHARS:
            raise ApprovalError(
                request.evaluation,
                f"it needs approval and is longer than {MAX_CHARS} characters, which nobody reads; make a script of it that a rule can name",
            )
        try:
            async with turn(self._path):
                return await self._answered(request)
        except _NoTerminal as exc:
            raise ApprovalError(
                request.evaluation,
                f"it needs approval and nobody can be asked: {exc}; start this from a terminal, or give a rule that decides this command",
            ) from exc

    async def _answered(self, request: ApprovalRequest) -> ApprovalReply:
        answer: bytes | None = None
        with _opened(self._path) as fd, _asking_mode(fd):
            try:
                with anyio.move_on_after(self._timeout):
                    answer = await _asked(fd, request)
            except (OSError, termios.error) as exc:
                raise _NoTerminal(f"{self._path}: {exc}") from exc
            finally:
                if answer is None or not answer.endswith(b"\n"):
                    _end_line(fd)
        if answer is None:
            return ApprovalReply(approved=False, reason=f"nobody answered at the terminal within {self._timeout:g} s")
        return _reply(answer, request)


async def _asked(fd: int, request: ApprovalRequest) -> bytes:
    text = question(request, columns=_columns(fd), now=time.time())
    await _write(fd, text + "\n")
    # After the question and before the prompt: what was typed up to here answers nothing.
    termios.tcflush(fd, termios.TCIFLUSH)
    await _write(fd, prompt(request.offer))
    return await _line(fd)


def _reply(answer: bytes, request: ApprovalRequest) -> ApprovalReply:
    if answer.endswith(_INTERRUPT):
        return ApprovalReply(approved=False, reason="Ctrl-C at the terminal")
    if not answer.endswith(b"\n"):
        return ApprovalReply(approved=False, reason="the terminal's input ended without an answer")
    line = answer.decode("ascii", "replace")
    choice = answer_of(line)
    if choice is None:
        is_no = line.strip().lower() in NO_WORDS
        reason = "no, at the terminal" if is_no else "the answer at the terminal was none of those on offer"
        return ApprovalReply(approved=False, reason=reason)
    if choice not in request.offer.remember:
        because = request.offer.refused.get(choice, "it is not on offer")
        return ApprovalReply(approved=False, reason=f"the answer at the terminal was {choice!r}, and {because}")
    return ApprovalReply(approved=True, reason="approved at the terminal", remember=choice)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """
    The terminal, as a description of its own: reading it without blocking changes
    nothing for those who share the standard streams.

    Raises:
        _NoTerminal: It cannot be opened, is none, or another job is in its foreground.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.errno != errno.ENXIO else "this process has no terminal"
        raise _NoTerminal(f"{path}: {why or exc}") from exc
    try:
        if not stat.S_ISCHR(os.fstat(fd).st_mode) or not os.isatty(fd):
            raise _NoTerminal(f"{path}: it is no terminal")
        if _is_in_background(fd):
            raise _NoTerminal(f"{path}: this process is in its background; bring it to the foreground (fg)")
        yield fd
    finally:
        os.close(fd)


def _is_in_background(fd: int) -> bool:
    # Reading there would stop the whole application (SIGTTIN).
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False  # not the terminal of this session, so it has no jobs of ours


@contextlib.contextmanager
def _asking_mode(fd: int) -> Iterator[None]:
    """
    Whole lines with echo, and Ctrl-C as the end of one instead of a signal.

    Source: termios(3).

    Raises:
        _NoTerminal: The terminal does not do that.
    """
    try:
        before = termios.tcgetattr(fd)
        inputs, outputs, control, local, *speeds, keys = before
        inputs = (inputs | termios.ICRNL) & ~(termios.IGNCR | termios.INLCR)
        outputs |= termios.OPOST | termios.ONLCR
        local = (local | termios.ICANON | termios.ECHO) & ~termios.ISIG
        keys = [*keys]
        keys[termios.VEOL] = _INTERRUPT
        termios.tcsetattr(fd, termios.TCSANOW, [inputs, outputs, control, local, *speeds, keys])
    except (termios.error, OSError) as exc:
        raise _NoTerminal(f"{os.ttyname(fd)}: {exc}") from exc
    try:
        yield
    finally:
        with contextlib.suppress(termios.error, OSError):  # it has gone, and its modes with it
            termios.tcsetattr(fd, termios.TCSANOW, before)


def _columns(fd: int) -> int:
    try:
        return os.get_terminal_size(fd).columns or 80
    except OSError:
        return 80


async def _write(fd: int, text: str) -> None:
    view = memoryview(text.encode(locale.getencoding(), "backslashreplace"))
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            await anyio.wait_writable(fd)


async def _line(fd: int) -> bytes:
    """
    What is typed, to the end of the line or of the input, or to Ctrl-C. A longer line is
    cut, and so no answer.
    """
    while True:
        await anyio.wait_readable(fd)
        with contextlib.suppress(BlockingIOError):
            return os.read(fd, _LONGEST_ANSWER)


def _end_line(fd: int) -> None:
    with contextlib.suppress(OSError, termios.error):  # nobody sees it any more
        termios.tcflush(fd, termios.TCIFLUSH)  # the rest of a line is no command for the shell
        os.write(fd, b"\n")
