"""
Heads kept outside the log, against which it is checked later.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, final

from sandboxkit.audit._chain import Head
from sandboxkit.audit._failures import ANCHORS, check_private, failure
from sandboxkit.audit._files import absolute, opened_to_read
from sandboxkit.errors import AuditError
from sandboxkit.model import open_flags

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FileAnchor", "read_anchors"]

_FLAGS = open_flags("WRONLY", "APPEND", "CREAT", "CLOEXEC", "NOFOLLOW", "NONBLOCK", "NOCTTY")
_LONGEST = 1024
_BEGINNING = b'{"seq":'
_HALF = re.compile(rb'\{[a-hqs0-9":,{]*')
"""As much of one head, or of several, as was written."""


@final
class FileAnchor:
    """
    Appends each head it is given to a file, one object of JSON a line.

    It is worth something where whoever can write the log cannot write this file: on
    another machine, on a device that only appends (`chattr +a`), or owned by another
    user. Give `JsonlAudit(anchor=...)` any callable to send heads elsewhere.

    Args:
        path: The file, created with mode 0600. Its directory must exist.

    Raises:
        AuditError: It cannot be opened, or others can write it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = absolute(path)
        os.close(self._open())

    @property
    def path(self) -> str:
        """
        The file.
        """
        return self._path

    def __call__(self, head: Head) -> None:
        """
        Appends *head*, in one write.

        Raises:
            AuditError: It could not be appended.
        """
        line = json.dumps({"seq": head.sequence, "hash": head.hash}, separators=(",", ":")).encode() + b"\n"
        fd = self._open()
        try:
            if (written := os.write(fd, line)) != len(line):
                raise AuditError(self._path, f"only {written} of {len(line)} bytes fitted", remedy="free the disk")
        except AuditError:
            raise
        except OSError as exc:
            raise failure(self._path, exc) from exc
        finally:
            os.close(fd)

    def _open(self) -> int:
        try:
            fd = os.open(self._path, _FLAGS, 0o600)
        except OSError as exc:
            raise failure(self._path, exc) from exc
        try:
            check_private(self._path, os.fstat(fd))
        except AuditError:
            os.close(fd)
            raise
        return fd


def read_anchors(path: str | os.PathLike[str]) -> Iterator[Head]:
    """
    The heads in the file of a `FileAnchor`. Half a line, which a crash or a full disk left
    at its end or before another head, is left out.

    Raises:
        AuditError: It cannot be read, or a line of it is no head.
    """
    name = os.fspath(path)
    with opened_to_read(name, ANCHORS) as fd, open(fd, "rb", closefd=False) as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), start=1):
            if head := _head(line):
                yield head
            elif line.endswith(b"\n") or len(line) == _LONGEST:
                raise AuditError(name, f"line {number} is no head", remedy="compare it with a copy you trust")


def _head(line: bytes) -> Head | None:
    # What is appended later stands on the same line as half a head.
    at = line.rfind(_BEGINNING)
    try:
        found = json.loads(line[at:] if at > 0 and _HALF.fullmatch(line, 0, at) else line)
        return Head.parse(f"{found['seq']}:{found['hash']}")
    except (ValueError, TypeError, KeyError):
        return None
