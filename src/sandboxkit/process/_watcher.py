"""
Looks at all processes of a box together, where no control group counts them: what each
keeps to, many may pass.

What comes and goes between two looks is seen only as far as its parent waited for it, and
files in memory that nobody has mapped are not seen: their places have sizes of their own.

Part of the broker: standard library only, imports nothing of the package.

Source: proc(5), /proc/pid/stat, /proc/pid/statm, /proc/pid/smaps_rollup,
/proc/pid/task/tid/children.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in typing, whose import is spared
if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY_SECONDS = 0.25
"""How often memory is looked at."""
LOOK_SECONDS = 0.1
"""How often processor time is looked at when its limit is near."""
LONGEST_SECONDS = 1.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROCESSORS = os.cpu_count() or 1
_LISTED = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""Whether the kernel lists children (CONFIG_PROC_CHILDREN)."""
_OWN = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
"""Memory no file backs; what several processes share counts once among them."""


class Watcher:
    """
    The limits of one box's processes together, and what they were seen to use.

    Args:
        pid: The process all others of the box descend from.
        cpu_us: Microseconds of processor time; None is no limit.
        memory_bytes: Private and shared memory; None is no limit.
    """

    def __init__(self, pid: int, cpu_us: int | None, memory_bytes: int | None) -> None:
        self.pid = pid
        self.cpu_us = cpu_us
        self.memory_bytes = memory_bytes
        self.figures: dict[str, int] = {}

    def look(self) -> str | None:
        """
        The limit that is reached, as a result names it, or None.
        """
        pids = list(tree(self.pid))
        user, system = times(pids)
        self.figures = {"cpu_us": user + system, "cpu_user_us": user, "cpu_system_us": system}
        if self.cpu_us is not None and user + system >= self.cpu_us:
            return "cpu_limit"
        if self.memory_bytes is not None and resident(pids) >= self.memory_bytes:
            held = own_memory(pids)
            if held >= self.memory_bytes:
                self.figures["memory_peak_bytes"] = held
                return "memory_limit"
        return None

    def pause(self) -> float:
        """
        Seconds until it should look again.
        """
        pause = LONGEST_SECONDS if self.memory_bytes is None else MEMORY_SECONDS
        if self.cpu_us is None:
            return pause
        left = (self.cpu_us - self.figures.get("cpu_us", 0)) / 1e6
        return min(pause, max(LOOK_SECONDS, left / _PROCESSORS))


def tree(pid: int) -> Iterator[int]:
    """
    *pid* and all that descend from it.
    """
    children = listed_children if _LISTED else by_parent().get
    waiting = [pid]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children(pid) or ()


def listed_children(pid: int) -> list[int]:
    """
    The children of *pid*, those of all its threads.
    """
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []  # it has ended
    return [int(child) for task in tasks for child in read(f"/proc/{pid}/task/{task}/children").split()]


def by_parent() -> dict[int, list[int]]:
    """
    The children of every process.
    """
    found: dict[int, list[int]] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        fields = read(f"/proc/{name}/stat").rpartition(b")")[2].split()
        if fields:
            found.setdefault(int(fields[1]), []).append(int(name))
    return found


def times(pids: list[int]) -> tuple[int, int]:
    """
    Microseconds in user mode and in the kernel of *pids*, and of children they waited for.
    """
    user = system = 0
    for pid in pids:
        fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) > 14:
            user += int(fields[11]) + int(fields[13])
            system += int(fields[12]) + int(fields[14])
    return user * 1_000_000 // _TICKS, system * 1_000_000 // _TICKS


def resident(pids: list[int]) -> int:
    """
    Bytes that *pids* hold in memory, of which they may share much.
    """
    rows = (read(f"/proc/{pid}/statm").split() for pid in pids)
    return sum(int(row[1]) for row in rows if len(row) > 1) * _PAGE


def own_memory(pids: list[int]) -> int:
    """
    Bytes of memory no file backs that *pids* hold; of one that lets nobody look, all it
    holds. Takes longer the more there is.
    """
    total = 0
    for pid in pids:
        rows = [line.split() for line in read(f"/proc/{pid}/smaps_rollup").splitlines() if line.startswith(_OWN)]
        total += sum(int(row[1]) << 10 for row in rows) if rows else resident([pid])
    return total


def read(path: str) -> bytes:
    """
    What *path* holds; nothing where its process has ended.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
