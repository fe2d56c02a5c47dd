"""
Plain values as TOML, which the standard library only reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

__all__ = ["toml_key", "toml_value"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_value(value: object, where: str = "") -> str:
    """
    *value* as the right side of a line: a mapping as an inline table.

    Args:
        value: The value.
        where: What it is called, for errors.

    Raises:
        ValueError: TOML has no way to write it, for example None.

    Source: the TOML specification, version 1.0.0.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        pairs = (f"{toml_key(str(key))} = {toml_value(item, f'{where}.{key}')}" for key, item in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, Sequence):
        return "[" + ", ".join(toml_value(item, where) for item in value) + "]"
    raise ValueError(f"{where}: TOML has no way to write {value!r}")


def toml_key(name: str) -> str:
    """
    *name* as one part of the left side of a line.
    """
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which TOML wants escaped too.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
