"""
What a refusal means and which line of a spec allows it, as a table; no machine is looked
at but for the paths of `look`.
"""

from __future__ import annotations

import errno
import os
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.backends.bubblewrap.test_mounts import survey

from sandboxkit.backends._host import Seen, look
from sandboxkit.backends._protection import Watched
from sandboxkit.backends._refusals import Ground, is_of_the_box, merged, violation
from sandboxkit.confine import calls
from sandboxkit.model import FilesystemPolicy, NetworkPolicy, ProcessPolicy, Refusal, SandboxSpec

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.model import Violation

SPEC = SandboxSpec(
    filesystem=FilesystemPolicy(
        read=("/data",), write=("/home/u/ws", "/srv/b"), deny=("/home/u/ws/secret", "/home/u/ws/later")
    )
)
DENIED = ("/home/u/.ssh",)
PROTECTED = ("/home/u/ws/.git/config",)


def ground(spec: SandboxSpec = SPEC, *, nests: bool = True) -> Ground:
    host = survey(spec, denied=DENIED, protected=PROTECTED, launcher=("/usr/lib/python3",))
    host = replace(host, matched=("/data/x.env",), watched=(Watched("/home/u/ws/Jenkinsfile"),))
    return Ground.of(spec, host, machine="x86_64", nests=nests, homes=("/home/v",), search=("/opt/tool/bin",))


def refused(act: Any, *paths: str, error: int = errno.EACCES, call: str = "openat", **fields: Any) -> Refusal:
    values: dict[str, Any] = {
        "number": 257,
        "arguments": (0,) * 6,
        "is_filtered": False,
        "program": "/usr/bin/tool",
        "count": 1,
        **fields,
    }
    return Refusal(act=act, call=call, error=error, paths=paths, **values)


def place(path: str, kind: Any = "file", *, is_real: bool = True, above: bool = True, names: int = 1) -> Seen:
    return Seen(path, kind, is_real, above, names)


def judged(refusal: Refusal, *kinds: Any, spec: SandboxSpec = SPEC, **fields: Any) -> Violation:
    kinds = kinds or ("file",) * len(refusal.paths)
    seen = tuple(place(path, kind, **fields) for path, kind in zip(refusal.paths, kinds, strict=True))
    return violation(refusal, seen, ground(spec))


NO_LINE = {
    "a denied path": refused("read", "/home/u/ws/secret"),
    "below a denied path": refused("read", "/home/u/ws/secret/a"),
    "a pattern": refused("read", "/data/x.env"),
    "credentials": refused("read", "/home/u/.ssh/id_ed25519"),
    "credentials of another home": refused("read", "/home/v/.ssh/id_ed25519"),
    "another home": refused("read", "/home/v"),
    "what the system obeys": refused("entry", "/etc/cron.d/x", error=errno.EROFS),
    "what the system runs": refused("content", "/usr/local/bin/x", error=errno.EROFS),
    "what PATH leads to": refused("content", "/opt/tool/bin/x", error=errno.EROFS),
    "above what PATH leads to": refused("entry", "/opt/tool/x", error=errno.EROFS),
    "credentials of nobody yet": refused("read", "/home/u/.aws/credentials"),
    "credentials of the system": refused("read", "/etc/shadow"),
    "a protected file": refused("content", "/home/u/ws/.git/config", error=errno.EROFS),
    "a watched name": refused("entry", "/home/u/ws/Jenkinsfile"),
    "a name that would be protected": refused("entry", "/data/r/.git/hooks/pre-commit", error=errno.EROFS),
    "a rule file of an editor": refused("create", "/data/.vscode/tasks.json", error=errno.EROFS),
    "what the library runs from": refused("content", "/usr/lib/python3/os.py", error=errno.EROFS),
    "the home": refused("read", "/home/u"),
    "above the home": refused("entry", "/home/x", error=errno.EROFS),
    "the root": refused("entry", "/x", error=errno.EROFS),
    "a private directory": refused("entry", "/tmp/x"),
    "a device": refused("content", "/dev/kvm"),
    "the kernel's files": refused("content", "/proc/sys/kernel/core_pattern"),
    "sysfs, written": refused("content", "/sys/power/state"),
    "what is named already": refused("read", "/data/f"),
    "another mount": refused("entry", "/home/u/ws/a", "/srv/b/a", error=errno.EXDEV),
    "a mount point": refused("entry", "/home/u/ws/x", error=errno.EBUSY),
    "no text": refused("read", "/opt2/\udcff"),
    "a socket": refused("connect", "/run/docker.sock"),
}


