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
_MAX_RUN_ID = 128
_SMALLEST_FIELD = 64
_EVERYTHING = "*"

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encoded(record: Mapping[str, Any]) -> bytes:
    """
    One line of JSON, without its end. Control characters, and all that is not ASCII,
    are escaped: a terminal that shows the file obeys nothing in it.
    """
    return _encode(record).encode("ascii")


def bounded(
    event: AuditEvent, secrets: SecretRegistry, *, max_field_chars: int, max_record_bytes: int
) -> tuple[AuditEvent, bytes]:
    """
    *event* with every text masked and cut to *max_field_chars*, and to less where the
    record would otherwise pass *max_record_bytes*; and the same as a line of JSON.

    The names of the fields in which a secret was masked stand in `masked`, those of
    which something is missing in `cut`, so that a reader knows which are exact. A
    marker in the text says how much was cut. A field that bears the name of the
    record's own keys is left out.
    """
    room = max_field_chars
    while True:
        record = _plain(event, secrets, room) or _careful(event, secrets, room)
        line = encoded(record.to_dict())
        if len(line) <= max_record_bytes:
            return record, line
        if room <= _SMALLEST_FIELD:
            record = _record(event, {"cut": [_EVERYTHING]})
            return record, encoded(record.to_dict())
        room = max(_SMALLEST_FIELD, room // 4)


def _record(event: AuditEvent, fields: dict[str, Any]) -> AuditEvent:
    time = event.time if math.isfinite(event.time) else 0.0
    return AuditEvent(event.kind, event.run_id[:_MAX_RUN_ID], time, fields)


def _plain(event: AuditEvent, secrets: SecretRegistry, room: int) -> AuditEvent | None:
    """
    The record, where nothing in it is to be masked or cut: nearly always. All texts are
    looked through at once, which takes a tenth of the time.
    """
    texts: list[str] = []
    fields = {}
    for name, value in event.fields.items():
        if name not in RESERVED:
            texts.append(name if type(name) is str else _NOT_PLAIN)
            fields[name] = _copied(value, texts, _MAX_DEPTH)
    joined = "\0".join(texts)
    if len(joined) > room or _NOT_PLAIN in texts or secrets.mask(joined) != joined:
        return None
    return _record(event, fields)


_NOT_PLAIN = "\0"
"""Stands among the texts for a value that takes a careful look."""


def _copied(value: Any, texts: list[str], depth: int) -> Any:
    kind = type(value)
    if kind is str:
        texts.append(value)
        return value
    if value is None or kind is bool or (kind is int and -_LARGE < value < _LARGE):
        return value
    if kind is float and math.isfinite(value):
        return value
    if depth and kind in (tuple, list) and len(value) <= _MAX_ITEMS:
        return [_copied(held, texts, depth - 1) for held in value]
    if depth and kind is dict and len(value) <= _MAX_ITEMS and all(type(key) is str for key in value):
        texts.extend(value)
        return {key: _copied(held, texts, depth - 1) for key, held in value.items()}
    texts.append(_NOT_PLAIN)
    return None


_LARGE = 1 << 63


def _careful(event: AuditEvent, secrets: SecretRegistry, room: int) -> AuditEvent:
    fields: dict[str, Any] = {}
    masked, cut = [], []
    for name, value in event.fields.items():
        if name in RESERVED:
            continue
        press = _Press(secrets, room)
        key = press.text(str(name))
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
                return int(value) if abs(value) < _LARGE else self.text(str(value))
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
