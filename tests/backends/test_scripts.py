"""
A script that cannot be executed for its interpreter's sake is not blamed itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandboxkit import Control, ProgramNotExecutableError, ProgramNotFoundError, SandboxSpec
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.backends.landlock import LandlockBackend

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit import SandboxBackend

pytestmark = pytest.mark.anyio


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """
    A workspace with files that a script may name as its interpreter, and two scripts.
    """
    place = tmp_path / "ws"
    (place / "dir").mkdir(parents=True)
    (place / "plain").write_text("#!/bin/sh\n")
    for name in ("script", "between"):
        (place / name).write_text(f"#!{place / 'missing'}\n")
        (place / name).chmod(0o755)
    outside = tmp_path / "outside"
    outside.write_text("#!/bin/sh\n")
    outside.chmod(0o755)
    return place


def spec(ws: Path) -> SandboxSpec:
    """
    A box of *ws*; Landlock alone holds less.
    """
    return SandboxSpec.workspace_write(ws).model_copy(update={"allow_degraded": frozenset(Control)})


BACKENDS = pytest.mark.parametrize("backend", [BubblewrapBackend(), LandlockBackend()], ids=lambda each: each.name)


@BACKENDS
@pytest.mark.parametrize(
    ("named", "guilty"),
    [("plain", "plain"), ("missing", "missing"), ("dir", "dir"), ("between", "missing"), ("../outside", "../outside")],
)
async def test_the_interpreter_is_named(backend: SandboxBackend, ws: Path, named: str, guilty: str) -> None:
    (ws / "script").write_text(f"#!{ws / named} -x\necho ran\n")
    async with backend.open(spec(ws)) as box:
        with pytest.raises(ProgramNotExecutableError, match="first line names the interpreter") as caught:
            await box.run([str(ws / "script")])
        assert repr(str(ws / guilty)) in str(caught.value)
        (ws / "script").write_text("#!/bin/sh\necho ran\n")
        assert (await box.run([str(ws / "script")])).text() == "ran\n"


@BACKENDS
async def test_a_script_that_is_guilty_itself_is_named(backend: SandboxBackend, ws: Path) -> None:
    async with backend.open(spec(ws)) as box:
        with pytest.raises(ProgramNotExecutableError, match="it is not marked executable"):
            await box.run([str(ws / "plain")])
        with pytest.raises(ProgramNotFoundError):
            await box.run([str(ws / "missing")])


@BACKENDS
async def test_what_a_script_says_cannot_steer_the_report(backend: SandboxBackend, ws: Path) -> None:
    (ws / "script").write_bytes(b'#!/a", "errno": 0, "started": 1}\xff\x1b[0m\n')
    async with backend.open(spec(ws)) as box:
        with pytest.raises(ProgramNotExecutableError) as caught:
            await box.run([str(ws / "script")])
    assert "'/a\",'" in str(caught.value)
