"""
JavaScript in the same kind of worker: its own corpora, the values that cross, the limits.
"""

from __future__ import annotations

import datetime
import decimal
import importlib.util
import math
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.evaluation import contexts

import sandboxkit as sk
from sandboxkit.evaluation import SafeEvaluator, _workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("_quickjs") is None and not os.environ.get("CI"),
        reason="the extra js is not installed",
    )
]

ESCAPES = contexts.rows("safe_eval_js_escapes.jsonl")
ORDINARY = contexts.rows("safe_eval_js_ok.jsonl")
TIMEOUT, LATE = 0.3, 0.5
Row = dict[str, Any]


class Vault:
    """
    An object nobody exposed.
    """

    def __init__(self) -> None:
        self.secret = contexts.CANARY


async def endless() -> AsyncIterator[int]:
    while True:
        yield 1


def context() -> dict[str, Any]:
    """
    The context of every row, made anew.
    """
    return contexts.hostile_context() | {
        "f": lambda *_: 1,
        "w": Vault(),
        "price": contexts.fetch_price,
        "endless": endless,
        "greet": contexts.greet,
        "discount": contexts.discount,
    }


def evaluated(row: Row, given: dict[str, Any], *, loop: str = "asyncio", **limits: Any) -> object:
    limits = {"timeout": TIMEOUT, "memory_bytes": 128 << 20, "language": "javascript", **limits}
    if row["mode"] == "async":

        async def call() -> object:
            return await sk.safe_eval_async(row["code"], given, **limits)

        return anyio.run(call, backend=loop)
    calls: dict[str, Callable[..., object]] = {"condition": sk.safe_eval_condition, "template": sk.safe_interpolate}
    if row["mode"] in calls:
        return calls[row["mode"]](row["code"], given, **limits)
    return sk.safe_eval(row["code"], given, mode=row["mode"], **limits)


@pytest.fixture
def evaluator() -> Iterator[SafeEvaluator]:
    with SafeEvaluator(language="javascript", isolation="reuse", timeout=10) as made:
        yield made


@pytest.mark.parametrize("row", ESCAPES, ids=lambda row: row["id"])
def test_no_escape(row: Row) -> None:
    given = context()
    assert evaluated({"mode": "expr", "code": "x + y"}, given, timeout=10) == 30
    before, began, value, said = contexts.snapshot(given), time.monotonic(), None, ""
    try:
        value = evaluated(row, given)
    except sk.SafeEvalError as error:
        said = str(error)
    assert time.monotonic() - began < TIMEOUT + LATE
    assert contexts.snapshot(given) == before
    assert contexts.CANARY not in said
    assert "\x1b" not in said
    assert len(said) < 4096
    assert said or contexts.is_plain(value)
    assert len(repr(value)) < 1 << 21
    if row["goal"] == "leak" and row["code"].startswith("typeof"):
        assert value in ("undefined", "undefinedundefined")


@pytest.mark.parametrize(
    ("loop", "row"),
    [("asyncio", row) for row in ORDINARY] + [("trio", row) for row in ORDINARY if row["mode"] == "async"],
    ids=lambda value: value if isinstance(value, str) else value["id"],
)
def test_what_is_ordinary_works(loop: str, row: Row) -> None:
    def call() -> object:
        return evaluated(row, context(), loop=loop, timeout=10)

    if kind := row.get("expect_error"):
        with pytest.raises(sk.SafeEvalError) as caught:
            call()
        assert caught.value.kind == kind
    else:
        got = contexts.as_json(call())
        assert (got, type(got)) == (row["expect"], type(row["expect"]))


