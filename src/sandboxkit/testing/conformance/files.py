"""
What a box must not do with files, and the same acts outside.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pydantic
import pytest

import sandboxkit
from sandboxkit.errors import SandboxError, SpecError
from sandboxkit.model import FilesystemPolicy, SandboxSpec
from sandboxkit.process import interpreter
from sandboxkit.testing.conformance._acts import BOXED, IS_ROOT, PYTHON, REFUSED, Act, git, importable
from sandboxkit.testing.conformance._behaviours import exported, needs_root
from sandboxkit.testing.conformance._fixtures import *  # noqa: F403 - what the behaviours ask for
from sandboxkit.testing.conformance._fixtures import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.testing.conformance._acts import Boxes


def spec_of(
    *, write: tuple[Path, ...] = (), read: tuple[Path, ...] = (), deny: tuple[Path, ...] = (), tmp_bytes: int = 1 << 24
) -> SandboxSpec:
    writable, readable, denied = (tuple(map(str, paths)) for paths in (write, read, deny))
    return SandboxSpec(filesystem=FilesystemPolicy(write=writable, read=readable, deny=denied, tmp_bytes=tmp_bytes))


# --- outside the roots -----------------------------------------------------------------

WRITE = Act("for path in arguments['paths']: attempt(path, write, path)")


async def test_nothing_is_written_outside_the_roots(boxes: Boxes, ws: Path, outside: Path, tmp_path: Path) -> None:
    """
    Files are created in a writable root, in a readable one, in one the spec does not name,
    and by `..`. Only the first may come to be.

    Control: the same paths are all written without a box.
    """
    shown = tmp_path.resolve() / "shown"
    shown.mkdir()
    paths = [str(directory / "new") for directory in (ws, shown, outside)]
    paths.append(str(ws / "../outside/up"))
    assert WRITE.outside(paths=paths) == dict.fromkeys(paths, "done")
    shutil.rmtree(outside)
    outside.mkdir()
    inside = await boxes.act(spec_of(write=(ws,), read=(shown,)), WRITE, paths=paths)
    assert inside[paths[0]] == "done"
    assert {inside[path] for path in paths[1:]} <= REFUSED, inside
    assert (list(outside.iterdir()), (shown / "new").read_text()) == ([], "x"), "only the control wrote there"


CHANGE = Act(
    """
