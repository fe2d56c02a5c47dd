"""
What a snippet may see: builtins, and the attributes of each type. Tables, default deny.

An attribute is given by the exact type of the value and its name; a type without a row
has none. So generators, coroutines, functions, exceptions and code objects have no
attributes at all, those of later Python versions included. That is what ends every walk
from a value to the interpreter; no list of bad names is kept.

Runs in the worker too: standard library only.

Source: library reference, "Built-in Types", "Built-in Functions", "datetime", "math".
"""

from __future__ import annotations

import builtins
import datetime
import decimal
import math
import re
import string
import time

__all__ = [
    "ATTRIBUTES",
    "BUILTINS",
    "CLASS_ATTRIBUTES",
    "MAX_SOURCE",
    "MAX_TEMPLATE",
    "MODULES",
    "OWN",
    "STANDARD_NAMES",
]


MAX_SOURCE = 20_000
"""Characters of one snippet. Checked before parsing, which takes hundreds of bytes for each."""
MAX_TEMPLATE = 200_000
"""Characters of one template, in which each expression is a snippet."""


def _public(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if not name.startswith("_"))


_VIEW = frozenset({"isdisjoint"})

ATTRIBUTES: dict[type, frozenset[str]] = {
    # str.format reads attributes of what it formats; `_language` has one that reads those of this table.
    str: _public(str),
    bytes: _public(bytes),
    int: _public(int),
    bool: _public(int),
    float: _public(float),
    complex: _public(complex),
    list: _public(list),
    tuple: _public(tuple),
    dict: _public(dict),
    set: _public(set),
    frozenset: _public(frozenset),
    range: _public(range),
    slice: frozenset({"indices", "start", "step", "stop"}),
    type({}.keys()): _VIEW,
    type({}.items()): _VIEW,
    type({}.values()): frozenset(),
    datetime.date: _public(datetime.date),
    datetime.datetime: _public(datetime.datetime),
    datetime.time: _public(datetime.time),
    datetime.timedelta: _public(datetime.timedelta),
    datetime.timezone: frozenset({"dst", "tzname", "utcoffset"}),
    type(datetime.date(2024, 1, 1).isocalendar()): frozenset({"week", "weekday", "year"}),
    decimal.Decimal: _public(decimal.Decimal),
    decimal.DecimalTuple: frozenset({"digits", "exponent", "sign"}),
    time.struct_time: frozenset(name for name in dir(time.struct_time) if name.startswith("tm_")),
    re.Match: frozenset("end expand group groupdict groups lastgroup lastindex span start string".split()),
    re.Pattern: frozenset("findall finditer fullmatch groups match pattern search split sub subn".split()),
}
"""Attributes of values, by exact type."""

CLASS_ATTRIBUTES: dict[type, frozenset[str]] = {
    kind: names | extra
    for kind, names, extra in (
        (str, ATTRIBUTES[str], {"maketrans"}),
        (bytes, ATTRIBUTES[bytes], {"fromhex", "maketrans"}),
        (int, ATTRIBUTES[int], {"from_bytes"}),
        (float, ATTRIBUTES[float], {"fromhex"}),
        (list, ATTRIBUTES[list], set()),
        (tuple, ATTRIBUTES[tuple], set()),
        (dict, ATTRIBUTES[dict], {"fromkeys"}),
        (set, ATTRIBUTES[set], set()),
        (frozenset, ATTRIBUTES[frozenset], set()),
        (datetime.date, ATTRIBUTES[datetime.date], set()),
        (datetime.datetime, ATTRIBUTES[datetime.datetime], set()),
        (datetime.time, ATTRIBUTES[datetime.time], set()),
        (datetime.timedelta, ATTRIBUTES[datetime.timedelta], set()),
        (datetime.timezone, frozenset({"utc"}), set()),
        (decimal.Decimal, frozenset({"from_float"}), set()),
    )
}
"""Attributes of the types themselves, as in `dict.fromkeys` and `map(str.upper, words)`."""

MODULES: dict[str, dict[str, object]] = {
    "math": {name: getattr(math, name) for name in dir(math) if not name.startswith("_")},
    # Its engine backtracks: it is the worker's deadline that ends a catastrophic pattern.
    "re": {
        name: getattr(re, name)
        for name in (
            "compile escape findall finditer fullmatch match search split sub subn "
            "A ASCII DOTALL I IGNORECASE M MULTILINE S VERBOSE X"
        ).split()
    },
    "string": {
        name: getattr(string, name)
        for name in "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits punctuation whitespace".split()
    },
    "datetime": {
        "date": datetime.date,
        "datetime": datetime.datetime,
        "time": datetime.time,
        "timedelta": datetime.timedelta,
        "timezone": datetime.timezone,
        "UTC": datetime.UTC,
        "MINYEAR": datetime.MINYEAR,
        "MAXYEAR": datetime.MAXYEAR,
    },
    "decimal": {"Decimal": decimal.Decimal},
}
"""
Modules a context may hold, and what of the worker's own one they then stand for.
"""

_NAMES = """
    abs all any ascii bin bool bytes chr complex dict divmod enumerate filter float format frozenset hex int isinstance
    iter len list map max min next oct ord pow range repr reversed round set slice sorted str sum tuple zip
    ArithmeticError AssertionError AttributeError Exception IndexError KeyError LookupError NameError NotImplementedError
    OverflowError RecursionError RuntimeError StopAsyncIteration StopIteration TypeError UnicodeError ValueError
    ZeroDivisionError
"""

BUILTINS: dict[str, object] = {name: getattr(builtins, name) for name in _NAMES.split()}
"""
Without what makes code from text, walks objects, opens, prints or ends; and without
BaseException, so that a snippet cannot catch what ends it.
"""

STANDARD_NAMES: dict[str, object] = {
    "date": datetime.date,
    "datetime": datetime.datetime,
    "timedelta": datetime.timedelta,
}
"""Names every snippet has besides, unless the context has them: and the module `math`."""

OWN: dict[str, object] = {
    **BUILTINS,
    **{f"{kind.__module__}.{kind.__name__}": kind for kind in CLASS_ATTRIBUTES if kind.__module__ != "builtins"},
}
"""
Types and functions that every interpreter has: one in a context stands for the worker's own.
"""
