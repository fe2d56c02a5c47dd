"""
What a run with `discard=True` writes, and that none of it stays.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sandboxkit as sk
from sandboxkit.backends import _copies

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.anyio, pytest.mark.requires("bubblewrap")]

ALL = "echo new >old; echo x >sub/made; rm gone; chmod 700 mode; ln -s old link; mv sub moved; cat moved/made old"


@pytest.fixture(name="tree")
def _tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="sandboxkit-discard-") as name:
        place = Path(name).resolve()
        place.chmod(0o755)
        for file in ("old", "gone", "mode"):
            (place / file).write_text("was\n")
        (place / "mode").chmod(0o640)
        (place / "sub").mkdir()
        (place / "to-old").symlink_to("old")
        os.mkfifo(place / "pipe")
        yield place


def state(place: Path) -> list[tuple[str, int, bytes]]:
    found = []
    for path in sorted(place.rglob("*")):
        seen = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(seen.st_mode) else b""
        found.append((str(path.relative_to(place)), seen.st_mode, content))
    return found


async def test_nothing_a_run_writes_stays(tree: Path) -> None:
    before = state(tree)
    async with sk.open_sandbox(sk.SandboxSpec.workspace_write(tree)) as box:
        result = await box.run(["sh", "-c", ALL], cwd=str(tree), discard=True)
        assert (result.exit_code, result.text()) == (0, "x\nnew\n")
        assert state(tree) == before
        # Without it, all of that stays.
        assert (await box.run(["sh", "-c", ALL], cwd=str(tree))).exit_code == 0
    assert state(tree) != before


async def test_the_copy_is_what_the_host_has(tree: Path) -> None:
    command = "stat -c '%n %a %s' old mode sub; readlink to-old; test -p pipe || echo no pipe"
    async with sk.open_sandbox(sk.SandboxSpec.workspace_write(tree)) as box:
        plain = await box.run(["sh", "-c", command], cwd=str(tree))
        copied = await box.run(["sh", "-c", command], cwd=str(tree), discard=True)
    assert copied.text().replace("no pipe\n", "") == plain.text()


async def test_what_is_protected_stays_so(tree: Path) -> None:
    (tree / ".git" / "hooks").mkdir(parents=True)
    (tree / ".git" / "config").write_text("[core]\n")
    async with sk.open_sandbox(sk.SandboxSpec.workspace_write(tree)) as box:
        command = "echo x >.git/hooks/post-commit || echo held; echo x >>.git/config || echo held; echo y >.git/made"
        result = await box.run(["sh", "-c", command], cwd=str(tree), discard=True)
    assert result.text() == "held\nheld\n"
    assert not (tree / ".git" / "made").exists()


@pytest.mark.parametrize(("bound", "value"), [("MAX_COPIED_FILES", 3), ("MAX_COPIED_BYTES", 5)])
async def test_too_much_is_refused(tree: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int) -> None:
    monkeypatch.setattr(_copies, bound, value)
    async with sk.open_sandbox(sk.SandboxSpec.workspace_write(tree)) as box:
        with pytest.raises(sk.BackendError, match="cannot be copied: more than"):
            await box.run(["true"], cwd=str(tree), discard=True)


async def test_no_copy_is_left(tree: Path) -> None:
    async with sk.open_sandbox(sk.SandboxSpec.workspace_write(tree)) as box:
        await box.run(["sh", "-c", "mkdir closed; echo x >closed/x; chmod 0 closed"], cwd=str(tree), discard=True)
        with pytest.raises(sk.ProgramNotFoundError):
            await box.run(["no-such-program"], cwd=str(tree), discard=True)
    left = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("sandboxkit-copy-")]
    assert [name for name in left if os.stat(Path(tempfile.gettempdir(), name)).st_uid == os.geteuid()] == []
