"""
Records in a file: one JSON line each, chained by hashes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from sandboxkit.audit._bounded import MAX_FIELD_CHARS, MAX_RECORD_BYTES, bounded, encoded
from sandboxkit.errors import AuditError
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    from sandboxkit.model import AuditEvent

__all__ = ["GENESIS", "JsonlAudit", "verify"]

GENESIS = "0" * 64
"""What the first record of a file names as the hash before it."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_LOCK_SECONDS = 2.0
_BLOCK = 4096
_LONGEST_LINE = 16 * 1024 * 1024


class JsonlAudit:
    """
    Appends each record to a file as one line of JSON.

    `prev` holds the sha256 of the line before, so `verify` finds a line that was
    changed, inserted or taken out. It cannot find that the end of the file was cut
    off, nor that all of it was written anew: keep a copy of the last hash elsewhere
    where that matters.

    The file is opened anew for each record: threads, forked children and other
    processes may share it, and a renamed file is followed by a new one. Nothing is
    synced to the disk; a power cut may lose the last records, and half a record it
    leaves is marked by the next one (`torn`).

    Args:
        path: The file, created with mode 0600. Its directory must exist. Neither a
            link nor anything but a regular file that nobody else can write is taken.
        secrets: What is masked besides the shapes of well-known tokens.
        max_field_chars: Longer texts are cut, with a marker.

    Raises:
        AuditError: The file cannot be opened.

    Source: open(2) O_APPEND, flock(2).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        secrets: SecretRegistry | None = None,
        max_field_chars: int = MAX_FIELD_CHARS,
    ) -> None:
        folder, name = os.path.split(os.path.abspath(path))
        self._path = os.path.join(os.path.realpath(folder), name)
        self._secrets = secrets or SecretRegistry()
        self._max_field_chars = max_field_chars
        self._known: tuple[tuple[int, int, int], _Last] | None = None
        os.close(self._open())

    @property
    def name(self) -> str:
        """
        Names the sink in errors: its path.
        """
        return self._path

    @property
    def paths(self) -> tuple[str, ...]:
        """
        The files it writes. A box never writes them, whatever its spec says.
        """
        return (self._path,)

    def write(self, event: AuditEvent) -> None:
        """
        Appends *event*, in one write.

        Raises:
            AuditError: It could not be appended; the file is as it was.
        """
        record = bounded(event, self._secrets, max_field_chars=self._max_field_chars, max_record_bytes=MAX_RECORD_BYTES)
        fd = self._open()
        try:
            self._lock(fd)
            self._append(fd, record.to_dict())
        except OSError as exc:
            raise self._failed(exc) from exc
        finally:
            os.close(fd)

    def _failed(self, exc: OSError) -> AuditError:
        return exc if isinstance(exc, AuditError) else AuditError(self._path, exc.strerror or str(exc))

    def _open(self) -> int:
        try:
            fd = os.open(self._path, _FLAGS, 0o600)
        except OSError as exc:
            if exc.errno == errno.ELOOP:
                raise AuditError(
                    self._path, "it is a symbolic link, which is not followed; name the file itself"
                ) from exc
            raise self._failed(exc) from exc
        found = os.fstat(fd)
        if problem := _problem(found):
            os.close(fd)
            raise AuditError(self._path, problem)
        return fd

    def _lock(self, fd: int) -> None:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise AuditError(
                        self._path, f"another process has held its lock for {_LOCK_SECONDS:g} s; end that process"
                    ) from None
                time.sleep(0.002)

    def _append(self, fd: int, record: dict[str, Any]) -> None:
        found = os.fstat(fd)
        size = found.st_size
        last = self._last(fd, found)
        line = encoded({**record, "prev": last.digest, **({"torn": True} if last.is_torn else {})})
        data = (b"\n" if last.is_open else b"") + line + b"\n"
        try:
            written = os.write(fd, data)
            if written != len(data):
                raise AuditError(self._path, f"only {written} of {len(data)} bytes fitted")
        except OSError:
            self._known = None
            with contextlib.suppress(OSError):  # what stays is half a line, which the next record marks
                os.ftruncate(fd, size)
            raise
        self._known = (found.st_dev, found.st_ino, size + len(data)), _Last(hashlib.sha256(line).hexdigest())

    def _last(self, fd: int, found: os.stat_result) -> _Last:
        if found.st_size == 0:
            return _Last(GENESIS)
        known = self._known
        if known and known[0] == (found.st_dev, found.st_ino, found.st_size):
            return known[1]
        line = _last_line(fd, found.st_size)
        text = line.removesuffix(b"\n")
        return _Last(hashlib.sha256(text).hexdigest(), is_open=text == line, is_torn=_record(text) is None)


@dataclass(frozen=True, slots=True)
class _Last:
    """
    The last line of a file: its hash, whether its end is missing, whether it is no
    whole record.
    """

    digest: str
    is_open: bool = False
    is_torn: bool = False


def _problem(found: os.stat_result) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file; name one"
    if found.st_mode & 0o022:
        return (
            f"its mode {found.st_mode & 0o777:04o} lets others write it, so its records prove nothing; chmod it to 0600"
        )
    return None


def _last_line(fd: int, size: int) -> bytes:
    start, tail = size, b""
    while start and len(tail) < _LONGEST_LINE and b"\n" not in tail[:-1]:
        step = min(_BLOCK, start)
        start -= step
        tail = os.pread(fd, step, start) + tail
    return tail[tail.rfind(b"\n", 0, -1) + 1 :]


def verify(path: str | os.PathLike[str]) -> int:
    """
    How many records the file holds, if every one follows the one before.

    Raises:
        AuditError: The file cannot be read, or a record was changed, inserted, taken
            out or cut off; it names the first line that does not fit.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            return _verified(name, file)
    except OSError as exc:
        raise exc if isinstance(exc, AuditError) else AuditError(name, exc.strerror or str(exc), remedy=_LOOK) from exc


_LOOK = "compare it with a copy you trust"


def _verified(name: str, file: BinaryIO) -> int:
    prev, count, torn_line = GENESIS, 0, 0
    for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=1):
        text = line.removesuffix(b"\n")
        record = _record(text)
        if record is None:
            if not line.endswith(b"\n"):
                raise AuditError(
                    name, f"line {number} is half a record; the write was cut off, or the file was", remedy=_LOOK
                )
            torn_line = torn_line or number  # right only if the next record says so
        elif problem := _broken(record, prev, is_after_torn=bool(torn_line)):
            raise AuditError(name, f"line {torn_line or number} {problem}", remedy=_LOOK)
        else:
            count, torn_line = count + 1, 0
        prev = hashlib.sha256(text).hexdigest()
    if torn_line:
        raise AuditError(name, f"line {torn_line} is no record", remedy=_LOOK)
    return count


def _record(text: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _broken(record: dict[str, Any], prev: str, *, is_after_torn: bool) -> str | None:
    if is_after_torn and record.get("torn") is not True:
        return "is no record"
    if record.get("torn") and not is_after_torn:
        return "follows half a record that is not there any more"
    if record.get("prev") != prev:
        return "does not follow the line before it: something was changed, inserted or taken out"
    return None
