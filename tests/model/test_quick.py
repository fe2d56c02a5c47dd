"""
Frozen values that are made fast are frozen values all the same.
"""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from sandboxkit.model import Redirect, SimpleCommand
from sandboxkit.model._quick import quick


@quick
@dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plain:
    left: int
    right: tuple[int, ...] = ()


def test_is_made_by_place_and_by_name() -> None:
    assert Pair(1, (2,)) == Pair(left=1, right=(2,)) == Pair(right=(2,), left=1)
    assert Pair(1).right == ()


def test_is_an_object_of_its_class_without_a_dictionary() -> None:
    assert type(Pair(1)) is Pair
    assert not hasattr(Pair(1), "__dict__")


def test_cannot_be_changed() -> None:
    pair = Pair(1)
    with pytest.raises(FrozenInstanceError):
        pair.left = 2  # type: ignore[misc]  # the test's own mistake
    with pytest.raises(FrozenInstanceError):
        del pair.left


def test_looks_hashes_and_compares_as_any_dataclass() -> None:
    assert repr(Pair(1, (2,))) == "Pair(left=1, right=(2,))"
    assert hash(Pair(1, (2,))) == hash(Plain(1, (2,)))
    assert Pair(1) != Plain(1)  # type: ignore[comparison-overlap]  # the test's own mistake


def test_is_replaced_copied_and_pickled() -> None:
    part = SimpleCommand(("cat",), (0, 3), redirects=(Redirect(">", "x"),))
    assert replace(part, own=1) == SimpleCommand(("cat",), (0, 3), redirects=(Redirect(">", "x"),), own=1)
    assert copy.deepcopy(part) == copy.copy(part) == pickle.loads(pickle.dumps(part)) == part


def test_wrong_arguments_are_refused_as_by_any_class() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'left'"):
        Pair()  # type: ignore[call-arg]  # the test's own mistake
    with pytest.raises(TypeError, match="unexpected keyword argument 'middle'"):
        Pair(1, middle=2)  # type: ignore[call-arg]  # the test's own mistake
