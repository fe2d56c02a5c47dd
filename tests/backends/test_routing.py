"""
Which backend is taken for what a spec requires: every combination of two backends and one
control, and what is said of the one that was not taken. Boxes are real ones.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest
from tests.backends.raw_bwrap import BOLD, RawBwrap, only

from sandboxkit.backends import Detection, SandboxRegistry
from sandboxkit.errors import BackendError, EnforcementError, NoBackendError
from sandboxkit.model import Control, Grade, SandboxSpec
from sandboxkit.router import AutoSandboxRouter

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.model import Enforcement

pytestmark = pytest.mark.anyio

GRADES = tuple(Grade)
CONTROLS = (Control.LIMITS_MEMORY, Control.SYSCALLS, Control.FS_OVERLAY)


def claim(control: Control, grade: Grade) -> Enforcement:
    return only(**{control.name.lower(): grade})


def backend(called: str, control: Control, grade: Grade | None) -> RawBwrap:
    """
    One that has *control* by *grade* and all others; None is unavailable.
    """
    made = RawBwrap(claim=BOLD if grade is None else claim(control, grade), called=called)
    if grade is None:
        made.found = Detection(False, f"{called} is not here", f"install {called}")
    return made


def registry(first: RawBwrap, second: RawBwrap) -> SandboxRegistry:
    made = SandboxRegistry()
    made.register(second, 10)
    made.register(first, 20)
    return made


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("needed", [Grade.PARTIAL, Grade.ENFORCED])
async def test_the_first_that_holds_what_is_required_is_taken(control: Control, needed: Grade) -> None:
    spec = SandboxSpec(require={control: needed})
    for grades in itertools.product((None, *GRADES), repeat=2):
        made = registry(*(backend(name, control, grade) for name, grade in zip("ab", grades, strict=True)))
        enough = max(needed, spec.requirements()[control])
        holding = [name for name, grade in zip("ab", grades, strict=True) if grade is not None and grade >= enough]
        if holding:
            taken = await made.active(spec)
            assert taken.backend.name == holding[0], grades
            (other,) = taken.others.values()
            told = "a is preferred" if holding[0] == "a" else "a is not here" if grades[0] is None else str(control)
            assert told in other
            continue
        with pytest.raises(BackendError) as caught:
            await made.active(spec)
        assert isinstance(caught.value, NoBackendError if grades == (None, None) else EnforcementError)
        assert set(caught.value.reasons) == {"a", "b"}
        for name, grade in zip("ab", grades, strict=True):
            expected = f"{name} is not here; install {name}" if grade is None else f"{control} is {grade}, {enough} is"
            assert expected in caught.value.reasons[name]


@pytest.mark.parametrize("control", CONTROLS[:2])
@pytest.mark.parametrize("grade", [Grade.ABSENT, Grade.PARTIAL])
async def test_what_may_be_degraded_keeps_the_first(control: Control, grade: Grade) -> None:
    made = registry(backend("a", control, grade), backend("b", control, Grade.ENFORCED))
    assert (await made.active(SandboxSpec(require={control: Grade.ENFORCED}))).backend.name == "b"
    assert (await made.active(SandboxSpec(allow_degraded=frozenset({control})))).backend.name == "a"


async def test_degrading_one_control_is_not_degrading_another() -> None:
    first = RawBwrap(claim=only(syscalls=Grade.PARTIAL, env=Grade.PARTIAL), called="a")
    made = registry(first, backend("b", Control.SYSCALLS, Grade.ENFORCED))
    spec = SandboxSpec(allow_degraded=frozenset({Control.SYSCALLS}))
    taken = await made.active(spec)
    assert taken.backend.name == "b"
    assert "env is partial" in taken.others["a"]
    assert "syscalls" not in taken.others["a"]


async def test_a_control_that_the_attack_lowers_counts_as_it_was_found() -> None:
    leaky = RawBwrap(holes=frozenset({"net"}), called="a")
    made = registry(leaky, backend("b", Control.SYSCALLS, Grade.ENFORCED))
    taken = await made.active()
    assert taken.backend.name == "b"
    assert "the attack connected" in taken.others["a"]


async def test_two_registries_do_not_meet() -> None:
    weak, strong = backend("a", Control.SYSCALLS, Grade.ABSENT), backend("b", Control.SYSCALLS, Grade.ENFORCED)
    one, other = SandboxRegistry(), SandboxRegistry()
    one.register(weak)
    other.register(strong)
    assert [status.name for status in await one.list()] == ["a"]
    assert [status.name for status in await other.list()] == ["b"]
    assert (await other.active()).backend is strong
    with pytest.raises(EnforcementError) as caught:
        await one.active()
    assert set(caught.value.reasons) == {"a"}


async def test_an_explanation_names_the_others(tmp_path: Path) -> None:
    made = registry(backend("a", Control.SYSCALLS, Grade.PARTIAL), backend("b", Control.SYSCALLS, Grade.ENFORCED))
    third = backend("c", Control.SYSCALLS, Grade.ENFORCED)
    made.register(third, 1)
    found = await AutoSandboxRouter(registry=made).explain("touch made", cwd=tmp_path)
    assert found.backend == "b"
    assert "syscalls is partial" in found.others["a"]
    assert found.others["c"] == "b is preferred"
    assert third.detections == [], "what is not needed is not asked"
    assert json.loads(json.dumps(found.to_dict()))["others"] == dict(found.others)


@pytest.mark.requires("bubblewrap", "landlock")
async def test_the_built_in_ones_come_in_their_order(tmp_path: Path) -> None:
    taken = await SandboxRegistry.default().active(SandboxSpec.workspace_write(tmp_path))
    assert taken.backend.name == "bubblewrap"
    assert list(taken.others) == ["landlock", "docker", "podman"]