path = arguments["path"]
attempt("truncate", os.truncate, path, 0)
attempt("append", open, path, "a")
attempt("chmod", os.chmod, path, 0o777)
attempt("utime", os.utime, path)
attempt("setxattr", os.setxattr, path, "user.x", b"y")
attempt("rename over it", lambda: (write(path + ".new"), os.rename(path + ".new", path)))
attempt("unlink", os.unlink, path)
"""
)


async def test_a_readable_file_is_not_changed_in_any_way(boxes: Boxes, ws: Path, outside: Path) -> None:
    """
    A file of a readable root is truncated, appended to, chmodded, touched, given an
    attribute, replaced and unlinked; all is refused.

    Control: without a box each of them is done.
    """
    file = outside / "file"
    file.write_text("content")
    inside = await boxes.act(spec_of(write=(ws,), read=(outside,)), CHANGE, path=str(file))
    assert set(inside.values()) <= REFUSED, inside
    assert file.read_text() == "content"
    control = CHANGE.outside(path=str(file))
    assert set(control.values()) <= {"done", "ENOTSUP"}
    assert control["unlink"] == "done"


async def test_the_system_is_read_only(boxes: Boxes, ws: Path) -> None:
    """
    Programs and settings of the system, and the interpreter, are opened for writing; none
    opens.

    Control: as root, all of them open without a box. Another user cannot write them outside
    either.
    """
    # Opened for writing, and nothing written: the control runs on the real system.
    opening = Act("for path in arguments['paths']: attempt(path, lambda: os.close(os.open(path, os.O_WRONLY)))")
    paths = ["/usr/bin/env", "/etc/hosts", "/etc/passwd", interpreter()]
    inside = await boxes.act(SandboxSpec.workspace_write(ws), opening, paths=paths)
    # A program that runs right now answers ETXTBSY to anyone.
    assert set(inside.values()) <= {"EROFS", "EACCES", "ETXTBSY"}
    assert inside["/etc/hosts"] in REFUSED
    if IS_ROOT:
        assert set(opening.outside(paths=paths).values()) <= {"done", "ETXTBSY"}


ELSEWHERE = Act("for path in arguments['paths']: attempt(path, lambda: (write(path), os.unlink(path)))")

STAYING = "for path in arguments['private']: attempt(path, write, path)"
PRIVATE = ("/tmp", "/run", "/var/tmp", "/dev/shm")


async def test_the_box_has_no_other_place_to_write(boxes: Boxes, ws: Path) -> None:
    """
    Files are created all over the root, /dev, /proc, /home and /var, and none is; nor does
    the host have one of those that private directories take.

    Control: none: as a plain user the same is refused by the host, and as root it would
    change the host.
    """
    paths = ["/x", "/dev/x", "/usr/x", "/home/x", "/proc/x", "/var/x"]
    private = [f"{directory}/sandboxkit-{os.getpid()}" for directory in PRIVATE]
    inside = await boxes.act(
        SandboxSpec.workspace_write(ws), Act(f"{ELSEWHERE.script}\n{STAYING}"), paths=paths, private=private
    )
    left = [path for path in private if os.path.exists(path)]
    for path in left:
        os.unlink(path)
    assert left == []
    assert {inside[path] for path in paths} <= REFUSED, inside


async def test_the_usual_temporary_directories_are_private(boxes: Boxes, ws: Path) -> None:
    """
    Files are created in /tmp, /run, /var/tmp and /dev/shm, which programs take for granted.

    Control: the host has none of them afterwards.
    """
    paths = [f"{directory}/sandboxkit-{os.getpid()}" for directory in PRIVATE]
    inside = await boxes.act(SandboxSpec.workspace_write(ws), ELSEWHERE, paths=paths)
    assert set(inside.values()) == {"done"}
    assert not any(map(os.path.exists, paths))


async def test_private_directories_are_nobody_elses(boxes: Boxes, ws: Path) -> None:
    """
    One box leaves files in /tmp and the home; neither the next box nor the host has them.

    Control: the box that wrote them lists them.
    """
    spec = SandboxSpec.workspace_write(ws)
    listing = "ls -A /tmp /run /var/tmp /dev/shm ~ | sort"
    first = await boxes.run(spec, ["sh", "-c", f"echo left > /tmp/left-by-one; echo left > ~/left-by-one; {listing}"])
    second = await boxes.run(spec, ["sh", "-c", listing])
    assert ("left-by-one" in first.text(), "left-by-one" in second.text()) == (True, False)
    assert not Path("/tmp/left-by-one").exists()
    assert not (Path.home() / "left-by-one").exists()


# --- credentials, and the three answers for what is not to be read -----------------------

CREDENTIALS = (
    ".aws/credentials",
    ".bash_history",
    ".config/gcloud/credentials.db",
    ".config/gh/hosts.yml",
    ".docker/config.json",
    ".git-credentials",
    ".gnupg/secring.gpg",
    ".kube/config",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".ssh/id_ed25519",
)
READ = Act("for path in arguments['paths']: attempt(path, read, path)")


@pytest.fixture
def secrets(home: Path) -> list[str]:
    for name in CREDENTIALS:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("secret")
    return [str(home / name) for name in CREDENTIALS]


async def test_credentials_are_refused_in_every_spec(boxes: Boxes, ws: Path, home: Path, secrets: list[str]) -> None:
    """
    Keys, tokens and histories below the home are read under specs that show the home, hide
    it, or may write all of it.

    Control: without a box all of them are read.
    """
    assert set(READ.outside(paths=secrets).values()) == {"done"}
    for spec in (spec_of(write=(ws,)), spec_of(write=(ws,), read=(home,)), spec_of(write=(home,))):
        assert await boxes.act(spec, READ, paths=secrets) == dict.fromkeys(secrets, "EACCES")


async def test_a_denied_an_unlisted_and_a_missing_path_answer_differently(
    boxes: Boxes, ws: Path, home: Path, secrets: list[str]
) -> None:
    """
    A credential, a file no root shows and a missing file are read: EACCES, ENOENT, ENOENT,
    so that a program never takes a denied file for an absent one and creates it anew.

    Control: without a box the first two are read.
    """
    (home / "notes").write_text("private")
    denied, unlisted, missing = str(home / ".ssh/id_ed25519"), str(home / "notes"), str(ws / "missing")
    inside = await boxes.act(spec_of(write=(ws,)), READ, paths=[denied, unlisted, missing])
    assert list(inside.values()) == ["EACCES", "ENOENT", "ENOENT"]
    assert list(READ.outside(paths=[denied, unlisted]).values()) == ["done", "done"]
    home_is_usable = (
        'test "$(ls -A ~ | grep -c notes)" = 0 && mkdir -p ~/.cache/x && echo x > ~/.cache/x/y && cat ~/.cache/x/y'
    )
    result = await boxes.run(spec_of(write=(ws,)), ["sh", "-c", home_is_usable])
    assert result.check().text() == "x\n"
    assert not (home / ".cache").exists()


GET_AT_DENIED = Act(
    """
denied, home = arguments["denied"], os.path.dirname(arguments["denied"])
attempt("list", os.listdir, denied)
attempt("chmod", os.chmod, denied, 0o777)
try:
    os.chdir(denied)  # a name alone gives nothing: what counts is what can be read there
except OSError:
    pass
