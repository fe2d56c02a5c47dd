"""
Makes what goes into a record JSON-ready, masked and of bounded size. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from sandboxkit.model import AuditEvent

if TYPE_CHECKING:
    from sandboxkit.secrets import SecretRegistry

__all__ = ["MAX_FIELD_CHARS", "MAX_RECORD_BYTES", "RESERVED", "bounded", "encoded"]

MAX_FIELD_CHARS = 4096
MAX_RECORD_BYTES = 64 * 1024
RESERVED = frozenset(
    {"schema", "kind", "run_id", "time", "masked", "cut", "torn", "gone", "key", "seq", "prev", "hash"}
)
"""The record's own keys; a field of an event that bears such a name is left out."""
_MAX_ITEMS = 200
_MAX_DEPTH = 8
_MAX_BRACKETS = 50
_MAX_RUN_ID = 128
_MAX_INT = 1 << 63
"""Larger numbers become text: other readers of JSON round them."""
_SMALLEST_FIELD = 64
_EVERYTHING = "*"

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encoded(record: Mapping[str, Any]) -> bytes:
    """
    One line of JSON, without its end. Control characters, and all that is not ASCII,
    are escaped: a terminal that shows the file obeys nothing in it.
    """
    return _encode(record).encode("ascii")


def bounded(event: AuditEvent, secrets: SecretRegistry, *, max_field_chars: int, max_record_bytes: int) -> bytes:
    """
    *event* as a line of JSON, with every text masked and cut to *max_field_chars*, and
    to less where the line would otherwise pass *max_record_bytes*.

    The names of the fields in which a secret was masked stand in `masked`, those of
    which something is missing in `cut`, so that a reader knows which are exact. A
    marker in the text says how much was cut. A field that bears the name of the
    record's own keys is left out.
    """
    line = _as_it_is(event, secrets, max_field_chars)
    if line is not None and len(line) <= max_record_bytes:
        return line
    room = max_field_chars
    while True:
        line = encoded(_careful(event, secrets, room).to_dict())
        if len(line) <= max_record_bytes:
            return line
        if room <= _SMALLEST_FIELD:
            return encoded(_record(event, {"cut": [_EVERYTHING]}).to_dict())
        room = max(_SMALLEST_FIELD, room // 4)


def _record(event: AuditEvent, fields: dict[str, Any]) -> AuditEvent:
    time = event.time if math.isfinite(event.time) else 0.0
    return AuditEvent(event.kind, event.run_id[:_MAX_RUN_ID], time, fields)


def _as_it_is(event: AuditEvent, secrets: SecretRegistry, room: int) -> bytes | None:
    """
    The line, where nothing is to be masked or cut, which is nearly always: then all of
    it is looked through at once, in a fifth of the time. None where that is not certain.
    """
    if not RESERVED.isdisjoint(event.fields) or len(event.run_id) > _MAX_RUN_ID:
        return None
    try:
        text = _encode(event.to_dict())
    except (TypeError, ValueError, RecursionError):
        return None
    if len(text) > room or text.count("[") + text.count("{") > _MAX_BRACKETS or "\\u" in text or _has_large(event):
        return None
    # Each text of the event stands in the line in one piece, once the escapes are undone.
    plain = text.encode("ascii").decode("unicode_escape") if "\\" in text else text
    return text.encode("ascii") if secrets.mask(plain) == plain else None


def _has_large(event: AuditEvent) -> bool:
    return any(type(value) is int and not -_MAX_INT < value < _MAX_INT for value in event.fields.values())


def _careful(event: AuditEvent, secrets: SecretRegistry, room: int) -> AuditEvent:
    fields: dict[str, Any] = {}
    masked, cut = [], []
    for name, value in event.fields.items():
        press = _Press(secrets, room)
        key = press.text(str(name))
        if key in RESERVED:
            continue
        fields[key] = press.value(value, _MAX_DEPTH)
        masked += [key] if press.has_masked else []
        cut += [key] if press.has_cut else []
    return _record(event, fields | ({"masked": masked} if masked else {}) | ({"cut": cut} if cut else {}))


class _Press:
    """
    Brings one field into shape, and remembers what that took.
    """

    def __init__(self, secrets: SecretRegistry, room: int) -> None:
        self._secrets = secrets
        self._room = room
        self.has_masked = False
        self.has_cut = False

    def value(self, value: object, depth: int) -> Any:
        match value:
            case None | bool():
                return value
            case int():
                return int(value) if abs(value) < _MAX_INT else self.text(str(value))
            case float():
                return float(value) if math.isfinite(value) else str(value)
            case str():
                return self.text(value)
            case bytes():
                return self.text(value.decode(errors="replace"))
            case Mapping() if depth:
                return self._mapping(value, depth)
            case Sequence() | Set() if depth:
                items = [self.value(held, depth - 1) for held in _first(value)]
                return items + self._rest(len(value))
            case _:
                self.has_cut = self.has_cut or not depth
                return self.text(str(value))

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        rows = [(self.text(str(key)), self.value(held, depth - 1)) for key, held in _first(value.items())]
        return dict([*rows, *(("…", rest) for rest in self._rest(len(value)))])

    def _rest(self, count: int) -> list[str]:
        if count <= _MAX_ITEMS:
            return []
        self.has_cut = True
        return [f"…[{count - _MAX_ITEMS} more]"]

    def text(self, text: str) -> str:
        # Masked before it is cut: half a secret is one that no pattern finds. A very long
        # text is cut first, and then what could be the half of one is held back.
        window = 8 * self._room + (1 << 16)
        if len(text) > window:
            return self._head(text, window)
        masked = self._secrets.mask(text)
        self.has_masked = self.has_masked or masked != text
        if len(masked) <= self._room:
            return masked
        self.has_cut = True
        return masked[: self._room] + f"…[{len(masked) - self._room} more characters]"

    def _head(self, text: str, window: int) -> str:
        head = text[:window].encode("utf-8", "surrogatepass")
        masked = self._secrets.masker().feed(head)
        self.has_cut = True
        self.has_masked = self.has_masked or not head.startswith(masked)
        return masked.decode("utf-8", "ignore")[: self._room] + f"…[cut, {len(text)} characters in all]"


def _first(items: Any) -> list[Any]:
    return [item for _, item in zip(range(_MAX_ITEMS), items, strict=False)]
