"""
What of the backend can be shown without macOS: that it is never taken elsewhere, what it
states, its plan, and all of the plan's run but the program that puts the sandbox on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conformance.seatbelt.conftest import ASKED_LESS, SEATBELT

from sandboxkit.backends import SandboxRegistry
from sandboxkit.backends.seatbelt import SeatbeltBackend, SeatbeltFacts
from sandboxkit.backends.seatbelt._detect import refusal, user_processes
from sandboxkit.backends.seatbelt._enforcement import enforcement
from sandboxkit.backends.seatbelt._profile import real
from sandboxkit.backends.seatbelt._scratch import scratch
from sandboxkit.errors import BackendUnavailableError, SpecError
from sandboxkit.model import Control, FilesystemPolicy, Grade, Invocation, Limits, NetworkPolicy, SandboxSpec
from sandboxkit.process import interpreter, run
from sandboxkit.testing.conformance import BEHAVIOURS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.model import LaunchPlan

pytestmark = pytest.mark.anyio
elsewhere = pytest.mark.skipif(sys.platform == "darwin", reason="this is a Mac")
ROOT = Path(__file__).resolve().parents[3]
MISSING = {Control.PROCESS_ISOLATION, Control.PROCESS_KILL_TREE, Control.SYSCALLS, Control.LIMITS_MEMORY}


@pytest.fixture
def directory() -> Iterator[str]:
    with scratch(b"[user]\n") as made:
        yield made
    assert not os.path.exists(made)


def facts(spec: SandboxSpec, directory: str = "") -> SeatbeltFacts:
    """
    What a Mac would be found to have, with this machine's files.
    """
    known = SeatbeltFacts(
        program="/usr/bin/sandbox-exec",
        macos="14.5",
        interpreter=interpreter(),
        mark="m",
        processes=100,
        has_proxy=True,
    )
    return replace(known.surveyed(spec), scratch=directory)


def without_sandbox(plan: LaunchPlan) -> LaunchPlan:
    return replace(plan, argv=plan.argv[plan.argv.index("--") + 1 :])


@elsewhere
async def test_elsewhere_it_is_not_there_and_says_so() -> None:
    found = await SeatbeltBackend().detect()
    assert not found.available
    assert "Seatbelt is a part of macOS" in found.reason
    assert found.remedy
    assert "was not run on macOS" in found.warnings[0]
    with pytest.raises(BackendUnavailableError, match="macOS"):
        async with SeatbeltBackend().open(SandboxSpec()):
            raise AssertionError("no box is opened")


@elsewhere
def test_elsewhere_it_is_not_even_loaded() -> None:
    code = "import sys, sandboxkit as sk; sk.SandboxRegistry.default(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sandboxkit.backends._registry" in done.stdout
    assert "seatbelt" not in done.stdout


@elsewhere
async def test_a_registry_that_has_it_all_the_same_reports_it() -> None:
    registry = SandboxRegistry()
    registry.register(SeatbeltBackend())
    (status,) = await registry.list()
    assert (status.name, status.available) == ("seatbelt", False)
    assert status.enforcement is None


def test_what_it_states_for_a_default_spec(tmp_path: Path) -> None:
    spec = SandboxSpec.workspace_write(tmp_path)
    claim = enforcement(spec, facts(spec))
    short = {control for control, needed in spec.requirements().items() if claim.grade(control) < needed}
    assert short == MISSING, "what the documentation says must be in allow_degraded"
    assert claim.grade(Control.FS_OVERLAY) is Grade.ABSENT
    assert claim.grade(Control.NET_ALLOWLIST) is Grade.ENFORCED
    assert claim.grade(Control.FS_DENY_INSIDE_ALLOW) is Grade.PARTIAL, "protected names that do not exist yet"
    assert set(claim.states) == set(Control)
    assert not claim.missing(spec.model_copy(update={"allow_degraded": frozenset(MISSING)}).requirements())


def test_the_documentation_states_the_same(tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/enforcement.md").read_text().partition("### seatbelt (declared, not run here)")[2]
    rows = re.findall(r"^\| `([a-z_.]+)` \| (\w+) \|", page.partition("\n## ")[0], re.MULTILINE)
    spec = SandboxSpec.workspace_write(tmp_path)
    assert dict(rows) == {str(control): str(state.grade) for control, state in enforcement(spec, facts(spec))}
    how_to = (ROOT / "docs/how-to/run-on-macos-and-windows.md").read_text()
    named = re.search(r"allow_degraded=\{(.+?)\}", how_to)
    assert named is not None
    assert {Control(name) for name in re.findall(r'"(.+?)"', named[1])} == MISSING


def test_what_it_states_follows_the_spec_and_the_machine(tmp_path: Path) -> None:
    spec = SandboxSpec.workspace_write(tmp_path, network=NetworkPolicy(mode="host"), limits=Limits(processes=None))
    claim = enforcement(spec, replace(facts(spec), processes=None))
    assert claim.grade(Control.NET_NONE) is Grade.ABSENT
    assert claim.grade(Control.LIMITS_PROCESSES) is Grade.ABSENT
    assert claim.grade(Control.NET_ALLOWLIST) is Grade.ABSENT, "the host's network is everything"
    listed = SandboxSpec.workspace_write(
        tmp_path, network=NetworkPolicy(allow_hosts=("open.example",), intercept=True), allow_degraded=MISSING
    )
    assert not enforcement(listed, facts(listed)).missing(listed.requirements()), "a spec that lists hosts runs"
    strict = SandboxSpec(limits=Limits(memory_bytes=1 << 30))
    assert enforcement(strict, facts(strict)).missing({Control.LIMITS_MEMORY: Grade.ENFORCED})


def test_a_plan_needs_a_look_at_the_machine() -> None:
    with pytest.raises(SpecError, match=r"detect\(spec\)"):
        SeatbeltBackend().plan(Invocation(("true",)), SandboxSpec(), SeatbeltFacts())


def test_the_plan_starts_one_program_and_names_no_path_in_its_profile(tmp_path: Path, directory: str) -> None:
    odd = tmp_path / 'a") (allow default) ("'
    (odd / "secret").mkdir(parents=True)
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=(str(odd),), deny=(str(odd / "secret"), str(odd / "later"))))
    plan = SeatbeltBackend().plan(Invocation(("/bin/true",), cwd=str(odd)), spec, facts(spec, directory))
    assert plan.argv[:2] == ("/usr/bin/sandbox-exec", "-p")
    profile, values = plan.argv[2], [word.partition("=")[2] for word in plan.argv if word.startswith("-DP")]
    for path in (str(odd), str(odd / "secret"), str(odd / "later"), directory, "m"):
        assert real(path) in values
    assert str(tmp_path) not in profile
    assert directory not in profile
    assert plan.environment == (), "variables are handed over inside"
    assert plan.mark == "m"
    assert "seatbelt" in plan.describe()


async def test_all_but_the_sandbox_is_run(tmp_path: Path, directory: str) -> None:
    limits = Limits(open_files=99, cpu=60, file_size_bytes=1 << 20, processes=None)
    spec = SandboxSpec.workspace_write(tmp_path, limits=limits)
    script = (
        "pwd; echo $HOME; echo $TMPDIR; ulimit -n -c -t; ls -A $HOME; echo x > made; head -c 2000000 /dev/zero > big"
    )
    home = os.path.realpath(os.environ.get("HOME", "/"))
    environment = (("PATH", "/usr/bin:/bin"), ("HOME", home))
    invocation = Invocation(("bash", "-c", script), environment, str(tmp_path))
    outcome = await run(without_sandbox(SeatbeltBackend().plan(invocation, spec, facts(spec, directory))))
    lines = outcome.stdout.decode().splitlines()
    assert lines[:3] == [str(tmp_path), f"{directory}/home", f"{directory}/tmp"]
    assert [line.split()[-1] for line in lines[3:6]] == ["99", "0", "60"]
    assert lines[6:] == [".gitconfig"]
    assert (tmp_path / "made").read_text() == "x\n"
    assert (tmp_path / "big").stat().st_size == 1 << 20


def test_a_working_directory_that_is_not_shown_is_refused(tmp_path: Path, directory: str) -> None:
    spec = SandboxSpec.workspace_write(tmp_path)
    with pytest.raises(SpecError, match="not visible in the box"):
        SeatbeltBackend().plan(Invocation(("true",), cwd="/var/spool"), spec, facts(spec, directory))


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("sandbox-exec: sandbox_apply: Operation not permitted", "runs in a sandbox already"),
        ("sandbox-exec: <input string>:12:8: unbound variable: vnode-type", "does not take the profile"),
        ("step 'cwd' failed: Permission denied", "working directory"),
        ("something else", "something else"),
    ],
)
def test_what_a_failed_start_means(said: str, meaning: str) -> None:
    found = refusal(said)
    assert meaning in found.reason
    assert found.remedy


def test_deviations_of_the_conformance_suite_are_named_by_its_behaviours() -> None:
    assert {name.partition("[")[0] for name in SEATBELT} <= set(BEHAVIOURS)
    assert MISSING <= ASKED_LESS


def test_processes_of_the_user_are_counted_where_the_system_can() -> None:
    assert user_processes(lambda _uid: 4 * 25) == 25
    assert user_processes(lambda _uid: -1) is None
    if sys.platform != "darwin":
        assert user_processes() is None
