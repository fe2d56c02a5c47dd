"""
The corpora: nothing of the escapes gets out, hangs or bloats, and what is ordinary works.

Each escape runs in the default isolation, with the context it is aimed at. That the rows
do what they say is shown by running them without any sandbox, in processes of their own.
"""

from __future__ import annotations

import asyncio
import collections
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.evaluation import contexts

import sandboxkit as sk

if TYPE_CHECKING:
    from collections.abc import Callable

ESCAPES = contexts.escapes()
ORDINARY = contexts.ordinary()
TIMEOUT = 0.3
MEMORY = 128 << 20
LATE = 0.5
"""How much later than its deadline a call may come back on a busy machine."""
DEPENDS = {"attr-walk-12"}
"""It goes by the loader of `math`, which is built into some interpreters and a file beside others."""
IN_A_LOOP = [row for row in ESCAPES[::2] if row["goal"] == "leak" and row["mode"] != "async"]
"""Every second: those of the mode `async` always run in one."""
Row = dict[str, Any]


def evaluated(row: Row, context: dict[str, Any], code: str, *, loop: str = "asyncio", **limits: Any) -> object:
    limits = {"timeout": TIMEOUT, "memory_bytes": MEMORY} | limits
    if row["mode"] == "async":

        async def call() -> object:
            return await sk.safe_eval_async(code, context, **limits)

        return anyio.run(call, backend=loop)
    calls: dict[str, Callable[..., object]] = {"condition": sk.safe_eval_condition, "template": sk.safe_interpolate}
    if row["mode"] in calls:
        return calls[row["mode"]](code, context, **limits)
    return sk.safe_eval(code, context, mode=row["mode"], **limits)


def outcome(call: Callable[[], object]) -> tuple[object, str]:
    """
    What *call* gives, and the text of its error.
    """
    try:
        return call(), ""
    except sk.SafeEvalError as error:
        return None, str(error)


def size(value: object) -> int:
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, dict):
        value = list(value.items())
    return 8 + sum(map(size, value)) if isinstance(value, (list, tuple, set, frozenset)) else 8


@pytest.mark.parametrize("row", ESCAPES, ids=lambda row: row["id"])
def test_no_escape(row: Row) -> None:
    code = eval(row["expand"]) if "expand" in row else row["code"]
    context = contexts.hostile_context()
    assert evaluated({"mode": "expr"}, context, "x + y", timeout=10) == 30  # this context does not stop everything
    before, usage = contexts.snapshot(context), resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic()
    value, said = outcome(lambda: evaluated(row, context, code))
    assert contexts.CANARY not in said
    assert "\x1b" not in said
    assert len(said) < 4096
    if not said:
        assert contexts.is_plain(value)
        assert size(value) <= 1 << 20
        assert not (row["mode"] == "condition" and row["goal"] == "leak" and value)
    taken, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    assert contexts.snapshot(context) == before
    assert taken < TIMEOUT + LATE
    assert after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime < 1
    assert after.ru_maxrss - usage.ru_maxrss < 200 * 1024


@pytest.mark.parametrize(
    "row", [row for row in ESCAPES if row["goal"] in contexts.QUICK_GOALS], ids=lambda row: row["id"]
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_the_language_gate_holds_alone(row: Row) -> None:
    context = contexts.hostile_context()
    before = contexts.snapshot(context)
    value, said = outcome(lambda: evaluated(row, context, row["code"], timeout=10, isolation="in-process"))
    assert contexts.CANARY not in said
    assert "\x1b" not in said
    assert said or contexts.is_plain(value)
    assert contexts.snapshot(context) == before


@pytest.mark.parametrize("row", IN_A_LOOP, ids=lambda row: row["id"])
def test_no_leak_from_inside_a_running_loop(row: Row) -> None:
    async def inside() -> object:
        return evaluated(row, contexts.hostile_context(), row["code"])

    value, said = outcome(lambda: asyncio.run(inside()))
    assert contexts.CANARY not in said
    assert contexts.is_plain(value)
    assert value is not True


def test_plain_python_lets_every_quick_row_do_its_harm() -> None:
    program = Path(__file__).with_name("plain.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    found = dict(line.split() for line in done.stdout.splitlines())
    assert len(found) > 300
    assert {row for row, what in found.items() if what == "none"} <= DEPENDS


@pytest.mark.parametrize(
    ("loop", "row"),
    [("asyncio", row) for row in ORDINARY] + [("trio", row) for row in ORDINARY if row["mode"] == "async"],
    ids=lambda value: value if isinstance(value, str) else value["id"],
)
@pytest.mark.parametrize("isolation", ["worker", "in-process"])
def test_what_is_ordinary_works(loop: str, row: Row, isolation: str) -> None:
    context = contexts.ordinary_context(row["context"])

    def call() -> object:
        return evaluated(row, context, row["code"], loop=loop, timeout=10.0, isolation=isolation)

    if kind := row.get("expect_error"):
        with pytest.raises(sk.SafeEvalError) as caught:
            call()
        assert caught.value.kind == kind
    else:
        got = contexts.as_json(call())
        assert (got, type(got)) == (row["expect"], type(row["expect"]))


def test_the_corpora_are_of_every_kind() -> None:
    assert len(collections.Counter(row["kind"] for row in ESCAPES)) == 15
    assert {row["mode"] for row in ORDINARY} == {"expr", "condition", "template", "exec", "async"}
