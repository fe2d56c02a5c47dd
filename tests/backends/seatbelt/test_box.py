"""
Real boxes of Seatbelt. They need a Mac: elsewhere each is skipped, with the reason, and on
a Mac in CI `SANDBOXKIT_REQUIRE=seatbelt` makes a skip a failure.

Each act that must fail in the box is also done without it, and must succeed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxkit.backends import VERIFIED, attack
from sandboxkit.backends._verify import attack_listed
from sandboxkit.backends.seatbelt import SeatbeltBackend
from sandboxkit.errors import EnforcementError, ProgramNotFoundError
from sandboxkit.model import Control, FilesystemPolicy, Grade, Limits, NetworkPolicy, SandboxSpec, Termination

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.model import ExecResult

pytestmark = [pytest.mark.anyio, pytest.mark.requires("seatbelt")]

DEGRADED = frozenset({Control.PROCESS_ISOLATION, Control.PROCESS_KILL_TREE, Control.SYSCALLS, Control.LIMITS_MEMORY})


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path.resolve() / "work"
    directory.mkdir()
    return directory


def spec(work: Path, **fields: object) -> SandboxSpec:
    files = {"write": (str(work),), **fields}
    return SandboxSpec(filesystem=FilesystemPolicy(**files), allow_degraded=DEGRADED)  # type: ignore[arg-type]  # each test names real fields


async def boxed(box: SandboxSpec, script: str, work: Path, **options: float) -> ExecResult:
    async with SeatbeltBackend().open(box) as opened:
        return await opened.run(["/bin/sh", "-c", script], cwd=str(work), timeout=options.get("timeout", 20))


def bare(script: str, work: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/sh", "-c", script], cwd=work, capture_output=True, text=True, check=False)


async def test_the_attacks_find_what_is_stated() -> None:
    found = await attack(SeatbeltBackend())
    assert found.failure == ""
    grades = {finding.control: finding.grade for finding in found.findings}
    assert set(grades) == set(VERIFIED)
    detection = await SeatbeltBackend().detect(SandboxSpec())
    claim = SeatbeltBackend().enforcement(SandboxSpec(), detection.facts)
    for control, grade in grades.items():
        assert grade >= min(claim.grade(control), Grade.PARTIAL), found
    for control in (Control.FS_READ, Control.FS_WRITE, Control.NET_NONE):
        assert claim.grade(control) is Grade.ENFORCED, claim.reason(control)


async def test_what_is_allowed_works(work: Path) -> None:
    result = await boxed(spec(work), "echo x > made && cat made && pwd && exit 3", work)
    assert (result.exit_code, result.text().split()) == (3, ["x", str(work)])
    assert (work / "made").read_text() == "x\n"


@pytest.mark.parametrize(
    "script",
    [
        "echo x > ../outside",
        "cat ../secret",
        "ln ../secret here",
        "mv in away",
        "mv in/denied in/away",
        "cat in/denied/key",
        "rm -r in",
        "echo x > .git/hooks/pre-commit",
        "mkdir -p .vscode",
    ],
)
async def test_an_act_that_must_fail(work: Path, script: str) -> None:
    for name in ("in/denied", ".git/hooks"):
        (work / name).mkdir(parents=True)
    (work / "in/denied/key").write_text("key\n")
    (work.parent / "secret").write_text("secret\n")
    result = await boxed(spec(work, deny=(str(work / "in/denied"),)), script, work)
    assert result.exit_code not in (0, None), result
    assert "key" not in result.text()
    assert bare(script, work).returncode == 0, "the same act succeeds without the box"


async def test_the_network_is_off_and_on(work: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        script = f'{sys.executable} -c "{code}"'
        assert (await boxed(spec(work), script, work)).exit_code != 0
        open_box = spec(work).model_copy(update={"network": NetworkPolicy(mode="host")})
        assert (await boxed(open_box, script, work)).exit_code == 0
        assert bare(script, work).returncode == 0


async def test_listed_hosts_are_reached_through_the_one_port_that_is_open(work: Path) -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    assert (await attack_listed(SeatbeltBackend())).findings[0].grade is Grade.ENFORCED
    script = "curl -sSm20 http://unlisted.invalid/; curl -sSm5 --noproxy '*' http://127.0.0.1:$PORT/ && echo made"
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = script.replace("$PORT", str(server.getsockname()[1]))
        listing = spec(work).model_copy(update={"network": NetworkPolicy(mode="listed")})
        result = await boxed(listing, script, work)
    assert "made" not in result.text()
    assert [violation.target for violation in result.violations] == ["http://unlisted.invalid/"]


async def test_no_process_outside_is_signalled(work: Path) -> None:
    assert (await boxed(spec(work), f"kill -0 {os.getpid()}", work)).exit_code != 0
    assert bare(f"kill -0 {os.getpid()}", work).returncode == 0


async def test_nothing_stays(work: Path) -> None:
    script = (
        f"{sys.executable} -c 'import os, time; os.setsid(); os.fork() and os._exit(0); "
        'open("pid", "w").write(str(os.getpid()) + chr(10)); time.sleep(60)\' & '
        "while [ ! -s pid ]; do sleep 0.05; done"
    )
    result = await boxed(spec(work), script, work)
    assert result.exit_code == 0
    pid = int((work / "pid").read_text())
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except OSError:
            return
        await anyio.sleep(0.02)
    pytest.fail("a process that left its group outlived the box")


async def test_the_deadline(work: Path) -> None:
    result = await boxed(spec(work), "trap '' TERM; sleep 60 & sleep 60", work, timeout=0.5)
    assert result.termination is Termination.TIMED_OUT
    assert result.duration_s < 10


async def test_a_program_that_is_not_there_is_no_exit_code(work: Path) -> None:
    async with SeatbeltBackend().open(spec(work)) as box:
        with pytest.raises(ProgramNotFoundError):
            await box.run(["no-such-program"])


async def test_the_environment_is_the_specs_and_the_home_its_own(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    result = await boxed(spec(work), "env; touch $HOME/x $TMPDIR/y && ls $HOME", work)
    assert "hunter2" not in result.text()
    assert result.text().endswith("x\n")
    assert "hunter2" in bare("env", work).stdout


async def test_limits(work: Path) -> None:
    box = spec(work).model_copy(update={"limits": Limits(file_size_bytes=1000)})
    result = await boxed(box, "head -c 5000 /dev/zero > big; wc -c < big", work)
    assert int(result.text().split()[-1]) <= 1000


async def test_a_spec_it_cannot_keep_is_refused(work: Path) -> None:
    with pytest.raises(EnforcementError, match=r"limits\.memory"):
        async with SeatbeltBackend().open(SandboxSpec.workspace_write(work)):
            raise AssertionError("no box is opened")
