"""
As much of JSON Schema (2020-12) as the published schemas use, and nothing else.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["mistakes"]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "array": (list,),
    "object": (dict,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_NOTES = {"description", "default", "title", "$schema", "$defs"}


def mistakes(value: Any, schema: Any, *, root: Any = None, at: str = "") -> list[str]:
    """
    Where *value* is not what *schema* says. Refuses keywords it does not know.
    """
    root = schema if root is None else root
    if schema in (True, False):
        return [] if schema else [f"{at}: nothing is right here"]
    found: list[str] = []
    for keyword, said in schema.items():
        if keyword in _NOTES or keyword == "additionalProperties":
            continue
        if keyword == "properties":
            found += _members(value, schema, root, at)
        elif keyword == "$ref":
            found += mistakes(value, root["$defs"][said.removeprefix("#/$defs/")], root=root, at=at)
        elif not _holds(value, keyword, said, root, at):
            found.append(f"{at}: {keyword} {said!r}")
    if "properties" not in schema and isinstance(schema.get("additionalProperties"), dict) and isinstance(value, dict):
        for name, member in value.items():
            found += mistakes(member, schema["additionalProperties"], root=root, at=f"{at}.{name}")
    return found


def _members(value: Any, schema: Any, root: Any, at: str) -> list[str]:
    if not isinstance(value, dict):
        return []
    found = []
    for name, member in value.items():
        inner = schema["properties"].get(name, schema.get("additionalProperties", True))
        found += mistakes(member, inner, root=root, at=f"{at}.{name}")
    return found


def _holds(value: Any, keyword: str, said: Any, root: Any, at: str) -> bool:
    match keyword:
        case "type":
            names = [said] if isinstance(said, str) else said
            kinds = tuple(kind for name in names for kind in _TYPES[name])
            return isinstance(value, kinds) and (not isinstance(value, bool) or "boolean" in names)
        case "enum":
            return value in said
        case "const":
            return bool(value == said and type(value) is type(said))
        case "anyOf":
            return any(not mistakes(value, option, root=root, at=at) for option in said)
        case "oneOf":
            return [not mistakes(value, option, root=root, at=at) for option in said].count(True) == 1
        case _:
            return bool(_bounded(value, keyword, said, root))


def _bounded(value: Any, keyword: str, said: Any, root: Any) -> object:
    match keyword, value:
        case "required", dict():
            return set(said) <= set(value)
        case "dependentRequired", dict():
            return all(set(needed) <= set(value) for name, needed in said.items() if name in value)
        case "propertyNames", dict():
            return all(not mistakes(name, said, root=root) for name in value)
        case "items", list():
            return all(not mistakes(item, said, root=root) for item in value)
        case "minItems", list():
            return len(value) >= said
        case "uniqueItems", list():
            return all(item not in value[:place] for place, item in enumerate(value))
        case "minLength", str():
            return len(value) >= said
        case "maxLength", str():
            return len(value) <= said
        case "pattern", str():
            return re.search(said, value) is not None
        case "minimum", int() | float():
            return value >= said
        case "maximum", int() | float():
            return value <= said
        case "exclusiveMinimum", int() | float():
            return value > said
    known = (
        "required",
        "dependentRequired",
        "propertyNames",
        "items",
        "minItems",
        "uniqueItems",
        "minLength",
        "maxLength",
    )
    assert keyword in (*known, "pattern", "minimum", "maximum", "exclusiveMinimum"), keyword
    return True
