"""
What the tests of logs share.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import TYPE_CHECKING, Any

from sandboxkit.audit import JsonlAudit
from sandboxkit.model import AuditEvent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def event(number: int = 0, *, time: float = 1700000000.5, **fields: object) -> AuditEvent:
    return AuditEvent("decided", f"run-{number}", time, {"command": "ls", **fields})


def written(path: Path, count: int, **options: Any) -> JsonlAudit:
    """
    A log of *count* records, and the sink that wrote it.
    """
    sink = JsonlAudit(path, **options)
    for number in range(count):
        sink.write(event(number))
    return sink


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """
    *folder* as a file system of its own in memory, with the *options* of tmpfs(5).
    """
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
