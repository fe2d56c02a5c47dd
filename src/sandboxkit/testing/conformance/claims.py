"""
What a backend says about itself is what it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends import attack
from sandboxkit.errors import SandboxError
from sandboxkit.model import Control, FilesystemPolicy, Grade, Invocation, SandboxSpec
from sandboxkit.testing.conformance._behaviours import exported
from sandboxkit.testing.conformance._fixtures import *  # noqa: F403 - what the behaviours ask for
from sandboxkit.testing.conformance._fixtures import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.testing.conformance._acts import Boxes


async def test_the_verifying_attack_finds_what_is_claimed(boxes: Boxes, ws: Path) -> None:
    """
    The attack that precedes a backend's first use runs, and lowers no claim.

    Control: the attack carries its own: it must see what the box may do.
    """
    spec = SandboxSpec.workspace_write(ws)
    claim = boxes.backend.enforcement(spec, (await boxes.backend.detect(spec)).facts)
    found = await attack(boxes.backend)
    assert found.failure == ""
    assert found.apply(claim).to_dict() == claim.to_dict()


async def test_the_default_spec_is_met(boxes: Boxes, ws: Path) -> None:
    """
    What a spec requires unless it says otherwise is claimed, so that the router would
    choose this backend.

    Control: a spec that requires an overlay, or anything else that is not claimed, is
    found to be missing it.
    """
    spec = SandboxSpec.workspace_write(ws)
    claim = boxes.backend.enforcement(spec, (await boxes.backend.detect(spec)).facts)
    assert claim.missing(spec.requirements()) == ()
    unclaimed = {control: Grade.ENFORCED for control in Control if claim.grade(control) < Grade.ENFORCED}
    assert len(claim.missing(unclaimed)) == len(unclaimed)


async def test_a_result_says_what_was_enforced(boxes: Boxes, ws: Path) -> None:
    """
    The result bears the backend's name and, for each control, a grade with a reason: at
    most what was claimed beforehand.

    Control: none: there is nothing to run without a box.
    """
    spec = SandboxSpec.workspace_write(ws)
    claim = boxes.backend.enforcement(spec, (await boxes.backend.detect(spec)).facts)
    result = await boxes.run(spec, ["true"])
    assert result.backend == boxes.backend.name
    assert [control for control, state in result.enforcement if not state.reason.strip()] == []
    assert [control for control, state in result.enforcement if state.grade > claim.grade(control)] == []


async def test_a_plan_is_a_value(boxes: Boxes, ws: Path) -> None:
    """
    Planning twice with the same facts gives the same plan, and starts nothing.

    Control: another command gives another plan.
    """
    spec = SandboxSpec.workspace_write(ws)
    facts = (await boxes.backend.detect(spec)).facts
    touching = Invocation(("touch", str(ws / "made")), (("PATH", "/usr/bin:/bin"),), None)
    other = Invocation(("true",), (("PATH", "/usr/bin:/bin"),), None)
    first = boxes.backend.plan(touching, spec, facts)
    assert first == boxes.backend.plan(touching, spec, facts)
    assert first != boxes.backend.plan(other, spec, facts)
    assert list(ws.iterdir()) == []


async def test_a_closed_box_runs_nothing(boxes: Boxes, ws: Path) -> None:
    """
    A command is given to a box whose context was left.

    Control: the open box runs it.
    """
    async with boxes.backend.open(SandboxSpec.workspace_write(ws)) as box:
        (await box.run(["touch", str(ws / "open")])).check()
    with pytest.raises(SandboxError):
        await box.run(["touch", str(ws / "closed")])
    assert [path.name for path in ws.iterdir()] == ["open"]


async def test_two_specs_at_once_are_kept_apart(boxes: Boxes, ws: Path, outside: Path) -> None:
    """
    Two boxes with different specs are open at once; each keeps its own.

    Control: each writes where its own spec lets it.
    """
    narrow = SandboxSpec(filesystem=FilesystemPolicy(read=(str(ws),)))
    async with (
        boxes.backend.open(SandboxSpec.workspace_write(ws)) as wide,
        boxes.backend.open(narrow) as reader,
        boxes.backend.open(SandboxSpec.workspace_write(outside)) as elsewhere,
    ):
        assert (await wide.run(["touch", str(ws / "a")])).ok
        assert not (await reader.run(["touch", str(ws / "b")])).ok
        assert not (await elsewhere.run(["touch", str(ws / "c")])).ok
        assert (await elsewhere.run(["touch", str(outside / "d")])).ok
    assert [path.name for path in (*ws.iterdir(), *outside.iterdir())] == ["a", "d"]


__all__ = exported(globals(), *FIXTURES)
