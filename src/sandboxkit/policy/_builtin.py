"""
The built-in rules and the floor, read once per process from `data/builtin.json`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, overload

from sandboxkit.model import Level
from sandboxkit.policy._digest import digest_of
from sandboxkit.policy._floor import Floor, FloorTable
from sandboxkit.policy._layer import Layer, RuleIndex
from sandboxkit.policy._rule import BAKED, PolicyRule

__all__ = ["builtin_floor", "builtin_layer"]

_DATA = Path(__file__).with_name("data") / "builtin.json"


class _Rules(Sequence[PolicyRule]):
    """
    The rules of a table of rows, each made when it is asked for.
    """

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = rows
        self._known: dict[int, PolicyRule] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> PolicyRule: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[PolicyRule]: ...
    def __getitem__(self, place: int | slice) -> PolicyRule | Sequence[PolicyRule]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        found = self._known.get(place)
        return found or self._known.setdefault(place, PolicyRule.model_validate(self._rows[place], context=BAKED))


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_DATA.read_bytes())
    return table


@cache
def builtin_layer() -> Layer:
    """
    The built-in rules. Their examples are checked by the tests, not here.
    """
    return Layer.of(Level.BUILTIN, _Rules(_table()["rules"]), RuleIndex(**_table()["index"]))


@cache
def builtin_floor() -> Floor:
    """
    The floor.
    """
    table = _table()["floor"]
    return Floor.of(FloorTable.of(table), digest_of(table))
