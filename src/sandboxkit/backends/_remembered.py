"""
What this process found out about the machine, kept for the next one for a short time: a
program that runs one command need not attack its backend again.

Only findings about this very machine, user and installation are believed, and only from a
directory of this user's alone that no box can write. Whoever can write there is this user,
outside of every box, and needs no forged finding.

Source: random(4) boot_id, clock_getres(2) CLOCK_BOOTTIME, namespaces(7), proc_pid_status(5),
XDG Base Directory Specification.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandboxkit.backends._quarantine import state_places

if sys.platform == "linux":
    import resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["KEPT_SECONDS", "forget", "identity_of", "places", "recall", "remember"]

KEPT_SECONDS = 600.0
"""How long what was found out is believed, in seconds of a clock nobody sets."""
_NAME = "found"
_MAX_BYTES = 1 << 16
_NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
_STATUS = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
_SETTINGS = (
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/kernel/dmesg_restrict",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/user/max_mnt_namespaces",
    "/proc/sys/user/max_pid_namespaces",
    "/proc/sys/user/max_net_namespaces",
    "/proc/sys/user/max_ipc_namespaces",
    "/proc/sys/user/max_uts_namespaces",
    "/proc/self/attr/current",
    "/proc/self/cgroup",
    "/proc/self/uid_map",
)
_ROOMS = ("backends", "confine", "process", "model")
"""The rooms of this library on whose code a finding depends."""


def recall(kind: str, *circumstances: str) -> Any:
    """
    What was remembered as *kind* under the same circumstances not longer ago than
    `KEPT_SECONDS`; None where there is nothing to be believed.

    Args:
        kind: A name, which becomes a file's.
        circumstances: What it depends on, besides the machine, the user, the rights of
            this process, the interpreter and this library's own code.
    """
    for place in places():
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            note = _read(place, kind)
            age = _now() - note["at"]
            if 0 <= age <= KEPT_SECONDS and note["circumstances"] == _digest(circumstances):
                return note["value"]
    return None


def remember(kind: str, value: object, *circumstances: str) -> None:
    """
    Keeps *value*, JSON-ready, in the first of `places` where that is possible. Where it is
    nowhere, the next process finds out itself.
    """
    note = {"at": _now(), "circumstances": _digest(circumstances), "value": value}
    for place in places():
        with contextlib.suppress(OSError):
            _write(place, kind, json.dumps(note).encode())
            return


def forget() -> None:
    """
    Has the next process find out everything itself.
    """
    for place in places():
        with contextlib.suppress(OSError):
            _check(place)
            for entry in list(os.scandir(place)):
                os.unlink(entry.path)


def places() -> tuple[str, ...]:
    """
    Directories for it, best first: those that are gone after a restart, then the state
    directory. A box may write none of them. Only Linux tells what findings depend on.
    """
    if sys.platform != "linux":
        return ()
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    passing = runtime if runtime.startswith("/") else "/run" if os.geteuid() == 0 else ""
    first = (os.path.join(os.path.realpath(passing), "sandboxkit", _NAME),) if passing else ()
    return tuple(dict.fromkeys((*first, *state_places(_NAME, ()))))


def identity_of(path: str) -> str:
    """
    What tells the file at *path* from every other, also from what it was before a write:
    nobody can set the time of a change. Empty where there is none.
    """
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{path}:{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _read(place: str, kind: str) -> dict[str, Any]:
    _check(place)
    fd = os.open(f"{place}/{kind}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        note: dict[str, Any] = json.loads(os.read(fd, _MAX_BYTES))
    finally:
        os.close(fd)
    return note


def _write(place: str, kind: str, content: bytes) -> None:
    with contextlib.suppress(FileExistsError):
        os.makedirs(place, mode=0o700)
    _check(place)
    draft = f"{place}/.{secrets.token_hex(8)}"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, content)
        finally:
            os.close(fd)
        os.rename(draft, f"{place}/{kind}")
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise


def _check(place: str) -> None:
    """
    Raises:
        PermissionError: *place* is not this user's alone.
    """
    found = os.lstat(place)
    if found.st_uid != os.geteuid() or found.st_mode & 0o170077 != 0o040000:
        raise PermissionError(f"{place} is no directory of this user's alone")


def _digest(circumstances: Iterable[str]) -> str:
    text = "\0".join((*_machine(), *_process(), *circumstances))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


@cache
def _machine() -> tuple[str, ...]:
    """
    The kernel, the interpreter, and the code of this library.
    """
    here = Path(__file__).resolve().parent.parent
    code = [entry.path for room in _ROOMS for entry in _files(str(here / room))]
    return (*os.uname(), sys.version, *map(identity_of, sorted({*code, os.path.realpath(sys.executable)})))


def _files(directory: str) -> Iterator[os.DirEntry[str]]:
    for entry in os.scandir(directory):
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _files(entry.path)
        else:
            yield entry


def _process() -> Iterator[str]:
    """
    The rights of this process, and the settings of the system that boxes depend on.
    """
    for line in _content("/proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if name in _STATUS or name.startswith("Seccomp"):
            yield f"{name}{value}"
    for name in _NAMESPACES:
        with contextlib.suppress(OSError):  # a kernel without this kind
            yield os.readlink(f"/proc/self/ns/{name}")
    for path in _SETTINGS:
        yield f"{path}={_content(path)}"
    for name in sorted(filter(lambda name: name.startswith("RLIMIT_"), dir(resource))):
        yield f"{name}={resource.getrlimit(getattr(resource, name))}"
    yield from (os.environ.get(name, "") for name in ("HOME", "TMPDIR"))


def _content(path: str) -> str:
    try:
        return Path(path).read_text(errors="surrogateescape")
    except OSError:
        return ""
