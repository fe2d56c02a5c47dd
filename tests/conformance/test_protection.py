"""
Names that other programs execute or obey: held where they exist, moved away where a box
makes them, in repositories at every level.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.conformance.conftest import BOXED, IS_ROOT, Act, git, gone, importable

from sandboxkit.backends import _protection
from sandboxkit.backends._layouts import layouts
from sandboxkit.errors import SandboxError
from sandboxkit.model import MAX_DEPTH, PATTERN_DEPTH, Control, FilesystemPolicy, Grade, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.conformance.conftest import Boxes

    from sandboxkit.model import ExecResult

pytestmark = pytest.mark.anyio

OBEYED = ("config", "hooks/pre-commit")


def protecting(*entries: str, write: Iterable[Path], deny: Iterable[Path] = ()) -> SandboxSpec:
    filesystem = FilesystemPolicy(
        write=tuple(map(str, write)), deny=tuple(map(str, deny)), protect=frozenset(entries) or frozenset({"git"})
    )
    return SandboxSpec(filesystem=filesystem)


def new_repository(place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    git(place, "init", "-q", "-b", "main")
    git(place, "-c", "user.name=T", "-c", "user.email=t@localhost", "commit", "-q", "--allow-empty", "-m", "first")
    return place


def listing(root: Path) -> dict[str, tuple[int, bytes]]:
    """
    Every path below *root* with its mode and content.
    """
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() and not path.is_symlink() else b"",
        )
        for path in root.rglob("*")
    }


# --- repositories below the top --------------------------------------------------------

ATTACK = Act(
    """
for git in arguments["gits"]:
    for name in ("config", "hooks/pre-commit"):
        attempt("write " + git + "/" + name, write, git + "/" + name)
    attempt("lock and replace in " + git, lambda: (write(git + "/config.lock"), os.rename(git + "/config.lock", git + "/config")))
    place = git
    while place != arguments["ws"]:
        attempt("move " + place, lambda: (os.rename(place, place + ".aside"), os.rename(place + ".aside", place)))
        place = os.path.dirname(place)
    attempt("link out of " + git, os.link, git + "/config", git + "/objects/linked")
    attempt("by a symbolic link to " + git, lambda: (os.symlink(git, arguments["ws"] + "/link"), write(arguments["ws"] + "/link/config")))
    os.unlink(arguments["ws"] + "/link")
