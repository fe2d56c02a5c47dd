"""
Awaiting: coroutine functions and async generators of the caller's, under both event loops.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

import sandboxkit as sk
from sandboxkit.evaluation import SafeEvaluator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

LATE = 0.5


async def price(sku: str) -> int:
    await anyio.sleep(0.001)
    return {"a": 5, "b": 7}[sku]


async def forever() -> None:
    await anyio.sleep_forever()


async def numbers(n: int) -> AsyncIterator[object]:
    for i in range(n):
        await anyio.lowlevel.checkpoint()
        yield (i, [i * i])


BODIES: dict[str, object] = {
    "await price('a') + 1": 6,
    "p = await price('b')\nreturn p * 2": 14,
    "return [await price(s) for s in 'ab']": [5, 7],
    "async def twice(s):\n    return 2 * await price(s)\nreturn await twice('a')": 10,
    "t = 0\nasync for i, (square,) in numbers(4):\n    t += square\nelse:\n    t += 100\nreturn t": 114,
    "return [n[0] async for n in numbers(3) if n[0] != 1]": [0, 2],
    "return {n[0]: n[1] async for n in numbers(2)}": {0: [0], 1: [1]},
    "return {i: s async for i, (s, *_) in numbers(3) if i}": {1: 1, 2: 4},
    "async def even(n):\n    async for v in numbers(n):\n        if v[0] % 2 == 0:\n            yield v[0]\nreturn [v async for v in even(5)]": [
        0,
        2,
        4,
    ],
    "try:\n    await price('c')\nexcept RuntimeError as e:\n    return str(e)": "price raised KeyError",
    "async for n in numbers(9):\n    if n[0] == 3:\n        break\nreturn n[0]": 3,
    "x = 1": None,
    "return plain(3)": 6,
    "text = '''a\n  b'''\nreturn text": "a\n  b",
}
REFUSED = {
    "c = price('a')\nreturn c.send(None)": "AttributeError",
    "c = price('a')\nreturn c.cr_frame": "an attribute is not allowed",
    "g = numbers(1)\nreturn g.asend(None)": "AttributeError",
    "g = (n async for n in numbers(1))\nreturn g.ag_code": "an attribute is not allowed",
    "return price('a')": "as a result",
    "await 5": "cannot be awaited",
    "async for i in [1]:\n    pass": "cannot be iterated with async for",
    "async with price('a'):\n    pass": "async with",
    "d = {}\nreturn [1 async for d['a'] in numbers(1)]": "assigns to names",
    "return [1 async for a, _b in numbers(1)]": "a name is not allowed",
    "return [a.real.x async for a, b in numbers(1)]": "AttributeError",
    "await unknown()": "NameError",
}


@pytest.mark.parametrize("code", BODIES)
@pytest.mark.parametrize("isolation", ["worker", "in-process"])
async def test_bodies(code: str, isolation: Any) -> None:
    context = {"price": price, "numbers": numbers, "plain": lambda v: v * 2}
    assert await sk.safe_eval_async(code, context, timeout=10, isolation=isolation) == BODIES[code]


@pytest.mark.parametrize("code", REFUSED)
async def test_refused(code: str) -> None:
    with pytest.raises(sk.SafeEvalError, match=REFUSED[code]):
        await sk.safe_eval_async(code, {"price": price, "numbers": numbers}, timeout=10)


@pytest.mark.parametrize(
    "code",
    [
        "await forever()",
        "while True:\n    try:\n        await forever()\n    except:\n        pass",
        "return max(range(10**12))",
        "return spin()",
    ],
)
async def test_the_deadline_ends_it(code: str) -> None:
    def spin() -> None:
        while True:
            pass

    await sk.safe_eval_async("1", timeout=10)
    began = time.monotonic()
    with pytest.raises(sk.SafeEvalTimeoutError):
        await sk.safe_eval_async(code, {"forever": forever, "spin": spin}, timeout=0.3)
    assert time.monotonic() - began < 0.3 + LATE


async def test_the_loop_goes_on_while_a_worker_works() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.01)
            ticks += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        with pytest.raises(sk.SafeEvalTimeoutError):
            await sk.safe_eval_async("max(range(10**12))", timeout=0.5)
        tasks.cancel_scope.cancel()
    assert ticks > 10


async def test_cancelling_ends_the_worker() -> None:
    with anyio.move_on_after(0.3) as scope:
        await sk.safe_eval_async("max(range(10**12))", timeout=30)
    assert scope.cancelled_caught  # and the fixture finds the worker, if it is left


async def test_a_stream_that_was_not_read_to_its_end_is_closed() -> None:
    closed = []

    async def watched(n: int) -> AsyncIterator[int]:
        try:
            for i in range(n):
                yield i
        finally:
            closed.append(1)

    assert await sk.safe_eval_async("async for n in watched(9):\n    return n", {"watched": watched}, timeout=10) == 0
    assert closed == [1]


async def test_streams_that_hang_while_they_close_delay_the_answer_once() -> None:
    async def hanging() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await anyio.sleep(60)

    began = time.monotonic()
    body = "for i in range(20):\n    async for n in hanging():\n        break\nreturn n"
    assert await sk.safe_eval_async(body, {"hanging": hanging}, timeout=10) == 1
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("isolation", ["worker", "in-process"])
async def test_one_that_raises_while_it_is_closed_is_told_and_the_others_are_closed(isolation: Any) -> None:
    closed = []

    async def failing() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            closed.append(1)
            raise ValueError("the secret")

    body = "for i in range(3):\n    async for n in failing():\n        break\nreturn n"
    with pytest.raises(sk.SafeEvalError, match="an async generator raised ValueError when it was closed") as caught:
        await sk.safe_eval_async(body, {"failing": failing}, timeout=10, isolation=isolation)
    assert (caught.value.kind, closed) == ("HostError", [1, 1, 1])
    assert "secret" not in str(caught.value)
    with pytest.raises(sk.SafeEvalError, match="ZeroDivisionError"):  # what came first counts
        await sk.safe_eval_async(f"{body} / 0", {"failing": failing}, timeout=10, isolation=isolation)
    assert len(closed) == 6


async def test_cancelling_in_a_function_of_the_callers_ends_it_and_the_worker() -> None:
    ended = []

    async def waits() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    async def raises() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise ValueError

    with anyio.move_on_after(0.3) as scope:
        await sk.safe_eval_async(
            "async for n in raises():\n    await waits()", {"waits": waits, "raises": raises}, timeout=30
        )
    assert scope.cancelled_caught
    assert ended == [1]


async def test_calls_are_counted() -> None:
    with SafeEvaluator(max_host_calls=5, timeout=10) as evaluator:
        with pytest.raises(sk.SafeEvalTimeoutError, match="max_host_calls=5"):
            await evaluator.evaluate_async("while True:\n    await price('a')", {"price": price})
        with pytest.raises(sk.SafeEvalTimeoutError, match="max_host_calls=5"):
            await evaluator.evaluate_async("async for n in numbers(100):\n    pass", {"numbers": numbers})


@pytest.mark.parametrize("isolation", ["worker", "reuse"])
async def test_fifty_at_once(isolation: Any) -> None:
    got: dict[int, object] = {}
    with SafeEvaluator(isolation=isolation, timeout=30) as evaluator:

        async def one(n: int) -> None:
            got[n] = await evaluator.evaluate_async("await price('a') * n", {"price": price, "n": n})

        async with anyio.create_task_group() as tasks:
            for n in range(50):
                tasks.start_soon(one, n)
    assert got == {n: 5 * n for n in range(50)}


async def test_the_blocking_door_works_inside_a_loop() -> None:
    assert sk.safe_eval("1 + 1", timeout=10) == 2
    assert sk.safe_eval_condition("1 < 2", timeout=10)
    assert sk.safe_interpolate("{{ 1 }}", timeout=10) == "1"


ESCAPE = "c = wait()\nresult = c.send(None).get_loop()"


def test_a_coroutine_gives_no_way_to_the_loop() -> None:
    async def wait() -> None:
        await asyncio.sleep(0.01)

    async def inside() -> object:
        loop = wait().send(None)  # what a snippet with the coroutine itself could do
        assert isinstance(loop, asyncio.Future)
        assert loop.get_loop() is asyncio.get_running_loop()
        with pytest.raises(sk.SafeEvalError, match="AttributeError"):
            sk.safe_eval(ESCAPE, {"wait": wait}, mode="exec", timeout=10)
        with pytest.raises(sk.SafeEvalError, match="AttributeError"):
            sk.safe_eval(ESCAPE, {"wait": wait}, mode="exec", timeout=10, isolation="in-process")
        return None

    asyncio.run(inside())


async def test_a_function_may_let_others_run_as_asyncio_does_it() -> None:
    async def gives_way(value: int) -> int:
        for _ in range(3):
            await asyncio.sleep(0)  # a bare yield, which trio takes for a mistake
        await anyio.sleep(0.001)
        return value

    async def counted(n: int) -> AsyncIterator[int]:
        for number in range(n):
            await asyncio.sleep(0)
            yield number

    body = "return [await gives_way(7), [n async for n in counted(3)]]"
    assert await sk.safe_eval_async(body, {"gives_way": gives_way, "counted": counted}, timeout=10) == [7, [0, 1, 2]]


async def test_one_that_only_lets_others_run_ends_at_the_deadline() -> None:
    ended = []

    async def goes_round() -> None:
        try:
            while True:  # noqa: ASYNC110 - that it waits for nothing is the point
                await asyncio.sleep(0)
        finally:
            ended.append("it was cancelled")

    with pytest.raises(sk.SafeEvalTimeoutError):
        await sk.safe_eval_async("await goes_round()", {"goes_round": goes_round}, timeout=0.3)
    assert ended == ["it was cancelled"]


async def test_what_raises_where_it_let_others_run_is_seen() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("a")

    body = "try:\n    await fails()\nexcept RuntimeError as e:\n    return str(e)"
    assert await sk.safe_eval_async(body, {"fails": fails}, timeout=10) == "fails raised KeyError"
