"""
What is printed: tables for people, JSON for programs, bytes of commands untouched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandboxkit.model import Enforcement

__all__ = [
    "OutputError",
    "enforcement_table",
    "note",
    "printable",
    "say",
    "shortened",
    "table",
    "wired",
    "without_reader",
    "write",
]


def printable(text: str) -> str:
    """
    *text* on one line, with everything escaped that could steer a terminal.
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(text: str, width: int) -> str:
    """
    *text*, printable, in at most *width* characters.
    """
    shown = printable(text)
    return shown if len(shown) <= width else shown[: width - 3] + "..."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """
    Columns under *head*, as wide as they need to be.
    """
    lines = [list(head), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def enforcement_table(enforcement: Enforcement) -> str:
    """
    Every control with its grade and what holds it, or what is missing.
    """
    return table(
        ("control", "grade", "because"),
        [(str(control), str(state.grade), state.reason) for control, state in enforcement],
    )


def say(text: str = "") -> None:
    """
    Prints *text* to stdout.
    """
    write(1, _encoded(f"{text}\n", sys.stdout))


def note(text: str) -> None:
    """
    Prints *text* to stderr, marked as ours, one line each.
    """
    first, *rest = map(printable, text.split("\n"))
    lines = [f"sandboxkit: {first}", *(f"  {line}" for line in rest)]
    with contextlib.suppress(OSError):  # there is no better place to complain
        write(2, _encoded("".join(f"{line}\n" for line in lines), sys.stderr))


def _encoded(text: str, stream: TextIO) -> bytes:
    return text.encode(stream.encoding or "utf-8", errors="backslashreplace")


class OutputError(OSError):
    """
    What was to be printed could not be.

    Args:
        descriptor: Where it was to go.
        exc: What stood in the way.
    """

    def __init__(self, descriptor: int, exc: OSError) -> None:
        name = {1: "standard output", 2: "standard error"}.get(descriptor, f"descriptor {descriptor}")
        remedy = "free the disk, or send it elsewhere" if exc.errno in _FULL else "send it elsewhere"
        super().__init__(f"{name} cannot be written: {exc.strerror or exc}; {remedy}")


_FULL = (errno.ENOSPC, errno.EDQUOT)


def write(descriptor: int, content: bytes) -> None:
    """
    Writes *content* as it is, all of it.

    Not through `sys.stdout`: unbuffered (PYTHONUNBUFFERED) it drops what a pipe does
    not take at once, and it fails where the descriptor does not block.

    Raises:
        BrokenPipeError: Nobody reads it any more.
        OutputError: It cannot be written.
    """
    view = memoryview(content)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
        except BrokenPipeError:
            raise
        except OSError as exc:
            raise OutputError(descriptor, exc) from exc


def wired() -> None:
    """
    Makes the standard streams safe to use: a closed one leads nowhere, instead of to
    whatever opens next, and a character that it cannot show is escaped.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "r" if descriptor == 0 else "w", closefd=False))  # noqa: SIM115 - stays open to the end
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def without_reader() -> None:
    """
    Sends what is still to be printed nowhere, so that ending does not fail on it too.
    """
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
