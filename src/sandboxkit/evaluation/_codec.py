"""
Plain values to JSON and back, within bounds: the only form in which anything crosses
between the caller and a worker.

Never pickle: whoever unpickles runs what the other side wrote. Here the reader makes
plain values only, of the types it names itself, so a worker that was taken over can lie
about a value and nothing else.

Runs in the worker too: standard library only, and nothing of the package.
"""

from __future__ import annotations

import binascii
import collections
import datetime
import decimal
import json
import marshal
import time

TYPE_CHECKING = False  # as in typing, whose import is spared in the worker
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = [
    "MAX_DEPTH",
    "CodecError",
    "Encoder",
    "LateError",
    "decode",
    "dumps",
    "loads",
    "pack",
    "printable",
    "printable_line",
    "unpack",
]

MAX_DEPTH = 64
"""How deep lists, dicts and the like may nest."""

MAX_EXPONENT = 9_999
"""Of a Decimal: `int()` of one with more takes memory by its exponent, not by its text."""

_STRIDE = 1 << 16
"""After how many bytes more an encoder looks at the clock."""
_SMALL = 1 << 62
_CELL = 16
_FEW, _ALIKE = 256, 16
"""How many keys there may be of any kind, and beyond that how many of one hash: -1 and -2 have one."""
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


MAX_TEXT = 300


def printable(text: str) -> str:
    """
    *text* shortened, and without characters that would act on a terminal.
    """
    return "".join(char if char.isprintable() else "?" for char in text[:MAX_TEXT])


def printable_line(text: str) -> str:
    """
    As `printable`, for a line of a source: a column of it stays where it was.
    """
    return printable(text.replace("\t", " "))


class CodecError(Exception):
    """
    A value cannot cross, and why.
    """


class LateError(Exception):
    """
    The deadline passed while a value was encoded.
    """


