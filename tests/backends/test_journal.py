"""
A run whose application is killed is looked after by the next application that opens a box.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from sandboxkit.backends._journal import Journal, _drop_after_fork, finish_others
from sandboxkit.backends._protection import Watched
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.backends.landlock import LandlockBackend
from sandboxkit.errors import LeftBehindWarning, SpecError
from sandboxkit.model import Control, SandboxSpec
from sandboxkit.testing.conformance import asking_less
from sandboxkit.testing.conformance._acts import PYTHON

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.backends import SandboxBackend

pytestmark = pytest.mark.anyio

MADE = (
    "mkdir .vscode && echo x >.vscode/tasks.json && mkdir -p sub/.git/objects sub/.git/refs && "
    "echo 'ref: refs/heads/main' >sub/.git/HEAD && echo '[alias] x = !x' >sub/.git/config && "
    "touch .envrc plain made; sleep 60"
)
KILLED = f"""
MADE = {MADE!r}
import os, sys
import anyio
from sandboxkit.backends import bubblewrap, landlock
from sandboxkit.model import SandboxSpec

async def main():
    backend = (landlock.LandlockBackend if sys.argv[1] == "landlock" else bubblewrap.BubblewrapBackend)()
    spec = SandboxSpec.workspace_write(sys.argv[2], allow_degraded=set(sys.argv[3].split(",")) - {{""}})
    async with backend.open(spec) as box:
        await box.run(["sh", "-c", MADE])

