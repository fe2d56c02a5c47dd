"""
The form of a record, for programs in any language.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["record_schema"]


def record_schema() -> dict[str, Any]:
    """
    The JSON Schema (2020-12) of one line of a log. A new copy each time.
    """
    text = files("sandboxkit.audit").joinpath("data", "audit-record.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