UTC = datetime.UTC
CARRIED: dict[str, tuple[object, str, object]] = {
    "a large int": (2**80, "v * 2n", 2**81),
    "a negative large int": (-(2**80), "v", -(2**80)),
    "the largest safe int": (2**53 - 1, "v", 2**53 - 1),
    "not a number": (float("inf"), "-v", float("-inf")),
    "a Decimal": (decimal.Decimal("1.5"), "v + 1", 2.5),
    "a date": (datetime.date(2026, 1, 31), "v", datetime.datetime(2026, 1, 31, tzinfo=UTC)),
    "a naive datetime": (datetime.datetime(2026, 1, 1, 12), "v.getUTCHours()", 12),  # noqa: DTZ001 - naive is the point
    "an aware datetime": (
        datetime.datetime(2026, 1, 1, tzinfo=UTC),
        "v",
        datetime.datetime(2026, 1, 1, tzinfo=UTC),
    ),
    "a timedelta": (datetime.timedelta(seconds=1.5), "v", 1500),
    "bytes": (b"\x00\xff", "[v[1], v.length, v]", [255, 2, b"\x00\xff"]),
    "a set": ({1}, "v.has(1)", True),
    "keys that are no text": ({1: {None: "a"}}, "v.get(1).get(null)", "a"),
    "a key that looks like a tag": ({"$": 1, "$date": 2}, "v", {"$": 1, "$date": 2}),
    "a key of the prototype": ({"__proto__": 1}, "Object.keys(v)", ["__proto__"]),
    "a surrogate": ("\ud800\x00", "v + v", "\ud800\x00\ud800\x00"),
    "an IntEnum": (signal.SIGTERM, "v", 15),
    "a tuple": ((1, (2,)), "v", [1, [2]]),
}


@pytest.mark.parametrize("name", CARRIED)
def test_values_cross(name: str, evaluator: SafeEvaluator) -> None:
    given, code, expected = CARRIED[name]
    value = evaluator.evaluate(code, {"v": given})
    assert (value, type(value)) == (expected, type(expected))


def test_functions_are_called_here_with_copies(evaluator: SafeEvaluator) -> None:
    seen: list[object] = []

    def note(*given: object) -> object:
        seen.append((os.getpid(), given))
        return {"a": [1, datetime.date(2026, 1, 1)]}

    assert evaluator.evaluate("note([1, {a: 2n}], undefined).a[1].getUTCDate()", {"note": note}) == 1
    assert seen == [(os.getpid(), ([1, {"a": 2}], None))]


def test_an_exposed_object_goes_along_by_its_attributes(evaluator: SafeEvaluator) -> None:
    vault = Vault()
    with pytest.raises(sk.SafeEvalForbiddenError, match=r"Vault.*expose"):
        evaluator.evaluate("v.secret", {"v": vault})
    evaluator.expose(Vault, "secret")
    assert evaluator.evaluate("v.secret", {"v": vault}) == contexts.CANARY


@pytest.mark.parametrize("code", ["v", "[v]", "f({a: [v]})", "(() => { throw v })()", "`${v}`"])
def test_what_stays_outside_is_named_wherever_it_turns_up(code: str, evaluator: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalForbiddenError, match=r"^(line 1: )?a Vault of the caller's is not allowed"):
        evaluator.evaluate(code, {"v": Vault(), "f": lambda *_: 1})


def test_a_name_of_javascripts_own_can_be_the_contexts(evaluator: SafeEvaluator) -> None:
    names = "Array BigInt Boolean Date Error JSON Map Number Object Promise Proxy Reflect Set String Symbol Uint8Array".split()
    context = {
        **dict.fromkeys(names, 1),
        "day": datetime.date(2026, 1, 31),
        "f": lambda *given: {"a": [*given], "b": {1: 2}},
        "x": [b"a", {1}, 1 << 60, math.inf],
    }
    code = f"[{' + '.join(names)}, day, f(x, day), new x[1].constructor([1]), undefined]"
    total, day, given, numbers, nothing = evaluator.evaluate(code, context)
    assert (total, day.date(), numbers, nothing) == (len(names), context["day"], [1], None)
    assert given["a"][0] == [b"a", [1], 1 << 60, math.inf]
    for name in ("NaN", "undefined"):
        with pytest.raises(sk.SafeEvalForbiddenError, match=f"the name {name} .*hand the value in by another"):
            evaluator.evaluate(f"{name} + 1", {name: 1})


def test_a_date_python_has_none_for_is_refused(evaluator: SafeEvaluator) -> None:
    assert evaluator.evaluate("new Date(253402300799999)").year == 9999
    with pytest.raises(sk.SafeEvalForbiddenError, match="a Date outside of the years 1 to 9999"):
        evaluator.evaluate("new Date(8.64e15)")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ n > 2 ? 'a:b' : 'c' }}", "a:b"),
        ("{{ n > 2 ? n : 0 :.1f }}{{ n>5?.5:1 }}", "3.01"),
        ("{{ n > 2 ? n > 5 ? 1 : 2 : 3 }}", "2"),
        ("{{ 0 || n | string }}{{ null ?? n }}{{ v?.x?.y ?? 'd' }}", "33d"),
        ("{{ `}}` }}{{ `it's` }}{{ `a|b:c` | upper }}", "}}it'sA|B:C"),
        ("{{ `${`${{a: n}.a}`}}` }}", "3}"),
        ("{{ '' }}{{ '\\'' }}{{ ''+'' }}", "'"),
        ("{{ n\n  + 1 }}", "4"),
    ],
)
def test_fields_are_read_as_javascript(template: str, text: str, evaluator: SafeEvaluator) -> None:
    assert evaluator.interpolate(template, {"n": 3, "v": {}}) == text


