"""
What is printed: tables for people, JSON for programs, bytes of commands untouched.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandboxkit.model import Enforcement

__all__ = ["enforcement_table", "note", "printable", "say", "shortened", "table", "wired", "without_reader", "write"]


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
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def enforcement_table(enforcement: Enforcement) -> str:
    """
    Every control with its grade and what holds it, or what is missing.
    """
    return table(("control", "grade", "because"), [(str(control), str(state.grade), state.reason) for control, state in enforcement])


def say(text: str = "") -> None:
    """
    Prints *text* to stdout.
    """
    print(text)


def note(text: str) -> None:
    """
    Prints *text* to stderr, marked as ours, one line each.
    """
    with contextlib.suppress(OSError):  # there is no better place to complain
        for number, line in enumerate(text.split("\n")):
            print(("sandboxkit: " if number == 0 else "  ") + printable(line), file=sys.stderr, flush=True)


def write(descriptor: int, content: bytes) -> None:
    """
    Writes *content* as it is to stdout (1) or stderr (2), after what was printed there.

    Raises:
        BrokenPipeError: Nobody reads it any more.
    """
    stream = sys.stdout if descriptor == 1 else sys.stderr
    stream.flush()
    stream.buffer.write(content)
    stream.buffer.flush()


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
