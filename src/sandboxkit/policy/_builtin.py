"""
The built-in rules and the floor, read once per process from the data files.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from sandboxkit.model import Level
from sandboxkit.policy._floor import Floor, FloorTable
from sandboxkit.policy._layer import Layer
from sandboxkit.policy._rule import PolicyRule

__all__ = ["CATEGORIES", "builtin_floor", "builtin_layer"]

CATEGORIES = (
    "read_only",
    "builtins",
    "wrappers",
    "variables",
    "versions",
    "version_control",
    "packages",
    "build",
    "interpreters",
    "files",
    "network",
    "system",
    "destructive",
    "editors",
)
"""
The files of built-in rules in `data/`, without their ending.
"""


def _table(name: str) -> dict[str, object]:
    return tomllib.loads(files("sandboxkit.policy").joinpath("data", f"{name}.toml").read_text(encoding="utf-8"))


@cache
def builtin_layer() -> Layer:
    """
    The built-in rules. Their examples are checked by the tests, not here.
    """
    rows = [{"tags": [category], **row} for category in CATEGORIES for row in _rows(category)]
    return Layer.of(Level.BUILTIN, [PolicyRule.model_validate(row) for row in rows])


def _rows(category: str) -> list[dict[str, object]]:
    table = _table(category)
    rows, lists = table["rules"], table.get("lists", {})
    if not isinstance(rows, list) or not isinstance(lists, dict):
        raise TypeError(f"data/{category}.toml has no list of rules")
    if lists:
        for row in rows:
            constraints = row.get("constraints", {})
            if denied := constraints.get("denied_arguments"):
                constraints["denied_arguments"] = expanded(denied, lists)
    return rows


def expanded(patterns: list[str], lists: dict[str, list[str]]) -> list[str]:
    """
    *patterns* with each `@name` replaced by the list of that name.

    Raises:
        KeyError: There is no such list.
    """
    return [each for pattern in patterns for each in (lists[pattern[1:]] if pattern[:1] == "@" else (pattern,))]


@cache
def builtin_floor() -> Floor:
    """
    The floor.
    """
    return Floor.of(FloorTable.model_validate(_table("floor")))
