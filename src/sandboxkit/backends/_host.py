"""
What stands on the host where a run was refused something, and whether the caller itself
could have done it: what the box had no part in is no violation.

Looked at after the run, with the rights of the application.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if sys.platform != "win32":
    import pwd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.model import Refusal

__all__ = ["Seen", "homes", "look", "searched"]

_MAKES = frozenset({"mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "open", "openat", "creat", "bind"})
_PAIRS = frozenset({"rename", "renameat", "renameat2", "link", "linkat"})
_MODES = {"access": 1, "faccessat": 2, "faccessat2": 2}
_OPENS = frozenset({"open", "openat", "creat", "inotify_add_watch"})
_OWNERS = {"chown": 1, "lchown": 1, "fchown": 1, "fchownat": 2}
_NOBODY = 0xFFFFFFFF
_LAST_RESERVED_PORT = 1023
_FIRST_PERSON = 1000
"""Below are the system's own users. Source: login.defs(5), UID_MIN."""
_EFFECTIVE = os.access in os.supports_effective_ids

Kind = Literal["directory", "file", "link", "other"]


@dataclass(frozen=True, slots=True)
class Seen:
    """
    A path as the host has it.

    Attributes:
        path: Which.
        kind: What stands there itself, or None.
        is_real: Whether no symbolic link leads to it.
        above: Whether its directory exists.
        names: How many hard links a file has.
    """

    path: str
    kind: Kind | None
    is_real: bool
    above: bool
    names: int = 1


def look(refusal: Refusal) -> tuple[Seen, ...] | None:
    """
    The paths of *refusal* on the host; None where the caller itself could not have done
    what was refused.
    """
    may = all(_may(refusal, path, number) for number, path in enumerate(refusal.paths))
    if refusal.act == "bind" and refusal.address:
        may = _may_bind(int(refusal.address.rpartition(":")[2]))
    if not may or (refusal.error == errno.EXDEV and not _on_one_file_system(refusal.paths)):
        return None
    return tuple(
        Seen(path, _kind(path), os.path.realpath(path) == path, os.path.isdir(os.path.dirname(path)), _names(path))
        for path in refusal.paths
    )


def homes() -> tuple[str, ...]:
    """
    The homes whose credentials the application could read: its user's own, whatever HOME
    says, and for root everybody's.
    """
    if sys.platform == "win32":
        return ()
    found = (entry.pw_dir for entry in _accounts(os.geteuid()))
    return tuple(sorted({os.path.realpath(home) for home in found if home.startswith("/")} - {"/"}))


def searched() -> tuple[str, ...]:
    """
    The directories in which the application's user finds programs by their names: those of
    PATH, and in each home the two that login shells add where they exist.
    """
    named = os.environ.get("PATH", "").split(os.pathsep)
    own = (f"{home}/{name}" for home in homes() for name in (".local/bin", "bin"))
    return tuple(sorted({os.path.realpath(path) for path in (*named, *own) if path.startswith("/")} - {"/"}))


def _accounts(user: int) -> Iterator[pwd.struct_passwd]:
    """
    The entries of *user*, and for root those of all persons: only then are all asked for,
    which a directory service may take long to list.
    """
    with contextlib.suppress(KeyError):
        yield pwd.getpwuid(user)
    if user == 0:
        for entry in pwd.getpwall():
            if entry.pw_uid >= _FIRST_PERSON and entry.pw_name != "nobody":
                yield entry


def _may_bind(port: int) -> bool:
    """
    Whether the application may bind *port*. Source: ip(7), ip_unprivileged_port_start.
    """
    if os.geteuid() == 0:
        return True
    try:
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as file:
            return port >= int(file.read())
    except (OSError, ValueError):
        return port > _LAST_RESERVED_PORT


def _may(refusal: Refusal, path: str, number: int) -> bool:
    if refusal.is_filtered and not os.path.lexists(path):
        return True  # what is missing gets another answer where nothing filters, as ENOENT
    match refusal.act:
        case "read" if refusal.call in _MODES:
            return _access(path, refusal.arguments[_MODES[refusal.call]] & 0o7)
        case "read" if refusal.call in _OPENS:
            return _access(path, os.R_OK)
        case "read":
            return os.path.lexists(path)
        case "exec":
            return _access(path, os.X_OK) and not os.path.isdir(path)
        case "content":
            return _access(path, os.W_OK)
        case "attributes" if refusal.call in _OWNERS:
            first = _OWNERS[refusal.call]
            return _owns(path) and _may_give(path, *refusal.arguments[first : first + 2])
        case "attributes":
            return _owns(path)
        case "create" if os.path.lexists(path):
            return _access(path, os.W_OK)
        case "create" | "entry":
            return _may_change_entry(refusal, path, number)
        case "bind":
            return not os.path.lexists(path) and _access(os.path.dirname(path), os.W_OK | os.X_OK)
        case "connect":
            return _access(path, os.W_OK)
        case _:
            return True


def _may_change_entry(refusal: Refusal, path: str, number: int) -> bool:
    """
    Whether a name can be made, moved or removed: one that is made must be new, one that
    is moved, linked or removed must be there and hold nothing up.
    """
    if refusal.call in _MAKES and os.path.lexists(path):
        return False
    is_new = refusal.call in _MAKES or (refusal.call in _PAIRS and number == 1)
    if not is_new and not os.path.lexists(path):
        return False
    if refusal.error == errno.EBUSY and os.path.ismount(path):
        return False
    if refusal.call in ("link", "linkat") and number == 0:
        return True
    return _access(os.path.dirname(path), os.W_OK | os.X_OK)


def _access(path: str, mode: int) -> bool:
    try:
        return os.access(path, mode, effective_ids=_EFFECTIVE)
    except ValueError:
        return False


def _owns(path: str) -> bool:
    try:
        is_own = os.geteuid() in (0, os.stat(path).st_uid)
        return is_own and not os.statvfs(path).f_flag & os.ST_RDONLY
    except OSError:
        return False


def _may_give(path: str, uid: int, gid: int) -> bool:
    """
    Whether the owner of *path* may make *uid* and *gid* its owners; -1 leaves one as it is.
    """
    if os.geteuid() == 0:
        return True
    found = os.stat(path)
    keeps = uid & _NOBODY in (_NOBODY, found.st_uid)
    return keeps and gid & _NOBODY in (_NOBODY, found.st_gid, os.getegid(), *os.getgroups())


def _kind(path: str) -> Kind | None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISDIR(mode):
        return "directory"
    return "file" if stat.S_ISREG(mode) else "other"


def _names(path: str) -> int:
    try:
        found = os.lstat(path)
    except OSError:
        return 1
    return found.st_nlink if stat.S_ISREG(found.st_mode) else 1


def _on_one_file_system(paths: tuple[str, ...]) -> bool:
    try:
        return len({os.stat(os.path.dirname(path)).st_dev for path in paths}) == 1
    except OSError:
        return False
