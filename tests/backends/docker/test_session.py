"""
What the first process of a container may say: all else ends the stream, in the words of this
library, and takes no memory. The image's own Python says it, and that may be anybody's.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxkit.backends.docker import _agent as wire
from sandboxkit.backends.docker._replies import MOST_BYTES
from sandboxkit.backends.docker._session import Session
from sandboxkit.errors import BrokerError
from sandboxkit.process import PipeReader, PipeWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

GREETING = {**wire.in_force(), "places": [[1, 2], None], "shut": ""}
END = {
    "code": 0,
    "signal": None,
    "ended": None,
    "user_s": 0.1,
    "system_s": 0,
    "rss_bytes": 4096,
    "cpu_s": None,
    "oom": 0,
    "refused": None,
}
NO_DOOR: dict[str, Any] = {"program": b"", "door": "", "is_counted": True}


@pytest.fixture(autouse=True)
def collected() -> None:
    """
    Nothing: no engine and no SDK is used here.
    """


def engine(stream: int, content: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(content)) + content


def said(kind: int, ident: int, content: object) -> bytes:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return engine(1, wire.HEAD.pack(kind, ident, len(data)) + data)


@contextmanager
def session() -> Iterator[tuple[Session, socket.socket]]:
    """
    A session, and the other end of its stream.
    """
    ours, theirs = socket.socketpair()
    found = Session(PipeReader(os.dup(ours.fileno())), PipeWriter(os.dup(ours.fileno())))
    ours.close()
    with theirs:
        yield found, theirs
        found.close()


async def greeted(answer: bytes) -> Session:
    with session() as (found, theirs):
        theirs.sendall(answer)
        await found.greet({}, ("/a", "/b"), **NO_DOOR)
        return found


async def test_what_is_said_by_the_rules_is_taken() -> None:
    found = await greeted(said(wire.READY, 0, GREETING))
    assert found.report == json.loads(json.dumps(GREETING))


WRONG_GREETINGS: dict[str, object] = {
    "no JSON": b"Python 3.11.2 (main)",
    "no object": b"[]",
    "nothing in it": b"{}",
    "no number": json.dumps({**GREETING, "cpus": 1}).replace('"cpus": 1', '"cpus": NaN').encode(),
    "nested": b'{"a":' + b"[" * 200_000,
    "a number of ten thousand digits": b'{"pid":' + b"9" * 10_000 + b"}",
    "not in UTF-8": b"\xff\xfe{}",
    **{
        f"{key}={value!r}": {**GREETING, key: value}
        for key, value in (
            ("pid", "1"),
            ("pid", True),
            ("CapEff", "none"),
            ("CapBnd", None),
            ("interfaces", "lo"),
            ("memory", "many"),
            ("places", []),
            ("places", [[1, 2], [1]]),
            ("places", [[1, 2], ["1", 2]]),
            ("shut", None),
        )
    },
}


@pytest.mark.parametrize("wrong", WRONG_GREETINGS.values(), ids=WRONG_GREETINGS)
async def test_a_greeting_that_is_none(wrong: object) -> None:
    with pytest.raises(BrokerError, match="broke the rules"):
        await greeted(said(wire.READY, 0, wrong))


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">BxxxI", 1, MOST_BYTES + 1),
        struct.pack(">BxxxI", 2, 0xFFFFFFFF),
        engine(1, wire.HEAD.pack(wire.OUT, 1, 0xFFFFFFFF)),
    ],
)
async def test_a_frame_that_would_fill_the_memory(head: bytes) -> None:
    with pytest.raises(BrokerError, match="a frame of"):
        await greeted(head)


async def test_a_frame_without_end_is_not_followed() -> None:
    with session() as (found, theirs):
        theirs.sendall(engine(1, b"of a command") + struct.pack(">BxxxI", 1, 0xFFFFFFFF))
        kept = []

        def put(stream: int, data: bytes) -> bool:
            kept.append((stream, data))
            return True

        await found.follow(put)
        assert kept == [(1, b"of a command")]
        assert "a frame of" in found.fault


async def test_who_waits_is_woken_when_it_is_closed() -> None:
    with session() as (found, _):
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_lost, found)
                await anyio.wait_all_tasks_blocked()
                found.close()


async def _lost(found: Session) -> None:
    with pytest.raises(BrokerError, match="the container ended"):
        await found.until(lambda: False)


WRONG_ENDS = {
    "a code and a signal": {**END, "signal": 9},
    "neither": {**END, "code": None},
    "a code of 256": {**END, "code": 256},
    "a code that is true": {**END, "code": True},
    "a signal of 0": {**END, "code": None, "signal": 0},
    "an end nobody knows": {**END, "ended": "exited well"},
    "time that runs back": {**END, "user_s": -1},
    "endless time": json.dumps(END).replace("0.1", "1e999").encode(),
    "no time": {key: value for key, value in END.items() if key != "system_s"},
    "memory by name": {**END, "rss_bytes": "all"},
}


@pytest.mark.parametrize("wrong", WRONG_ENDS.values(), ids=WRONG_ENDS)
async def test_an_end_that_is_none(wrong: object) -> None:
    with session() as (found, theirs):
        remote = await found.order({}, lambda kind, data: None)
        theirs.sendall(said(wire.END, remote.ident, wrong))
        with pytest.raises(BrokerError, match="broke the rules"):
            await found.until(lambda: remote.is_over)
        assert remote.end is None
        assert found.is_lost


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": "exec", "errno": -1},
        {"step": "exec", "errno": 1 << 40},
        {"step": 7, "errno": 2},
        {"step": "exec", "errno": 2, "interpreter": 5},
        {},
    ],
    ids=str,
)
async def test_a_failure_that_is_none(wrong: object) -> None:
    with session() as (found, theirs):
        remote = await found.order({}, lambda kind, data: None)
        theirs.sendall(said(wire.FAILED, remote.ident, wrong))
        with pytest.raises(BrokerError, match="broke the rules"):
            await found.until(lambda: remote.is_over)


async def test_an_answer_for_another_command_ends_none_of_those_that_run() -> None:
    with session() as (found, theirs):
        remote = await found.order({}, lambda kind, data: None)
        for ident in (0, remote.ident + 1, 0xFFFFFFFF):
            theirs.sendall(said(wire.END, ident, END) + said(wire.OUT, ident, b"of another"))
        theirs.sendall(said(wire.STARTED, remote.ident, b""))
        await found.until(lambda: remote.is_started)
        assert not remote.is_over
        theirs.sendall(said(wire.END, remote.ident, END) + said(wire.END, remote.ident, {**END, "code": 7}))
        await found.until(lambda: remote.is_over)
        assert remote.end is not None
        assert remote.end["code"] == 0, "the first end is the end"


async def test_output_beyond_the_window_is_not_kept() -> None:
    """
    Nobody takes anything, so one window is all that may come; the agent would send for ever.
    """
    kept = bytearray()
    with session() as (found, theirs):
        remote = await found.order({}, lambda kind, data: kept.extend(data))

        def flood() -> None:
            frame = said(wire.OUT, remote.ident, bytes(wire.CHUNK))
            try:
                while True:
                    theirs.sendall(frame)
            except OSError:
                pass  # the other end was closed

        thread = threading.Thread(target=flood)
        thread.start()
        with pytest.raises(BrokerError, match="more of a command's output than it may"):
            await found.until(lambda: remote.is_over)
        await anyio.to_thread.run_sync(thread.join)
    assert len(kept) == wire.WINDOW


async def test_output_that_is_taken_goes_on() -> None:
    with session() as (found, theirs):
        remote = await found.order({}, lambda kind, data: None)
        for _ in range(3 * wire.WINDOW // wire.CHUNK):
            theirs.sendall(said(wire.ERR, remote.ident, bytes(wire.CHUNK)))
            await found.until(lambda: remote.untaken[wire.ERR] > 0)
            await found.taken(remote, wire.ERR, wire.CHUNK)
        assert not found.is_lost


@pytest.mark.parametrize("wrong", [b"", b"\0", bytes(5)])
async def test_a_count_that_is_none(wrong: bytes) -> None:
    with session() as (found, theirs):
        remote = await found.order({}, lambda kind, data: None)
        theirs.sendall(said(wire.TAKEN, remote.ident, wrong))
        with pytest.raises(BrokerError, match="counts nothing"):
            await found.until(lambda: remote.is_over)


@pytest.mark.parametrize("wrong", [{"port": 0}, {"port": "80"}, {"port": 1 << 17}, {}, {"step": "listener"}], ids=str)
async def test_a_listener_that_is_none(wrong: object) -> None:
    with session() as (found, theirs):
        theirs.sendall(said(wire.LISTENING, 1, wrong))
        with pytest.raises(BrokerError, match="broke the rules"):
            await found.listen()
