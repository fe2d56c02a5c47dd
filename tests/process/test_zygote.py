"""
Standing processes that do not come up, or do not stay, are typed errors.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from sandboxkit.errors import SetupError
from sandboxkit.process import Zygote, zygote_pids

if TYPE_CHECKING:
    from pathlib import Path

READY = """
import os, socket
channel = socket.socket(fileno=3)
channel.recv(9999)
channel.send(b'{"ready": 1}')
"""
WRONG = {
    "ends at once": ("pass", "does not answer|ended while it started"),
    "is no Python": ("(", "does not answer|ended while it started"),
    "says an error": (
        'import socket; c = socket.socket(fileno=3); c.recv(999); c.send(b\'{"error": "no rights"}\')',
        "no rights",
    ),
    "says nonsense": ("import socket; c = socket.socket(fileno=3); c.recv(999); c.send(b'x')", "does not answer"),
}


def zygote(tmp_path: Path, program: str) -> Zygote:
    path = tmp_path / "program.py"
    path.write_text(program)
    return Zygote("test", path, {}, "no remedy")


@pytest.mark.parametrize("name", WRONG)
def test_one_that_does_not_come_up(name: str, tmp_path: Path) -> None:
    program, said = WRONG[name]
    made = zygote(tmp_path, program)
    with pytest.raises(SetupError, match=said):
        made.report()
    assert made.pid is None


def test_one_that_keeps_ending(tmp_path: Path) -> None:
    made = zygote(tmp_path, READY.replace("channel.send", "channel.shutdown(socket.SHUT_RD)\nchannel.send"))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SetupError, match="keeps ending"):
        made.converse({}, 99)
    assert made.pid is None
    made.end()
    assert len(os.listdir("/proc/self/fd")) == before


def test_one_that_stands_is_ended(tmp_path: Path) -> None:
    made = zygote(tmp_path, READY + "while channel.recv(9999): pass")
    assert made.report()["ready"] == 1
    assert made.pid in zygote_pids()
    made.end()
    assert made.pid is None


def test_a_worker_that_never_speaks_is_late(tmp_path: Path) -> None:
    made = zygote(tmp_path, READY + "kept = []\nwhile True: kept.append(socket.recv_fds(channel, 999, 4)[1])")
    conversation = made.converse({}, 99)
    try:
        with pytest.raises(TimeoutError):
            conversation.receive(time.monotonic() + 0.1)
        with pytest.raises(TimeoutError):
            conversation.send(bytes(10_000_000), time.monotonic() + 0.1)
    finally:
        conversation.end()
        made.end()
