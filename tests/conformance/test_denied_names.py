"""
What a denied name means that is a link, does not exist, or is replaced, for bubblewrap.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxkit.errors import SpecError
from sandboxkit.model import Control, FilesystemPolicy, Grade, SandboxSpec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.conftest import Boxes

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("denied", ["dangling", "link/missing", "link/there"])
async def test_a_denied_path_behind_a_link_is_refused(boxes: Boxes, ws: Path, denied: str) -> None:
    (ws / "real").mkdir()
    (ws / "real/there").touch()
    (ws / "link").symlink_to("real")
    (ws / "dangling").symlink_to("target")
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=(str(ws),), deny=(str(ws / denied),)))
    with pytest.raises(SpecError, match="reached through a symbolic link; name its real path"):
        await boxes.run(spec, ["true"])
    assert sorted(path.name for path in ws.iterdir()) == ["dangling", "link", "real"], (
        "a run moved the caller's link away"
    )
    real = os.path.realpath(ws / denied)
    done = await boxes.run(
        SandboxSpec(filesystem=FilesystemPolicy(write=(str(ws),), deny=(real,))), ["sh", "-c", f"echo x > {real}"]
    )
    assert done.ok is not denied.endswith("there")
    assert [found.target for found in done.violations] == ([] if denied.endswith("there") else [real])


@pytest.mark.parametrize("pattern", [False, True])
async def test_what_is_denied_and_made_outside_during_a_run_is_graded(
    boxes: Boxes, ws: Path, outside: Path, *, pattern: bool
) -> None:
    deny = f"glob:{outside}/**/.env" if pattern else str(outside / ".env")
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=(str(ws),), read=(str(outside),), deny=(deny,)))
    words = f"touch ready; until [ -e go ]; do sleep 0.02; done; cat {outside}/.env"
    async with boxes.backend.open(spec) as box, box.start(["sh", "-c", words]) as process:
        await until(ws / "ready")
        (outside / ".env").write_text("secret")
        (ws / "go").touch()
        result = await process.wait()
    assert result.exit_code == 0, "it could be read"
    reason = result.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)
    assert ("matches only later" if pattern else "if it is made outside during the run, it can be read") in reason
    only_read = SandboxSpec(filesystem=FilesystemPolicy(read=(str(outside),), deny=(deny,)))
    again = await boxes.run(only_read, ["cat", f"{outside}/.env"])
    assert (again.exit_code, again.enforcement.grade(Control.FS_DENY_INSIDE_ALLOW)) == (
        1,
        Grade.PARTIAL if pattern else Grade.ENFORCED,
    )


async def test_a_second_name_of_a_file_in_a_denied_directory_is_graded(boxes: Boxes, ws: Path, outside: Path) -> None:
    (outside / "denied").mkdir()
    (outside / "denied/secret").write_text("content")
    os.link(outside / "denied/secret", outside / "denied/beside")
    spec = SandboxSpec(filesystem=FilesystemPolicy(read=(str(outside),), deny=(str(outside / "denied"),)))
    within = await boxes.run(spec, ["true"])
    assert within.enforcement.grade(Control.FS_DENY_INSIDE_ALLOW) is Grade.ENFORCED, "both names lie in it"
    os.link(outside / "denied/secret", outside / "second")
    result = await boxes.run(spec, ["cat", f"{outside}/second"])
    assert result.text() == "content"
    assert "has other names" in result.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)


async def until(path: Path) -> None:
    with anyio.fail_after(30):
        while not path.exists():  # noqa: ASYNC110 - another program makes it
            await anyio.sleep(0.02)


WAITS = """
cat denied/secret; echo evil >> AGENTS.md; echo evil >> .git/config
touch ready; until [ -e go ]; do sleep 0.02; done
cat denied/secret; echo evil >> AGENTS.md; echo evil >> .git/config
"""
REPLACES = """
mv denied aside; mkdir denied; echo secret > denied/secret
echo mine > new; mv new AGENTS.md
git config user.name Other
"""


async def test_what_a_program_outside_replaces_is_not_held_and_that_is_said(boxes: Boxes, repository: Path) -> None:
    (repository / "denied").mkdir()
    (repository / "denied/secret").touch()
    (repository / "AGENTS.md").touch()
    (repository / "CLAUDE.md").touch()
    filesystem = FilesystemPolicy(write=(str(repository),), deny=(str(repository / "denied"),))
    async with boxes.backend.open(SandboxSpec(filesystem=filesystem)) as box:
        (repository / "new").touch()
        (repository / "new").replace(repository / "CLAUDE.md")  # before the run: no matter
        async with box.start(["sh", "-c", WAITS]) as process:
            assert process.stdout is not None
            await until(repository / "ready")
            before = (repository / "AGENTS.md").read_text(), "evil" in (repository / ".git/config").read_text()
            subprocess.run(["sh", "-ec", REPLACES], cwd=repository, check=True)
            (repository / "go").touch()
            result = await process.wait()
        again = await box.run(["sh", "-c", WAITS])
    assert before == ("", False)
    assert ((repository / "AGENTS.md").read_text(), "evil" in (repository / ".git/config").read_text()) == (
        "mine\nevil\n",
        True,
    )
    found = {violation.target for violation in result.violations if violation.kind == "protected-path-replaced"}
    assert found == {str(repository / name) for name in ("denied", "AGENTS.md", ".git/config")}
    assert "3 paths were replaced from outside" in result.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)
    assert again.violations == (), "it is held again"
    assert again.text("stderr").count("Read-only") == 4


async def test_a_command_starts_where_the_box_shows_something(boxes: Boxes, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        monkeypatch.chdir(place)  # a box has a /tmp of its own
        result = await boxes.run(SandboxSpec(filesystem=FilesystemPolicy(read=("/",))), ["pwd"])
    assert (result.exit_code, result.text()) == (0, "/\n")
