"""
What the broker's tracer is told to look at, and what it found, as values.

The table names every call that is about a path, an address or another process, by the
arguments that hold it. A call that is not listed is noted only where the box's own filter
refused it.

Source: syscalls(2), and the manual page of each call for the order of its arguments.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from sandboxkit.confine import calls
from sandboxkit.model import Refusal, open_flags

if TYPE_CHECKING:
    from sandboxkit.model import Trace

__all__ = ["CALLS", "found", "trace_order"]

_NOFOLLOW = 0x100


def _at(kind: str, *paths: int, follow: bool = True) -> dict[str, Any]:
    """
    A call whose *paths* are arguments of their own.
    """
    return {"kind": kind, "places": [(None, path) for path in paths], "is_followed": follow}


def _below(kind: str, *pairs: tuple[int, int], follow: bool = True, nofollow: int | None = None) -> dict[str, Any]:
    """
    A call whose paths are arguments in *pairs* (directory, path), and that may have
    AT_SYMLINK_NOFOLLOW in argument *nofollow*.
    """
    row: dict[str, Any] = {"kind": kind, "places": list(pairs), "is_followed": follow}
    return row if nofollow is None else {**row, "nofollow": nofollow, "nofollow_bit": _NOFOLLOW}


def _open(directory: int | None, path: int, flags: int) -> dict[str, Any]:
    return {
        "kind": "open",
        "places": [(directory, path)],
        "flags": flags,
        "is_followed": True,
        "nofollow": flags,
        "nofollow_bit": open_flags("NOFOLLOW"),
    }


def _on(kind: str, descriptor: int = 0) -> dict[str, Any]:
    """
    A call about what *descriptor* is open on.
    """
    return {"kind": kind, "places": [(descriptor, None)], "is_followed": True}


CALLS: dict[str, dict[str, Any]] = {
    "open": _open(None, 0, 1),
    "openat": _open(0, 1, 2),
    "creat": _at("create", 0),
    "stat": _at("read", 0),
    "lstat": _at("read", 0, follow=False),
    "newfstatat": _below("read", (0, 1), nofollow=3),
    "statx": _below("read", (0, 1), nofollow=2),
    "statfs": _at("read", 0),
    "access": {**_at("access", 0), "flags": 1},
    "faccessat": {**_below("access", (0, 1)), "flags": 2},
    "faccessat2": {**_below("access", (0, 1), nofollow=3), "flags": 2},
    "readlink": _at("read", 0, follow=False),
    "readlinkat": _below("read", (0, 1), follow=False),
    "chdir": _at("read", 0),
    "getxattr": _at("read", 0),
    "lgetxattr": _at("read", 0, follow=False),
    "listxattr": _at("read", 0),
    "llistxattr": _at("read", 0, follow=False),
    "inotify_add_watch": _at("read", 1),
    "execve": _at("exec", 0),
    "execveat": _below("exec", (0, 1), nofollow=4),
    "mkdir": _at("entry", 0, follow=False),
    "mkdirat": _below("entry", (0, 1), follow=False),
    "mknod": _at("entry", 0, follow=False),
    "mknodat": _below("entry", (0, 1), follow=False),
    "rmdir": _at("entry", 0, follow=False),
    "unlink": _at("entry", 0, follow=False),
    "unlinkat": _below("entry", (0, 1), follow=False),
    "rename": _at("entry", 0, 1, follow=False),
    "renameat": _below("entry", (0, 1), (2, 3), follow=False),
    "renameat2": _below("entry", (0, 1), (2, 3), follow=False),
    "link": _at("entry", 0, 1, follow=False),
    "linkat": _below("entry", (0, 1), (2, 3), follow=False),
    "symlink": _at("entry", 1, follow=False),
    "symlinkat": _below("entry", (1, 2), follow=False),
    "truncate": _at("content", 0),
    "ftruncate": _on("content"),
    "fallocate": _on("content"),
    "chmod": _at("attributes", 0),
    "fchmod": _on("attributes"),
    "fchmodat": _below("attributes", (0, 1)),
    "fchmodat2": _below("attributes", (0, 1), nofollow=3),
    "chown": _at("attributes", 0),
    "lchown": _at("attributes", 0, follow=False),
    "fchown": _on("attributes"),
    "fchownat": _below("attributes", (0, 1), nofollow=4),
    "utime": _at("attributes", 0),
    "utimes": _at("attributes", 0),
    "futimesat": _below("attributes", (0, 1)),
    "utimensat": _below("attributes", (0, 1), nofollow=3),
    "setxattr": _at("attributes", 0),
    "lsetxattr": _at("attributes", 0, follow=False),
    "fsetxattr": _on("attributes"),
    "removexattr": _at("attributes", 0),
    "lremovexattr": _at("attributes", 0, follow=False),
    "fremovexattr": _on("attributes"),
    "connect": {"kind": "connect", "address": 1, "size": 2},
    "sendto": {"kind": "connect", "address": 4, "size": 5},
    "sendmsg": {"kind": "connect", "address": 1, "is_message": True},
    "bind": {"kind": "bind", "address": 1, "size": 2},
    "socket": {"kind": "socket"},
    "kill": {"kind": "signal", "target": 0},
    "tgkill": {"kind": "signal", "target": 0},
    "tkill": {"kind": "signal", "target": 0},
}
"""
The calls that are looked at. `kind` is what one does with its paths: `read`, `exec`,
`content`, `attributes`, `create` and `entry` (see `Refusal`), `open` and `access` as their
flags say; or what else it is about.
"""

_FALLS_BACK = frozenset({"clone3"})
"""
What the C library asks for first and never needs: it goes on with `clone`.
"""


@cache
def _names(machine: str) -> dict[int, str]:
    return {call.number: call.name for call in calls(machine)}


def trace_order(trace: Trace) -> dict[str, Any]:
    """
    What the tracer is handed.
    """
    names = _names(os.uname().machine)
    return {
        "programs": trace.programs,
        "filters": [program.hex() for program in trace.filters],
        "calls": {number: CALLS[name] for number, name in names.items() if name in CALLS},
        "ignored": [number for number, name in names.items() if name in _FALLS_BACK],
    }


def found(content: bytes) -> tuple[tuple[Refusal, ...], str]:
    """
    The refusals a tracer wrote, and what is missing of them; the latter is empty where
    nothing is.
    """
    try:
        said = json.loads(content)
    except ValueError:
        return (), "the process that traced the command was ended before it could report"
    if "problem" in said:
        return (), _refused(said["problem"])
    if not said["is_on"]:
        return (), "the command was not seen to start"
    names = _names(os.uname().machine)
    refusals = tuple(
        Refusal(
            act=row["act"],
            call=names.get(row["number"], f"call {row['number']}"),
            number=row["number"],
            arguments=tuple(row["arguments"]),
            error=row["error"],
            is_filtered=row["is_filtered"],
            program=row["program"],
            count=row["count"],
            paths=tuple(row.get("paths", ())),
            address=row.get("address", ""),
        )
        for row in said["refusals"]
    )
    return refusals, "; ".join(_gaps(len(refusals), said["dropped"], said["unread"]))


def _gaps(kept: int, dropped: int, unread: int) -> list[str]:
    gaps = []
    if dropped:
        gaps.append(f"{kept} different refusals are listed, {dropped} more calls were refused in other ways")
    if unread:
        gaps.append(f"{unread} refused calls are not listed, because what they were about could not be read")
    return gaps


def _refused(number: int) -> str:
    scope = "kernel.yama.ptrace_scope"
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as file:
            value = file.read().strip()
    except OSError:
        value = ""
    remedies = {"2": "set it to 1 or 0", "3": "no longer set it to 3, and restart: until then the kernel keeps it"}
    if remedy := remedies.get(value):
        return f"processes may not be traced here ({scope}={value}: {os.strerror(number)}); {remedy}"
    return (
        f"processes may not be traced here ({os.strerror(number)}); "
        "allow ptrace where this runs, in a container with --cap-add=SYS_PTRACE"
    )
