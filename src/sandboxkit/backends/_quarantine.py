"""
Moves what a run made under a protected name out of the way, before a program outside
obeys it.

Another box may still be at work in the same directory. So every directory on the way is
opened without following a symbolic link, and what is moved is named by the descriptor of
its directory: a link put there meanwhile is moved itself, never what it points to.

Source: openat(2) O_NOFOLLOW, rename(2) ("renameat"), XDG Base Directory Specification.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import sys
import time
from typing import TYPE_CHECKING

from sandboxkit.model import is_inside, open_flags

if sys.platform != "win32":
    import pwd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["WATCHED", "Quarantine", "opened", "quarantine_place", "readmit", "state_places"]

_FOLLOW_NOT = open_flags("NOFOLLOW", "CLOEXEC")
_DIRECTORY = open_flags("PATH", "DIRECTORY") | _FOLLOW_NOT
_FALLBACK = "/var/tmp"  # the host's own; the directory made there is checked to be this user's
_OWN = 0o700
_MAX_ENTRIES = 10_000
_MAX_BYTES = 1 << 30
_MAX_DEPTH = 64
_LONGEST_NAME = 200


WATCHED = "watched"
"""The directory of the notes about runs; see `_journal`."""


def quarantine_place(roots: Iterable[str], environ: Mapping[str, str] = os.environ) -> str:
    """
    The directory quarantines are made in: `sandboxkit/quarantine` in `XDG_STATE_HOME`
    (default `~/.local/state`), or one of this user's in /var/tmp where a box that writes
    *roots* could write the former.
    """
    return state_places("quarantine", roots, environ)[0]


def state_places(name: str, roots: Iterable[str], environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """
    The directory *name* for what this library keeps, and the one that takes its place: see
    `quarantine_place`. Both are the latter where a box that writes *roots* could write the
    former.
    """
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = os.path.join(_home(environ), ".local/state")
    place = os.path.join(os.path.realpath(state), "sandboxkit", name)
    spare = os.path.join(_FALLBACK, f"sandboxkit-{name}-{os.geteuid()}")
    return (spare if any(is_inside(place, root) for root in roots) else place), spare


def _home(environ: Mapping[str, str]) -> str:
    named = environ.get("HOME", "")
    if named.startswith("/"):
        return named
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"


def readmit(directory: str) -> None:
    """
    Gives the owner of *directory* back the right to look into it, which a box may have
    taken; other users' directories, and links, are left alone.
    """
    with contextlib.suppress(OSError), opened(directory) as fd:
        if _lacks_owner(os.fstat(fd)):
            _add_mode(fd, _OWN)


class Quarantine:
    """
    One directory, mode 0700, for what one run made; on the disk only once it is needed.

    Args:
        place: The directory to make it in; see `quarantine_place`.
    """

    def __init__(self, place: str) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self.path = os.path.join(place, f"{stamp}-{secrets.token_hex(4)}")
        self._count = 0

    def take(self, path: str, link: str | None = None) -> str:
        """
        Moves *path* here and gives its new path. Where that is not possible, because nothing
        can be made here, as on a full disk, or here is another file system and it cannot be
        copied, it stays in its directory under a name that means nothing.

        Args:
            path: What to move; a symbolic link is moved itself.
            link: The text of a symbolic link to put in its place, or None.

        Raises:
            OSError: It cannot be moved.
        """
        self._count += 1
        above, name = os.path.split(path)
        new = os.fsdecode(os.fsencode(f"{self._count}-{name}")[:_LONGEST_NAME])
        with opened(above) as folder:
            try:
                with _permitted(folder, name):
                    kept = self._taken(folder, name, new)
            finally:
                if link is not None:
                    with contextlib.suppress(FileExistsError):  # it could not be moved, or another box was faster
                        os.symlink(link, name, dir_fd=folder)
        return os.path.join(self.path, new) if kept is None else os.path.join(above, kept)

    def _taken(self, folder: int, name: str, new: str) -> str | None:
        """
        Moves *name* in *folder* here as *new*; gives the name it was left under where it
        could not leave.
        """
        try:
            with self._open() as here:
                return _move(folder, name, here, new)
        except OSError:
            return _set_aside(folder, name)  # raises what is the matter with it, if that is not this place

    @contextlib.contextmanager
    def _open(self) -> Iterator[int]:
        place = os.path.dirname(self.path)
        os.makedirs(place, mode=_OWN, exist_ok=True)
        with opened(place) as above:
            found = os.fstat(above)
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise PermissionError(errno.EPERM, "others can write the quarantine directory", place)
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.basename(self.path), _OWN, dir_fd=above)
            here = os.open(os.path.basename(self.path), _DIRECTORY, dir_fd=above)
        try:
            yield here
        finally:
            os.close(here)


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """
    A descriptor of directory *path*, which has no symbolic link on the way.
    """
    fd = os.open("/", _DIRECTORY)
    try:
        for component in filter(None, path.split("/")):
            below = _enter(fd, component)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _enter(folder: int, name: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=folder)
    except PermissionError:
        if not _lacks_owner(os.fstat(folder)):
            raise
        _add_mode(folder, _OWN)  # a box may take its owner's rights to hide what it made
        return os.open(name, _DIRECTORY, dir_fd=folder)


def _add_mode(fd: int, mode: int) -> int:
    """
    Adds *mode* to what *fd* is opened on, and gives the mode before.
    """
    before = stat.S_IMODE(os.fstat(fd).st_mode)
    _set_mode(fd, before | mode)
    return before


def _set_mode(fd: int, mode: int) -> None:
    if sys.platform == "linux":
        os.chmod(f"/proc/self/fd/{fd}", mode)  # fchmod refuses a descriptor opened with O_PATH
    else:
        os.fchmod(fd, mode)


@contextlib.contextmanager
def _permitted(folder: int, name: str) -> Iterator[None]:
    """
    Lets the owner write directory *folder* for a moment, and *name* in it from now on,
    if it is a directory: it takes both to move one.
    """
    before = _add_mode(folder, _OWN) if _lacks_owner(os.fstat(folder)) else None
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            fd = os.open(name, _DIRECTORY, dir_fd=folder)
            try:
                if _lacks_owner(os.fstat(fd)):
                    _add_mode(fd, _OWN)
            finally:
                os.close(fd)
        yield
    finally:
        if before is not None:
            _set_mode(folder, before)


def _lacks_owner(found: os.stat_result) -> bool:
    """
    Whether this user owns it without having every right to it.
    """
    return found.st_uid == os.geteuid() and found.st_mode & _OWN != _OWN


def _move(folder: int, name: str, here: int, new: str) -> str | None:
    """
    Moves *name*; gives the name it was left under in *folder* where it could not leave.
    """
    try:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=here)
    except OSError as exc:
        if exc.errno != errno.EXDEV:
            raise
    else:
        return None
    aside = _set_aside(folder, name)
    try:
        _Copy().copy(folder, aside, here, new, 0)
        _remove(folder, aside)
    except (OSError, RecursionError):
        return aside
    return None


def _set_aside(folder: int, name: str) -> str:
    aside = f".sandboxkit-{secrets.token_hex(8)}"
    os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    return aside


def _remove(folder: int, name: str) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


class _Copy:
    """
    Copies files, directories and symbolic links, within bounds; nothing else is kept.
    """

    def __init__(self) -> None:
        self._entries = 0
        self._bytes = 0

    def copy(self, folder: int, name: str, here: int, new: str, depth: int) -> None:
        """
        Copies *name* in *folder* to *new* in *here*.

        Raises:
            OSError: It cannot be read, or is more than the bounds.
        """
        self._entries += 1
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if self._entries > _MAX_ENTRIES or depth > _MAX_DEPTH:
            raise OSError(errno.E2BIG, "it is too much to copy", name)
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(name, dir_fd=folder), new, dir_fd=here)
        elif stat.S_ISREG(mode):
            self._copy_file(folder, name, here, new)
        elif stat.S_ISDIR(mode):
            self._copy_directory(folder, name, here, new, depth)

    def _copy_file(self, folder: int, name: str, here: int, new: str) -> None:
        source = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _FOLLOW_NOT, dir_fd=folder)
        with open(source, "rb") as reader:
            self._bytes += os.fstat(source).st_size
            if self._bytes > _MAX_BYTES or not stat.S_ISREG(os.fstat(source).st_mode):
                raise OSError(errno.E2BIG, "it is too much to copy", name)
            target = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FOLLOW_NOT, 0o600, dir_fd=here)
            with open(target, "wb") as writer:
                shutil.copyfileobj(reader, writer)

    def _copy_directory(self, folder: int, name: str, here: int, new: str, depth: int) -> None:
        os.mkdir(new, _OWN, dir_fd=here)
        source = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _FOLLOW_NOT, dir_fd=folder)
        try:
            target = os.open(new, _DIRECTORY, dir_fd=here)
            try:
                for entry in _names(source):
                    self.copy(source, entry, target, entry, depth + 1)
            finally:
                os.close(target)
        finally:
            os.close(source)


def _names(folder: int) -> Sequence[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]
