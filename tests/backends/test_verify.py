"""
The attack finds each hole, in real boxes, and no hole in a tight one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import anyio
import pytest
from tests.backends.raw_bwrap import BOLD, RawBox, RawBwrap, only

from sandboxkit.backends import VERIFIED, Sandbox, SandboxRegistry, Verification, _verify, attack
from sandboxkit.backends._verify import attack_listed
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.errors import EnforcementError, SetupError
from sandboxkit.guard import EgressPolicy
from sandboxkit.model import Control, Grade, NetworkPolicy, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractAsyncContextManager

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _no_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    home, temp = tmp_path / "home", tmp_path / "temp"
    home.mkdir()
    temp.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temp))
    (home / ".netrc").write_text("secret")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AAA_PASSWORD", "hunter2")
    yield
    assert list(temp.iterdir()) == []


KILLED = """
import sys, time
from sandboxkit.backends._verify import _stage
with _stage() as stage:
    print(stage.root, flush=True)
    time.sleep(60)
"""


async def test_what_a_killed_attack_left_is_removed_by_the_next_one_alone(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path / "temp")}
    with (
        subprocess.Popen([sys.executable, "-c", KILLED], env=environ, stdout=subprocess.PIPE, text=True) as killed,
        subprocess.Popen([sys.executable, "-c", KILLED], env=environ, stdout=subprocess.PIPE, text=True) as alive,
    ):
        assert killed.stdout
        assert alive.stdout
        left, used = Path(killed.stdout.readline().strip()), Path(alive.stdout.readline().strip())
        killed.kill()
        killed.wait()
        assert (left / "outside/canary").exists()
        assert (await attack(RawBwrap())).failure == ""
        assert not left.exists()
        assert (used / "outside/canary").exists()  # its owner lives
        alive.kill()
    assert (await attack(RawBwrap())).failure == ""
    assert not used.exists()


def grades(found: Verification) -> dict[Control, Grade]:
    return {finding.control: finding.grade for finding in found.findings}


def lowered(found: Verification) -> dict[Control, Grade]:
    return {control: grade for control, grade in grades(found).items() if grade is not Grade.ENFORCED}


async def test_a_tight_box_is_believed() -> None:
    found = await attack(RawBwrap())
    assert found.failure == ""
    assert lowered(found) == {}
    assert set(grades(found)) == set(VERIFIED)
    assert found.apply(BOLD) == BOLD
    assert 0 < found.duration_s < 5


HOLES = [
    ("read", Control.FS_READ, "read a file outside the box"),
    ("home", Control.FS_READ, "listed the home directory"),
    ("write", Control.FS_WRITE, "wrote a file outside"),
    ("net", Control.NET_NONE, "connected to a listener"),
    ("nested", Control.PROCESS_NESTED_USERNS, "made a user namespace"),
    ("syscalls", Control.SYSCALLS, "ran without a seccomp filter"),
    ("env", Control.ENV, "AAA_PASSWORD"),
    ("launcher-env", Control.ENV, "AAA_PASSWORD"),
    ("pid", Control.PROCESS_ISOLATION, "could signal a process of the host"),
    ("pid", Control.PROCESS_KILL_TREE, "left a process behind"),
]


@pytest.mark.parametrize(("hole", "control", "says"), HOLES, ids=[f"{hole}-{control}" for hole, control, _ in HOLES])
async def test_a_hole_is_found_and_named(hole: str, control: Control, says: str) -> None:
    found = await attack(RawBwrap(frozenset({hole})))
    assert found.failure == ""
    assert lowered(found)[control] is Grade.ABSENT
    reason = next(finding.reason for finding in found.findings if finding.control is control)
    assert says in reason
    believed = found.apply(BOLD)
    assert believed.grade(control) is Grade.ABSENT
    assert believed.reason(control) == reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could write it")
async def test_a_writable_core_pattern_is_found() -> None:
    before = Path("/proc/sys/kernel/core_pattern").read_bytes()
    found = await attack(RawBwrap(frozenset({"proc"})))
    assert lowered(found) == {Control.FS_WRITE: Grade.ABSENT}
    assert Path("/proc/sys/kernel/core_pattern").read_bytes() == before


async def test_no_box_at_all_loses_everything() -> None:
    found = await attack(RawBwrap(frozenset({"bare"})))
    assert found.failure == ""
    assert set(lowered(found)) >= set(VERIFIED) - {Control.PROCESS_NESTED_USERNS, Control.ENV}
    assert Path("/etc/passwd").read_text()


async def test_a_box_without_a_shell_is_hardly_believed() -> None:
    found = await attack(RawBwrap(frozenset({"empty"})))
    assert set(grades(found).values()) == {Grade.PARTIAL}
    assert set(grades(found)) == set(VERIFIED)
    assert all("could not be verified: program '/bin/sh' was not found" in finding.reason for finding in found.findings)


async def test_an_honest_claim_is_left_alone() -> None:
    honest = only(net_none=Grade.ABSENT)
    backend = RawBwrap(frozenset({"net"}), honest)
    found = await attack(backend)
    assert found.apply(honest) == honest
    assert backend.opened[0].allow_degraded == {Control.NET_NONE}


async def test_the_box_is_the_strictest_the_backend_claims() -> None:
    backend = RawBwrap()
    await attack(backend)
    (spec,) = backend.opened
    assert spec.allow_degraded == frozenset()
    assert spec.network.mode == "none"
    assert spec.filesystem.base == "system"
    assert spec.filesystem.read == ()


class Broken(RawBwrap):
    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        raise SetupError("broken", "setting up uid map: Permission denied; allow user namespaces")


async def test_a_box_that_does_not_start_is_a_failure_with_its_remedy() -> None:
    found = await attack(Broken())
    assert found.failure.endswith("setting up uid map: Permission denied; allow user namespaces")
    assert found.findings == ()


class Raising(RawBwrap):
    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        raise ZeroDivisionError("oops")


async def test_whatever_a_backend_raises_is_a_failure() -> None:
    assert (await attack(Raising())).failure == "the backend raised ZeroDivisionError: oops"


class SleepyBox(RawBox):
    async def run(self, *args: object, **kwargs: object) -> NoReturn:
        await anyio.sleep(60)
        raise AssertionError


class Sleepy(RawBwrap):
    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        yield SleepyBox(self, spec)


async def test_a_box_that_hangs_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verify, "_PATIENCE", 0.2)
    started = time.monotonic()
    assert (await attack(Sleepy())).failure == "it did not end within 0.2 s"
    assert time.monotonic() - started < 5


async def test_a_script_that_is_cut_off_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "attack.sh"
    script.write_text("echo inode=; exit 3")
    monkeypatch.setattr(_verify, "_SCRIPT", script)
    assert "the attack's script exited with code 3 before its end" in (await attack(RawBwrap())).failure


def seen(**values: str) -> _verify._Seen:
    return _verify._Seen({key: tuple(text.split("|")) for key, text in values.items()})


def outside_inode(path: str) -> str:
    found = os.stat(path)
    return f"{path} {found.st_dev}:{found.st_ino}"


OWN_NET = {"inode": "/proc/self/ns/net 1:1", "routes": "read"}


@pytest.mark.parametrize(
    ("values", "reached", "grade"),
    [
        (OWN_NET, False, Grade.ENFORCED),
        (OWN_NET, True, Grade.ABSENT),
        ({**OWN_NET, "connect": "refused"}, False, Grade.ENFORCED),
        ({**OWN_NET, "connect": "made"}, False, Grade.ABSENT),
        ({**OWN_NET, "connect": "refused", "route": "eth0"}, False, Grade.ABSENT),
        ({"inode": "/proc/self/ns/net 1:1"}, False, Grade.PARTIAL),
        ({"connect": "refused"}, False, Grade.PARTIAL),
        (
            {"inode": outside_inode("/proc/self/ns/net"), "routes": "read", "connect": "forbidden"},
            False,
            Grade.ENFORCED,
        ),
        ({"inode": outside_inode("/proc/self/ns/net"), "routes": "read", "connect": "refused"}, False, Grade.PARTIAL),
        ({"inode": outside_inode("/proc/self/ns/net"), "routes": "read"}, False, Grade.PARTIAL),
        ({}, False, Grade.PARTIAL),
    ],
)
def test_what_is_believed_of_the_network(values: dict[str, str], reached: bool, grade: Grade) -> None:
    assert _verify._network(seen(**values), reached=reached).grade is grade


@pytest.mark.parametrize(
    ("values", "grade"),
    [
        ({"inode": "/proc/self/ns/pid 1:1"}, Grade.ENFORCED),
        ({"inode": "/proc/self/ns/pid 1:1", "signal": "sent"}, Grade.ENFORCED),
        ({"inode": "/proc/self/ns/pid 1:1", "status": "CapEff:0000000000000000|NoNewPrivs:1"}, Grade.ENFORCED),
        ({"inode": "/proc/self/ns/pid 1:1", "status": "CapEff:00000000a80425fb"}, Grade.PARTIAL),
        ({"inode": "/proc/self/ns/pid 1:1", "status": "NoNewPrivs:0"}, Grade.PARTIAL),
        ({"inode": outside_inode("/proc/self/ns/pid"), "signal": "sent"}, Grade.ABSENT),
        ({"process": Path("/proc/self/stat").read_text(), "inode": outside_inode("/proc/self/ns/pid")}, Grade.PARTIAL),
        ({"process": "7 (a b) S 1 2", "inode": "/proc/self/ns/pid 1:1"}, Grade.ENFORCED),
        ({}, Grade.PARTIAL),
    ],
)
def test_what_is_believed_of_isolation(values: dict[str, str], grade: Grade) -> None:
    assert _verify._isolation(seen(**values)).grade is grade


@pytest.mark.parametrize(
    ("looked", "is_alive"),
    [
        ("pidns=7\nleft=gone\n", False),
        ("pidns=7\nleft=alive\n", True),
        ("pidns=8\nleft=gone\n", None),
        ("pidns=7\n", None),
        ("", None),
    ],
)
def test_what_a_second_command_finds_in_a_box_of_copies(looked: str, is_alive: bool | None) -> None:
    assert _verify._is_alive_inside(seen(pidns="7"), looked) is is_alive


def test_a_box_of_another_kernel_shares_no_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/proc/self/ns/none"
    found = seen(inode=f"{path} 4:1")
    assert found.shares(path) is None, "here it cannot be told"
    monkeypatch.setattr(_verify, "_HAS_NAMESPACES", False)
    assert found.shares(path) is False, "on a host without /proc it can"
    assert seen().shares(path) is None


def test_a_file_of_the_boxs_own_may_be_written(tmp_path: Path) -> None:
    stage = _verify._Stage(str(tmp_path), "c", None, None)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "canary").write_text("c\n")
    own = seen(opened="/etc/passwd", inode="/etc/passwd 1:1")
    hosts = seen(opened="/etc/passwd", inode=outside_inode("/etc/passwd"))
    assert _verify._written(own, stage).grade is Grade.ENFORCED
    assert _verify._written(hosts, stage).grade is Grade.ABSENT


@pytest.mark.requires("bubblewrap")
async def test_the_built_in_backend_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandboxkit.backends.bubblewrap import BubblewrapBackend

    backend = BubblewrapBackend()
    found = await attack(backend)
    assert found.failure == ""
    assert lowered(found) == {}


# -- a network of listed hosts --------------------------------------------------------


async def listed(backend: RawBwrap | BubblewrapBackend) -> tuple[Grade, str]:
    found = await attack_listed(backend)
    (finding,) = found.findings
    assert (finding.control, found.failure) == (Control.NET_ALLOWLIST, "")
    return finding.grade, finding.reason


@pytest.mark.requires("bubblewrap")
async def test_a_box_of_listed_hosts_is_believed() -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    assert await listed(BubblewrapBackend()) == (
        Grade.ENFORCED,
        "only the listed server was reached, and only through the proxy",
    )


@pytest.mark.requires("bubblewrap")
async def test_a_proxy_that_lets_everything_through_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    everything = EgressPolicy(permit_networks=["127.0.0.0/8"], permit_hosts=["localhost"])
    monkeypatch.setattr(EgressPolicy, "of_network", lambda _network: everything)
    assert await listed(BubblewrapBackend()) == (Grade.ABSENT, "the attack reached a server that is not listed")


async def test_a_way_past_the_proxy_is_found() -> None:
    grade, reason = await listed(RawBwrap(frozenset({"net"})))
    assert (grade, reason) == (Grade.ABSENT, "the attack reached a server that is not listed")


async def test_where_nothing_is_reached_nothing_is_proved() -> None:
    grade, reason = await listed(RawBwrap())
    assert grade is Grade.PARTIAL
    assert "the listed server was not reached" in reason


async def test_a_claim_that_nothing_proves_runs_no_such_spec() -> None:
    registry = SandboxRegistry()
    registry.register(RawBwrap())
    spec = SandboxSpec.isolated(network=NetworkPolicy(allow_hosts=("example.org",)))
    with pytest.raises(EnforcementError, match=r"net\.allowlist is partial, enforced is required"):
        await registry.active(spec)
    assert (await registry.active(SandboxSpec.isolated())).enforcement.grade(Control.NET_NONE) is Grade.ENFORCED


@pytest.mark.parametrize(
    ("holes", "grade", "says"),
    [(frozenset({"net"}), Grade.ABSENT, "not listed"), (frozenset[str](), Grade.PARTIAL, "proves nothing")],
)
async def test_a_claim_is_lowered_where_the_attack_is_asked_for(holes: frozenset[str], grade: Grade, says: str) -> None:
    registry = SandboxRegistry()
    registry.register(RawBwrap(holes))
    (asked,) = await registry.list(attack_listed=True)
    (told,) = (finding for finding in asked.verified if finding.control is Control.NET_ALLOWLIST)
    assert (told.grade, says in told.reason) == (grade, True)
    assert asked.enforcement is not None
    assert asked.enforcement.grade(Control.NET_ALLOWLIST) is grade
    (claimed,) = await registry.list()
    assert claimed.enforcement is not None
    assert claimed.enforcement.grade(Control.NET_ALLOWLIST) is Grade.ENFORCED
    assert Control.NET_ALLOWLIST not in {finding.control for finding in claimed.verified}


async def test_a_box_that_raises_loses_the_list_and_nothing_else() -> None:
    grade, reason = await listed(Broken())
    assert grade is Grade.ABSENT
    assert "could not be carried out" in reason