"""
)


@pytest.mark.parametrize("below", ["one", "a/b/c", ".hidden/x"])
async def test_a_nested_repository_is_held_like_the_one_at_the_top(boxes: Boxes, ws: Path, below: str) -> None:
    nested = new_repository(ws / below)
    before = (nested / ".git/config").read_text()
    named = {"ws": str(ws), "gits": [str(nested / ".git")]}
    inside = await boxes.act(protecting(write=[ws]), ATTACK, **named)
    assert set(inside.values()) <= {"EROFS", "EBUSY", "EXDEV"}, inside
    assert {answer for what, answer in inside.items() if what.startswith("move")} == {"EBUSY"}
    assert (nested / ".git/config").read_text() == before
    control = ATTACK.outside(**named)
    assert set(control.values()) == {"done"}


async def test_a_nested_repository_stays_usable(boxes: Boxes, ws: Path) -> None:
    nested = new_repository(ws / "a/b")
    words = "cd a/b && echo x > f && git add f && git -c user.name=T -c user.email=t@h commit -qm second && git switch -qc new && git log --oneline"
    result = await boxes.run(protecting(write=[ws]), ["sh", "-c", words])
    assert result.ok, result.text("stderr")
    assert result.violations == ()
    assert git(nested, "rev-list", "--count", "HEAD") == "2\n"


@pytest.fixture
def submodule(repository: Path, tmp_path: Path) -> Path:
    """
    A repository with a submodule, whose own repository lies in `.git/modules`.
    """
    source = new_repository(tmp_path.resolve() / "source")
    allowed = ("-c", "protocol.file.allow=always")
    git(repository, *allowed, "submodule", "add", "-q", "--name", "deep/sub", str(source), "lib/sub")
    git(repository, "commit", "-q", "-m", "submodule")
    return repository


async def test_the_repositories_of_submodules_are_held(boxes: Boxes, submodule: Path) -> None:
    named = {"ws": str(submodule), "gits": [str(submodule / ".git/modules/deep/sub")]}
    pointer = str(submodule / "lib/sub/.git")
    inside = await boxes.act(protecting(write=[submodule]), ATTACK, **named)
    assert set(inside.values()) <= {"EROFS", "EBUSY", "EXDEV"}, inside
    repoint = Act("attempt('pointer', write, arguments['pointer'], 'gitdir: /tmp/evil')")
    assert await boxes.act(protecting(write=[submodule]), repoint, pointer=pointer) == {"pointer": "EROFS"}
    assert set(ATTACK.outside(**named).values()) == {"done"}
    assert repoint.outside(pointer=pointer) == {"pointer": "done"}


async def test_a_worktrees_repository_is_held_through_its_pointers(
    boxes: Boxes, repository: Path, tmp_path: Path
) -> None:
    tree = tmp_path.resolve() / "tree"
    git(repository, "worktree", "add", "-q", str(tree), "-b", "tree")
    shared = repository / ".git"
    named = {"ws": str(repository), "gits": [str(shared)]}
    spec = protecting(write=[tree, shared])
    inside = await boxes.act(spec, ATTACK, **named)
    assert set(inside.values()) <= {"EROFS", "EBUSY", "EXDEV"}, inside
    redirect = Act("attempt('commondir', write, arguments['path'], '/tmp/evil')")
    path = str(shared / "worktrees/tree/commondir")
    assert await boxes.act(spec, redirect, path=path) == {"commondir": "EROFS"}
    words = "echo x > f && git add f && git -c user.name=T -c user.email=t@h commit -qm second"
    result = await boxes.run(spec, ["sh", "-c", words], cwd=str(tree))
    assert result.ok, result.text("stderr")
    assert result.violations == ()
    assert redirect.outside(path=path) == {"commondir": "done"}
    Path(path).write_text("../..\n")
    assert set(ATTACK.outside(**named).values()) == {"done"}


async def test_what_a_pointer_names_and_does_not_exist_is_moved_away(boxes: Boxes, ws: Path) -> None:
    (ws / "sub").mkdir()
    (ws / "sub/.git").write_text("gitdir: ../later\n")
    plant = "git init -q --bare later"
    result = await boxes.run(protecting(write=[ws]), ["sh", "-c", plant])
    assert result.ok, result.text("stderr")
    assert str(ws / "later/config") in {violation.target for violation in result.violations}
    assert not (ws / "later/config").exists()
    subprocess.run(["sh", "-c", "rm -r later; " + plant], cwd=ws, check=True)
    assert (ws / "later/config").exists()


async def test_more_repositories_than_can_be_held_are_graded(boxes: Boxes, ws: Path) -> None:
    template = new_repository(ws / "0")
    for number in range(1, _protection.MAX_MOUNT_POINTS // 2):
        shutil.copytree(template, ws / str(number))
    result = await boxes.run(protecting(write=[ws]), ["sh", "-c", "for d in *; do echo >> $d/.git/config; done"])
    written = result.text("stderr").count("Read-only")
    assert result.enforcement.grade(Control.FS_DENY_INSIDE_ALLOW) is Grade.PARTIAL
    assert "need more mount points" in result.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)
    assert 20 < written < _protection.MAX_MOUNT_POINTS // 2


async def test_a_repository_too_deep_to_be_found_is_graded(boxes: Boxes, ws: Path) -> None:
    new_repository(ws.joinpath(*"d" * (MAX_DEPTH + 1)))
    result = await boxes.run(protecting(write=[ws]), ["true"])
    assert f"below level {MAX_DEPTH}" in result.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)


# --- what a run makes under a protected name ------------------------------------------


def quarantined(result: ExecResult, target: Path) -> Path:
    """
    Where *target* was moved to, as the violation says.
    """
    detail = next(violation.detail for violation in result.violations if violation.target == str(target))
    return Path(detail.split("moved to '")[1].split("'")[0])


async def test_what_a_run_makes_under_a_protected_name_is_moved_away(boxes: Boxes, ws: Path, state: Path) -> None:
    spec = SandboxSpec.workspace_write(ws)
    assert (await boxes.run(spec, ["true"])).violations == ()
    assert not (state / "sandboxkit/quarantine").exists(), "no quarantine without need"
    words = "mkdir -p .git/hooks .vscode && echo evil > .git/hooks/pre-commit && touch .git/config plain && echo evil > .envrc"
    result = await boxes.run(spec, ["sh", "-c", words])
    assert {v.kind for v in result.violations} == {"protected-path-created"}
    made = {".git", ".git/config", ".git/hooks", ".vscode", ".envrc"}
    assert {v.target for v in result.violations} == {str(ws / name) for name in made}
    assert [path.name for path in ws.iterdir()] == ["plain"]
    assert quarantined(result, ws / ".envrc").read_text() == "evil\n"
    assert (quarantined(result, ws / ".git") / "hooks/pre-commit").read_text() == "evil\n"
    folder = quarantined(result, ws / ".envrc").parent
    assert folder.parent == state / "sandboxkit/quarantine"
    assert (stat.S_IMODE(folder.stat().st_mode), folder.stat().st_uid) == (0o700, os.geteuid())
    subprocess.run(["sh", "-c", words], cwd=ws, check=True)
    assert (ws / ".envrc").exists()


async def test_a_repository_that_a_run_makes_stays_and_is_held_from_then_on(boxes: Boxes, ws: Path) -> None:
    words = (
        "git init -q -b main . && git config user.name T && git config user.email t@localhost && "
        "git commit -q --allow-empty -m first && git switch -qc other && git tag x && git gc -q"
    )
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", words])
    assert result.ok, result.text("stderr")
    assert result.violations == ()
    assert git(ws, "log", "--format=%s") == "first\n"
    evil = Act("attempt('config', write, '.git/config'); attempt('hook', write, '.git/hooks/pre-commit')")
    assert await boxes.act(SandboxSpec.workspace_write(ws), evil) == {"config": "EROFS", "hook": "EROFS"}


PLANTS = (
    "printf '#!/bin/sh\n' > .git/hooks/pre-commit",
    "mkdir .git/hooks/x",
    "ln -s /bin/true .git/hooks/x.sample",
    "git config core.fsmonitor 'touch ran'",
    "git config core.hooksPath evil",
    "git config core.worktree ..",
    "git config include.path evil",
    "git config alias.x '!touch ran'",
    "git config user.name 'a\\\\b'",
    "git config filter.x.clean 'touch ran'",
    "git config remote.origin.url 'ext::touch ran'",
    "git config core.bare true",
    "printf '[core]\\nfilemode = \\\\\\ntrue\\n' >> .git/config",
    "printf '[core] fsmonitor = x\\n' >> .git/config",
    "printf '[user]\\nname = \\xff\\n' >> .git/config",
    "printf '* filter=x\\n' > .git/info/attributes",
    "echo .. > .git/commondir",
    "mkdir .git/worktrees",
    "echo x > .git/unknown",
    "mv .git/config c && ln -s ../c .git/config",
    "rm .git/config",
    "mv .git g && ln -s g .git",
    "echo /etc > .git/objects/info/alternates",
    "yes '[core]' | head -c 20000 >> .git/config",
    "ln -f .git/config beside",
)


@pytest.mark.parametrize("plant", PLANTS)
async def test_a_new_repository_with_anything_more_is_moved_away(boxes: Boxes, ws: Path, plant: str) -> None:
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", f"git init -q . && {plant}"])
    assert result.ok, result.text("stderr")
    assert str(ws / ".git") in {violation.target for violation in result.violations}
    assert not os.path.lexists(ws / ".git")
    subprocess.run(["sh", "-c", f"git init -q . && {plant}"], cwd=ws, check=True)
    assert os.path.lexists(ws / ".git"), "outside, it stays"


BELOW = {
    "a hook": (
        "printf '#!/bin/sh\\ntouch ran\\n' > sub/.git/hooks/pre-commit; chmod +x sub/.git/hooks/pre-commit",
        "sub/.git",
        {"hooks"},
    ),
    "a setting": ("git -C sub config core.fsmonitor 'touch ran; false'", "sub/.git", {"config"}),
    "without a working directory": (
        "rm -rf sub; git init -q --bare sub; git -C sub config core.hooksPath x",
        "sub",
        {"config"},
    ),
    "behind a pointer": (
        "mv sub/.git evil; git -C . --git-dir=evil config alias.x '!x'; echo gitdir: ../evil > sub/.git",
        "evil",
        {"config"},
    ),
    "a remote that is a program": ("git -C sub remote add origin 'ext::touch ran'", "sub/.git", {"config"}),
    "a driver in a section like a clone's": ("git -C sub config branch.x.y z", "sub/.git", {"config"}),
    "deep": ("git init -q a/b/c; git -C a/b/c config filter.x.clean 'touch ran'", "a/b/c/.git", {"config"}),
    "deeper than is looked before a run": (
        "git init -q 1/2/3/4/5/6/7/8/9/10; git -C 1/2/3/4/5/6/7/8/9/10 config alias.x '!x'",
        "1/2/3/4/5/6/7/8/9/10/.git",
        {"config"},
    ),
    "in a directory closed to its owner": (
        "mkdir x; git init -q x/y; git -C x/y config alias.x '!x'; chmod 0 x",
        "x/y/.git",
        {"config"},
    ),
    "with its objects elsewhere": (
        "git init -q --bare evil; git -C evil config alias.x '!x'; mkdir s; mv evil/HEAD s; echo ../evil > s/commondir",
        "s",
        {"commondir"},
    ),
    "a working directory elsewhere": ("git -C sub config core.worktree ../../other", "sub/.git", {"config"}),
    "a working directory of another": (
        "mkdir o; echo gitdir: ../o > o/.git; git -C sub config core.worktree ../../o",
        "sub/.git",
        {"config"},
    ),
    "another name of its settings": ("ln -f sub/.git/config beside", "sub/.git", {"config"}),
    "something nobody knows": ("touch sub/.git/unknown", "sub/.git", set()),
}


@pytest.mark.parametrize("how", BELOW)
async def test_what_git_would_obey_in_a_new_repository_below_the_top_is_moved_away(
    boxes: Boxes, ws: Path, how: str
) -> None:
    script, target, moved = BELOW[how]
    words = ["sh", "-ec", f"git init -q sub; {script}"]
    result = await boxes.run(SandboxSpec.workspace_write(ws), words)
    assert result.ok, result.text("stderr")
    found = {violation.target: violation for violation in result.violations}
    assert found[str(ws / target)].kind == "protected-path-created"
    assert found.keys() <= {str(ws / target), str(ws / "evil")}
    detail = found[str(ws / target)].detail
    assert {name for name in ("commondir", "config", "hooks") if f"'{name}' was moved to" in detail} == moved
    assert ("left there" in detail) is not bool(moved)
    assert not any(os.path.lexists(ws / target / name) for name in moved)
    assert (ws / target).is_dir(), "the rest stays"
    again = await boxes.run(SandboxSpec.workspace_write(ws), ["true"])
    assert again.violations == ()  # from the next run on it is held


async def test_git_at_the_top_does_not_run_what_a_repository_below_says(boxes: Boxes, repository: Path) -> None:
    plant = (
        "git init -q sub; git -C sub -c user.name=T -c user.email=t@h commit -q --allow-empty -m x; git add sub; "
        f"git -C sub config core.fsmonitor 'touch {repository}/ran; false'"
    )
    result = await boxes.run(SandboxSpec.workspace_write(repository), ["sh", "-c", plant])
    assert result.ok, result.text("stderr")
    subprocess.run(["git", "status"], cwd=repository, capture_output=True, check=True)
    assert not (repository / "ran").exists()
    shutil.rmtree(repository / "sub")
    subprocess.run(["sh", "-c", plant], cwd=repository, check=True, capture_output=True)
    (repository / "ran").unlink(missing_ok=True)
    subprocess.run(["git", "status"], cwd=repository, capture_output=True, check=True)
    assert (repository / "ran").exists(), "made outside, it runs"


async def test_a_worktree_that_a_run_adds_is_none(boxes: Boxes, repository: Path) -> None:
    result = await boxes.run(SandboxSpec.workspace_write(repository), ["git", "worktree", "add", "-q", "tree"])
    assert (result.ok, result.violations) == (True, ()), result.text("stderr")
    assert git(repository / "tree", "log", "--format=%s") == "first\n"


async def test_what_is_too_deep_after_a_run_is_graded(boxes: Boxes, ws: Path) -> None:
    deep = "/".join(map(str, range(PATTERN_DEPTH + 2)))
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["mkdir", "-p", deep])
    assert "it made there was not looked at" in result.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)


CONFIGURED = """
git config core.hooksPath '.my hooks'
git config include.path ../.gitconfig
git config -f .gitconfig include.path more/settings
"""
NAMED = (".my hooks/pre-commit", ".gitconfig", "more/settings")


async def test_what_the_configuration_names_is_held(boxes: Boxes, repository: Path) -> None:
    (repository / ".my hooks").mkdir()
    (repository / ".my hooks/pre-commit").touch()
    subprocess.run(["sh", "-ec", CONFIGURED], cwd=repository, check=True)
    paths = [str(repository / name) for name in NAMED[:2]]
    spec = SandboxSpec.workspace_write(repository)
    assert set((await boxes.act(spec, WRITE, paths=paths)).values()) == {"EROFS"}
    result = await boxes.run(spec, ["sh", "-c", "mkdir more; git config -f more/settings alias.x '!x'; touch plain"])
    assert [violation.target for violation in result.violations] == [str(repository / "more/settings")]
    assert (result.ok, os.listdir(repository / "more")) == (True, [])
    assert set(WRITE.outside(paths=paths).values()) == {"done"}


async def test_a_new_repository_below_the_top_that_runs_nothing_is_none(boxes: Boxes, ws: Path) -> None:
    words = (
        "git init -q sub; cd sub; git config user.name T; git config user.email t@h; git commit -q --allow-empty -m x;"
        " cd ..; git init -q --bare other; git clone -q --no-tags --branch=$(git -C sub branch --show-current) sub copy;"
        " cd copy; git config pull.rebase true; git -c protocol.file.allow=always submodule --quiet add ../sub inner;"
        " git -c user.name=T -c user.email=t@h commit -qm y; cd ..; git -c protocol.file.allow=always clone -q --recurse-submodules copy all;"
        " git -C all/inner fetch -q"
    )
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-ec", words])
    assert result.ok, result.text("stderr")
    assert result.violations == ()


async def test_a_repository_that_was_there_is_not_taken_for_new(boxes: Boxes, ws: Path) -> None:
    git(new_repository(ws / "sub"), "config", "alias.x", "!x")
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", "echo x > sub/f"])
    assert (result.ok, result.violations) == (True, ())


async def test_every_command_of_an_open_box_is_looked_after(boxes: Boxes, ws: Path) -> None:
    async with boxes.backend.open(SandboxSpec.workspace_write(ws)) as box:
        for _ in range(3):
            result = await box.run(["sh", "-c", "echo evil > .envrc"])
            assert [violation.target for violation in result.violations] == [str(ws / ".envrc")]
            assert not (ws / ".envrc").exists()
        async with box.start(["sh", "-c", "echo evil > .envrc; exec sleep 60"]):
            while not (ws / ".envrc").exists():  # noqa: ASYNC110 - another program makes it
                await anyio.sleep(0.01)
        assert not (ws / ".envrc").exists(), "nobody waited for it, and it was ended"
        with anyio.move_on_after(1):
            await box.run(["sh", "-c", "echo evil > .envrc; exec sleep 60"])
        assert not (ws / ".envrc").exists(), "it was cancelled"


async def test_what_the_caller_makes_between_opening_and_running_is_the_callers(boxes: Boxes, ws: Path) -> None:
    async with boxes.backend.open(SandboxSpec.workspace_write(ws)) as box:
        (ws / "CLAUDE.md").write_text("mine")
        result = await box.run(["sh", "-c", "echo evil > CLAUDE.md"])
    assert (result.ok, result.violations, (ws / "CLAUDE.md").read_text()) == (False, (), "mine")


PLANT = """
set -e
git init -q --bare evil
git -C evil config core.bare false
git -C evil config core.worktree "$PWD"
git -C evil config core.fsmonitor "touch $PWD/ran; false"
"""


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("echo gitdir: evil > .git", id="file"),
        pytest.param("ln -s evil .git", id="link"),
        pytest.param("mv evil .git", id="directory"),
        pytest.param("mv evil/* .; rmdir evil 2> /dev/null || true", id="bare"),
    ],
)
async def test_a_planted_repository_does_not_run_outside(boxes: Boxes, ws: Path, outside: Path, how: str) -> None:
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", PLANT + how])
    assert result.ok, result.text("stderr")
    assert result.violations
    subprocess.run(["git", "status"], cwd=ws, capture_output=True, check=False)
    assert not (ws / "ran").exists()
    subprocess.run(["sh", "-c", PLANT + how], cwd=outside, check=True)
    subprocess.run(["git", "status"], cwd=outside, capture_output=True, check=False)
    assert (outside / "ran").exists(), "without a box git runs what was planted"


async def test_a_clone_below_the_top_stays_and_is_held_from_the_next_command_on(
    boxes: Boxes, repository: Path, ws: Path
) -> None:
    async with boxes.backend.open(SandboxSpec.workspace_write(ws)) as box:
        cloned = await box.run(["git", "clone", "-q", ".", "vendor/copy"])
        assert (cloned.ok, cloned.violations) == (True, ()), cloned.text("stderr")
        refused = await box.run(["sh", "-c", "echo evil >> vendor/copy/.git/config"])
    assert "Read-only" in refused.text("stderr")


async def test_a_link_on_the_way_is_moved_itself(boxes: Boxes, ws: Path, outside: Path) -> None:
    (outside / "workflows").mkdir()
    (outside / "workflows/keep.yml").write_text("keep")
    words = f"mkdir -p real/workflows && ln -s real .github && ln -s {outside} .vscode && ln -s nowhere .envrc"
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", words])
    below = {name for names in layouts().protect.values() for name in names if name.startswith(".github/")}
    assert {v.target for v in result.violations} == {str(ws / name) for name in below | {".vscode", ".envrc"}}
    assert [path.name for path in ws.iterdir()] == ["real"]
    assert (ws / "real/workflows").is_dir()
    assert (outside / "workflows/keep.yml").read_text() == "keep"
    assert quarantined(result, ws / ".vscode").is_symlink()


async def test_a_link_that_was_there_is_put_back(boxes: Boxes, ws: Path) -> None:
    (ws / "dot").mkdir()
    (ws / "dot/envrc").write_text("mine")
    (ws / ".envrc").symlink_to("dot/envrc")
    (ws / ".bashrc").symlink_to("dot/missing")
    attack = "echo evil >> dot/envrc; rm .envrc; echo evil > .envrc; rm .bashrc; echo evil > dot/missing"
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", attack])
    assert "Read-only" in result.text("stderr"), "what the link leads to is held"
    assert (os.readlink(ws / ".envrc"), (ws / ".envrc").read_text()) == ("dot/envrc", "mine")
    assert os.readlink(ws / ".bashrc") == "dot/missing"
    assert not (ws / "dot/missing").exists()
    assert {v.target for v in result.violations} == {str(ws / n) for n in (".envrc", ".bashrc", "dot/missing")}
    subprocess.run(["sh", "-c", attack], cwd=ws, check=True)
    assert (ws / ".envrc").read_text() == "evil\n"


@pytest.mark.parametrize("hidden", [".", ".github", ".github/workflows"])
async def test_a_box_cannot_hide_it_by_its_mode(boxes: Boxes, ws: Path, hidden: str) -> None:
    words = f"mkdir -p .github/workflows && echo evil > .github/workflows/x.yml && chmod 0 {hidden}"
    try:
        result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", words])
        assert result.ok, result.text("stderr")
        assert [v.target for v in result.violations] == [str(ws / ".github/workflows")]
        moved = quarantined(result, ws / ".github/workflows")
        assert (moved / "x.yml").read_text() == "evil\n"
        assert not (ws / ".github/workflows").exists()
    finally:
        ws.chmod(0o700)


async def test_a_quarantine_on_another_file_system(boxes: Boxes, ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Path(f"/dev/shm/sandboxkit-test-{os.getpid()}")
    assert Path("/dev/shm").stat().st_dev != ws.stat().st_dev
    monkeypatch.setenv("XDG_STATE_HOME", str(elsewhere))
    words = "mkdir -p .vscode/a && echo evil > .vscode/a/tasks.json && ln -s /etc/passwd .vscode/link && mkfifo .vscode/fifo"
    try:
        result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", words])
        moved = quarantined(result, ws / ".vscode")
        assert moved.is_relative_to(elsewhere)
        assert (moved / "a/tasks.json").read_text() == "evil\n"
        assert os.readlink(moved / "link") == "/etc/passwd"
        assert list(ws.iterdir()) == []
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)


async def test_a_quarantine_a_box_could_write_is_made_elsewhere(
    boxes: Boxes, tmp_path: Path, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(ws / "state"))
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", "echo evil > .envrc"])
    moved = quarantined(result, ws / ".envrc")
    try:
        assert moved.is_relative_to(f"/var/tmp/sandboxkit-quarantine-{os.geteuid()}")
        # Held, so that no box makes it: what stands in it would be believed.
        assert {str(path.relative_to(ws)) for path in ws.rglob("*")} == {
            "state",
            "state/sandboxkit",
            "state/sandboxkit/found",
            "state/sandboxkit/watched",
        }
    finally:
        shutil.rmtree(moved.parent)
        with contextlib.suppress(OSError):  # somebody's real quarantine may lie there
            moved.parent.parent.rmdir()


@pytest.mark.parametrize("trouble", ["others can write it", "a file is in its way", "its disk is full"])
async def test_without_a_quarantine_it_gets_a_name_that_means_nothing(
    boxes: Boxes, ws: Path, state: Path, trouble: str
) -> None:
    place = state / "sandboxkit/quarantine"
    place.mkdir(parents=True)
    if trouble == "others can write it":
        place.chmod(0o777)
    elif trouble == "a file is in its way":
        place.rmdir()
        place.touch()
    elif not IS_ROOT:
        pytest.skip("only root can mount the small disk")
    words = ["sh", "-c", "mkdir .vscode; echo evil > .vscode/tasks.json; echo evil > .envrc"]
    with full_disk(place) if trouble == "its disk is full" else contextlib.nullcontext():
        result = await boxes.run(SandboxSpec.workspace_write(ws), words)
    assert {violation.target for violation in result.violations} == {str(ws / name) for name in (".vscode", ".envrc")}
    left = [quarantined(result, ws / name) for name in (".vscode", ".envrc")]
    assert sorted(ws.iterdir()) == sorted(left)
    assert all(path.name.startswith(".sandboxkit-") for path in left)
    assert [left[0].joinpath("tasks.json").read_text(), left[1].read_text()] == ["evil\n", "evil\n"]


@contextlib.contextmanager
def full_disk(place: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=2,mode=700", "tmpfs", str(place)], check=True)
    try:
        (place / "full").write_bytes(bytes(4096))
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


SWAP = """
import shutil
end = time.time() + 2
while time.time() < end:
    try:
        if not os.path.islink(".github") and not os.path.islink("link"):
            shutil.rmtree("link", ignore_errors=True)
            os.symlink(arguments["outside"], "link")
        os.makedirs(".github/workflows", exist_ok=True)
    except OSError:
        pass  # a box that ended has just moved something away
    for _ in range(100):
        libc.renameat2(-100, b".github", -100, b"link", 2)
