"""
Turns the tables in `data/` into the one file a process reads: Python parses JSON fifty
times as fast as TOML, and an index in it spares compiling rules that nobody asks for.

    python -m sandboxkit.policy._bake > src/sandboxkit/policy/data/builtin.json
"""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import asdict, replace
from importlib.resources import files
from typing import Any

from pydantic import TypeAdapter

from sandboxkit.model import Level
from sandboxkit.policy._facts import Facts
from sandboxkit.policy._floor import FloorRow, FloorTable, Programs
from sandboxkit.policy._languages import LanguageRow
from sandboxkit.policy._layer import RuleIndex
from sandboxkit.policy._match import CompiledRule
from sandboxkit.policy._places import PlaceRow
from sandboxkit.policy._rule import PolicyRule

__all__ = ["CATEGORIES", "baked", "expanded"]

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


def baked() -> str:
    """
    The text of `data/builtin.json`: a rule a line.
    """
    rows = [{"tags": [category], **row} for category in CATEGORIES for row in _rows(category)]
    rules = [PolicyRule.model_validate(row) for row in rows]
    index = RuleIndex.of(rules, [CompiledRule.of(rule, Level.BUILTIN) for rule in rules])
    patterns = [place for place, rule in enumerate(rules) if rule.prefix is None]
    index = replace(index, facts={str(place): Facts.of(rules[place]) for place in patterns})
    parts = [
        f'"rules": [\n{_lines(rows)}\n]',
        f'"index": {_line(asdict(index))}',
        f'"floor": {_line(_floor())}',
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _floor() -> dict[str, Any]:
    """
    The floor's table, whose values have the types that their fields say.

    Raises:
        ValidationError: One has not.
    """
    table = _table("floor")
    for key, kind in (("programs", Programs), ("languages", LanguageRow), ("places", PlaceRow), ("floor", FloorRow)):
        rows = TypeAdapter[object](kind)
        for row in table[key] if isinstance(table[key], list) else [table[key]]:
            rows.validate_python(row)
    FloorTable.of(table)  # knows no key beside these
    return table


def _lines(rows: list[dict[str, Any]]) -> str:
    return ",\n".join(map(_line, rows))


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(files("sandboxkit.policy").joinpath("data", f"{name}.toml").read_text(encoding="utf-8"))


def _rows(category: str) -> list[dict[str, Any]]:
    table = _table(category)
    lists = table.get("lists", {})
    for row in table["rules"]:
        constraints = row.get("constraints", {})
        if denied := constraints.get("denied_arguments"):
            constraints["denied_arguments"] = expanded(denied, lists)
    rows: list[dict[str, Any]] = table["rules"]
    return rows


def expanded(patterns: list[str], lists: dict[str, list[str]]) -> list[str]:
    """
    *patterns* with each `@name` replaced by the list of that name.

    Raises:
        KeyError: There is no such list.
    """
    return [each for pattern in patterns for each in (lists[pattern[1:]] if pattern[:1] == "@" else (pattern,))]


if __name__ == "__main__":
    sys.stdout.write(baked())
