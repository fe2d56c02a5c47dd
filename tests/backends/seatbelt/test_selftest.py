"""
The backend's own attack: without a box it gets everything, in a box that holds it gets
nothing, and where nothing works it proves nothing.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends.seatbelt._enforcement import enforcement
from sandboxkit.backends.seatbelt._facts import SeatbeltFacts
from sandboxkit.backends.seatbelt._selftest import judged, selftest, stage
from sandboxkit.errors import SetupError
from sandboxkit.model import Control, Grade, SandboxSpec
from sandboxkit.process import LoopbackDoor

if TYPE_CHECKING:
    from sandboxkit.backends._verification import Finding
    from sandboxkit.backends.seatbelt._selftest import Stage
    from sandboxkit.model import ExecResult

pytestmark = pytest.mark.anyio


def grades(found: tuple[Finding, ...]) -> dict[Control, Grade]:
    return {finding.control: finding.grade for finding in found}


def unboxed(made: Stage, **more: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "http_proxy"}
    done = subprocess.run(made.argv(), cwd=made.work, env={**clean, **more}, capture_output=True, text=True, check=True)
    return done.stdout


def test_without_a_box_it_gets_everything() -> None:
    with stage() as made:
        said = unboxed(made)
        found = judged(made, said)
    assert set(grades(found).values()) == {Grade.ABSENT}
    reasons = {finding.control: finding.reason for finding in found}
    assert "read a file outside" in reasons[Control.FS_READ]
    assert "wrote a file outside" in reasons[Control.FS_WRITE]
    assert "read a denied file" in reasons[Control.FS_DENY_INSIDE_ALLOW]
    for what in ("linked=yes", "moved=in", "moved=in/secret", "hook=.git/hooks", "written=in/secret/new"):
        assert what in said.splitlines()


def test_each_hole_is_found_by_itself() -> None:
    with stage() as made:
        tight = "wrote=yes\ndone=yes\n"
        assert set(grades(judged(made, tight)).values()) == {Grade.ENFORCED}
        for line, control in (
            (f"outside={made.canary}", Control.FS_READ),
            (f"secret={made.secret}", Control.FS_DENY_INSIDE_ALLOW),
            ("moved=in", Control.FS_DENY_INSIDE_ALLOW),
            ("hook=.GIT/hooks", Control.FS_DENY_INSIDE_ALLOW),
            ("proxy=open\nport=made", Control.NET_ALLOWLIST),
        ):
            found = grades(judged(made, f"{line}\n{tight}"))
            assert {name for name, grade in found.items() if grade is Grade.ABSENT} == {control}


def test_without_a_box_another_port_is_reached_beside_the_proxys() -> None:
    with stage() as made, closing(LoopbackDoor()) as proxy:
        said = unboxed(made, http_proxy=f"http://sandboxkit:token@127.0.0.1:{proxy.port}")
        reason = next(row.reason for row in judged(made, said) if row.control is Control.NET_ALLOWLIST)
        assert "connected to another port of the loopback" in reason
        assert Control.NET_ALLOWLIST not in grades(judged(made, unboxed(made))), "no port is open to a box without one"
        found = grades(judged(made, "wrote=yes\nproxy=closed\ndone=yes\n"))
        assert found[Control.NET_ALLOWLIST] is Grade.PARTIAL, "nothing is proved where the proxy is out of reach"


@pytest.mark.requires("bubblewrap")
async def test_a_box_that_holds_is_believed() -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    from sandboxkit.backends.bubblewrap import BubblewrapBackend

    async def boxed(made: Stage) -> ExecResult:
        short = frozenset({Control.LIMITS_MEMORY, Control.LIMITS_PROCESSES, Control.PROCESS_ISOLATION})
        async with BubblewrapBackend().open(made.spec(short, is_listed=True)) as box:
            return await box.run(made.argv(), cwd=made.work)

    found = await selftest(boxed)
    assert grades(found)[Control.NET_ALLOWLIST] is Grade.ENFORCED
    assert grades(found)[Control.FS_READ] is Grade.ENFORCED
    assert grades(found)[Control.FS_WRITE] is Grade.ENFORCED
    reason = next(finding.reason for finding in found if finding.control is Control.FS_DENY_INSIDE_ALLOW)
    assert "in/secret" not in reason, "mounts hold what is denied; names that are missing are looked at afterwards"


@pytest.mark.parametrize("said", ["", "done=yes\n", "wrote=yes\n", "noise"])
def test_where_nothing_works_nothing_is_proved(said: str) -> None:
    with stage() as made:
        assert set(grades(judged(made, said)).values()) == {Grade.PARTIAL}


async def test_a_box_that_does_not_come_up_proves_nothing() -> None:
    async def broken(made: Stage) -> ExecResult:
        raise SetupError("seatbelt", "sandbox-exec: no such profile")

    found = await selftest(broken)
    assert set(grades(found).values()) == {Grade.PARTIAL}
    assert "no such profile" in found[0].reason


def test_what_is_found_lowers_what_is_stated() -> None:
    with stage() as made:
        found = judged(made, unboxed(made))
    claim = enforcement(SandboxSpec(), SeatbeltFacts(tried=found))
    for control in grades(found):
        assert claim.grade(control) is Grade.ABSENT
    assert enforcement(SandboxSpec(), SeatbeltFacts()).grade(Control.FS_READ) is Grade.ENFORCED
