"""
What crosses to a worker and back is what it was, or is refused; and no bytes of a worker
make anything but plain values here.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sandboxkit.evaluation._codec import CodecError, Encoder, decode, dumps, loads

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters(), max_size=20)
    | st.binary(max_size=20)
    | st.decimals(allow_nan=False, places=4)
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(datetime.UTC))
    | st.times()
    | st.timedeltas()
)
KEYS = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["$dict", "$set", "", "a"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.sets(SCALARS, max_size=4)
        | st.frozensets(SCALARS, max_size=4)
    ),
    max_leaves=20,
)
PLAIN = {bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, type(None)}


def refuse(_: Encoder, value: object, __: int) -> object:
    raise CodecError(type(value).__name__)


@given(VALUES)
def test_a_value_comes_back_as_it_went(value: Any) -> None:
    back = decode(loads(dumps(Encoder(1 << 20, refuse).encode(value))))
    assert back == value
    assert repr(back) == repr(value) or isinstance(value, (set, frozenset, dict, list, tuple))


@given(VALUES, st.integers(min_value=1, max_value=2000))
def test_a_limit_holds_for_every_value(value: Any, limit: int) -> None:
    encoder = Encoder(limit, refuse)
    try:
        crossed = dumps(encoder.encode(value))
    except CodecError:
        return
    assert encoder.cost <= limit
    assert len(crossed) <= 6 * limit + 1024


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1e9999", "ff", "eval"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from("$int $float $bytes $complex $decimal $date $datetime $time $delta fold".split())
            | st.sampled_from("$tuple $set $frozenset $dict $own $refused $record $module a".split()),
            inner,
            max_size=2,
        )
    ),
    max_leaves=10,
)


@given(JSON)
def test_whatever_a_worker_says_is_a_plain_value_or_refused(message: Any) -> None:
    try:
        value = decode(loads(json.dumps(message).encode()))
    except CodecError:
        return
    waiting = [value]
    while waiting:
        item = waiting.pop()
        assert type(item) in PLAIN or type(item).__module__ in ("datetime", "decimal")
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set, frozenset)):
            waiting += item


@given(st.binary(max_size=60))
def test_whatever_bytes_come_are_a_message_or_refused(data: bytes) -> None:
    with contextlib.suppress(CodecError):
        loads(data)