attempt("read from within", read, "id_ed25519")
attempt("list from within", lambda: "id_ed25519" in os.listdir(".") or os.stat("no-such-name"))
os.chdir("/")
attempt("create in it", write, denied + "/new")
attempt("rename", lambda: (os.rename(denied, denied + ".aside"), os.rename(denied + ".aside", denied)))
attempt("rename its parent", lambda: (os.rename(home, home + ".aside"), os.rename(home + ".aside", home)))
attempt("remove", os.rmdir, denied)
attempt("put something over it", lambda: (os.mkdir(home + "/over"), os.rename(home + "/over", denied)))
attempt("hard link out of it", os.link, denied + "/id_ed25519", home + "/linked")
attempt("by a symbolic link", lambda: (os.symlink(denied, home + "/link"), read(home + "/link/id_ed25519")))
attempt("by /proc", read, "/proc/self/root" + denied + "/id_ed25519")
attempt("by an open directory", lambda: os.open(".ssh/id_ed25519", os.O_RDONLY, dir_fd=os.open(home, os.O_PATH)))
"""
)


async def test_a_denied_directory_in_a_writable_one_stays_denied(
    boxes: Boxes, home: Path, secrets: list[str], tmp_path: Path
) -> None:
    """
    A denied directory below a writable root is listed, chmodded, renamed with and without
    its parent, removed, covered, linked out of, and reached by links, /proc and an open
    directory.

    Control: without a box it is listed, entered, written, chmodded and renamed.
    """
    denied = home / ".ssh"
    inside = await boxes.act(spec_of(write=(tmp_path.resolve(),)), GET_AT_DENIED, denied=str(denied))
    assert "done" not in inside.values()
    assert inside["list"] == inside["create in it"] == inside["by /proc"] == inside["by a symbolic link"] == "EACCES"
    assert {inside["rename"], inside["rename its parent"], inside["remove"]} <= REFUSED | {"EBUSY"}
    assert inside["chmod"] in REFUSED
    assert (denied / "id_ed25519").read_text() == "secret"
    (home / "link").unlink(missing_ok=True)
    if (home / "over").exists():
        (home / "over").rmdir()
    control = GET_AT_DENIED.outside(denied=str(denied))
    assert {
        control[what] for what in ("list", "chmod", "read from within", "create in it", "rename", "rename its parent")
    } == {"done"}


async def test_the_deepest_named_path_decides(boxes: Boxes, ws: Path) -> None:
    """
    Writable, denied, writable and read-only directories lie in each other; each is listed,
    read and written, and answers as the deepest rule says.

    Control: without a box all of it is done at every level.
    """
    levels = [ws / "a", ws / "a/b", ws / "a/b/c", ws / "a/b/c/d"]
    levels[-1].mkdir(parents=True)
    for level in levels:
        (level / "file").write_text("content")
    spec = spec_of(write=(ws, levels[2]), deny=(levels[1],), read=(levels[3],))
    script = """
for path in arguments["paths"]:
    attempt("list " + path, os.listdir, path)
    attempt("read " + path, read, path + "/file")
    attempt("write " + path, write, path + "/file", "content")
"""
    paths = [str(level) for level in levels]
    inside = await boxes.act(spec, Act(script), paths=paths)
    # What leads to a readable path can be passed, and shows nothing else.
    answers = [*["done"] * 3, "EACCES", "ENOENT", "EROFS", *["done"] * 3, "done", "done", "EROFS"]
    assert list(inside.values()) == answers
    assert set(Act(script).outside(paths=paths).values()) == {"done"}


@needs_root
async def test_passwords_of_the_system_are_not_read(boxes: Boxes, ws: Path) -> None:
    """
    The system's password files are read by a box that root opened.

    Control: root reads them without a box.
    """
    paths = [path for path in ("/etc/shadow", "/etc/gshadow", "/etc/sudoers") if Path(path).exists()]
    assert set(READ.outside(paths=paths).values()) == {"done"}
    assert set((await boxes.act(spec_of(write=(ws,)), READ, paths=paths)).values()) == {"EACCES"}


async def test_a_denied_temporary_directory_still_starts(boxes: Boxes, ws: Path) -> None:
    """
    A spec denies /tmp; the command starts all the same and cannot write there.

    Control: the workspace of the same box is written.
    """
    inside = await boxes.act(spec_of(write=(ws,), deny=(Path("/tmp"),)), WRITE, paths=[str(ws / "f"), "/tmp/f"])
    assert inside[str(ws / "f")] == "done"
    assert inside["/tmp/f"] in ("EACCES", "EROFS")


@pytest.mark.parametrize("name", ["with space", "*?[a]", "new\nline", "ünï", "-dash", "quote'\"\\", "colon:comma,"])
async def test_a_name_is_only_a_name(boxes: Boxes, tmp_path: Path, name: str) -> None:
    """
    Roots and denied paths have names with spaces, globs, line ends, quotes, colons and a
    leading dash; each means exactly itself.

    Control: the root of that name is written; its neighbour, which a glob would match, is
    not.
    """
    root, beside = tmp_path.resolve() / name, tmp_path.resolve() / "a"
    for directory in (root, root / name, beside):
        directory.mkdir()
    (beside / "file").write_text("x")
    spec = spec_of(write=(root,), deny=(root / name,))
    inside = await boxes.act(spec, WRITE, paths=[str(root / "f"), str(root / name / "f"), str(beside / "file")])
    assert inside[str(root / "f")] == "done"
    assert {inside[str(root / name / "f")], inside[str(beside / "file")]} <= REFUSED, inside


async def test_a_missing_root_is_refused(boxes: Boxes, ws: Path) -> None:
    """
    A spec names a root that does not exist; the run is refused with the path, and nothing
    starts.

    Control: none: there is nothing to run without a box.
    """
    missing = (str(ws / "missing"),)
    for filesystem in (FilesystemPolicy(write=missing), FilesystemPolicy(read=missing)):
        with pytest.raises(SpecError, match="does not exist"):
            await boxes.run(SandboxSpec(filesystem=filesystem), ["true"])


# --- links -----------------------------------------------------------------------------


async def test_symbolic_links_lead_nowhere(
    boxes: Boxes, ws: Path, home: Path, outside: Path, secrets: list[str]
) -> None:
    """
    Links in the workspace lead to files and directories outside, to a key and to
    /proc/1/root; reading and writing through each is refused.

    Control: without a box they are read and written through.
    """
    (outside / "file").write_text("content")
    for name, target in {
        "file": outside / "file",
        "dir": outside,
        "up": Path("../outside"),
        "key": home / ".ssh/id_ed25519",
        "root": Path("/proc/1/root"),
    }.items():
        (ws / name).symlink_to(target)
    script = """
