"""
The order in which a box is built, as whole values: no machine is looked at.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends._survey import Identity, Survey
from sandboxkit.backends._tree import Node, box_tree
from sandboxkit.backends.bubblewrap._mounts import mounts
from sandboxkit.errors import SpecError
from sandboxkit.model import FilesystemPolicy, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandboxkit.model import Mount

USER = Identity(is_root=False, uid=1000, gid=1000, is_named=True)
ROOT = Identity(is_root=True, uid=1_900_000_000, gid=1_900_000_000, is_named=False)


def survey(
    spec: SandboxSpec,
    *,
    identity: Identity = USER,
    files: Iterable[str] = (),
    tools: tuple[str, ...] = (),
    launcher: tuple[str, ...] = (),
    runtime: tuple[str, ...] = ("/usr",),
    denied: tuple[str, ...] = (),
    protected: tuple[str, ...] = (),
) -> Survey:
    named = (*spec.filesystem.write, *spec.filesystem.read, *spec.filesystem.deny)
    listed = ("/etc", "/usr", "/run", "/tmp", "/var/tmp", *named, *tools, *launcher, *runtime, *denied, *protected)
    return Survey(
        identity=identity,
        home="/home/u",
        box_home="/home/u",
        kinds={path: "file" if path in files else "directory" for path in listed},
        system=("/etc", "/usr"),
        links=(("/bin", "usr/bin"),),
        tools=tools,
        runtime=runtime,
        launcher=launcher,
        denied=denied,
        protected=protected,
        watched=(),
        git_identity=b"",
        owners=dict.fromkeys(named, (0, 0)),
        working_directory="/",
    )


def steps(spec: SandboxSpec, host: Survey, data: dict[str, int] | None = None) -> list[str]:
    return [short(mount) for mount in mounts(box_tree(spec, host), spec, host, data=data or {}, instead={})]


def short(mount: Mount) -> str:
    owner = " (mapped)" if mount.owner else ""
    perms = f" {mount.perms:04o}" if mount.perms is not None else ""
    return f"{mount.kind} {mount.target}{perms}{owner}"


def write(*paths: str, deny: tuple[str, ...] = (), read: tuple[str, ...] = ()) -> SandboxSpec:
    return SandboxSpec(filesystem=FilesystemPolicy(write=paths, deny=deny, read=read))


def test_the_whole_order() -> None:
    spec = write("/home/u/ws", deny=("/home/u/ws/secret",), read=("/home/u/ws/vendor", "/data"))
    host = survey(
        spec,
        tools=("/home/u/.pyenv",),
        denied=("/home/u/.ssh", "/home/u/.netrc"),
        files=("/home/u/.netrc",),
        protected=("/home/u/ws/.git/hooks",),
    )
    assert steps(spec, host, {"/home/u/.netrc": 10, "/etc/passwd": 11}) == [
        "symlink /bin",
        "ro-bind /data",
        "ro-bind /etc",
        "tmpfs /run 1777",
        "tmpfs /tmp 1777",
        "ro-bind /usr",
        "tmpfs /home/u 0700",
        "tmpfs /var/tmp 1777",
        "data /home/u/.netrc 0000",
        "ro-bind /home/u/.pyenv",
        "tmpfs /home/u/.ssh 0000",
        "bind /home/u/ws",
        "bind /home/u/ws/.git",
        "tmpfs /home/u/ws/secret 0000",
        "ro-bind /home/u/ws/vendor",
        "ro-bind /home/u/ws/.git/hooks",
        "data /etc/passwd 0444",
        "proc /proc",
        "dev /dev",
        "tmpfs /dev/shm 1777",
        "remount-ro /proc",
        "remount-ro /dev",
        "remount-ro /home/u/.ssh",
        "remount-ro /home/u/ws/secret",
        "remount-ro /",
    ]


def test_what_is_named_belongs_to_a_root_callers_command_and_nothing_else_does() -> None:
    spec = write("/srv/ws")
    host = survey(
        spec,
        identity=ROOT,
        tools=("/home/u/.pyenv",),
        protected=("/srv/ws/.git/config",),
        files=("/srv/ws/.git/config",),
    )
    mapped = [step for step in steps(spec, host) if "mapped" in step]
    assert mapped == ["bind /srv/ws (mapped)", "bind /srv/ws/.git (mapped)", "ro-bind /srv/ws/.git/config (mapped)"]


def test_a_denied_directory_that_holds_an_allowed_one_can_be_passed_through_only() -> None:
    spec = write("/ws", deny=("/ws/a",), read=("/ws/a/b",))
    assert [step for step in steps(spec, survey(spec)) if "/ws" in step] == [
        "bind /ws",
        "tmpfs /ws/a 0111",
        "ro-bind /ws/a/b",
        "remount-ro /ws/a",
    ]


def test_a_credential_stays_hidden_in_a_readable_home_unless_named_itself() -> None:
    spec = write(read=("/home/u",))
    host = survey(spec, denied=("/home/u/.ssh",))
    assert box_tree(spec, host).at("/home/u/.ssh/id") is Node.HIDDEN
    assert box_tree(spec, host).at("/home/u/notes") is Node.READ
    named = write(read=("/home/u/.ssh",))
    assert box_tree(named, survey(named, denied=("/home/u/.ssh",))).at("/home/u/.ssh/id") is Node.READ


def test_tmp_is_private_unless_named() -> None:
    named, inside = write("/tmp"), write("/tmp/ws")
    assert box_tree(named, survey(named)).at("/tmp/x") is Node.WRITE
    tree = box_tree(inside, survey(inside))
    assert (tree.at("/tmp/x"), tree.at("/tmp/ws/x")) == (Node.PRIVATE, Node.WRITE)


def test_what_this_library_runs_from_stays_read_only_and_in_place() -> None:
    spec = write("/ws")
    host = survey(spec, launcher=("/ws/env/.venv",))
    found = steps(spec, host)
    assert found.index("bind /ws/env") < found.index("ro-bind /ws/env/.venv")
    lifted = SandboxSpec(filesystem=FilesystemPolicy(write=("/ws",), allow_host_interpreter_writes=True))
    assert box_tree(lifted, host).at("/ws/env/.venv/bin") is Node.WRITE


def test_a_writable_directory_inside_what_this_library_runs_from_is_refused() -> None:
    spec = write("/opt/env/data")
    with pytest.raises(SpecError, match=r"'/opt/env/data' lies in '/opt/env', which this library itself runs from"):
        box_tree(spec, survey(spec, launcher=("/opt/env",)))


def test_the_childs_interpreter_is_there_even_below_the_hidden_home() -> None:
    spec = SandboxSpec.isolated()
    host = survey(spec, runtime=("/home/u/.pyenv/versions/3.11",))
    assert box_tree(spec, host).at("/home/u/.pyenv/versions/3.11/bin") is Node.READ
    assert box_tree(spec, host).at("/home/u/.pyenv/other") is Node.PRIVATE


def test_the_order_in_which_a_spec_is_written_means_nothing() -> None:
    one = write("/b", "/a/x", deny=("/a",), read=("/a/x/y", "/c"))
    two = SandboxSpec(filesystem=FilesystemPolicy(read=("/c", "/a/x/y"), deny=("/a",), write=("/a/x", "/b")))
    assert steps(one, survey(one)) == steps(two, survey(two))


def test_a_writable_root_directory_is_not_made_read_only_again() -> None:
    spec = write("/")
    assert "remount-ro /" not in steps(spec, survey(spec))


def test_what_the_spec_names_stands_above_the_defaults() -> None:
    spec = write("/")
    tree = box_tree(spec, survey(spec, denied=("/home/u/.ssh",)))
    assert tree.at("/usr/bin") is Node.WRITE
    assert tree.at("/run/docker.sock") is Node.PRIVATE
    assert tree.at("/home/u/.ssh/id") is Node.HIDDEN


def test_a_hidden_root_directory_leaves_what_is_named_below() -> None:
    spec = SandboxSpec(filesystem=FilesystemPolicy(deny=("/",), read=("/usr",)))
    found = steps(spec, survey(spec))
    assert "ro-bind /usr" in found
    assert not [step for step in found if step.split()[1] in ("/etc", "/home/u") or step == "tmpfs / 0000"]


def test_no_mount_point_is_made_on_the_host() -> None:
    spec = write("/")
    host = survey(spec)
    assert "/run" in {mount.target for mount in mounts(box_tree(spec, host), spec, host, data={}, instead={})}
    bare = replace(host, kinds={path: kind for path, kind in host.kinds.items() if path != "/var/tmp"})
    assert "/var/tmp" not in {mount.target for mount in mounts(box_tree(spec, bare), spec, bare, data={}, instead={})}
