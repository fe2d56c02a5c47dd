"""
What went wrong with a file of records, and what would help.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from typing import TYPE_CHECKING

from sandboxkit.errors import AuditError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ANCHORS", "CHOICE", "KEY", "LOG", "check_private", "check_regular", "failure", "reading"]

CHOICE = "or name another file"
ANCHORS, KEY, LOG = "audit anchors", "audit key", "audit log"
"""
The roles of files that are read.
"""

_REMEDIES: dict[int, str] = {
    errno.ENOENT: "create the directory {folder}, " + CHOICE,
    errno.ENOTDIR: "{folder} is to be a directory, and it or one above it is a file; name another file",
    errno.EACCES: "give this user (uid {uid}) the right to the file and to search {folder}, " + CHOICE,
    errno.EPERM: "give this user (uid {uid}) the right to it, and look for attributes with lsattr, " + CHOICE,
    errno.EROFS: "the file system is read-only; remount it writable, " + CHOICE,
    errno.ENOSPC: "free the disk that holds {folder}, " + CHOICE,
    errno.EDQUOT: "the quota of this user on the disk of {folder} is used up; free some or raise it, " + CHOICE,
    errno.EFBIG: "the file reached the limit of this process (ulimit -f) or of the file system; rotate earlier or raise it",
    errno.EISDIR: "it is a directory; name a file in it",
    errno.ELOOP: "it is a symbolic link, which is not followed; name the file itself",
    errno.ENAMETOOLONG: "name a shorter path: at most 255 bytes in a name, 4095 in all",
    errno.ENXIO: "it is a pipe, a socket or a device; name a regular file",
    errno.ENODEV: "it is a device; name a regular file",
    errno.ETXTBSY: "it is a program that runs; name another file",
    errno.EMFILE: "this process has too many files open; close some or raise the limit (ulimit -n)",
    errno.ENFILE: "the machine has too many files open; raise fs.file-max",
    errno.ENOMEM: "free memory",
    errno.EIO: "the disk that holds {folder} fails; look at the kernel's messages (dmesg), " + CHOICE,
    errno.ESTALE: "the network file system of {folder} has to be mounted anew, " + CHOICE,
    errno.ENOLCK: "the file system of {folder} has no locks; name a file on a local one",
    errno.EOPNOTSUPP: "the file system of {folder} has no locks; name a file on a local one",
}
"""By errno. Source: open(2), write(2), flock(2), rename(2)."""

_OTHERWISE = "see errno {number} in open(2), write(2) and flock(2), " + CHOICE


def _uid() -> int | str:
    return "unknown" if sys.platform == "win32" else os.geteuid()


def failure(path: str, exc: OSError) -> AuditError:
    """
    The error that says what happened to the file *path*, and what would help.
    """
    if isinstance(exc, AuditError):
        return exc
    number = exc.errno or 0
    folder = os.path.dirname(os.path.abspath(path))
    remedy = _REMEDIES.get(number, _OTHERWISE).format(folder=folder, uid=_uid(), number=number)
    return AuditError(path, exc.strerror or str(exc), remedy=remedy)


@contextlib.contextmanager
def reading(path: str, role: str = LOG) -> Iterator[None]:
    """
    Within, the file *path* is read; *role* is that of the errors.

    Raises:
        AuditError: It cannot be read.
    """
    try:
        yield
    except AuditError as exc:
        raise AuditError(exc.sink, exc.problem, remedy=exc.remedy, role=role) from exc
    except OSError as exc:
        raise _unread(path, exc, role) from exc


def _unread(path: str, exc: OSError, role: str) -> AuditError:
    found = failure(path, exc)
    remedy = found.remedy
    if exc.errno == errno.ENOENT:  # to create something would not help whoever reads
        folder, name = os.path.split(os.path.abspath(path))
        is_there = os.path.isdir(folder)
        remedy = f"check the name: {folder} " + (f"holds no {name!r}" if is_there else "is not there either")
    return AuditError(path, f"it cannot be read: {found.problem}", remedy=remedy, role=role)


def check_regular(path: str, found: os.stat_result) -> None:
    """
    That what was opened as *path* is a regular file.

    Raises:
        AuditError: It is not.
    """
    if stat.S_ISDIR(found.st_mode):
        raise AuditError(path, "it is a directory", remedy=_REMEDIES[errno.EISDIR].partition("; ")[2])
    if not stat.S_ISREG(found.st_mode):
        raise AuditError(path, "it is no regular file", remedy="name one")


def check_private(path: str, found: os.stat_result, *, closed: int = 0o022) -> None:
    """
    That what was opened as *path* is a regular file of this user or of root, with none
    of the mode bits *closed*.

    Raises:
        AuditError: It is not.
    """
    check_regular(path, found)
    if found.st_uid not in (os.geteuid(), 0):
        raise AuditError(
            path,
            f"it belongs to uid {found.st_uid}, who can change it at will",
            remedy=f"chown it to uid {os.geteuid()}, {CHOICE}",
        )
    if found.st_mode & closed:
        others = "write it, so it proves nothing" if found.st_mode & 0o022 else "read it, so it is no secret"
        raise AuditError(
            path, f"its mode {found.st_mode & 0o777:04o} lets others {others}", remedy=f"chmod it to 0600, {CHOICE}"
        )
