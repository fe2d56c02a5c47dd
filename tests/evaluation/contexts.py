"""
What the rows of the corpora refer to: the objects of their contexts, and plain Python's
own answer to compare with.
"""

from __future__ import annotations

import copy
import datetime
import json
import math
import random
import re
import string
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

CANARY = "CANARY-7f3a9e"
API_TOKEN = CANARY
QUICK_GOALS = ("leak", "mutation", "object", "control", "errleak", "ctrl")
"""Of the escapes that neither hang nor bloat."""
CORPUS = Path(__file__).parent.parent / "corpus"

PLAIN: dict[str, Any] = {
    "x": 10,
    "y": 20,
    "n": 3,
    "ratio": 0.25,
    "text": "Hello World",
    "empty": "",
    "none": None,
    "flag": True,
    "user": {"role": "admin", "name": "Alice", "age": 41, "tags": ["a", "b"], "address": {"city": "Oslo"}},
    "item": {"price": 50, "name": "pen", "qty": 3},
    "order": {"total": 123.456, "id": 7},
    "rows": [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "c", "v": 3}],
    "nums": [3, 1, 2],
    "cfg": {"limit": 5, "mode": "ro"},
}


def rows(name: str) -> list[dict[str, Any]]:
    """
    The rows of a corpus.
    """
    return [json.loads(line) for line in (CORPUS / name).read_text(encoding="utf-8").splitlines()]


def escapes() -> list[dict[str, Any]]:
    """
    What is tried to get out, hang or bloat.
    """
    return rows("safe_eval_escapes.jsonl") + rows("safe_eval_more_escapes.jsonl")


def ordinary() -> list[dict[str, Any]]:
    """
    What has to work, with its value.
    """
    return rows("safe_eval_ok.jsonl") + rows("safe_eval_more_ok.jsonl")


class Widget:
    """
    An object of the host's, with a secret.
    """

    kind = "widget"

    def __init__(self) -> None:
        self.name = "w1"
        self.price = 50
        self.tags = ["a", "b"]
        self._secret = CANARY

    def total(self, n: int = 1) -> int:
        return self.price * n

    def stream(self) -> Iterator[str]:
        yield self.name

    async def fetch(self) -> str:
        return self.name

    async def astream(self) -> AsyncIterator[str]:
        yield self.name

    def __repr__(self) -> str:
        return "Widget(w1)"


def greet(name: object) -> str:
    return "hi " + str(name)


def re_search(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


def apply(function: Callable[..., object], *arguments: object) -> object:
    return function(*arguments)


def discount(price: float, percent: float = 10) -> float:
    return round(price * (100 - percent) / 100, 2)


async def fetch_price(sku: str) -> int:
    return {"a": 5, "b": 7}.get(sku, 0)


async def slow(value: object) -> object:
    return value


async def nap(value: object) -> object:
    await anyio.sleep(0.005)
    return value


async def arange(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


def _an_error() -> BaseException:
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        return error


def hostile_context() -> dict[str, Any]:
    """
    The context of every row of the escape corpus, made anew.
    """
    return copy.deepcopy(PLAIN) | {
        "obj": Widget(),
        "cls": Widget,
        "fn": greet,
        "re_search": re_search,
        "apply": apply,
        "fetch_price": fetch_price,
        "slow": slow,
        "nap": nap,
        "arange": arange,
        "err": _an_error(),
        "math": math,
        "string": string,
        "random": random,
        "dt": datetime.datetime,
        "timedelta": datetime.timedelta,
        "day": datetime.date(2026, 1, 31),
        "now": datetime.datetime(2026, 1, 31, 12, 0),  # noqa: DTZ001 - a naive value is what users hand in
    }


_TOTAL, _CODE, _LEN, _RANDOM = Widget.total, greet.__code__, len, random.random


def snapshot(context: dict[str, Any]) -> str:
    """
    What a row could change here, as text.
    """
    looked_at = [
        [context[name] for name in PLAIN],
        sorted(vars(context["obj"]).items()),
        Widget.kind,
        Widget.total is _TOTAL,
        sorted(vars(Widget)),
        greet.__defaults__,
        greet.__code__ is _CODE,
        vars(greet),
        math.pi,
        len is _LEN,
        random.random is _RANDOM,
        string.digits,
        API_TOKEN,
        context["err"].args,
    ]
    return repr(looked_at)


FUNCTIONS: dict[str, Any] = {
    "fetch_price": fetch_price,
    "slow": slow,
    "arange": arange,
    "greet": greet,
    "discount": discount,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "timedelta": datetime.timedelta,
    "math": math,
}


def ordinary_context(raw: dict[str, Any]) -> dict[str, Any]:
    """
    The context of a row of the ordinary corpus, its markers replaced.
    """
    readers: dict[str, Callable[[str], object]] = {
        "$fn": FUNCTIONS.__getitem__,
        "$date": datetime.date.fromisoformat,
        "$datetime": datetime.datetime.fromisoformat,
    }
    made = {}
    for name, value in raw.items():
        marker = next(iter(value)) if isinstance(value, dict) and len(value) == 1 else ""
        made[name] = readers[marker](value[marker]) if marker in readers else value
    return made


def as_json(value: Any) -> Any:
    """
    *value* as the corpora write it.
    """
    if isinstance(value, (tuple, list)):
        return [as_json(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((as_json(item) for item in value), key=repr)
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return value.decode("latin1") if isinstance(value, bytes) else value


def is_plain(value: object) -> bool:
    """
    Whether *value* is what may leave a snippet, and without the canary.
    """
    if value is None or type(value) in (str, int, float, bool, complex, bytes):
        return not isinstance(value, str) or CANARY not in value
    if type(value) in (datetime.date, datetime.datetime, datetime.time, datetime.timedelta):
        return True
    if isinstance(value, dict):
        return all(is_plain(item) for pair in value.items() for item in pair)
    return type(value) in (list, tuple, set, frozenset) and all(map(is_plain, value))  # type: ignore[call-overload]  # one of these
