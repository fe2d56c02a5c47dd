"""
What patterns deny, and how many files fit in memory, for bubblewrap.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.conformance.conftest import IS_ROOT, Act
from tests.reference_tree import PLACES, access

from sandboxkit.backends._launched import LaunchedSandbox
from sandboxkit.backends._patterns import MAX_MATCHES
from sandboxkit.errors import SpecError
from sandboxkit.model import Control, FilesystemPolicy, SandboxSpec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.conftest import Boxes

pytestmark = pytest.mark.anyio


def spec_of(
    *, write: tuple[Path, ...] = (), read: tuple[Path, ...] = (), deny: tuple[Path, ...] = (), tmp_bytes: int = 1 << 24
) -> SandboxSpec:
    writable, readable, denied = (tuple(map(str, paths)) for paths in (write, read, deny))
    return SandboxSpec(filesystem=FilesystemPolicy(write=writable, read=readable, deny=denied, tmp_bytes=tmp_bytes))


READ = Act("for path in arguments['paths']: attempt(path, read, path)")


MANY = Act(
    """
def many(directory):
    for number in range(arguments["count"]):
        os.close(os.open("%s/%d" % (directory, number), os.O_CREAT | os.O_WRONLY))
for path in arguments["paths"]:
    attempt(path, many, path)
"""
)


async def test_the_number_of_files_in_memory_is_bounded_for_a_root_caller(
    boxes: Boxes, ws: Path, home: Path, outside: Path
) -> None:
    # bwrap cannot set the bound, so that an ordinary user's box has the kernel's own.
    paths = ["/dev/shm", "/tmp", "/run", "/var/tmp", str(home)]
    spec = spec_of(write=(ws,), tmp_bytes=8 << 20)
    inside = await boxes.act(spec, MANY, paths=paths, count=3000)
    assert set(inside.values()) == {"ENOSPC" if IS_ROOT else "done"}
    assert MANY.outside(paths=[str(outside)], count=3000) == {str(outside): "done"}
    async with boxes.backend.open(spec) as box:
        assert isinstance(box, LaunchedSandbox)
        notes = box.plan(["true"]).notes
    assert any("not in the number of files" in note for note in notes) is not IS_ROOT


async def test_what_a_pattern_matches_is_denied(boxes: Boxes, ws: Path, outside: Path) -> None:
    matched = [".env", "a/.env", "a/b/c/.env", "keys/one.pem"]
    others = ["a/env", "a/.env.example", "keys/deep/two.pem", "keys/.env/named", "real"]
    for name in (*matched[:3], "keys/one.pem", *others):
        (ws / name).parent.mkdir(parents=True, exist_ok=True)
        (ws / name).write_text("secret")
    (ws / "linked.pem").symlink_to("real")
    (outside / ".env").write_text("not shown")
    (ws / "out").symlink_to(outside)
    patterns = (f"glob:{ws}/**/.env", f"glob:{ws}/keys/*.pem", f"glob:{ws}/*.pem")
    spec = SandboxSpec(
        filesystem=FilesystemPolicy(write=(str(ws),), read=(str(ws / "keys/.env/named"),), deny=patterns)
    )
    paths = [str(ws / name) for name in (*matched, *others)]
    inside = await boxes.act(spec, READ, paths=paths)
    denied = {*matched, "keys/.env/named", "real"}  # all in it, and what a link that matches leads to
    assert inside == {path: "EACCES" if path[len(str(ws)) + 1 :] in denied else "done" for path in paths}
    assert set(READ.outside(paths=paths).values()) == {"done"}
    move = Act("for path in arguments['paths']: attempt(path, os.rename, path, path + '.aside')")
    aside = [str(ws / "a/.env"), str(ws / "a/b"), str(ws / "a")]
    assert set((await boxes.act(spec, move, paths=aside)).values()) == {"EBUSY"}
    async with boxes.backend.open(spec) as box:
        reason = box.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)
    assert f"what 'glob:{ws}/**/.env' matches only later is not denied" in reason
    assert list(move.outside(paths=aside).values()) == ["done"] * 3


async def test_more_matches_than_can_be_held_are_refused(boxes: Boxes, ws: Path) -> None:
    for number in range(MAX_MATCHES + 1):
        (ws / f"{number}.pem").touch()
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=(str(ws),), deny=(f"glob:{ws}/*.pem",)))
    with pytest.raises(SpecError, match=f"match {MAX_MATCHES + 1} paths"):
        await boxes.run(spec, ["true"])
    (ws / "0.pem").unlink()
    result = await boxes.run(spec, ["sh", "-c", "cat *.pem"])
    assert result.text("stderr").count("Permission denied") == MAX_MATCHES


LOOK = Act(
    """
for place, path in arguments["paths"].items():
    attempt("read " + place, read, path + "/file")
    attempt("write " + place, write, path + "/file", "changed")
    attempt("make " + place, write, path + "/new")
"""
)
ANSWERS = {"write": {"done"}, "read": {"done"}, "deny": {"EACCES", "ENOENT"}, "unlisted": {"ENOENT"}}


def changed(directory: Path) -> tuple[bool, bool]:
    return (directory / "file").read_text() == "changed", (directory / "new").exists()


@pytest.mark.parametrize("seed", range(8))
async def test_random_trees_are_what_the_reference_says(boxes: Boxes, ws: Path, seed: int) -> None:
    choice = random.Random(seed)
    for place in PLACES:
        (ws / place).mkdir()
        (ws / place / "file").write_text("content")
    named = {field: choice.sample(PLACES, choice.randint(1, 6)) for field in ("read", "write", "deny")}
    readable, writable, denied = (tuple(ws / place for place in named[field]) for field in ("read", "write", "deny"))
    paths = {place: str(ws / place) for place in PLACES}
    inside = await boxes.act(spec_of(read=readable, write=writable, deny=denied), LOOK, paths=paths)
    for place in PLACES:
        wanted = access(f"{place}/file", **named)
        assert inside[f"read {place}"] in ANSWERS[wanted], (place, named)
        # Between named directories of /tmp lies memory of the box's own, which may be written.
        assert changed(ws / place) == (wanted == "write",) * 2, (place, named)
    assert set(LOOK.outside(paths=paths).values()) == {"done"}