attempt("read a file", read, "file")
attempt("write a file", write, "file")
attempt("write in a directory", write, "dir/new")
attempt("write upwards", write, "up/new")
attempt("read a key", read, "key")
attempt("list through init", os.listdir, "root/")
"""
    inside = await boxes.act(spec_of(write=(ws,)), Act(script))
    assert set(inside.values()) <= REFUSED, inside
    assert (outside / "file").read_text() == "content"
    control = Act("os.chdir(arguments['ws'])" + script).outside(ws=str(ws))
    assert set(list(control.values())[:5]) == {"done"}


async def test_a_link_left_by_one_run_is_not_followed_by_the_next(
    boxes: Boxes, ws: Path, home: Path, outside: Path, secrets: list[str]
) -> None:
    """
    A box plants links to a key and to a directory outside; the boxes after it, read-only
    and writable, read through them in vain.

    Control: cat reads the secrets through the same links without a box.
    """
    (outside / "file").write_text("secret")
    plant = f"ln -s {home}/.ssh/id_ed25519 key; ln -s {outside}/file file; ln -s {outside} dir; ln -s /proc/self/environ env"
    (await boxes.run(spec_of(write=(ws,)), ["sh", "-c", plant])).check()
    reading = ["cat", "key", "file", "dir/file"]
    assert subprocess.run(reading, cwd=ws, capture_output=True, text=True, check=True).stdout == "secret" * 3
    for spec in (SandboxSpec.read_only(ws), spec_of(write=(ws,))):
        result = await boxes.run(spec, reading, cwd=str(ws))
        assert (result.text(), result.exit_code) == ("", 1)
        errors = result.text("stderr")
        assert errors.count("Permission denied") + errors.count("No such file or directory") == 3


async def test_a_root_that_is_replaced_by_a_link_is_refused(boxes: Boxes, ws: Path, outside: Path) -> None:
    """
    A box tries to rename and remove its own root; then the root is replaced by a link on
    the host, and the next run is refused.

    Control: the replacement itself is done without a box.
    """
    spec = spec_of(write=(ws,))
    replace = Act(
        "attempt('rename', os.rename, arguments['ws'], arguments['ws'] + '.aside'); attempt('remove', os.rmdir, arguments['ws'])"
    )
    inside = await boxes.act(spec, replace, ws=str(ws))
    assert set(inside.values()) <= REFUSED | {"EBUSY"}
    ws.rmdir()
    ws.symlink_to(outside)
    with pytest.raises(SpecError, match="symbolic link"):
        await boxes.run(spec, ["true"])


LINK = Act(
    """
attempt("hard link", os.link, arguments["source"], arguments["target"])
attempt("hard link through /proc", lambda: os.link("/proc/self/fd/%d" % os.open(arguments["source"], os.O_RDONLY), arguments["target"] + "2", follow_symlinks=True))
"""
)


async def test_hard_links_do_not_cross_into_the_workspace(boxes: Boxes, ws: Path, outside: Path) -> None:
    """
    A readable file is hard-linked into the workspace, by name and through /proc.

    Control: without a box the link is made.
    """
    (outside / "file").write_text("content")
    named = {"source": str(outside / "file"), "target": str(ws / "linked")}
    inside = await boxes.act(spec_of(write=(ws,), read=(outside,)), LINK, **named)
    assert set(inside.values()) <= REFUSED, inside
    assert LINK.outside(**named)["hard link"] == "done"


SWAP = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
print("begun", flush=True)
end = time.time() + 2
while time.time() < end:
    if not os.path.islink(".husky") and not os.path.islink("link"):
        if os.path.isdir("link"):
            os.rmdir("link")
        os.symlink(sys.argv[1], "link")
    try:
        os.mkdir(".husky")  # each box that ends moves what it finds under the protected name away
    except FileExistsError:
        pass
    for _ in range(100):
        libc.renameat2(-100, b".husky", -100, b"link", 2)
"""


async def while_another_box_swaps(boxes: Boxes, ws: Path, home: Path) -> tuple[set[str], list[Exception]]:
    """
    What boxes read of credentials, and what opening them raised, while another box of
    the same workspace exchanges a protected name with a link again and again.
    """
    (ws / "link").symlink_to(home / ".ssh")
    spec = spec_of(write=(ws,))
    attacker = [*PYTHON, SWAP, str(home / ".ssh")]
    await boxes.run(spec, ["true"])  # what only the first box has to find out is not the race's
    reading = ["cat", ".husky/id_ed25519", "link/id_ed25519"]
    seen: set[str] = set()
    raised: list[Exception] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(boxes.run, spec, attacker)
        started = time.monotonic()
        with anyio.move_on_after(15):  # a box of a busy engine may take longer than the race
            while not seen or time.monotonic() < started + 2:
                try:
                    seen.add((await boxes.run(spec, reading)).text())
                except (OSError, SandboxError) as exc:
                    raised.append(exc)
    left = ws / ".husky"
    left.rmdir() if left.is_dir() and not left.is_symlink() else left.unlink(missing_ok=True)
    left.symlink_to(home / ".ssh")
    outside = subprocess.run(reading[:2], cwd=ws, capture_output=True, text=True, check=False)
    assert outside.stdout == "secret"
    return seen, raised


