"""
What is recorded about a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SCHEMA_VERSION", "AuditEvent", "AuditSink"]

SCHEMA_VERSION = 2
"""
The version of the record's form. It rises when a reader of the earlier form would be
wrong about the new one; a field that is added does not raise it.
"""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """
    One audit record. A run leaves two with the same `run_id`: `decided` before
    anything starts and `finished` after. A run that is refused leaves only the first.
    Between them stands an `egress` record for each connection that ended or was refused,
    where the spec lists hosts.

    Attributes:
        kind: Which of these.
        run_id: Names the run.
        time: Seconds since the epoch (UTC).
        fields: Details. A sink masks and bounds them and makes them JSON-ready; it adds
            `masked` and `cut`, the names of the fields it had to change, so that the
            others are exact. The reference of the audit log lists what the router
            records.
    """

    kind: Literal["decided", "egress", "finished"]
    run_id: str
    time: float
    fields: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form.
        """
        return {"schema": SCHEMA_VERSION, "kind": self.kind, "run_id": self.run_id, "time": self.time, **self.fields}


@runtime_checkable
class AuditSink(Protocol):
    """
    Where audit records go.
    """

    @property
    def name(self) -> str:
        """
        Names the sink in errors.
        """
        ...

    def write(self, event: AuditEvent) -> None:
        """
        Keeps *event*. Blocking, bounded work only.

        Raises:
            AuditError: It could not be kept.
        """
        ...