@pytest.mark.parametrize("name", NO_LINE)
def test_no_line_is_proposed_for(name: str) -> None:
    found = judged(NO_LINE[name])
    assert found.spec_line is None, found
    assert found.detail


@pytest.mark.parametrize(
    ("refusal", "kind", "line"),
    [
        (refused("read", "/opt2/f"), "file", 'filesystem.read = ["/opt2/f"]'),
        (refused("read", "/opt2"), "directory", 'filesystem.read = ["/opt2"]'),
        (refused("read", "/home/u/notes"), "file", 'filesystem.read = ["/home/u/notes"]'),
        (refused("read", "/sys/devices/x"), "file", 'filesystem.read = ["/sys/devices/x"]'),
        (refused("exec", "/opt2/bin/t"), "file", 'filesystem.read = ["/opt2/bin/t"]'),
        (refused("content", "/data/f", error=errno.EROFS), "file", 'filesystem.write = ["/data/f"]'),
        (refused("attributes", "/data", error=errno.EROFS), "directory", 'filesystem.write = ["/data"]'),
        (refused("create", "/data/f", error=errno.EROFS), "file", 'filesystem.write = ["/data/f"]'),
        (refused("create", "/data/new", error=errno.EROFS), None, 'filesystem.write = ["/data"]'),
        (refused("entry", "/data/d/f", error=errno.EROFS), "file", 'filesystem.write = ["/data/d"]'),
        (refused("read", '/opt2/a "b"\\\n\x7f'), "file", 'filesystem.read = ["/opt2/a \\"b\\"\\\\\\n\\u007f"]'),
    ],
)
def test_the_line_for_a_path(refusal: Refusal, kind: Any, line: str) -> None:
    found = judged(refusal, kind)
    assert found.spec_line == line
    (values,) = tomllib.loads(line)["filesystem"].values()
    assert values in ([refusal.paths[0]], [os.path.dirname(refusal.paths[0])])


@pytest.mark.parametrize("kind", ["link", "other", None])
def test_what_is_no_file_cannot_be_named(kind: Any) -> None:
    assert judged(refused("read", "/opt2/x"), kind).spec_line is None


@pytest.mark.parametrize("act", ["read", "content"])
def test_a_file_with_more_names_is_not_named_by_one(act: Any) -> None:
    assert judged(refused(act, "/opt2/x"), "file", names=1).spec_line is not None
    found = judged(refused(act, "/opt2/x"), "file", names=2)
    assert (found.spec_line, "has other names" in found.detail) == (None, True)


def test_what_the_spec_itself_names_in_the_system_may_be_widened() -> None:
    spec = SandboxSpec(filesystem=FilesystemPolicy(read=("/usr/src/app",)))
    found = judged(refused("entry", "/usr/src/app/build/x", error=errno.EROFS), spec=spec)
    assert found.spec_line == 'filesystem.write = ["/usr/src/app/build"]'


def test_on_the_network_of_the_host_only_a_reserved_port_is_the_boxs() -> None:
    on, off = ground(SandboxSpec(network=NetworkPolicy(mode="host"))), ground()
    unreachable = refused("connect", call="connect", error=errno.ENETUNREACH, address="[2001:db8::1]:80")
    broadcast = refused("connect", call="sendto", address="255.255.255.255:9")
    reserved = refused("bind", call="bind", address="0.0.0.0:80")
    assert [is_of_the_box(one, on) for one in (unreachable, broadcast, reserved)] == [False, False, True]
    assert all(is_of_the_box(one, off) for one in (unreachable, broadcast, reserved))
    assert "no capability" in violation(reserved, (), on).detail