async def test_a_link_swapped_in_by_another_box_is_not_followed(
    boxes: Boxes, ws: Path, home: Path, secrets: list[str]
) -> None:
    """
    One box exchanges a protected name with a link to keys again and again while others are
    opened on the same workspace and read both names.

    Control: cat reads the key by the link without a box.
    """
    seen, _ = await while_another_box_swaps(boxes, ws, home)
    assert seen == {""}


async def test_a_link_swapped_in_by_another_box_is_an_error_of_ours(
    boxes: Boxes, ws: Path, home: Path, secrets: list[str]
) -> None:
    """
    The same race; whatever opening a box raises is of the library's own error tree.

    Control: the same race shows that opening does fail.
    """
    _, raised = await while_another_box_swaps(boxes, ws, home)
    assert [exc for exc in raised if not isinstance(exc, SandboxError)] == []


async def test_a_file_of_one_root_is_not_moved_into_a_readable_one(boxes: Boxes, ws: Path, outside: Path) -> None:
    """
    A file of the workspace is renamed into a readable root.

    Control: without a box it is moved.
    """
    (ws / "file").touch()
    move = Act("attempt('rename', os.rename, arguments['from'], arguments['to'])")
    paths = {"from": str(ws / "file"), "to": str(outside / "file")}
    assert await boxes.act(spec_of(write=(ws,), read=(outside,)), move, **paths) != {"rename": "done"}
    assert ((ws / "file").exists(), list(outside.iterdir())) == (True, [])
    assert move.outside(**paths) == {"rename": "done"}


# --- names that other programs obey ------------------------------------------------------

PROTECTED = Act(
    """
os.chdir(arguments["ws"])
for path in (".git/config", ".git/hooks/pre-commit", ".envrc", ".vscode/tasks.json", ".github/workflows/ci.yml", ".husky/pre-commit", "AGENTS.md"):
    attempt("write " + path, write, path)
for path in (".git", ".git/hooks", ".git/config", ".github", ".github/workflows", ".vscode", ".husky", ".envrc"):
    attempt("move " + path, lambda: (os.rename(path, path + ".aside"), os.rename(path + ".aside", path)))
attempt("lock and replace", lambda: (write(".git/config.lock"), os.rename(".git/config.lock", ".git/config")))
attempt("replace hooks", lambda: (os.mkdir(".git/new"), os.rename(".git/new", ".git/hooks")))
attempt("link hooks", os.link, ".git/hooks/kept", ".git/objects/kept")
"""
)


async def test_protected_names_are_neither_written_nor_moved_aside(boxes: Boxes, repository: Path) -> None:
    """
    Git's configuration and hooks, editor tasks, CI workflows, hook managers and agents'
    instructions are written, moved aside, replaced by lock and rename, and linked.

    Control: without a box each of them is done, except renaming over a full directory.
    """
    for name in (
        ".envrc",
        ".vscode/tasks.json",
        ".github/workflows/ci.yml",
        ".husky/pre-commit",
        "AGENTS.md",
        ".git/hooks/kept",
    ):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text("kept")
    (repository / ".git/hooks/pre-commit").write_text("kept")
    before = (repository / ".git/config").read_text()
    inside = await boxes.act(SandboxSpec.workspace_write(repository), PROTECTED, ws=str(repository))
    assert {what: answer for what, answer in inside.items() if answer not in ("EROFS", "EBUSY")} == {
        "link hooks": "EXDEV"
    }
    assert {answer for what, answer in inside.items() if what.startswith("write")} == {"EROFS"}
    assert {answer for what, answer in inside.items() if what.startswith("move")} == {"EBUSY"}
    assert (repository / ".git/config").read_text() == before
    (repository / ".git/new").rmdir()
    (repository / ".git/hooks/pre-commit").unlink()
    (repository / ".git/hooks/kept").write_text("kept")
    control = PROTECTED.outside(ws=str(repository))
    assert set(control.values()) <= {"done", "ENOTEMPTY"}
    assert control["replace hooks"] == "ENOTEMPTY"


async def test_what_lies_beside_protected_names_stays_writable(boxes: Boxes, repository: Path) -> None:
    """
    Objects, refs, an index and notes beside the protected names are written; work must go
    on.

    Control: none: that it succeeds in the box is the point.
    """
    script = "echo x > .git/index2 && mkdir .git/objects/aa && echo x > .git/refs/heads/x && rm .git/refs/heads/x && mkdir .github && echo x > .github/notes"
    (await boxes.run(SandboxSpec.workspace_write(repository), ["sh", "-c", script])).check()


