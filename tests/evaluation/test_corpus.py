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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.evaluation import contexts

import sandboxkit as sk

if TYPE_CHECKING:
    from collections.abc import Callable

ESCAPES = contexts.rows("safe_eval_escapes.jsonl")
ORDINARY = contexts.rows("safe_eval_ok.jsonl")
TIMEOUT = 0.5
MEMORY = 128 << 20
LATE = 0.5
"""How much later than its deadline a call may come back on a busy machine."""
QUICK_GOALS = ("leak", "mutation", "object", "control", "errleak", "ctrl")
SHOWN_PLAIN = [row for row in ESCAPES if row["mode"] in ("expr", "exec") and row["goal"] in QUICK_GOALS]
DEPENDS = {"attr-walk-12"}
"""It goes by the loader of `math`, which is built into some interpreters and a file beside others."""
Row = dict[str, Any]


def evaluated(row: Row, context: dict[str, Any], code: str, timeout: float = TIMEOUT) -> object:
    limits: dict[str, Any] = {"timeout": timeout, "memory_bytes": MEMORY}
    if row["mode"] == "async":

        async def call() -> object:
            return await sk.safe_eval_async(code, context, **limits)

        return asyncio.run(call())
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


@pytest.mark.parametrize("row", [row for row in ESCAPES if row["goal"] == "leak"], ids=lambda row: row["id"])
def test_no_leak_from_inside_a_running_loop(row: Row) -> None:
    if row["mode"] == "async":
        pytest.skip("always runs in a loop")

    async def inside() -> object:
        return evaluated(row, contexts.hostile_context(), row["code"])

    value, said = outcome(lambda: asyncio.run(inside()))
    assert contexts.CANARY not in said
    assert contexts.is_plain(value)
    assert value is not True


def test_plain_python_lets_every_quick_row_do_its_harm() -> None:
    program = Path(__file__).with_name("plain.py")

    def harmless(row: Row) -> bool:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(program), row["id"]], capture_output=True, text=True, timeout=50
        )
        # Some, such as a list nested 100,000 deep, end the interpreter itself.
        return done.returncode >= 0 and done.stdout.strip() != row["id"]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(harmless, SHOWN_PLAIN))
    assert {row["id"] for row, is_harmless in zip(SHOWN_PLAIN, found, strict=True) if is_harmless} <= DEPENDS


@pytest.mark.parametrize("row", ORDINARY, ids=lambda row: row["id"])
@pytest.mark.parametrize("isolation", ["worker", "in-process"])
def test_what_is_ordinary_works(row: Row, isolation: Any) -> None:
    context = contexts.ordinary_context(row["context"])
    limits: dict[str, Any] = {"isolation": isolation, "timeout": 10.0}

    def call() -> object:
        match row["mode"]:
            case "async":

                async def awaited() -> object:
                    return await sk.safe_eval_async(row["code"], context, **limits)

                return asyncio.run(awaited())
            case "condition":
                return sk.safe_eval_condition(row["code"], context, **limits)
            case "template":
                return sk.safe_interpolate(row["code"], context, **limits)
            case mode:
                return sk.safe_eval(row["code"], context, mode=mode, **limits)

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