def test_a_path_through_a_link_cannot_be_named() -> None:
    assert judged(refused("read", "/opt2/x"), "file", is_real=False).spec_line is None


def test_a_directory_that_is_missing_cannot_be_named() -> None:
    assert judged(refused("entry", "/data/none/x", error=errno.EROFS), None, above=False).spec_line is None


def test_of_two_paths_the_line_names_what_is_not_writable_yet() -> None:
    moved = refused("entry", "/home/u/ws/a", "/data/b", error=errno.EROFS, call="rename")
    assert judged(moved, "file", None).spec_line == 'filesystem.write = ["/data"]'
    both = refused("entry", "/data/a", "/opt2/b", error=errno.EROFS, call="rename")
    assert judged(both, "file", None).spec_line == 'filesystem.write = ["/data", "/opt2"]'
    assert judged(both, "file", None).target == "/data/a -> /opt2/b"


@pytest.mark.parametrize(
    ("refusal", "kind", "target", "line"),
    [
        (refused("connect", call="connect", address="192.0.2.1:80"), "connect", "192.0.2.1:80", True),
        (refused("connect", call="connect", address="[2001:db8::1]:80"), "connect", "[2001:db8::1]:80", True),
        (refused("bind", call="bind", address="0.0.0.0:8080"), "bind", "0.0.0.0:8080", True),
        (refused("bind", call="bind", address="0.0.0.0:80"), "bind", "0.0.0.0:80", False),
        (refused("connect", call="connect", address="@name"), "connect", "@name", False),
        (refused("signal", call="kill", address="17", error=errno.EPERM), "signal", "17", False),
        (
            refused("socket", call="socket", number=41, arguments=(2, 1, 0, 0, 0, 0), is_filtered=True),
            "connect",
            "the internet",
            True,
        ),
        (
            refused("socket", call="socket", number=41, arguments=(1, 1, 0, 0, 0, 0), is_filtered=True),
            "syscall",
            "socket",
            False,
        ),
        (
            refused("socket", call="socket", number=41, arguments=(40, 1, 0, 0, 0, 0), is_filtered=True),
            "syscall",
            "socket",
            False,
        ),
    ],
)
def test_the_line_for_an_address(refusal: Refusal, kind: str, target: str, line: bool) -> None:
    found = violation(refusal, (), ground())
    assert (found.kind, found.target, found.spec_line) == (kind, target, 'network.mode = "host"' if line else None)


def test_where_the_network_is_on_no_line_helps() -> None:
    spec = SPEC.model_copy(update={"network": NetworkPolicy(mode="host")})
    assert violation(refused("connect", address="192.0.2.1:80"), (), ground(spec)).spec_line is None


def test_past_the_proxy_no_line_helps() -> None:
    spec = SPEC.model_copy(update={"network": NetworkPolicy(allow_hosts=("packages.example.org",))})
    found = violation(refused("connect", address="192.0.2.1:80"), (), ground(spec))
    assert found.spec_line is None
    assert "does not ask the box's proxy" in found.detail


NUMBERS = {call.name: call.number for call in calls("x86_64")}
NEWUSER = 0x10000000


@pytest.mark.parametrize(
    ("name", "arguments", "spec", "line"),
    [
        ("ptrace", (0,) * 6, ProcessPolicy(allow_ptrace=False), "process.allow_ptrace = true"),
        ("ptrace", (0,) * 6, ProcessPolicy(), None),
        ("unshare", (NEWUSER, 0, 0, 0, 0, 0), ProcessPolicy(), "process.allow_nested_userns = true"),
        ("mount", (0,) * 6, ProcessPolicy(), "process.allow_nested_userns = true"),
        ("keyctl", (0,) * 6, ProcessPolicy(), None),
        ("bpf", (0,) * 6, ProcessPolicy(), None),
        ("fchmodat", (0, 0, 0o4755, 0, 0, 0), ProcessPolicy(), None),
    ],
)
def test_the_switch_for_a_call_is_the_one_under_which_the_filter_lets_it_pass(
    name: str, arguments: tuple[int, ...], spec: ProcessPolicy, line: str | None
) -> None:
    made = SPEC.model_copy(update={"process": spec})
    refusal = refused("other", call=name, number=NUMBERS[name], arguments=arguments, is_filtered=True)
    found = violation(refusal, (), ground(made))
    assert (found.kind, found.target, found.spec_line) == ("syscall", name, line)
    without = violation(refusal, (), ground(made, nests=False))
    assert without.spec_line == (None if line and "userns" in line else line)


