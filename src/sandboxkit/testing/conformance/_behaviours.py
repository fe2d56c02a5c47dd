"""
The catalogue: every behaviour by its name, with what is tried and what the control is.

A behaviour is a test function whose docstring ends in a paragraph that begins with
`Control:`. Its name is the function's without `test_`, and stays as it is: named
deviations and tables of results refer to it.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BEHAVIOURS", "Behaviour", "exported", "needs_root"]

_PREFIX: Final = "test_"
_CONTROL: Final = "Control:"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """
    One thing a backend keeps.

    Attributes:
        name: Its stable name.
        area: The module that holds it: `claims`, `files`, `processes`, `network`,
            `limits`, `tools` or `faults`.
        attack: What is tried in a box, and what must come of it.
        control: How it is shown that the same act succeeds without a box, or why
            there is nothing to compare with.
        needs_root: Whether only root can set it up; it is skipped for other users.
    """

    name: str
    area: str
    attack: str
    control: str
    needs_root: bool


BEHAVIOURS: Final[dict[str, Behaviour]] = {}
"""
Every behaviour of the modules imported so far, by name, in the order of the modules.
"""


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not applicable: only root can set this up, or do it outside")
"""
Marks a behaviour that has no control, or nothing to attack, unless root runs the tests.
"""


def exported(module: Mapping[str, Any], *fixtures: str) -> list[str]:
    """
    What `import *` takes from a module of behaviours: its tests, which enter the
    catalogue here, and *fixtures*.

    Raises:
        ValueError: A test says nothing about its attack or its control, or bears the
            name of one in another module.
    """
    area = str(module["__name__"]).rpartition(".")[2]
    tests = [
        value
        for name, value in module.items()
        if name.startswith(_PREFIX) and isinstance(value, FunctionType) and value.__module__ == module["__name__"]
    ]
    for test in tests:
        behaviour = _described(test, area)
        if BEHAVIOURS.setdefault(behaviour.name, behaviour) != behaviour:
            raise ValueError(f"two behaviours are named {behaviour.name!r}; rename one")
        if inspect.iscoroutinefunction(test):
            pytest.mark.anyio(test)
    return [*(test.__name__ for test in tests), *fixtures]


def _described(test: FunctionType, area: str) -> Behaviour:
    text = inspect.getdoc(test) or ""
    attack, found, control = text.partition(_CONTROL)
    if not found or not attack.strip() or not control.strip():
        raise ValueError(
            f"{area}.{test.__name__}: its docstring needs the attack and a part that begins with {_CONTROL}"
        )
    is_roots = needs_root.mark in getattr(test, "pytestmark", ())
    return Behaviour(test.__name__.removeprefix(_PREFIX), area, _line(attack), _line(control), is_roots)


def _line(text: str) -> str:
    return " ".join(text.split())