class Encoder:
    """
    Turns plain values into what JSON can hold.

    Plain are None, bool, int, float, complex, str, bytes, Decimal, the values of
    `datetime`, and list, tuple, set, frozenset and dict of them. A range and a view of a
    dict become lists. JSON's own types stand for themselves; every other is a dict with
    one key that starts with `$`.

    Args:
        limit: About how many bytes all values of this encoder may take: 16 a value, and
            the length of texts.
        foreign: What is done with a value that is not plain: it returns the encoded form
            or raises `CodecError`.
        deadline: When it has to be done, in time.monotonic(); None where that is another's affair.
    """

    __slots__ = ("_active", "_look_at", "cost", "deadline", "foreign", "limit")

    def __init__(
        self, limit: int, foreign: Callable[[Encoder, object, int], object], deadline: float | None = None
    ) -> None:
        self.limit = limit
        self.cost = 0
        self.foreign = foreign
        self.deadline = deadline
        self._active: set[int] = set()
        self.rewind(0)

    def rewind(self, cost: int) -> None:
        """
        Goes back to *cost*: what was charged since does not go along.
        """
        self.cost = cost
        self._look_at = self.limit if self.deadline is None else min(self.limit, cost + _STRIDE)

    def look(self) -> None:
        """
        Whether to go on.

        Raises:
            CodecError: The limit is passed.
            LateError: The deadline is.
        """
        self.charge(0)
        if self.deadline is not None:
            if time.monotonic() >= self.deadline:
                raise LateError
            self._look_at = min(self.limit, self.cost + _STRIDE)

    def charge(self, bytes_: int) -> None:
        """
        Counts *bytes_* towards the limit.

        Raises:
            CodecError: It is passed.
        """
        self.cost += bytes_
        if self.cost > self.limit:
            raise CodecError(f"larger than {self.limit} bytes")

    def encode(self, value: Any, depth: int = 0) -> object:
        """
        The JSON form of *value*.

        Raises:
            CodecError: It nests too deeply, holds itself, or is too large.
            LateError: It takes too long.
        """
        self.cost += _CELL  # as `charge`, which costs a call for each value
        if self.cost > self._look_at:
            self.look()
        kind = type(value)
        if value is None or kind is bool:
            return value
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            return scalar(self, value)
        if kind not in _CONTAINERS:
            return self.foreign(self, value, depth)
        if depth >= MAX_DEPTH:
            raise CodecError(f"nested more than {MAX_DEPTH} deep")
        if id(value) in self._active:
            raise CodecError("a value that contains itself")
        self._active.add(id(value))
        try:
            return self._items(kind, value, depth + 1)
        finally:
            self._active.discard(id(value))

    def _items(self, kind: type, value: Any, depth: int) -> object:
        if kind is dict:
            return self.mapping(value, depth)
        # Never materialised before it was charged: a range has 10**18 items at no cost.
        self.charge(_CELL * len(value))
        self.cost -= _CELL * len(value)
        items = [self.encode(item, depth) for item in value]
        tag = _CONTAINERS[kind]
        return items if tag is None else {tag: items}

    def mapping(self, value: dict[Any, Any], depth: int) -> object:
        """
        The JSON form of a dict, at nesting *depth*.
        """
        self.charge(_CELL * len(value))
        length = 0
        for key in value:
            if type(key) is not str or key[:1] == "$":
                break
            length += len(key)
        else:
            self.charge(length)
            return {key: self.encode(item, depth) for key, item in value.items()}
        return {"$dict": [[self.encode(key, depth), self.encode(item, depth)] for key, item in value.items()]}

    def integer(self, value: int) -> object:
        """
        An int of any length: decimal digits would take quadratic time.
        """
        if -_SMALL < value < _SMALL:
            return value
        self.charge(value.bit_length() // 4)
        return {"$int": hex(value)}

    def text(self, value: str) -> object:
        """
        A str, charged by its length.
        """
        self.charge(len(value))
        return value

    def octets(self, value: bytes) -> object:
        """
        Bytes, in base 64.
        """
        self.charge(len(value))
        return {"$bytes": binascii.b2a_base64(value, newline=False).decode()}

    def decimal(self, value: decimal.Decimal) -> object:
        """
        A Decimal by its text.
        """
        if abs(value.adjusted()) > MAX_EXPONENT:
            raise CodecError(f"a Decimal with an exponent beyond {MAX_EXPONENT}")
        text = str(value)
        self.charge(len(text))
        return {"$decimal": text}


def _real(encoder: Encoder, value: float) -> object:
    return value if value - value == 0 else {"$float": repr(value)}


_SCALARS: dict[type, Callable[[Encoder, Any], object]] = {
    int: Encoder.integer,
    float: _real,
    str: Encoder.text,
    bytes: Encoder.octets,
    complex: lambda _, value: {"$complex": [repr(value.real), repr(value.imag)]},
    decimal.Decimal: Encoder.decimal,
    datetime.date: lambda _, value: {"$date": value.isoformat()},
    datetime.datetime: lambda _, value: {"$datetime": value.isoformat(), "fold": value.fold},
    datetime.time: lambda _, value: {"$time": value.isoformat(), "fold": value.fold},
    datetime.timedelta: lambda _, value: {"$delta": [value.days, value.seconds, value.microseconds]},
}
_CONTAINERS: dict[type, str | None] = {
    list: None,
    tuple: "$tuple",
    set: "$set",
    frozenset: "$frozenset",
    dict: None,
    range: None,
    **dict.fromkeys(_VIEWS, None),
}


_encoder = json.JSONEncoder(separators=(",", ":"), check_circular=False, ensure_ascii=False)
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # typeshed leaves it out


def _writer() -> Callable[[Any], str]:
    # What `encode` makes anew at every call, made once. Where an interpreter has it not, or
    # with other arguments, `encode` does the same in thrice the time.
    try:
        made = json.encoder.c_make_encoder(  # type: ignore[attr-defined]  # typeshed leaves it out; tested below
            None, _encoder.default, json.encoder.encode_basestring, None, ":", ",", False, False, True
        )
        if made({"a": [1.5, '"', None]}, 0) and "".join(made([1], 0)) == "[1]":
            return lambda message: "".join(made(message, 0))
    except (AttributeError, TypeError):
        return _encoder.encode
    return _encoder.encode


_write = _writer()


def pack(message: Any) -> bytes:
    """
    *message*, of JSON's types, as the caller sends it to a worker.

    By marshal, which takes a fifth of the time of JSON. It is not for data of others, and a
    worker has no reason to mistrust its caller. What a worker sends is `dumps` and `loads`.
    """
    return marshal.dumps(message, 4)  # what every Python from 3.4 on reads: a box may have another


def unpack(data: bytes) -> Any:
    """
    The message of *data*, in the worker.
    """
    return marshal.loads(data)  # noqa: S302 - of its caller's, who could have it run anything


def dumps(message: object) -> bytes:
    """
    *message* as JSON.
    """
    return _write(message).encode("utf-8", "surrogatepass")


def loads(data: bytes) -> Any:
    """
    The message of *data*.

    Raises:
        CodecError: It is no JSON.
    """
    try:
        text = data.decode("utf-8", "surrogatepass")
        message, end = _scan(text, 0)
    except (StopIteration, ValueError, RecursionError) as error:
        raise CodecError(f"no message: {type(error).__name__}") from None
    if end != len(text):
        raise CodecError("no message: something follows it")
    return message


def decode(raw: Any, special: Callable[[str, Any], object] | None = None, depth: int = 0) -> Any:
    """
    The value that was encoded as *raw*.

    Args:
        raw: What JSON gave.
        special: Makes the value of a tag this module does not know.
        depth: How deep this is nested already.

    Raises:
        CodecError: *raw* is nothing an encoder writes.
    """
    kind = type(raw)
    if kind is not dict and kind is not list:
        return raw
    if depth > MAX_DEPTH + 1:
        raise CodecError("a value that nests too deeply")
    if kind is list:
        return [decode(item, special, depth + 1) for item in raw]
    tag = next(iter(raw), "")
    if tag[:1] != "$":
        return {key: decode(item, special, depth + 1) for key, item in raw.items()}
    try:
        return _tagged(tag, raw, special, depth + 1)
    except (TypeError, ValueError, KeyError, ArithmeticError) as error:
        raise CodecError(f"a broken {tag[1:]} value: {type(error).__name__}") from None


def _tagged(tag: str, raw: dict[str, Any], special: Callable[[str, Any], object] | None, depth: int) -> object:
    body = raw[tag]
    if tag in _SEQUENCES:
        items = [decode(item, special, depth) for item in body]
        return _SEQUENCES[tag](items if tag == "$tuple" else _spread(items))
    if tag == "$dict":
        keys = _spread([decode(key, special, depth) for key, _ in body])
        return dict(zip(keys, [decode(item, special, depth) for _, item in body], strict=True))
    if tag in _READERS:
        return _READERS[tag](raw)
    if special is not None:
        return special(tag, raw)
    raise CodecError(f"a value of the unknown kind {tag[:40]!r}")


def _spread(keys: list[Any]) -> list[Any]:
    # Numbers can be chosen so that many have one hash; a dict of n of them takes n * n steps.
    if len(keys) > _FEW and max(collections.Counter(map(hash, keys)).values()) > _ALIKE:
        raise CodecError("keys that collide")
    return keys


def _number(raw: dict[str, Any]) -> decimal.Decimal:
    value = decimal.Decimal(raw["$decimal"])
    if abs(value.adjusted()) > MAX_EXPONENT:
        raise ValueError("its exponent is too large")
    return value


def _moment(raw: dict[str, Any]) -> datetime.datetime:
    return datetime.datetime.fromisoformat(raw["$datetime"]).replace(fold=raw["fold"])


def _clock(raw: dict[str, Any]) -> datetime.time:
    return datetime.time.fromisoformat(raw["$time"]).replace(fold=raw["fold"])


_SEQUENCES: dict[str, Callable[[Any], object]] = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}
_READERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "$int": lambda raw: int(raw["$int"], 16),
    "$float": lambda raw: float(raw["$float"]),
    "$bytes": lambda raw: binascii.a2b_base64(raw["$bytes"], strict_mode=True),
    "$complex": lambda raw: complex(*map(float, raw["$complex"])),
    "$decimal": _number,
    "$date": lambda raw: datetime.date.fromisoformat(raw["$date"]),
    "$datetime": _moment,
    "$time": _clock,
    "$delta": lambda raw: datetime.timedelta(*map(int, raw["$delta"])),
}
