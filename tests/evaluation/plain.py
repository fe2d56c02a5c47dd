"""
Runs rows of the escape corpus in plain Python, without any sandbox, and prints the ids of
those that do here what they are there to do. Run as a program of its own: they do it.
"""

from __future__ import annotations

import builtins
import sys
import types
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.evaluation import contexts

INTERNALS = (
    types.ModuleType,
    types.FrameType,
    types.CodeType,
    types.TracebackType,
    types.FunctionType,
    types.BuiltinFunctionType,
    type,
)
PLAIN = {str, int, float, bool, type(None), complex, bytes, list, tuple, dict, set, frozenset}


def is_reached(value: Any, depth: int = 0) -> bool:
    """
    Whether *value* is, or holds, what no snippet is to have.
    """
    if isinstance(value, INTERNALS) or type(value) not in PLAIN:
        return True
    if isinstance(value, str):
        return contexts.CANARY in value
    if depth > 40:
        return True
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    return isinstance(value, (list, tuple, set, frozenset)) and any(is_reached(item, depth + 1) for item in value)


def happens(row: dict[str, Any]) -> bool:
    """
    Whether the row does its harm.
    """
    context = contexts.hostile_context()
    before = contexts.snapshot(context)
    names = {"__builtins__": vars(builtins), **context}
    try:
        if row["mode"] == "exec":
            exec(row["code"], names)
            value = names.get("result")
        else:
            value = eval(row["code"], names)
    except Exception as error:  # noqa: BLE001 - whatever the row raises
        return contexts.CANARY in str(error) or "\x1b" in str(error) or contexts.snapshot(context) != before
    except BaseException:  # noqa: BLE001 - that it gets this far is the harm
        return True
    return is_reached(value) or contexts.snapshot(context) != before


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        print(wanted if happens(next(r for r in contexts.rows("safe_eval_escapes.jsonl") if r["id"] == wanted)) else "")
