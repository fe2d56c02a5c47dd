"""
Runs the quick rows of the escape corpora in plain Python, without any sandbox, and prints
for each whether it does what it is there to do. Run as a program of its own: they do it.
"""

from __future__ import annotations

import builtins
import os
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
            exec(compile(row["code"], "row", "exec", dont_inherit=True), names)
            value = names.get("result")
        else:
            value = eval(compile(row["code"].strip(), "row", "eval", dont_inherit=True), names)
    except Exception as error:  # noqa: BLE001 - whatever the row raises
        return contexts.CANARY in str(error) or "\x1b" in str(error) or contexts.snapshot(context) != before
    except BaseException:  # noqa: BLE001 - that it gets this far is the harm
        return True
    return is_reached(value) or contexts.snapshot(context) != before


def happens_in_a_fork(row: dict[str, Any]) -> bool:
    """
    As `happens`, in a process of its own. One that ends by a signal has done harm: some
    rows, such as a list nested 100,000 deep, end the interpreter itself.
    """
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 1 if happens(row) else 0
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    return os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 1


if __name__ == "__main__":
    for row in contexts.escapes():
        if row["mode"] in ("expr", "exec") and row["goal"] in contexts.QUICK_GOALS:
            print(row["id"], "harm" if happens_in_a_fork(row) else "none", flush=True)