async def test_a_worktree_does_not_open_its_repository(boxes: Boxes, repository: Path, tmp_path: Path) -> None:
    """
    In a git worktree the `.git` file is rewritten and moved aside, to lead git elsewhere.

    Control: the file still leads to the real repository afterwards.
    """
    tree = tmp_path.resolve() / "tree"
    git(repository, "worktree", "add", "-q", str(tree), "-b", "tree")
    result = await boxes.run(
        SandboxSpec.workspace_write(tree), ["sh", "-c", "echo gitdir: /tmp/evil > .git; mv .git aside; cat .git"]
    )
    assert result.text() == f"gitdir: {repository}/.git/worktrees/tree\n"
    assert "Read-only file system" in result.text("stderr")
    assert "busy" in result.text("stderr")


async def test_protected_names_that_appear_are_reported(boxes: Boxes, ws: Path) -> None:
    """
    A box makes a repository, editor tasks and an environment file where none were; each is
    reported and moved away, and no stub of the backend's own is left.

    Control: a run that makes none reports none.
    """
    spec = SandboxSpec.workspace_write(ws)
    assert (await boxes.run(spec, ["true"])).violations == ()
    result = await boxes.run(spec, ["sh", "-c", "mkdir -p .git/hooks .vscode && touch .git/config .envrc plain"])
    assert {v.kind for v in result.violations} == {"protected-path-created"}
    made = {".git", ".git/config", ".git/hooks", ".vscode", ".envrc"}
    assert {v.target for v in result.violations} == {str(ws / name) for name in made}
    assert sorted(path.name for path in ws.iterdir()) == ["plain"], "no stub is left"


PLANT = """
set -e
mkdir -p evil/objects evil/refs
echo "ref: refs/heads/main" > evil/HEAD
printf '[core]\nrepositoryformatversion = 0\nbare = false\nworktree = %s\nfsmonitor = "touch %s/ran; false"\n' "$PWD" "$PWD" > evil/config
"""


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("echo gitdir: evil > .git", id="file"),
        pytest.param("mv evil/* .; rmdir evil 2> /dev/null || true", id="bare"),
    ],
)
async def test_a_planted_repository_is_reported(boxes: Boxes, ws: Path, how: str) -> None:
    """
    A box plants a repository whose configuration runs a program, by a `.git` file and as a
    bare one: git, run there afterwards, does not execute it.

    Control: planted without a box, git executes it.
    """
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", PLANT + how])
    assert result.ok, result.text("stderr")
    assert result.violations
    subprocess.run(["git", "status"], cwd=ws, capture_output=True, check=False)
    assert not (ws / "ran").exists()
    for left in ws.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    subprocess.run(["sh", "-c", PLANT + how], cwd=ws, capture_output=True, check=True)
    subprocess.run(["git", "status"], cwd=ws, capture_output=True, check=False)
    assert (ws / "ran").exists(), "outside, git runs what was planted"


async def test_a_repository_whose_configuration_runs_programs(
    boxes: Boxes, repository: Path, outside: Path, home: Path, secrets: list[str]
) -> None:
    """
    A hostile repository runs its programs by filters, hooks, fsmonitor and pager: in the
    box, without the key and without a mark outside.

    Control: the same git commands without a box steal the key.
    """
    marker = outside / "ran"
    evil = repository / "evil.sh"
    evil.write_text(
        f"#!/bin/sh\ncat {home}/.ssh/id_ed25519 >> {repository}/stolen\necho >> {repository}/ran\necho >> {marker}\nexec cat\n"
    )
    evil.chmod(0o755)
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    for key in (
        "filter.evil.clean",
        "filter.evil.smudge",
        "diff.evil.textconv",
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
    ):
        git(repository, "config", key, str(evil))
    (repository / ".git/hooks/post-checkout").symlink_to(evil)
    (repository / "README.md").write_text("changed\n")
    words = ["sh", "-c", "git status; git diff; git add README.md; git checkout -q -b other"]
    result = await boxes.run(SandboxSpec.workspace_write(repository), words, timeout=30)
    assert (repository / "ran").exists(), ("it ran, in the box", result)
    assert (marker.exists(), (repository / "stolen").read_text()) == (False, "")
    plant = (
        "git config core.hooksPath /tmp; git config filter.x.clean id; git config alias.st '!id'; ls .git/config.lock"
    )
    refused = await boxes.run(SandboxSpec.workspace_write(repository), ["sh", "-c", plant])
    assert refused.text() == ""
    subprocess.run(words, cwd=repository, capture_output=True, timeout=30, check=False)
    assert (marker.exists(), "secret" in (repository / "stolen").read_text()) == (True, True)


# --- special files and memory ------------------------------------------------------------


async def test_no_device_is_made(boxes: Boxes, ws: Path, outside: Path) -> None:
    """
    Device nodes are made in the workspace; a fifo, which is harmless, may be.

    Control: root makes all of them without a box.
    """
    script = """
import stat
os.chdir(arguments["where"])
attempt("null", os.mknod, "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
attempt("mem", os.mknod, "mem", 0o666 | stat.S_IFCHR, os.makedev(1, 1))
attempt("disk", os.mknod, "disk", 0o666 | stat.S_IFBLK, os.makedev(254, 0))
attempt("fifo", os.mkfifo, "fifo")
"""
    inside = await boxes.act(spec_of(write=(ws,)), Act(script), where=str(ws))
    assert inside.pop("fifo") == "done"
    assert set(inside.values()) <= {"EPERM", "EACCES"}
    if IS_ROOT:
        assert set(Act(script).outside(where=str(outside)).values()) == {"done"}


