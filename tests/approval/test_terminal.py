"""
A person at a real terminal, and what else happens there.
"""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.approval.person import Person, own_terminal, seated

from sandboxkit.approval import TerminalApprover
from sandboxkit.model import Approver

if TYPE_CHECKING:
    import contextlib

CHILD = str(Path(__file__).parent / "terminal_child.py")


def sat_down(backend: str, *, before: bytes = b"", **options: Any) -> contextlib.AbstractContextManager[Person]:
    words = [sys.executable, "-W", "error", CHILD, json.dumps({"backend": backend, **options})]
    return seated(words, before=before)


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


EVERYTHING = ["once", "session", "always"]


def test_it_is_an_approver() -> None:
    assert isinstance(TerminalApprover(), Approver)
    with pytest.raises(ValueError, match="positive"):
        TerminalApprover(timeout=0)


def test_yes(backend: str) -> None:
    with sat_down(backend) as person:
        screen = person.read()
        assert b"npm install x0" in screen
        assert b"installs packages" in screen
        person.type(b"y\r")
        reply, end = person.reports()
    assert (reply["approved"], reply["remember"]) == (True, "once")
    assert (end["restored"], end["cancelled"]) == (True, False)


@pytest.mark.parametrize(
    ("keys", "remember"), [(b"yes\n", "once"), (b"S\n", "session"), (b"always\n", "always"), (b"n\x7fy\n", "once")]
)
def test_other_answers_on_offer(keys: bytes, remember: str) -> None:
    with sat_down("asyncio", offer=EVERYTHING) as person:
        assert person.answer(keys)["remember"] == remember


@pytest.mark.parametrize(
    ("keys", "because"),
    [
        (b"\n", "no, at the terminal"),
        (b"N\n", "no, at the terminal"),
        (b"sure\n", "none of those on offer"),
        (b"y" * 1000 + b"\n", "input ended"),
        (b"always\n", "'always', and it says so"),
        (b"s\n", "'session', and it is not on offer"),
        (b"\x04", "input ended without an answer"),
        (b"y\x04", "input ended without an answer"),
        (b"\x03", "Ctrl-C at the terminal"),
        (b"y\x03", "Ctrl-C at the terminal"),
    ],
)
def test_anything_else_is_a_no(keys: bytes, because: str) -> None:
    with sat_down("asyncio") as person:
        reply = person.answer(keys)
    assert not reply["approved"]
    assert because in reply["error"]


def test_what_was_typed_before_the_question_does_not_count(backend: str) -> None:
    with sat_down(backend, before=b"y\ny\ny", wait=0.3, timeout=1.5) as person:
        person.read()
        reply, end = person.reports()
    assert "nobody answered at the terminal within 1.5 s" in reply["error"]
    assert end["restored"]


def test_an_answer_after_such_input_counts() -> None:
    with sat_down("asyncio", before=b"n\nn\nn", wait=0.3) as person:
        assert person.answer(b"y\n")["approved"]


def test_waiting_blocks_nothing_and_can_be_cancelled(backend: str) -> None:
    with sat_down(backend, cancel=1.5) as person:
        person.read()
        (end,) = person.reports()
    assert end["cancelled"]
    assert end["ticks"] >= 10
    assert end["restored"]


def test_the_limit_of_whoever_asks_holds(backend: str) -> None:
    with sat_down(backend, limit=1.5) as person:
        person.read()
        reply, _ = person.reports()
    assert "nobody answered within 1.5 s" in reply["error"]


def test_one_question_stands_at_a_time(backend: str) -> None:
    with sat_down(backend, questions=3) as person:
        for _ in range(3):
            person.read()
            time.sleep(0.1)
            assert not select.select([person.master], [], [], 0)[0], "the next question did not wait"
            person.type(b"y\n")
        *replies, _ = person.reports()
    assert [reply["approved"] for reply in replies] == [True] * 3
    assert {reply["command"] for reply in replies} == {"npm install x0", "npm install x1", "npm install x2"}


def test_an_answer_does_not_reach_the_next_question() -> None:
    with sat_down("asyncio", questions=2, timeout=3) as person:
        person.read()
        person.type(b"y\ny\n")
        person.read()
        first, second, _ = person.reports()
    assert (first["approved"], second["approved"]) == (True, False)


def test_the_command_cannot_steer_the_terminal() -> None:
    command = "echo \x1b]0;x\x07\x1b[2J\u202e\u200b \udcff; rm -rf x\rls"
    with sat_down("asyncio", command=command) as person:
        screen = person.read()
        person.type(b"n\n")
        person.reports()
    assert rb"echo \x1b]0;x\x07\x1b[2J\u202e\u200b \udcff; rm -rf x\rls" in screen
    assert set(screen) & set(range(32)) == {10, 13}  # the ends of our own lines
    assert b"\xe2\x80\xae" not in screen


def test_what_nobody_would_read_is_not_asked() -> None:
    with sat_down("asyncio", command="echo " + "x" * 20_000) as person:
        reply, _ = person.reports()
    assert "longer than 20000 characters" in reply["error"]


def test_a_terminal_that_goes_away_is_a_no(backend: str) -> None:
    with sat_down(backend, keep_on=True) as person:
        person.read()
        os.close(person.master)
        reply, _ = person.reports()
    assert not reply["approved"]
    assert "input ended" in reply["error"] or "nobody can be asked" in reply["error"]


def test_a_terminal_that_shows_nothing_blocks_nothing(backend: str) -> None:
    with sat_down(backend, command="echo " + "x" * 15_000, cancel=1.5) as person:
        (end,) = person.reports()  # what it wrote was never read
    assert end["cancelled"]
    assert end["ticks"] >= 10


def test_without_a_terminal_nobody_is_asked(backend: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", CHILD, json.dumps({"backend": backend})],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        timeout=20,
        check=True,
    )
    reply = json.loads(done.stdout.splitlines()[0])
    assert "nobody can be asked: /dev/tty: this process has no terminal; start this from a terminal" in reply["error"]


def test_a_job_in_the_background_does_not_ask() -> None:
    words = [sys.executable, "-W", "error", CHILD, json.dumps({"backend": "asyncio"})]
    starter = f"import subprocess, sys; sys.exit(subprocess.run({words!r}, process_group=0).returncode)"
    master, slave = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", starter],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            start_new_session=True,
            preexec_fn=lambda: own_terminal(slave),
            pass_fds=(slave,),
            timeout=20,
            check=True,
        )
    finally:
        os.close(master)
        os.close(slave)
    assert "bring it to the foreground (fg)" in json.loads(done.stdout.splitlines()[0])["error"]


@pytest.mark.parametrize("path", ["/dev/null", "/nowhere/at/all", "/etc/passwd", "a\0b"])
@pytest.mark.anyio
async def test_what_is_no_terminal_is_a_refusal(path: str) -> None:
    from tests.approval.test_decide import REQUEST

    from sandboxkit.errors import ApprovalError

    with pytest.raises(ApprovalError, match="nobody can be asked: ") as caught:
        await TerminalApprover(path).approve(REQUEST)
    assert caught.value.evaluation is REQUEST.evaluation
