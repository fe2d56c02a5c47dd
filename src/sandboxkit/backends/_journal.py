"""
What a run has watched, on the disk for as long as it lasts: if the application is killed
meanwhile, the next box that is opened looks in its place.

One small file for each run that watches something, in a directory of this user's that the
run cannot write. It is locked while the application lives; the kernel lets go of the lock
when it dies, however it dies. Boxes outlive it by the moment its broker needs to end them,
so that broker is waited for.

Source: flock(2), proc_pid_stat(5) "starttime", pid_namespaces(7).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

from sandboxkit.backends._protection import Watched, new_repositories, violations
from sandboxkit.backends._quarantine import WATCHED, state_places
from sandboxkit.errors import LeftBehindWarning
from sandboxkit.model import FilesystemPolicy, open_flags
from sandboxkit.process import ensure_broker

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sandboxkit.model import Violation

__all__ = ["Journal", "finish_others"]

_VERSION = 1
_MAX_BYTES = 16 << 20
_BROKER_SECONDS = 3.0
"""How long a broker may take to end the boxes of an application that is gone."""
_FLAGS = open_flags("RDWR", "NOFOLLOW", "CLOEXEC")


_open: set[int] = set()
"""The descriptors of this process's own; a process that forks off it must not keep their locks."""


def _drop_after_fork() -> None:
    while _open:
        os.close(_open.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_after_fork)


class Journal:
    """
    The note of one run; it exists until `close`.

    Args:
        watched: What is looked at after the run; nothing is written where that is nothing.
        filesystem: What else is: its writable directories, for new repositories.
        repositories: Those there are; see `new_repositories`.

    Attributes:
        problem: Why there is none, in one sentence; empty where there is, or where there
            is nothing to watch.
    """

    def __init__(
        self,
        watched: Sequence[Watched],
        filesystem: FilesystemPolicy | None = None,
        repositories: Collection[str] | None = None,
    ) -> None:
        self.problem = ""
        self._looked = {
            "filesystem": filesystem.model_dump(mode="json", exclude_unset=True) if filesystem else {},
            "repositories": None if repositories is None else sorted(repositories),
        }
        self._path = ""
        self._fd = -1
        if not watched:
            return
        first, spare = state_places(WATCHED, {place.root for place in watched})
        try:
            self._write(first, watched)
        except OSError as exc:
            self._try_again(spare, watched, exc)

    def _try_again(self, place: str, watched: Sequence[Watched], before: OSError) -> None:
        try:
            self._write(place, watched)
        except OSError:
            self.problem = (
                f"nobody will look if the application is killed meanwhile: no note can be written ({before}); "
                "give it a state directory with XDG_STATE_HOME"
            )

    def _write(self, place: str, watched: Sequence[Watched]) -> None:
        content = json.dumps(
            {
                "version": _VERSION,
                "broker": _own_broker(),
                "watched": [[entry.path, entry.root, entry.link, entry.state] for entry in watched],
                **self._looked,
            }
        ).encode()
        try:
            _check(place)
        except FileNotFoundError:
            os.makedirs(place, mode=0o700, exist_ok=True)
            _check(place)
        name = secrets.token_hex(8)
        # Under its own name only once it is locked and whole.
        draft = f"{place}/.{name}"
        fd = os.open(draft, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(fd, content)
            os.rename(draft, f"{place}/{name}")
        except BaseException:
            os.close(fd)
            os.unlink(draft)
            raise
        self._fd, self._path = fd, f"{place}/{name}"
        _open.add(fd)

    def close(self) -> None:
        """
        Removes it: the run was looked after.
        """
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            self._path = ""
            if self._fd in _open:
                _open.remove(self._fd)
                os.close(self._fd)


def finish_others() -> int:
    """
    Looks after every run whose application was killed, and returns how many those were.
    What one of them made under a protected name is moved to a quarantine, with a
    `LeftBehindWarning`.
    """
    if sys.platform == "win32":
        return 0  # no box writes anything of that machine
    count = 0
    for place in state_places(WATCHED, ()):
        try:
            names = os.listdir(place)
        except OSError:
            continue  # there was never one
        for name in names:
            with contextlib.suppress(OSError):
                count += _finish(f"{place}/{name}")
    return count


def _finish(path: str) -> bool:
    fd = os.open(path, _FLAGS)
    try:
        _check(os.path.dirname(path))
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(fd).st_nlink:
            return False  # another application was faster
        if os.path.basename(path).startswith("."):
            os.unlink(path)  # killed while it was written: the run had not started
            return False
        note = json.loads(os.read(fd, _MAX_BYTES))
        if note["version"] != _VERSION or not _is_gone(note["broker"]):
            return False
        found = _looked_after(note)
        os.unlink(path)
    except (ValueError, LookupError, TypeError):
        return False  # not one of ours, or of another version
    finally:
        os.close(fd)
    for violation in found:
        warnings.warn(
            f"an application was killed while its box ran: {violation.target!r}: {violation.detail}",
            LeftBehindWarning,
            stacklevel=2,
        )
    return True


def _looked_after(note: dict[str, Any]) -> tuple[Violation, ...]:
    watched = [_watched(entry) for entry in note["watched"]]
    filesystem = FilesystemPolicy(**note.get("filesystem", {}))
    return (*violations(watched), *new_repositories(filesystem, note.get("repositories"))[0])


def _watched(entry: list[Any]) -> Watched:
    path, root, link, state = entry
    return Watched(path, root, link, tuple((place, inode, changed) for place, inode, changed in state))


def _check(place: str) -> None:
    """
    Raises:
        PermissionError: *place* is not this user's, or others can write it.
    """
    found = os.lstat(place)
    if found.st_uid != os.geteuid() or found.st_mode & 0o170077 != 0o040000:
        raise PermissionError(errno.EPERM, "it is no directory of this user's alone", place)


def _own_broker() -> tuple[int, str, int]:
    """
    The process whose end is the end of this application's boxes.

    Raises:
        OSError: This system has no such process, and no /proc to tell it by.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOTSUP, f"processes cannot be told apart for good on {sys.platform}")
    return _identity(ensure_broker())


def _identity(pid: int) -> tuple[int, str, int]:
    """
    What tells process *pid* from every other: its number, when it started, and the
    namespace in which both mean something.

    Raises:
        ProcessLookupError: It has ended; nobody may have collected it yet.
    """
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X"):
        raise ProcessLookupError(errno.ESRCH, "it has ended", str(pid))
    return pid, fields[19].decode(), os.stat("/proc/self/ns/pid").st_ino


def _is_gone(broker: list[Any]) -> bool:
    """
    Whether *broker*, of another application, has ended; it is waited for. That of another
    pid namespace cannot be seen: its boxes end with it there.
    """
    for _ in _moments():
        try:
            if _identity(broker[0]) != tuple(broker):
                return True
        except OSError:
            return True
    return False


def _moments() -> Iterator[None]:
    deadline = time.monotonic() + _BROKER_SECONDS
    while time.monotonic() < deadline:
        yield
        time.sleep(0.005)
