"""
What every test gets: both event loops, backends by name, and a check that no process
is left behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

hypothesis.settings.register_profile("sandboxkit", deadline=None)  # a busy machine may take its time
hypothesis.settings.load_profile("sandboxkit")

PR_SET_CHILD_SUBREAPER = 36
"""From linux/prctl.h: orphans among our descendants come back to us, so none can hide."""

STANDING: set[int] = set()
"""Servers that a fixture keeps for more than one test; what they start is theirs."""

GRACE_S = 2.0
"""How long processes a test has ended may take to be gone."""


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """
    Async tests (`pytest.mark.anyio`) run once under each event loop.
    """
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    Where quarantines are made and notes kept, for as long as the test; made only once it is needed.
    """
    directory = tmp_path_factory.getbasetemp().resolve() / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory / "runtime"))
    return directory


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--landlock-abi", type=int, help="the newest Landlock ABI that tests/conformance/landlock uses")


def pytest_configure(config: pytest.Config) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts its background jobs so; what they start would not hear Ctrl-C either.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _standing_pids() -> set[int | None]:
    process = sys.modules.get("sandboxkit.process")
    return {process.broker_pid(), *process.zygote_pids()} if process else set()


def _children() -> dict[int, list[int]]:
    """
    Every process of the machine that is not a zombie, by its parent.
    """
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            except OSError:
                continue  # it has just gone
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(entry.name))
    return children


def _left_behind() -> list[int]:
    """
    The running descendants of this process, without those the library keeps.
    """
    children, found, standing = _children(), [], _standing_pids()
    waiting = list(children.get(os.getpid(), ()))
    while waiting:
        pid = waiting.pop()
        if pid in STANDING:
            continue
        waiting += children.get(pid, ())
        if pid not in standing:
            found.append(pid)
    return found


def _describe(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        words = ""
    return f"  {pid}: {words or 'gone meanwhile'}"


@pytest.fixture(autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """
    Fails the test that leaves a process running. Only the broker and what evaluation workers are forked
    from may stay, by their pids.
    """
    yield
    if sys.platform != "linux":
        return
    if process := sys.modules.get("sandboxkit.process"):
        process.end_waiting()
    deadline = time.monotonic() + GRACE_S
    while (left := _left_behind()) and time.monotonic() < deadline:
        time.sleep(0.02)
    if left:
        described = "\n".join(map(_describe, left))
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        pytest.fail(f"processes were left behind, and are ended now:\n{described}", pytrace=False)


_unavailable: dict[str, str] = {}


def _detect(name: str) -> None:
    from sandboxkit.backends import SandboxRegistry

    async def ask() -> None:
        for info in await SandboxRegistry.default().list():
            _unavailable[info.name] = "" if info.available else f"{info.reason}; {info.remedy}"

    # A thread of its own: the test that asks may be running an event loop already.
    thread = threading.Thread(target=anyio.run, args=(ask,))
    thread.start()
    thread.join()
    _unavailable.setdefault(name, "no backend of this name is registered")


def _require(name: str) -> None:
    if name not in _unavailable:
        _detect(name)
    if reason := _unavailable[name]:
        named = name in os.environ.get("SANDBOXKIT_REQUIRE", "").replace(",", " ").split()
        (pytest.fail if named else pytest.skip)(f"backend {name!r} is unavailable: {reason}")


@pytest.fixture(scope="session")
def require() -> Callable[[str], None]:
    """
    `require("bubblewrap")` skips, with the reason, where the backend is unavailable.
    A name in `SANDBOXKIT_REQUIRE` fails there instead, so green never means "nothing ran".
    """
    return _require


@pytest.fixture(autouse=True)
def _requires_marker(request: pytest.FixtureRequest) -> None:
    for marker in request.node.iter_markers("requires"):
        for name in marker.args:
            _require(name)