@pytest.mark.parametrize(
    "template", ["{{ `${n }}", "{{ `a }}", "{{ n ? 1 : }}", "{{ n) + (n }}", "{{ n ||", "{{ `${`" * 3]
)
def test_a_field_that_cannot_be_read_is_told(template: str, evaluator: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalSyntaxError):
        evaluator.interpolate(template, {"n": 3})


def test_errors_have_the_line_of_the_snippet(evaluator: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalError) as caught:
        evaluator.evaluate("function f(v) {\n  return v.a.b\n}\nresult = f({})", mode="exec")
    assert (caught.value.kind, caught.value.line) == ("TypeError", 2)
    with pytest.raises(sk.SafeEvalError) as caught:
        evaluator.evaluate("\n\nfail()", {"fail": _fail})
    assert (caught.value.kind, caught.value.problem, caught.value.line) == ("HostError", "fail raised KeyError", 3)
    with pytest.raises(sk.SafeEvalSyntaxError) as wrong:
        evaluator.interpolate("a\n{{ 1 + }}")
    assert (wrong.value.lineno, wrong.value.text) == (2, "{{ 1 + }}")
    with pytest.raises(sk.SafeEvalError) as caught:
        evaluator.interpolate("a\n{{ n.nothing }}", {"n": {}})
    assert (caught.value.kind, caught.value.line) == ("ReferenceError", 2)


def _fail() -> None:
    raise KeyError("the secret")


def test_one_evaluation_leaves_nothing_for_the_next(evaluator: SafeEvaluator) -> None:
    evaluator.evaluate("globalThis.left = 1; Object.prototype.left = 2; result = 0", mode="exec")
    assert evaluator.evaluate("typeof left + typeof {}.left") == "undefinedundefined"


def test_limits_are_those_of_python() -> None:
    with SafeEvaluator(language="javascript", timeout=0.3) as evaluator:
        began = time.monotonic()
        with pytest.raises(sk.SafeEvalTimeoutError, match=r"timeout=0\.3"):
            evaluator.evaluate("/(a+)+$/.test('a'.repeat(40) + 'b')")
        assert time.monotonic() - began < 0.3 + LATE
    with SafeEvaluator(language="javascript", timeout=10, memory_bytes=64 << 20, max_host_calls=5) as evaluator:
        with pytest.raises(sk.SafeEvalMemoryError, match=f"memory_bytes={64 << 20}"):
            evaluator.evaluate("new Array(2 ** 26).fill(1)")
        with pytest.raises(sk.SafeEvalTimeoutError, match="max_host_calls=5"):
            evaluator.evaluate("(() => { for (;;) try { f() } catch (e) {} })()", {"f": _fail})
        with pytest.raises(sk.SafeEvalForbiddenError, match="20000 is the most"):
            evaluator.evaluate("1" + " " * 20_000)
        assert SafeEvaluator(language="javascript", timeout=10).evaluate("'a'.repeat(5e5).length") == 500_000


def test_it_is_never_evaluated_in_this_process() -> None:
    with pytest.raises(ValueError, match="no gate in front"):
        SafeEvaluator(language="javascript", isolation="in-process")
    with pytest.raises(ValueError, match="no language"):
        SafeEvaluator(language="cobol")  # type: ignore[arg-type]  # that is the point


def test_its_workers_are_confined_as_those_of_python(evaluator: SafeEvaluator) -> None:
    assert evaluator.evaluate("1 + 1") == 2
    zygote = _workers.zygote("javascript")
    assert zygote.pid not in (None, _workers.zygote().pid)
    (worker,) = Path(f"/proc/{zygote.pid}/task/{zygote.pid}/children").read_text().split()
    for pid, filters in ((zygote.pid, 1), (worker, 2)):
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"Seccomp_filters:\t{filters}" in status
        assert "CapEff:\t0000000000000000" in status
        assert "Seccomp:\t2" in status
        assert "Threads:\t1" in status
    assert evaluator.enforcement() == SafeEvaluator(isolation="reuse").enforcement()