@needs_root
async def test_a_device_that_lies_in_the_workspace_is_not_opened(boxes: Boxes, ws: Path) -> None:
    """
    A device node that root left in the workspace is opened.

    Control: without a box it opens.
    """
    os.mknod(ws / "device", 0o666 | 0o020000, os.makedev(1, 3))
    (ws / "device").chmod(0o666)
    paths = [str(ws / "device")]
    assert set((await boxes.act(spec_of(write=(ws,)), WRITE, paths=paths)).values()) <= REFUSED
    assert WRITE.outside(paths=paths) == {paths[0]: "done"}


MARK = Act(
    """
os.umask(0)
def make(path, mode):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, mode))
    if not os.stat(path).st_mode & 0o6000:
        raise OSError(errno.EPERM, "")
os.chdir(arguments["ws"])
write("plain")
attempt("chmod u+s", os.chmod, "plain", 0o4755)
attempt("chmod g+s", os.chmod, "plain", 0o2755)
attempt("fchmod", os.chmod, os.open("plain", os.O_RDONLY), 0o4755)
attempt("fchmodat", os.chmod, "plain", 0o4755, dir_fd=os.open(".", os.O_RDONLY))
attempt("open", make, "opened", 0o4755)
attempt("mknod", os.mknod, "made", 0o104755)
answers["marked"] = [entry.name for entry in os.scandir(".") if entry.stat().st_mode & 0o6000]
"""
)


async def test_no_file_is_marked_to_run_as_its_owner(boxes: Boxes, ws: Path, outside: Path) -> None:
    """
    Set-user-id and set-group-id are set by chmod, fchmod, fchmodat, open and mknod.

    Control: without a box chmod sets them.
    """
    # A root caller's workspace belongs to root on the host, and so does a file made in the box:
    # with the mark, whoever reaches it there becomes root.
    inside = await boxes.act(spec_of(write=(ws,)), MARK, ws=str(ws))
    control = MARK.outside(ws=str(outside))
    for file in (*ws.iterdir(), *outside.iterdir()):
        file.chmod(0o600)
    assert control["chmod u+s"] == "done"
    assert inside.pop("marked") == []
    assert set(inside.values()) == {"EPERM"}


async def test_the_device_directory_is_small(boxes: Boxes, ws: Path) -> None:
    """
    /dev is listed, if it can be, and what programs need of it is used.

    Control: the host's /dev holds more.
    """
    script = "ls /dev 2> /dev/null; for f in null zero full random urandom tty; do test -c /dev/$f || echo missing $f; done; echo x > /dev/null"
    result = await boxes.run(spec_of(write=(ws,)), ["sh", "-c", script])
    names = {
        "core",
        "fd",
        "full",
        "null",
        "ptmx",
        "pts",
        "random",
        "shm",
        "stderr",
        "stdin",
        "stdout",
        "tty",
        "urandom",
        "zero",
    }
    assert set(result.check().text().split()) in (names, set())
    assert len(os.listdir("/dev")) > len(names)


FLOOD = Act(
    """
def flood(path):
    try:
        with open(path, "wb", buffering=0) as file:
            for _ in range(arguments["mib"]):
                file.write(bytes(1 << 20))
    finally:
        answers["size of " + path] = os.stat(path).st_size >> 20
        os.unlink(path)
for path in arguments["paths"]:
    attempt(path, flood, path)
"""
)


async def test_memory_behind_files_is_bounded(boxes: Boxes, ws: Path, home: Path) -> None:
    """
    20 MiB are written to each private directory of 8 MiB.

    Control: without a box /dev/shm takes them.
    """
    paths = ["/dev/shm/flood", "/tmp/flood", "/run/flood", "/var/tmp/flood", str(home / "flood")]
    inside = await boxes.act(spec_of(write=(ws,), tmp_bytes=8 << 20), FLOOD, paths=paths, mib=20)
    assert {inside[path] for path in paths} == {"ENOSPC"}
    assert {inside["size of " + path] for path in paths} == {8}
    control = FLOOD.outside(paths=paths[:1], mib=20)
    assert list(control.values()) == [20, "done"]


@contextlib.contextmanager
def file_in_shared_memory() -> Iterator[Path]:
    path = Path(f"/dev/shm/sandboxkit-test-{os.getpid()}")
    path.write_text("of the host")
    try:
        yield path
    finally:
        path.unlink()


async def test_shared_memory_of_the_host_is_not_there(boxes: Boxes, ws: Path) -> None:
    """
    A file of the host's /dev/shm is read.

    Control: without a box it is read.
    """
    with file_in_shared_memory() as path:
        assert set((await boxes.act(spec_of(write=(ws,)), READ, paths=[str(path)])).values()) <= REFUSED
        assert READ.outside(paths=[str(path)]) == {str(path): "done"}


# --- what this library runs from -----------------------------------------------------------

REWRITE = """
try() { "$@" 2>/dev/null && echo "done: $*"; }
try sh -c 'echo evil > env/lib/evil.pth'
try sh -c 'echo evil >> env/pyvenv.cfg'
try sh -c 'echo evil > env/lib/python3*/site-packages/evil.pth'
try sh -c 'echo evil >> library/sandboxkit/__init__.py'
try touch library/sandboxkit/evil.py
try rm -r env/bin
try mv env aside
try mv library aside
try mv library/sandboxkit aside
try ln -sfn /tmp env/bin/python
try sh -c 'echo >> other/pyvenv.cfg'
try mv other other2
"""


