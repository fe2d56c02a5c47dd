"""
A log that somebody named: what holds no record is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.audit import AuditRecord
from sandboxkit.audit._failures import LOG
from sandboxkit.audit._files import absolute, at_hand
from sandboxkit.audit._read import lines
from sandboxkit.errors import AuditError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["records_of"]


def records_of(path: str) -> Iterator[AuditRecord]:
    """
    The records of the log *path*, oldest first. An empty file is a log that has none yet.

    Raises:
        AuditError: A file cannot be read; or it holds lines, and none of them is a
            record.
    """
    name = absolute(path)
    has_lines = has_records = False
    with at_hand(name) as files:
        for line in lines(files):
            has_lines = True
            if record := AuditRecord.of(line):
                has_records = True
                yield record
    if has_lines and not has_records:
        raise AuditError(
            name,
            "it holds no record of an audit log",
            remedy="name the file that JsonlAudit writes; `sandboxkit audit verify` says what is wrong with its lines",
            role=LOG,
        )
