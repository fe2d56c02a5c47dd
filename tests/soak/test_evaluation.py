"""
Whatever snippet comes, evaluating it gives a plain value or a typed error in time, changes
nothing here, and leaves nothing behind.
"""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest
from tests.evaluation import contexts, snippets

import sandboxkit as sk
from sandboxkit.evaluation import _workers

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="evaluation workers need Linux")
TIMEOUT = 0.3
LATE = 1.5
"""How much later than its deadline an answer may come where soak tests share the machine."""


def written(rng: random.Random) -> tuple[str, str]:
    """
    A mode, and something to evaluate in it.
    """
    match rng.randrange(6):
        case 0:
            return "exec", snippets.statements(rng)
        case 1:
            return "template", snippets.template(rng)
        case 2:
            return "async", snippets.asynchronous(rng)
        case _:
            return "expr", snippets.expression(rng, rng.choice((1, 1, 2, 2, 3, 4)))


def evaluated(evaluator: sk.SafeEvaluator, mode: str, code: str, context: dict[str, Any]) -> object:
    match mode:
        case "template":
            return evaluator.interpolate(code, context)
        case "async":
            return anyio.run(evaluator.evaluate_async, code, context)
        case _:
            return evaluator.evaluate(code, context, mode=cast("Any", mode))


def test_nothing_gets_out(rounds: Iterator[int], rng: random.Random) -> None:
    outcomes: Counter[str] = Counter()
    with (
        sk.SafeEvaluator(timeout=TIMEOUT, memory_bytes=64 << 20) as forking,
        sk.SafeEvaluator(isolation="reuse", timeout=TIMEOUT, memory_bytes=64 << 20) as reusing,
    ):
        for _ in rounds:
            mode, code = written(rng)
            context = contexts.hostile_context()
            before, began = contexts.snapshot(context), time.monotonic()
            value, said = None, ""
            try:
                value = evaluated(rng.choice((forking, reusing)), mode, code, context)
                outcomes["a value"] += 1
            except sk.SafeEvalError as error:
                said = str(error)
                outcomes[error.kind] += 1
            assert time.monotonic() - began < TIMEOUT + LATE, code
            assert contexts.snapshot(context) == before, code
            assert contexts.is_plain(value), (code, value)
            assert contexts.CANARY not in said, code
            assert "\x1b" not in said, code
    assert outcomes["a value"] > outcomes.total() / 50, "the grammar makes hardly anything that works"
    assert outcomes["WorkerAnswer"] == 0
    print(outcomes.most_common(12))


def test_nothing_gets_out_of_javascript(rounds: Iterator[int], rng: random.Random) -> None:
    pytest.importorskip("_quickjs", reason="the extra js is not installed")
    outcomes: Counter[str] = Counter()
    with sk.SafeEvaluator(language="javascript", timeout=TIMEOUT, memory_bytes=64 << 20) as evaluator:
        for _ in rounds:
            code = snippets.javascript(rng, rng.choice((1, 2, 2, 3, 4)))
            mode = rng.choice(("expr", "expr", "template", "async"))
            context = contexts.hostile_context()
            before, began = contexts.snapshot(context), time.monotonic()
            value, said = None, ""
            try:
                value = evaluated(evaluator, mode, f"{{{{ {code} }}}}" if mode == "template" else code, context)
                outcomes["a value"] += 1
            except sk.SafeEvalError as error:
                said = str(error)
                outcomes[error.kind] += 1
            assert time.monotonic() - began < TIMEOUT + LATE, code
            assert contexts.snapshot(context) == before, code
            assert contexts.is_plain(value), (code, value)
            assert contexts.CANARY not in said, code
            assert "\x1b" not in said, code
    assert outcomes["a value"] > outcomes.total() / 50, "the grammar makes hardly anything that works"
    assert outcomes["WorkerAnswer"] == 0


def test_many_calls_leave_nothing(rounds: Iterator[int]) -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE") >> 20

    with sk.SafeEvaluator(isolation="reuse", timeout=10) as reusing, sk.SafeEvaluator(timeout=10) as forking:
        for _ in range(200):
            reusing.evaluate("x + 1", {"x": 1})
            forking.evaluate("x + 1", {"x": 1})
        before = held()
        for number in rounds:
            for _ in range(20):
                assert reusing.evaluate("x + 1", {"x": number}) == number + 1
            assert forking.evaluate("x + 1", {"x": number}) == number + 1
        after = held()
    assert after[0] <= before[0]
    assert after[1] - before[1] < 20
    deadline = time.monotonic() + 2
    pid = _workers.zygote().pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while children.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert children.read_text() == ""
