"""
Approvals that outlive the application: a file nobody else may write, read or replace.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import stat
import sys
import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn, final

from sandboxkit.errors import GrantNotFoundError, GrantStoreError
from sandboxkit.model import open_flags
from sandboxkit.policy._replace import replace_file

if sys.platform != "win32":
    import fcntl
    import pwd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["GrantStore", "RememberedGrant", "default_folder"]

VERSION = 1
MAX_BYTES = 4 << 20
MAX_GRANTS = 2000
MAX_TEXT = 500
"""Characters of a command that are kept to show it; what counts is its digest."""
MAX_SECONDS = 366 * 86400.0
"""The longest an approval may last."""

_LOCK_SECONDS = 5.0
_SKEW_SECONDS = 300.0
"""How far the clock may be behind what the file has seen: corrections of NTP are smaller."""
_SEEN_SECONDS = 3600.0
"""How far the file's own clock may be behind before a look at it sets it."""
_READ = open_flags("RDONLY", "NOFOLLOW", "NONBLOCK", "NOCTTY", "CLOEXEC")


@dataclass(frozen=True, slots=True)
class RememberedGrant:
    """
    An approval that is remembered.

    Attributes:
        digest: What exactly was approved: `Grant.digest`.
        command: The command, masked and shortened, to show it.
        cwd: Where it runs.
        created: When it was approved, in seconds since the epoch.
        expires: When it ends, in seconds since the epoch; infinite for what ends with
            the application.
        reason: Why, in the words of who approved.
    """

    digest: str
    command: str
    cwd: str
    created: float
    expires: float
    reason: str = ""

    @property
    def id(self) -> str:
        """
        Names it when it is revoked.
        """
        return self.digest[:16]

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form; `expires` is None where it ends with the application.
        """
        ends = self.expires if math.isfinite(self.expires) else None
        return {"id": self.id, **asdict(self), "expires": ends}


@dataclass(frozen=True, slots=True)
class _Content:
    """
    What the file holds.

    Attributes:
        seen: The latest time it was used at: the clock of its grants never goes back.
        grants: By digest.
    """

    seen: float = 0.0
    grants: tuple[RememberedGrant, ...] = ()

    def alive(self, now: float) -> tuple[RememberedGrant, ...]:
        """
        The grants that count at *now*: begun, by a clock that was not set back since,
        and not expired.
        """
        latest = max(now, self.seen)
        return tuple(grant for grant in self.grants if grant.created - _SKEW_SECONDS <= now and latest < grant.expires)

    def kept(self, now: float) -> tuple[RememberedGrant, ...]:
        """
        The grants that may count again: all but those that have expired.
        """
        latest = max(now, self.seen)
        return tuple(grant for grant in self.grants if latest < grant.expires)


@final
class GrantStore:
    """
    A file of approvals that count until they expire or are revoked.

    The file has mode 0600 and lies in a directory of mode 0700, both of this user; it is
    replaced as a whole and synced to the disk, under a lock that several processes
    share. Whatever is not exactly so, and whatever cannot be read as what was written,
    raises `GrantStoreError`, and nothing of it counts.

    It does not protect from programs that run as this user outside a box: they can write
    such a file. A clock that is set back makes nothing last longer than an hour more:
    grants count again once it has caught up with what the file has seen.

    Args:
        path: The file; None is `~/.local/state/sandboxkit/grants.json` of this user's
            home as the system knows it: no variable leads elsewhere. The directory is
            created when something is first kept.
        clock: Gives the seconds since the epoch.

    Raises:
        GrantStoreError: *path* is None and the system knows no home of this user; or this is
            Windows.

    Source: open(2), flock(2), rename(2), fsync(2).
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._path = os.path.abspath(_default_path() if path is None else path)
        if sys.platform == "win32":
            raise GrantStoreError(
                self._path,
                "Windows has no owner, mode and lock of a file by which it could be trusted; "
                "leave approvals to an approver that is asked each time, or run in WSL 2",
            )
        self._folder, self._name = os.path.split(self._path)
        self._clock = clock

    @property
    def path(self) -> str:
        """
        The file.
        """
        return self._path

    @property
    def paths(self) -> tuple[str, ...]:
        """
        What no box may ever write: the file and its directory.
        """
        return (self._folder, self._path)

    def prepare(self) -> None:
        """
        Creates the directory if there is none.

        Raises:
            GrantStoreError: It cannot be created, or others may use it.
        """
        os.close(self._open_folder(create=True))

    def grants(self) -> tuple[RememberedGrant, ...]:
        """
        What counts now, oldest first.

        Raises:
            GrantStoreError: The file cannot be read or trusted.
        """
        return self._current()[0].alive(self._clock())

    def find(self, digest: str) -> RememberedGrant | None:
        """
        The approval of exactly what has this digest, if it counts now.

        Raises:
            GrantStoreError: The file cannot be read or trusted.
        """
        content, now = self._current()
        found = next((grant for grant in content.alive(now) if grant.digest == digest), None)
        has_expired = len(content.kept(now)) < len(content.grants)
        if has_expired or (found and now > content.seen + _SEEN_SECONDS):
            self._change(lambda grants: grants)
        return found

    def add(self, grant: RememberedGrant) -> None:
        """
        Keeps *grant*, in place of one with the same digest.

        Raises:
            GrantStoreError: It cannot be kept, or the file cannot be trusted.
        """
        if len(self._read().kept(self._clock())) >= MAX_GRANTS:
            self._fail(f"it holds {MAX_GRANTS} already; revoke what is not needed")
        self._change(lambda grants: (*(kept for kept in grants if kept.digest != grant.digest), grant))

    def revoke(self, grant_id: str) -> RememberedGrant:
        """
        Forgets the approval with this id, and says which it was.

        Raises:
            GrantNotFoundError: There is none.
            GrantStoreError: The file cannot be written or trusted.
        """
        found = next((grant for grant in self._read().grants if grant_id in (grant.id, grant.digest)), None)
        if found is None:
            raise GrantNotFoundError(self._path, grant_id)
        self._change(lambda grants: tuple(kept for kept in grants if kept.digest != found.digest))
        return found

    def clear(self) -> int:
        """
        Forgets everything, also where the file cannot be read as one of ours.

        Returns:
            How many approvals that were.

        Raises:
            GrantStoreError: The file cannot be removed.
        """
        try:
            folder = self._open_folder(create=False)
        except FileNotFoundError:
            return 0
        try:
            if not _is_in(folder, self._name):
                return 0
            with self._locked(folder):
                try:
                    count = len(self._content(folder).grants)
                except GrantStoreError:
                    count = 0
                os.unlink(self._name, dir_fd=folder)
                os.fsync(folder)
        except OSError as exc:
            self._fail_for(exc)
        finally:
            os.close(folder)
        return count

    def _current(self) -> tuple[_Content, float]:
        content, now = self._read(), self._clock()
        self._check_clock(content, now)
        return content, now

    def _check_clock(self, content: _Content, now: float) -> None:
        if now < content.seen - _SKEW_SECONDS:
            self._fail("the clock stands before the time it was last used at; set the clock, or clear the file")

    def _read(self) -> _Content:
        try:
            folder = self._open_folder(create=False)
        except FileNotFoundError:
            return _Content()
        try:
            return self._content(folder)
        finally:
            os.close(folder)

    def _change(self, change: Callable[[tuple[RememberedGrant, ...]], Iterable[RememberedGrant]]) -> None:
        """
        Replaces the file by what *change* makes of its unexpired grants.
        """
        folder = self._open_folder(create=True)
        try:
            with self._locked(folder):
                content, now = self._content(folder), self._clock()
                self._check_clock(content, now)
                self._replace(folder, _Content(max(now, content.seen), tuple(change(content.kept(now)))))
        except OSError as exc:
            self._fail_for(exc)
        finally:
            os.close(folder)

    def _open_folder(self, *, create: bool) -> int:
        try:
            if create and not os.path.lexists(self._folder):
                os.makedirs(os.path.dirname(self._folder), mode=0o700, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self._folder, 0o700)
                    os.chmod(self._folder, 0o700)  # whatever the umask takes away
            fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            if create:
                self._fail(f"the directory {self._folder} cannot be created")
            raise
        except OSError as exc:
            self._fail(f"the directory {self._folder} {self._why_not(exc)}", exc)
        if problem := _shared(os.fstat(fd), "the directory"):
            os.close(fd)
            self._fail(
                f"{problem}; name a file in a directory that only you may use, or, where it holds nothing else, chmod 0700 {self._folder}"
            )
        return fd

    def _why_not(self, exc: OSError) -> str:
        if exc.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(self._folder):
            return "is a symbolic link, which is not followed; name the directory itself"
        if exc.errno == errno.ENOTDIR:
            return "is none: it or one above it is a file; name a file in a directory"
        return f"cannot be opened: {exc.strerror}; give it to this user (uid {os.geteuid()}), or name another file"

    def _content(self, folder: int) -> _Content:
        try:
            fd = os.open(self._name, _READ, dir_fd=folder)
        except FileNotFoundError:
            return _Content()
        except OSError as exc:
            self._fail_for(exc)
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                self._fail("it is no regular file; name another one")
            if problem := _shared(found, "it"):
                self._fail(f"{problem}; look at it, then chmod 0600 {self._path}, or move it away")
            if found.st_nlink > 1:  # none: it was replaced since it was opened
                self._fail(
                    "it has a second name (hard link), by which it could be written; move it away and grant anew"
                )
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            self._fail(f"it is larger than {MAX_BYTES} bytes; move it away and grant anew")
        try:
            return _parsed(text)
        except (ValueError, TypeError, KeyError, RecursionError) as exc:
            self._fail(f"it is not as it was written ({type(exc).__name__}: {exc}); move it away and grant anew", exc)

    @contextlib.contextmanager
    def _locked(self, folder: int) -> Iterator[None]:
        name = f"{self._name}.lock"
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            os.fchmod(fd, 0o600)  # whatever the umask took away
            deadline = time.monotonic() + _LOCK_SECONDS
            while not _has_locked(fd):
                if time.monotonic() > deadline:
                    self._fail(f"another process has held the lock {name} for {_LOCK_SECONDS:g} s; end that process")
                time.sleep(0.005)
            yield
        finally:
            os.close(fd)

    def _replace(self, folder: int, content: _Content) -> None:
        temporary = (
            f"{self._name}.new"  # one name, under the lock: a crash leaves at most this one, which is taken away
        )
        try:
            text = _written(content)
            _parsed(text)  # what could not be read again would take all others with it
        except ValueError as exc:
            self._fail(f"this cannot be kept: {exc}", exc)
        if len(text) > MAX_BYTES:
            self._fail(f"it would be larger than {MAX_BYTES} bytes; revoke what is not needed")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        replace_file(folder, self._name, text, temporary=temporary)
        os.fsync(folder)

    def _fail(self, problem: str, cause: Exception | None = None) -> NoReturn:
        raise GrantStoreError(self._path, problem) from cause

    def _fail_for(self, exc: OSError) -> NoReturn:
        if isinstance(exc, GrantStoreError):
            raise exc
        is_link = exc.errno == errno.ELOOP
        self._fail("it is a symbolic link, which is not followed; name the file itself" if is_link else str(exc), exc)


