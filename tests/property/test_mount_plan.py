"""
The mount plan shows what a simple reference function says, whatever the tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests.backends.bubblewrap.test_mounts import survey
from tests.reference_tree import PLACES, access

from sandboxkit.backends._tree import box_tree
from sandboxkit.backends.bubblewrap._mounts import mounts
from sandboxkit.model import FilesystemPolicy, SandboxSpec, is_inside

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from sandboxkit.model import Mount

ROOT = "/srv"
paths = st.lists(st.sampled_from(PLACES), max_size=5, unique=True)
ANSWERS = {"bind": "write", "ro-bind": "read", "tmpfs": "deny"}


def spec_of(read: Sequence[str], write: Sequence[str], deny: Sequence[str]) -> SandboxSpec:
    named = (tuple(f"{ROOT}/{place}" for place in places) for places in (read, write, deny))
    readable, writable, denied = named
    return SandboxSpec(filesystem=FilesystemPolicy(read=readable, write=writable, deny=denied))


def plan(spec: SandboxSpec) -> tuple[Mount, ...]:
    host = survey(spec)
    return mounts(box_tree(spec, host), spec, host, data={}, instead={})


def shown(path: str, steps: Sequence[Mount]) -> str:
    """
    What the last step done at or above *path* put there: it covers those before.
    """
    covering = [step for step in steps if step.kind in ANSWERS and is_inside(path, step.target)]
    return ANSWERS[covering[-1].kind] if covering else "unlisted"


@given(paths, paths, paths)
def test_the_plan_is_what_the_reference_says(read: list[str], write: list[str], deny: list[str]) -> None:
    steps = plan(spec_of(read, write, deny))
    for place in PLACES:
        assert shown(f"{ROOT}/{place}/file", steps) == access(f"{place}/file", read, write, deny), place


@given(paths, paths, paths, st.randoms(use_true_random=False))
def test_the_order_written_means_nothing(read: list[str], write: list[str], deny: list[str], random: Random) -> None:
    before = plan(spec_of(read, write, deny))
    for places in (read, write, deny):
        random.shuffle(places)
    assert plan(spec_of(read, write, deny)) == before


@given(paths, paths, paths)
def test_a_denied_directory_is_passed_through_only_where_something_lies_in_it(
    read: list[str], write: list[str], deny: list[str]
) -> None:
    steps = plan(spec_of(read, write, deny))
    made = [step for step in steps if step.kind in ANSWERS]
    for step in made:
        if step.kind == "tmpfs" and step.target.startswith(ROOT):
            opens = any(other.target != step.target and is_inside(other.target, step.target) for other in made)
            assert step.perms == (0o111 if opens else 0)
            assert any(other.kind == "remount-ro" and other.target == step.target for other in steps)


@given(paths, paths, paths)
def test_what_leads_to_another_access_cannot_be_moved(read: list[str], write: list[str], deny: list[str]) -> None:
    steps = plan(spec_of(read, write, deny))
    targets = {step.target for step in steps if step.kind in ANSWERS}
    for target in targets:
        above = target.rsplit("/", 1)[0]
        if above.startswith(ROOT + "/") and shown(above, steps) == "write":
            assert above in targets, "a mount point cannot be renamed"
