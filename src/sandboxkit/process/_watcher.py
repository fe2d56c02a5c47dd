"""
Looks at all processes of a box together, where no control group counts them: what each
keeps to, many may pass.

What comes and goes between two looks is seen only as far as its parent waited for it. Files
in memory (memfd) are seen while somebody has them open or mapped, those on a tmpfs not: their
places have sizes of their own. Nor is what the kernel holds for pipes and sockets.

Part of the broker: standard library only, imports nothing of the package.

Source: proc(5), /proc/pid/stat, /proc/pid/statm, /proc/pid/smaps_rollup,
/proc/pid/task/tid/children, /proc/meminfo; stat(2), st_blocks.
"""

from __future__ import annotations

import os
from functools import cache

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
_OWN = (b"Pss_Anon:", b"SwapPss:")
_SHARED = b"Pss_Shmem:"
"""With these, memory no file backs; what several processes share counts once among them."""
_BLOCK = 512


class Watcher:
    """
    The limits of one box's processes together, and what they were seen to use.

    Args:
        pid: The process all others of the box descend from.
        cpu_us: Microseconds of processor time; None is no limit.
        memory_bytes: Private and shared memory; None is no limit.
        given: The inodes of what the application handed it, which is not its own.
    """

    def __init__(
        self, pid: int, cpu_us: int | None, memory_bytes: int | None, given: frozenset[int] = frozenset()
    ) -> None:
        self.pid = pid
        self.cpu_us = cpu_us
        self.memory_bytes = memory_bytes
        self.given = given
        self.shared_before = 0 if memory_bytes is None else shared_memory()
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
        if self.memory_bytes is not None and (held := self.memory(pids, self.memory_bytes)) >= self.memory_bytes:
            self.figures["memory_peak_bytes"] = held
            return "memory_limit"
        return None

    def memory(self, pids: list[int], limit: int) -> int:
        """
        Bytes that *pids* hold: nothing where a first look shows that it is below *limit*.
        It takes longer to look at every mapping and every descriptor. What is mapped and
        open, too, counts once.
        """
        has_grown = shared_memory() - self.shared_before
        if resident(pids) + max(0, has_grown) < limit:
            return 0
        own, shared = own_memory(pids)
        return own + max(shared, files_in_memory(pids, self.given))

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


def own_memory(pids: list[int]) -> tuple[int, int]:
    """
    Bytes of memory no file backs that *pids* hold, apart from what can be shared and of
    that; of one that lets nobody look, all it holds. Takes longer the more there is.
    """
    own = shared = 0
    for pid in pids:
        rows = [line.split() for line in read(f"/proc/{pid}/smaps_rollup").splitlines()]
        own += sum(int(row[1]) << 10 for row in rows if row[0] in _OWN) if rows else resident([pid])
        shared += sum(int(row[1]) << 10 for row in rows if row[0] == _SHARED)
    return own, shared


def shared_memory() -> int:
    """
    Bytes of files in memory and shared memory on this machine.
    """
    for row in read("/proc/meminfo").splitlines():
        if row.startswith(b"Shmem:"):
            return int(row.split()[1]) << 10
    return 0


@cache
def memory_device() -> int:
    """
    Where files in memory lie that have no name.
    """
    fd = os.memfd_create("sandboxkit-device", os.MFD_CLOEXEC)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)


def files_in_memory(pids: list[int], given: frozenset[int]) -> int:
    """
    Bytes of files in memory without a name that *pids* have open, each once, but for *given*.
    """
    found: dict[int, int] = {}
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue  # it has ended, or lets nobody look
        for name in names:
            try:
                seen = os.stat(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue  # it has just been closed
            if seen.st_dev == memory_device() and seen.st_ino not in given:
                found[seen.st_ino] = seen.st_blocks * _BLOCK
    return sum(found.values())


def read(path: str) -> bytes:
    """
    What *path* holds; nothing where its process has ended.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