def test_refusals_of_one_thing_are_one_violation() -> None:
    one = judged(refused("read", "/opt2/f", call="newfstatat", count=2))
    other = judged(refused("read", "/opt2/f", count=3))
    third = judged(refused("read", "/opt2/g"))
    assert [(v.target, v.call, v.count) for v in merged([one, other, third])] == [
        ("/opt2/f", "newfstatat", 5),
        ("/opt2/g", "openat", 1),
    ]


# --- what the caller itself may do ------------------------------------------------------


def test_what_is_there_and_permitted_is_seen(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "f").write_text("")
    (root / "l").symlink_to("f")
    assert look(refused("read", f"{root}/f")) == (Seen(f"{root}/f", "file", True, True),)
    assert look(refused("entry", f"{root}/d/x", call="mkdir")) is None
    assert look(refused("entry", f"{root}/new", call="mkdir")) == (Seen(f"{root}/new", None, True, True),)
    assert look(refused("read", f"{root}/l", call="readlink")) == (Seen(f"{root}/l", "link", False, True),)


@pytest.mark.parametrize(
    ("act", "call", "name"),
    [
        ("read", "openat", "none"),
        ("exec", "execve", "f"),
        ("exec", "execve", "d"),
        ("content", "truncate", "none"),
        ("entry", "unlink", "none"),
        ("entry", "mkdir", "d"),
        ("entry", "openat", "f"),
        ("bind", "bind", "f"),
        ("attributes", "chmod", "none"),
    ],
)
def test_what_would_not_work_outside_either_is_left_out(act: str, call: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    (tmp_path / "d").mkdir()
    assert look(refused(act, f"{tmp_path.resolve()}/{name}", call=call)) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_what_is_not_permitted_outside_is_left_out(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "f").write_text("")
    (root / "f").chmod(0o400)
    assert look(refused("content", f"{root}/f")) is None
    assert look(refused("read", f"{root}/f")) is not None
    assert look(refused("attributes", f"{root}/f", call="fchownat", arguments=(0, 0, 0, 0, 0, 0))) is None
    assert look(refused("attributes", f"{root}/f", call="fchmodat")) is not None
    assert look(refused("attributes", "/etc/passwd", call="fchmodat")) is None
    assert look(refused("read", "/etc/shadow")) is None


def test_what_the_filter_answers_for_a_missing_file_is_the_boxs(tmp_path: Path) -> None:
    touched = refused("attributes", f"{tmp_path.resolve()}/new", call="utimensat", error=errno.EPERM)
    assert look(touched) is None
    assert look(replace(touched, is_filtered=True)) is not None


def test_hard_links_are_counted(tmp_path: Path) -> None:
    one = tmp_path.resolve() / "one"
    one.write_text("")
    os.link(one, tmp_path / "other")
    seen = look(refused("read", str(one)))
    assert seen
    assert seen[0].names == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may bind it")
def test_a_port_that_is_reserved_outside_too_is_left_out() -> None:
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as file:
        first = int(file.read())
    assert look(refused("bind", call="bind", address=f"127.0.0.1:{first}")) == ()
    if first > 1:
        assert look(refused("bind", call="bind", address=f"127.0.0.1:{first - 1}")) is None


def test_a_move_between_file_systems_is_refused_outside_too(tmp_path: Path) -> None:
    source = tmp_path.resolve() / "f"
    source.write_text("")
    target = "/dev/shm/none-such"
    if os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("/dev/shm is no file system of its own")
    moved = refused("entry", str(source), target, call="rename", error=errno.EXDEV)
    assert look(moved) is None
    assert look(replace(moved, paths=(str(source), f"{tmp_path.resolve()}/g"))) is not None
