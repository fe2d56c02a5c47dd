"""
What of a caller's context goes along: plain values by copy, functions by name.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sandboxkit.evaluation._codec import MAX_DEPTH, CodecError, Encoder, LateError
from sandboxkit.evaluation._tables import MODULES, OWN

__all__ = ["Exposed", "HostTable", "Prepared", "encoded", "encoder", "plain_text", "prepared"]

MAX_CONTEXT_BYTES = 16 << 20
"""About how much of values one context may bring along."""

Exposed = Mapping[type, tuple[str, ...]]
HostTable = Mapping[str, Callable[..., Any]]

_OWN_NAMES = {id(value): name for name, value in OWN.items()}
_name_of = type.__dict__["__name__"].__get__
"""Of a class, whatever its metaclass says."""


class Prepared(NamedTuple):
    """
    A context as it crosses. No frozen dataclass: one takes five times as long to make.

    Attributes:
        values: Encoded values, by name.
        kinds: For each function its kind: `plain`, `coroutine` or `stream`.
        table: The functions themselves; they stay here.
    """

    values: dict[str, object]
    kinds: dict[str, str]
    table: dict[str, Callable[..., Any]]


def prepared(
    context: Mapping[str, object], functions: HostTable, exposed: Exposed, code: str, deadline: float
) -> Prepared:
    """
    What *code* can name of *context* and *functions*, ready to cross.

    A name that does not stand in the text stays here: nothing can refer to it. Only where
    the text is ASCII, though, because Python takes other letters for those they fold to.

    Plain functions, coroutine functions and async generator functions of the context are
    declared by being there. A value that cannot cross becomes a name that raises when it
    is used; see `encoder`.

    Raises:
        LateError: It takes until *deadline*, in time.monotonic().
    """
    if type(context) is not dict and not isinstance(context, Mapping):
        raise TypeError(f"a context is a mapping of names to values, not a {type(context).__name__}")
    values: dict[str, object] = {}
    table: dict[str, Callable[..., Any]] = {}
    made = encoder(MAX_CONTEXT_BYTES, exposed, deadline)
    is_plain = code.isascii()
    for name, value in context.items():
        if type(name) is not str:
            name = plain_text(name, "the names of a context are str")
        if is_plain and name not in code:
            continue
        if type(value) is types.FunctionType:  # by the type: what isinstance asks a value may raise
            table[name] = value
            continue
        before = made.cost
        try:
            values[name] = encoded(made, value)
        except CodecError as error:
            made.rewind(before)
            values[name] = {"$refused": f"{name} (a {_name_of(type(value))}, {error})"}
    if functions:
        table |= {name: function for name, function in functions.items() if not is_plain or name in code}
    return Prepared(values, {name: _kind(function) for name, function in table.items()} if table else {}, table)


def plain_text(value: object, problem: str) -> str:
    """
    The str that *value* is: one of a subclass may have methods of its own, and does not
    cross.

    Raises:
        TypeError: It is none, with the words of *problem*.
    """
    if not issubclass(type(value), str):
        raise TypeError(f"{problem}, not a {type(value).__name__}")
    return str.__str__(value)


def _kind(function: Callable[..., Any]) -> str:
    call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004 - the method, to see whether it is async
    while isinstance(function, functools.partial):
        call = function = function.func
    if inspect.iscoroutinefunction(call):
        return "coroutine"
    return "stream" if inspect.isasyncgenfunction(call) else "plain"


def encoded(made: Encoder, value: object) -> object:
    """
    What *made*, of `encoder`, makes of *value*, methods of which may fail: those of a time zone,
    or of a class's own class.

    Raises:
        CodecError: It cannot cross, or they did.
        LateError: It takes too long.
    """
    try:
        return made.encode(value)
    except (CodecError, LateError):
        raise
    except Exception as exc:  # noqa: BLE001 - whatever it is of the caller's; whoever uses the value is told
        raise CodecError(f"reading it raised {type(exc).__name__}") from None


def encoder(limit: int, exposed: Exposed, deadline: float) -> Encoder:
    """
    An encoder for values of the caller's; use it by `encoded`.

    A value of a subclass crosses as its base (an `IntEnum` as an int, a `defaultdict` as a
    dict), an exposed object by its declared attributes. The tables' modules, types and
    functions stand for the worker's own. Anything else is refused in its place, which
    whoever uses it there is told.
    """

    def foreign(encoder: Encoder, value: Any, depth: int) -> object:
        for kind in type(value).__mro__:
            if kind in exposed:
                if depth >= MAX_DEPTH:
                    raise CodecError(f"nested more than {MAX_DEPTH} deep")
                try:
                    fields = {name: getattr(value, name) for name in exposed[kind]}
                except Exception as exc:  # noqa: BLE001 - a property's; whoever uses the object is told
                    return {"$refused": f"a {kind.__name__} whose attributes cannot be read ({type(exc).__name__})"}
                return {"$record": kind.__name__, "fields": encoder.mapping(fields, depth + 1)}
        if id(value) in _OWN_NAMES and OWN[_OWN_NAMES[id(value)]] is value:
            return {"$own": _OWN_NAMES[id(value)]}
        if issubclass(type(value), types.ModuleType):
            return _module(value)
        try:
            plain = _as_base(value)
        except Exception as exc:  # noqa: BLE001 - a mapping's of the caller's; whoever uses it is told
            return {"$refused": f"a {type(value).__name__} that cannot be read ({type(exc).__name__})"}
        if plain is value:
            return {"$refused": f"{_named(value)} of the caller's"}
        return encoder.encode(plain, depth)

    return Encoder(limit, foreign, deadline)


def _named(value: Any) -> str:
    return f"the class {value.__name__}" if issubclass(type(value), type) else f"a {type(value).__name__}"


def _module(value: types.ModuleType) -> object:
    name = value.__name__
    if name in MODULES and sys.modules.get(name) is value:
        return {"$module": name}
    return {"$refused": f"the module {name}"}


def _as_base(value: Any) -> object:
    # By the type and not by isinstance, which believes what an object says of its class.
    kind = type(value)
    for base, plain in _BASES.items():
        if issubclass(kind, base):
            return plain(value)
    for base, plain in _MOMENTS.items():
        if issubclass(kind, base):
            return made if (made := plain(value)) == value else value  # what says more than its base, or is none
    return dict(value) if issubclass(kind, Mapping) else value


# The base's own methods: a subclass may have others, which would run on its terms.
_BASES: dict[type, Callable[[Any], object]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    bytearray: lambda value: bytes(bytearray.__getitem__(value, slice(None))),
    list: lambda value: list(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    complex: complex.__complex__,
    decimal.Decimal: decimal.Decimal,
}
_combine, _day, _clock = datetime.datetime.combine, datetime.datetime.date, datetime.datetime.timetz
_date_of, _ordinal = datetime.date.fromordinal, datetime.date.toordinal
_MOMENTS: dict[type, Callable[[Any], object]] = {
    datetime.datetime: lambda value: _combine(_day(value), _clock(value)),
    datetime.date: lambda value: _date_of(_ordinal(value)),
    datetime.time: lambda value: _clock(_combine(_date_of(1), value)),
    datetime.timedelta: datetime.timedelta.__pos__,
}
"""
Likewise, where a subclass may say more than its base can hold: nanoseconds, or no time at all.
By methods held here, because libraries that stop the clock replace the classes.
"""
