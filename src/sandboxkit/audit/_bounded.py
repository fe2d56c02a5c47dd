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

__all__ = ["MAX_FIELD_CHARS", "MAX_RECORD_BYTES", "bounded", "encoded"]

MAX_FIELD_CHARS = 4096
MAX_RECORD_BYTES = 64 * 1024
_MAX_ITEMS = 200
_MAX_DEPTH = 8
_SMALLEST_FIELD = 64
_RESERVED = frozenset({"schema", "kind", "run_id", "time", "prev", "torn"})


def bounded(event: AuditEvent, secrets: SecretRegistry, *, max_field_chars: int, max_record_bytes: int) -> AuditEvent:
    """
    *event* with every text masked and cut to *max_field_chars*, and to less where the
    record would otherwise pass *max_record_bytes*.

    Where something was cut, a marker says how much. A field that bears the name of the
    record's own keys is left out.
    """
    room = max_field_chars
    while True:
        fields = {
            _text(str(key), secrets, room): _value(value, secrets, room, _MAX_DEPTH)
            for key, value in event.fields.items()
            if key not in _RESERVED
        }
        record = AuditEvent(event.kind, event.run_id, event.time, fields)
        if len(encoded(record.to_dict())) <= max_record_bytes:
            return record
        if room <= _SMALLEST_FIELD:
            return AuditEvent(event.kind, event.run_id, event.time, {"cut": f"all {len(fields)} fields were too large"})
        room = max(_SMALLEST_FIELD, room // 4)


def encoded(record: Mapping[str, Any]) -> bytes:
    """
    One line of JSON, without its end. Control characters, and all that is not ASCII,
    are escaped: a terminal that shows the file obeys nothing in it.
    """
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii")


def _value(value: object, secrets: SecretRegistry, room: int, depth: int) -> Any:
    match value:
        case None | bool():
            return value
        case int():
            return value if abs(value) < 1 << 63 else str(value)[:room]
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return _text(value, secrets, room)
        case bytes():
            return _text(value.decode(errors="replace"), secrets, room)
        case Mapping() if depth:
            rows = [
                (_text(str(key), secrets, room), _value(held, secrets, room, depth - 1))
                for key, held in _first(value.items())
            ]
            return dict(rows) | _rest(len(value))
        case Sequence() | Set() if depth:
            items = [_value(held, secrets, room, depth - 1) for held in _first(value)]
            return items + ([f"…[{len(value) - _MAX_ITEMS} more]"] if len(value) > _MAX_ITEMS else [])
        case _:
            return _text(str(value), secrets, room)


def _first(items: Any) -> list[Any]:
    return [item for _, item in zip(range(_MAX_ITEMS), items, strict=False)]


def _rest(count: int) -> dict[str, str]:
    return {"…": f"{count - _MAX_ITEMS} more"} if count > _MAX_ITEMS else {}


def _text(text: str, secrets: SecretRegistry, room: int) -> str:
    # Masked before it is cut: half a secret is one that no pattern finds. A very long
    # text is cut first, and then what could be the half of one is held back.
    window = 8 * room + (1 << 16)
    if len(text) <= window:
        masked = secrets.mask(text)
    else:
        masked = secrets.masker().feed(text[:window].encode("utf-8", "surrogatepass")).decode("utf-8", "ignore")
        return masked[:room] + f"…[cut, {len(text)} characters in all]"
    if len(masked) <= room:
        return masked
    return masked[:room] + f"…[{len(masked) - room} more characters]"
