"""
Who sits at a real terminal in tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import subprocess
import termios
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PROMPT = b"/N] "


class Person:
    """
    Sits at the terminal that a process of its own asks at.
    """

    def __init__(self, master: int, child: subprocess.Popen[bytes]) -> None:
        self.master = master
        self.child = child
        self.seen = b""

    def read(self, until: bytes = PROMPT, *, seconds: float = 20.0) -> bytes:
        """
        What appears on the screen, up to and with *until*.
        """
        deadline = time.monotonic() + seconds
        while until not in self.seen:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"{until!r} did not appear in {self.seen!r}")
            self.seen += os.read(self.master, 65536)
        found, _, self.seen = self.seen.partition(until)
        return found + until

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def reports(self) -> list[dict[str, Any]]:
        """
        What the process says, once it has ended by itself.
        """
        assert self.child.stdout
        assert self.child.stderr
        out = self.child.stdout.read()
        assert self.child.wait(20) == 0, self.child.stderr.read().decode()
        return [json.loads(line) for line in out.splitlines()]

    def answer(self, keys: bytes) -> dict[str, Any]:
        self.read()
        self.type(keys)
        reply, end = self.reports()
        assert end["restored"]
        return reply


def own_terminal(slave: int) -> None:
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def seated(words: Sequence[str], *, cwd: Path | None = None, before: bytes = b"") -> Iterator[Person]:
    """
    The process *words* with a terminal of its own, at which *before* was typed already.
    """
    master, slave = pty.openpty()
    child = subprocess.Popen(
        words,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: own_terminal(slave),
        pass_fds=(slave,),
    )
    os.write(master, before)
    try:
        with child:
            yield Person(master, child)
            child.kill()
    finally:
        os.close(slave)
        with contextlib.suppress(OSError):  # whoever sat there may have left
            os.close(master)