"""


async def test_what_is_moved_away_while_another_box_swaps_links_is_never_outside(
    boxes: Boxes, ws: Path, outside: Path
) -> None:
    (outside / "workflows").mkdir()
    (outside / "workflows/keep.yml").write_text("keep")
    spec = SandboxSpec.workspace_write(ws)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_swapping, boxes, spec, outside)
        with anyio.move_on_after(2):
            while True:
                with contextlib.suppress(SandboxError):  # a box that is refused makes nothing
                    await boxes.run(spec, ["sh", "-c", "mkdir -p .github/workflows 2> /dev/null; true"])
    assert (outside / "workflows/keep.yml").read_text() == "keep"
    assert not (ws / ".github/workflows").exists()


async def _swapping(boxes: Boxes, spec: SandboxSpec, outside: Path) -> None:
    await boxes.act(spec, Act(SWAP), outside=str(outside))


async def test_a_second_name_of_a_protected_file_is_graded(boxes: Boxes, ws: Path) -> None:
    (ws / ".envrc").write_text("kept")
    os.link(ws / ".envrc", ws / "second")
    result = await boxes.run(
        SandboxSpec.workspace_write(ws), ["sh", "-c", "ln .envrc third; echo evil > .envrc; echo evil > second"]
    )
    assert result.text("stderr").count("Invalid cross-device link") == 1
    assert result.text("stderr").count("Read-only") == 1
    assert (ws / ".envrc").read_text() == "evil\n", "what the grade says"
    assert "has other names" in result.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)
    (ws / "second").unlink()
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["true"])
    assert "has other names" not in result.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)
    os.link(ws / ".envrc", ws / "third")


# --- sets, and the caller's own entries ------------------------------------------------

WRITE = Act("for path in arguments['paths']: attempt(path, write, path)")


async def test_only_the_selected_sets_are_protected(boxes: Boxes, ws: Path) -> None:
    names = {".envrc": "shell-rc", "lefthook.yml": "hook-managers", ".gitlab-ci.yml": "ci", "AGENTS.md": "agent-config"}
    for name in names:
        (ws / name).write_text("kept")
    paths = [str(ws / name) for name in names]
    for name, group in names.items():
        inside = await boxes.act(protecting(group, write=[ws]), WRITE, paths=paths)
        assert {path for path, answer in inside.items() if answer == "EROFS"} == {str(ws / name)}
    assert set(WRITE.outside(paths=paths).values()) == {"done"}


async def test_entries_of_the_callers_own_are_protected(boxes: Boxes, ws: Path, outside: Path) -> None:
    held = ["Makefile", "tests/conftest.py", "tests/deep/er/conftest.py", "scripts/run.sh"]
    free = ["makefile.txt", "tests/test_x.py", "scripts/run.py", "scripts/deep/run.sh", "plain"]
    for name in (*held, *free):
        (ws / name).parent.mkdir(parents=True, exist_ok=True)
        (ws / name).write_text("kept")
    entries = ("./Makefile", "./**/conftest.py", "./scripts/*.sh", f"{ws}/package.json")
    spec = protecting(*entries, write=[ws])
    paths = [str(ws / name) for name in (*held, *free)]
    inside = await boxes.act(spec, WRITE, paths=paths)
    assert inside == {path: "EROFS" if path[len(str(ws)) + 1 :] in held else "done" for path in paths}
    assert set(WRITE.outside(paths=paths).values()) == {"done"}
    result = await boxes.run(spec, ["sh", "-c", "echo evil > package.json; echo > later-conftest; echo > new.sh"])
    assert [violation.target for violation in result.violations] == [f"{ws}/package.json"]
    assert "'./**/conftest.py' matches only later" in result.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)


async def test_a_pattern_follows_no_link_and_ends(boxes: Boxes, ws: Path, outside: Path) -> None:
    (outside / "conftest.py").write_text("x")
    (ws / "out").symlink_to(outside)
    (ws / "loop").symlink_to(".")
    result = await boxes.run(protecting("./**/conftest.py", write=[ws]), ["true"])
    assert (result.ok, result.violations) == (True, ())


# --- nothing appears on the host -------------------------------------------------------


def beside_state(root: Path) -> dict[str, tuple[int, bytes]]:
    """
    As `listing`, without this library's own state directory, in which a run is noted.
    """
    return {name: found for name, found in listing(root).items() if name.split("/")[0] != "state"}


async def test_no_file_appears_because_of_a_box(
    boxes: Boxes, ws: Path, home: Path, state: Path, tmp_path: Path
) -> None:
    new_repository(ws / "nested")
    (ws / "secret").mkdir()
    spec = protecting("git", "ide", "ci", "./Makefile", write=[ws], deny=[ws / "secret", ws / "missing/deep"])
    before = beside_state(tmp_path)
    async with boxes.backend.open(spec) as box:
        async with box.start(["sleep", "60"]):
            await anyio.sleep(0.2)
            assert beside_state(tmp_path) == before, "during the run"
        assert beside_state(tmp_path) == before, "after it was ended"
    assert (await boxes.run(spec, ["touch", "plain"])).ok
    assert beside_state(tmp_path).keys() - before.keys() == {"ws/plain"}


@pytest.mark.timeout(120)
async def test_no_file_appears_when_everything_is_killed_at_a_random_moment(
    boxes: Boxes, ws: Path, home: Path, tmp_path: Path
) -> None:
    new_repository(ws / "nested")
    before = beside_state(tmp_path)
    choice = random.Random(20)
    for number in range(20):
        marker = f"61.{number:03d}{os.getpid()}"
        words = boxes.program(BOXED, str(ws), "sleep", marker)
        quiet = subprocess.DEVNULL
        program = subprocess.Popen(words, start_new_session=True, stdout=quiet, stderr=quiet, env=importable())
        time.sleep(choice.uniform(0.05, 1.5))
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        assert gone(marker), number
        assert beside_state(tmp_path) == before, number
