"""
Records kept in memory: the last so many.
"""

from __future__ import annotations

import json
from collections import deque

from sandboxkit.audit._bounded import MAX_FIELD_CHARS, MAX_RECORD_BYTES, bounded
from sandboxkit.model import AuditEvent
from sandboxkit.secrets import SecretRegistry

__all__ = ["MemoryAudit"]


class MemoryAudit:
    """
    Keeps the last *capacity* records; older ones are dropped.

    It proves nothing: whoever holds the object can clear it. Safe to use from several
    threads.

    Args:
        capacity: How many, at least 1. The default holds 500 runs, at most 64 MiB and
            usually half a MiB.
        secrets: What is masked besides the shapes of well-known tokens.
        max_field_chars: Longer texts are cut, with a marker.

    Raises:
        ValueError: *capacity* is below 1.
    """

    def __init__(
        self, capacity: int = 1000, *, secrets: SecretRegistry | None = None, max_field_chars: int = MAX_FIELD_CHARS
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity {capacity}: a ring holds at least one record")
        self._ring: deque[AuditEvent] = deque(maxlen=capacity)
        self._secrets = secrets or SecretRegistry()
        self._max_field_chars = max_field_chars

    @property
    def name(self) -> str:
        """
        Names the sink in errors.
        """
        return "memory"

    @property
    def paths(self) -> tuple[str, ...]:
        """
        The files it writes: none.
        """
        return ()

    @property
    def capacity(self) -> int:
        """
        How many records it keeps at most.
        """
        return self._ring.maxlen or 0

    def write(self, event: AuditEvent) -> None:
        """
        Keeps *event*, and drops the oldest where it is full.
        """
        line = bounded(event, self._secrets, max_field_chars=self._max_field_chars, max_record_bytes=MAX_RECORD_BYTES)
        record = json.loads(line)
        kind, run_id, time = (record.pop(name) for name in ("kind", "run_id", "time"))
        del record["schema"]
        self._ring.append(AuditEvent(kind, run_id, time, record))

    def events(self) -> tuple[AuditEvent, ...]:
        """
        What was kept, oldest first.
        """
        return tuple(self._ring.copy())

    def clear(self) -> None:
        """
        Forgets every record.
        """
        self._ring.clear()