def default_folder() -> str | None:
    """
    Where approvals are kept that name no file, or None where the system knows no home of
    this user.
    """
    return None if sys.platform == "win32" else _default_folder(os.geteuid())


@functools.lru_cache(maxsize=16)
def _default_folder(uid: int) -> str | None:
    try:
        home = pwd.getpwuid(uid).pw_dir
    except KeyError:
        return None
    return os.path.join(home, ".local", "state", "sandboxkit") if home.startswith("/") else None


def _default_path() -> str:
    folder = default_folder()
    if folder is None:
        raise GrantStoreError("(no path)", "the system knows no home of this user; name a file")
    return os.path.join(folder, "grants.json")


def _shared(found: os.stat_result, what: str) -> str | None:
    """
    Why others could have written it.
    """
    if found.st_uid != os.geteuid():
        return f"{what} belongs to the user {found.st_uid}, not to {os.geteuid()}"
    if found.st_mode & 0o7077:
        return f"{what} has the mode {stat.S_IMODE(found.st_mode):04o}, which lets others in"
    return None


def _is_in(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _has_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _written(content: _Content) -> bytes:
    rows = [asdict(grant) for grant in content.grants]
    record = {"version": VERSION, "seen": content.seen, "grants": rows}
    return json.dumps(record, indent=1, allow_nan=False).encode("ascii") + b"\n"


def _parsed(text: bytes) -> _Content:
    """
    Raises:
        ValueError: It is not what `_written` gives.
    """
    record = json.loads(text, parse_constant=_no_constant)
    if not isinstance(record, dict) or record.get("version") != VERSION:
        raise ValueError("no such file of this version")
    if record.keys() != {"version", "seen", "grants"} or not isinstance(record["grants"], list):
        raise ValueError("keys are missing, or too many")
    grants = tuple(_row(row) for row in record["grants"])
    if len({grant.digest for grant in grants}) != len(grants):
        raise ValueError("one approval stands there twice")
    return _Content(_number(record["seen"]), grants)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no time")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise ValueError("a time is no number of seconds")
    return float(value)


def _row(row: object) -> RememberedGrant:
    names = {field.name for field in fields(RememberedGrant)}
    if not isinstance(row, dict) or row.keys() != names:
        raise ValueError("an approval has missing keys, or too many")
    texts = {name: value for name, value in row.items() if name not in ("created", "expires")}
    if not all(isinstance(value, str) for value in texts.values()):
        raise ValueError("an approval holds no text where one belongs")
    if len(texts["digest"]) != 64 or set(texts["digest"]) - set("0123456789abcdef"):
        raise ValueError("a digest is none")
    grant = RememberedGrant(**texts, created=_number(row["created"]), expires=_number(row["expires"]))
    if not 0 < grant.expires - grant.created <= MAX_SECONDS + 1:  # their sum was rounded
        raise ValueError("an approval does not expire, or much too late")
    return grant