@pytest.fixture
def application(ws: Path) -> Path:
    """
    A workspace that holds the environment and a copy of this library an application runs from.
    """
    for name in ("env", "other"):
        subprocess.run([interpreter(), "-m", "venv", "--without-pip", ws / name], check=True)
    package = Path(sandboxkit.__file__).parent
    shutil.copytree(package, ws / "library/sandboxkit", ignore=shutil.ignore_patterns("__pycache__"))
    return ws


async def test_what_the_library_runs_from_is_not_rewritten(boxes: Boxes, application: Path) -> None:
    """
    The workspace holds the environment and the library the application runs from; a box
    rewrites, moves and links them.

    Control: without a box the same script succeeds. Another environment beside it is
    writable in the box, too.
    """
    environment = importable()
    environment["PYTHONPATH"] = (
        f"{application}/library:{Path(pydantic.__file__).parents[1]}:{environment['PYTHONPATH']}"
    )
    python = str(application / "env/bin/python")
    driver = boxes.program(BOXED, str(application), "sh", "-c", REWRITE, python=python)
    done = await anyio.run_process(driver, env=environment, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == "done: sh -c echo >> other/pyvenv.cfg\ndone: mv other other2\n"
    assert "evil" not in (application / "library/sandboxkit/__init__.py").read_text()
    (application / "other2").rename(application / "other")
    control = subprocess.run(["sh", "-c", REWRITE], cwd=application, capture_output=True, text=True, check=False)
    assert control.stdout.count("done: ") >= 9, control


async def test_the_running_interpreter_is_no_writable_root(boxes: Boxes) -> None:
    """
    A spec makes the running interpreter or this library writable; the run is refused.

    Control: none: there is nothing to run without a box.
    """
    for path in {
        os.path.realpath(sys.prefix),
        os.path.realpath(sys.base_prefix),
        str(Path(sandboxkit.__file__).resolve().parent),
    }:
        with pytest.raises(SpecError, match=r"runs from|cannot be written"):
            await boxes.run(spec_of(write=(Path(path),)), ["true"])


async def test_the_interpreters_files_are_read_only(boxes: Boxes, ws: Path) -> None:
    """
    Files are made in the interpreter's prefix and its standard library.

    Control: none: it would change the interpreter that runs the tests.
    """
    script = """
for path in arguments["paths"]:
    attempt(path, lambda: (write(path + "/sandboxkit-test"), os.unlink(path + "/sandboxkit-test")))
"""
    inside = await boxes.act(spec_of(write=(ws,)), Act(script), paths=[sys.base_prefix, os.path.dirname(os.__file__)])
    assert set(inside.values()) <= REFUSED, inside


async def test_a_second_root_inside_the_first_adds_nothing(boxes: Boxes, ws: Path, outside: Path) -> None:
    """
    A writable root lies in another; it is writable, and nothing beside them is there.

    Control: the inner root is written.
    """
    (ws / "inner").mkdir()
    inside = await boxes.act(spec_of(write=(ws, ws / "inner")), WRITE, paths=[str(ws / "inner/f"), str(outside / "f")])
    assert inside[str(ws / "inner/f")] == "done"
    assert inside[str(outside / "f")] in REFUSED


RACE = Act(
    """
os.chdir(arguments["ws"])
end = time.time() + arguments["seconds"]
swapper = os.fork()
if not swapper:
    while time.time() < end:
        libc.renameat2(-100, b"dir", -100, b"link", 2)
    os._exit(0)
answers["read"] = answers["written"] = 0
while time.time() < end:
    try:
        answers["read"] += read("dir/secret") == b"secret"
    except OSError:
        pass
    try:
        fd = os.open("dir/new", os.O_WRONLY | os.O_CREAT)
        answers["written"] += os.fstat(fd).st_dev != 0
        os.close(fd)
    except OSError:
        pass
os.waitpid(swapper, 0)
"""
)


async def test_a_directory_swapped_for_a_link_leads_nowhere(boxes: Boxes, ws: Path, outside: Path) -> None:
    """
    In a box, one process exchanges a directory with a link that leads outside, thousands of
    times, while another reads and writes through the name. New boxes with that directory
    as their working directory are opened meanwhile.

    Control: without a box the same race reads the secret and writes beside it.
    """
    (ws / "dir").mkdir()
    (ws / "link").symlink_to(outside)
    (outside / "secret").write_text("secret")
    spec = spec_of(write=(ws,))
    answers: list[dict[str, object]] = []
    seen: set[str] = set()

    async def race() -> None:
        answers.append(await boxes.act(spec, RACE, ws=str(ws), seconds=1))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(race)
        while not answers:
            with contextlib.suppress(SandboxError):
                seen.add((await boxes.run(spec, ["cat", "secret"], cwd=str(ws / "dir"))).text())
    assert answers[0]["read"] == 0
    assert answers[0]["written"] != 0, "the directory itself is there to be written"
    assert (sorted(path.name for path in outside.iterdir()), seen <= {""}) == (["secret"], True)
    assert RACE.outside(ws=str(ws), seconds=0.5)["read"] > 0
    assert (outside / "new").exists()


__all__ = exported(globals(), "application", "secrets", *FIXTURES)