anyio.run(main)
"""
LESSER = frozenset({Control.PROCESS_ISOLATION, Control.LIMITS_PROCESSES})


def noted(state: Path) -> list[Path]:
    place = state / "sandboxkit/watched"
    return sorted(place.iterdir()) if place.exists() else []


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    workspace = tmp_path.resolve() / "ws"
    workspace.mkdir()
    return workspace


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path.resolve() / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    return directory


@pytest.fixture(params=["bubblewrap", "landlock"])
def killed(request: pytest.FixtureRequest, require: Any, ws: Path) -> SandboxBackend:
    """
    A backend under which an application was killed in the middle of a run.
    """
    name: str = request.param
    require(name)
    controls = LESSER if name == "landlock" else ()
    argv = [sys.executable, "-c", KILLED, name, str(ws), ",".join(map(str, controls))]
    with subprocess.Popen(argv) as application:
        while not (ws / "made").exists():
            assert application.poll() is None
            time.sleep(0.01)
        application.kill()
    return asking_less(LandlockBackend, controls) if name == "landlock" else BubblewrapBackend()


async def test_the_next_box_finishes_what_a_killed_application_could_not(
    killed: SandboxBackend, ws: Path, state: Path
) -> None:
    assert sorted(path.name for path in ws.iterdir()) == [".envrc", ".vscode", "made", "plain", "sub"]
    (note,) = noted(state)
    assert (note.stat().st_mode & 0o777, note.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with pytest.warns(LeftBehindWarning) as warned:
        async with killed.open(SandboxSpec.workspace_write(ws)) as box:
            result = await box.run(["ls", "-A"])
    assert sorted(result.text().split()) == ["made", "plain", "sub"], "the command does not see it any more"
    assert result.violations == (), "it is not this command's doing"
    assert not (ws / "sub/.git/config").exists(), "what git would obey"
    said = sorted(str(warning.message) for warning in warned)
    assert [
        f"{ws}/.envrc" in said[0],
        f"{ws}/.vscode" in said[1],
        f"{ws}/sub/.git" in said[2],
        "moved to" in said[0],
    ] == [True] * 4
    assert sorted(path.name for path in (state / "sandboxkit/quarantine").glob("*/*")) == [
        "1-.envrc",
        "1-config",
        "2-.vscode",
    ]
    assert noted(state) == []


async def test_a_run_that_ends_leaves_no_note(require: Any, ws: Path, state: Path) -> None:
    require("bubblewrap")
    async with BubblewrapBackend().open(SandboxSpec.workspace_write(ws)) as box:
        assert (await box.run(["true"])).ok
        async with box.start(["cat"], stdin=subprocess.PIPE) as process:
            (note,) = noted(state)
            assert {entry[0] for entry in json.loads(note.read_text())["watched"]} >= {f"{ws}/.envrc", f"{ws}/.git"}
            process.kill()
            await process.wait()
        assert noted(state) == []
    async with BubblewrapBackend().open(SandboxSpec.isolated()) as box, box.start(["cat"], stdin=subprocess.PIPE):
        assert noted(state) == [], "there is nothing to watch"


def test_the_note_of_a_run_that_goes_on_is_left_alone(ws: Path, state: Path) -> None:
    Journal([Watched(f"{ws}/.envrc", str(ws))])
    (ws / ".envrc").touch()
    other = [
        sys.executable,
        "-W",
        "error",
        "-c",
        "from sandboxkit.backends._journal import finish_others as f; print(f())",
    ]
    assert subprocess.run(other, capture_output=True, check=True).stdout == b"0\n"
    assert ((ws / ".envrc").exists(), len(noted(state))) == (True, 1)
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(theirs, b"x")
        time.sleep(60)  # a worker that outlives its application must not keep the lock
        os._exit(0)
    try:
        assert os.read(ours, 1) == b"x"
        _drop_after_fork()  # as the end of the application does
        note = json.loads(noted(state)[0].read_text())
        note["broker"][0] = 2**22 + 1  # no such process: the application's broker has ended
        noted(state)[0].write_text(json.dumps(note))
        with pytest.warns(LeftBehindWarning):
            assert finish_others() == 1
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert ((ws / ".envrc").exists(), noted(state)) == (False, [])


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1, "broker": [], "watched": [[1]]}']
)
def test_a_note_that_is_none_is_left_alone(state: Path, content: bytes) -> None:
    place = state / "sandboxkit/watched"
    place.mkdir(parents=True, mode=0o700)
    (place / "x").write_bytes(content)
    (place / ".draft").write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert finish_others() == 0
    assert [path.name for path in noted(state)] == ["x"]


async def test_where_no_note_can_be_written_the_result_says_so(
    require: Any, ws: Path, state: Path, monkeypatch: Any
) -> None:
    require("bubblewrap")
    monkeypatch.setattr("sandboxkit.backends._quarantine._FALLBACK", "/proc")
    (state / "sandboxkit").mkdir(parents=True)
    (state / "sandboxkit/watched").symlink_to(ws)  # others' places are not taken
    async with BubblewrapBackend().open(SandboxSpec.workspace_write(ws)) as box:
        result = await box.run(["true"])
    held = result.enforcement.states[Control.FS_DENY_INSIDE_ALLOW]
    assert (result.ok, str(held.grade), "no note can be written" in held.reason) == (True, "partial", True)


FORGE = """
import json, os, sys
place, victim = sys.argv[1:]
for act in (
    lambda: open(place + "/forged", "w").write(json.dumps({"version": 1, "broker": [1, "0", 0], "watched": [[victim, "/", None, []]]})),
    lambda: os.rename(place, place + ".aside"),
    lambda: os.rename(os.path.dirname(place), os.path.dirname(place) + ".aside"),
):
    try:
        act()
    except OSError:
        print("refused")
    else:
        print("done")
"""


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("is_there", [False, True])
async def test_no_box_forges_a_note(
    require: Any, ws: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_there: bool
) -> None:
    """
    A note has something moved; a box that may write the state directory would so reach what it may not write.
    """
    require(name)
    place = ws / "state/sandboxkit/watched"
    monkeypatch.setenv("XDG_STATE_HOME", str(ws / "state"))
    victim = ws.parent / "victim"
    victim.write_text("precious")
    if is_there:
        place.mkdir(parents=True, mode=0o700)
    controls = LESSER | {Control.FS_DENY_INSIDE_ALLOW}
    backend = asking_less(LandlockBackend, controls) if name == "landlock" else BubblewrapBackend()
    async with backend.open(SandboxSpec.workspace_write(ws)) as box:
        result = await box.run([*PYTHON, FORGE, str(place), str(victim)])
    assert result.text().split() == ["refused"] * 3
    async with backend.open(SandboxSpec.workspace_write(ws)) as box:
        assert (await box.run(["true"])).ok
    assert victim.read_text() == "precious"
    with pytest.raises(SpecError, match="keeps its notes in"):
        async with backend.open(SandboxSpec.workspace_write(place)) as box:
            await box.run(["true"])
    done = subprocess.run([*PYTHON, FORGE, str(place), str(victim)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["done"] * 3
