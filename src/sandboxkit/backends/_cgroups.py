"""
Where this process may make control groups, and what a run's groups are to be.

Looking only reads. Whether a group really can be made is seen when the first box is
started; where it could not, the limits are graded without it.

Source: cgroups(7), Documentation/admin-guide/cgroup-v1/memory.rst and pids.rst,
Documentation/admin-guide/cgroup-v2.rst, proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sandboxkit.model import Control, ControlGroup, ControlGroups, Grade

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sandboxkit.model import Limits

__all__ = ["Cgroups", "Hierarchy", "cgroups", "control_groups", "watched_limits"]

Version = Literal[1, 2]

_CONTROLS = {"memory": Control.LIMITS_MEMORY, "pids": Control.LIMITS_PROCESSES, "cpuacct": Control.LIMITS_CPU}
_HELPERS = 2
"""Processes besides the command's: bwrap, and the child that waits."""
_LAUNCHER = 1
"""It is in the group while it starts them."""
_SWAPPED = 1 << 20
"""
How much may be swapped out, in bytes. With no room at all the limit with swap would be
reached first, every time, and newer kernels do not count that.
"""
_NANOSECONDS = 1000
_Figure = tuple[str, str, str, int]
_FIGURES: Mapping[tuple[Version, str], tuple[_Figure, ...]] = {
    (1, "memory"): (
        ("memory_peak_bytes", "memory.max_usage_in_bytes", "", 1),
        ("memory_refusals", "memory.failcnt", "", 1),
        ("oom_kills", "memory.oom_control", "oom_kill", 1),
    ),
    (2, "memory"): (
        ("memory_peak_bytes", "memory.peak", "", 1),
        ("memory_refusals", "memory.events", "oom", 1),
        ("oom_kills", "memory.events", "oom_kill", 1),
    ),
    (1, "cpuacct"): (
        ("cpu_us", "cpuacct.usage", "", _NANOSECONDS),
        ("cpu_user_us", "cpuacct.usage_user", "", _NANOSECONDS),
        ("cpu_system_us", "cpuacct.usage_sys", "", _NANOSECONDS),
    ),
    (2, "cpuacct"): (
        ("cpu_us", "cpu.stat", "usage_usec", 1),
        ("cpu_user_us", "cpu.stat", "user_usec", 1),
        ("cpu_system_us", "cpu.stat", "system_usec", 1),
    ),
    (1, "pids"): (("processes_peak", "pids.peak", "", 1), ("refused_processes", "pids.events", "max", 1)),
    (2, "pids"): (("processes_peak", "pids.peak", "", 1), ("refused_processes", "pids.events", "max", 1)),
}
"""(version, controller) to rows of: name, file, key of its row, units in one of ours."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """
    A tree of groups this process may make one in.

    Attributes:
        version: 1 or 2.
        controllers: Of `memory`, `pids` and `cpuacct`, those that count there.
        base: The directory new groups are made in.
        home: The directory of the group this process is in.
        counts_swap: Whether memory that was swapped out stays bounded.
        scope: The socket of the user's bus, where systemd is asked for a group to make
            others in; `base` is then where the hierarchy is mounted, and `home` empty.
    """

    version: Version
    controllers: tuple[str, ...]
    base: str
    home: str
    counts_swap: bool = True
    scope: str = ""

    @property
    def place(self) -> str:
        """
        Where groups are made, in words for people.
        """
        return f"a scope of systemd's, asked for at {self.scope}" if self.scope else self.base


@dataclass(frozen=True, slots=True)
class Cgroups:
    """
    The hierarchies this process may make groups in; none by default.

    Attributes:
        hierarchies: Those found.
        reason: Why there are none, or not for every limit.
        source: What the kernel said about this process when it was looked.
    """

    hierarchies: tuple[Hierarchy, ...] = ()
    reason: str = "no control group was looked for"
    source: str = ""

    def of(self, control: Control) -> Hierarchy | None:
        """
        The hierarchy that can hold *control* for a whole tree, or None.
        """
        for hierarchy in self.hierarchies:
            if any(_CONTROLS[name] is control for name in hierarchy.controllers):
                return hierarchy
        return None

    @property
    def controls(self) -> frozenset[Control]:
        """
        The controls they can hold for a whole tree.
        """
        return frozenset(_CONTROLS[name] for hierarchy in self.hierarchies for name in hierarchy.controllers)

    def refreshed(self) -> Cgroups:
        """
        This, unless the process has been moved since; then what holds now. What was
        found unusable stays so.
        """
        if not self.source or self.source == _own():
            return self
        return cgroups()

    def without(self, reason: str) -> Cgroups:
        """
        None, because of *reason*.
        """
        return replace(self, hierarchies=(), reason=reason)

    def describe(self) -> str:
        """
        What is there, in a few words for people.
        """
        rows = [f"v{found.version} {'+'.join(found.controllers)} in {found.place}" for found in self.hierarchies]
        return ", ".join(rows) or f"none: {self.reason}"


def cgroups() -> Cgroups:
    """
    Where this process may make groups now.
    """
    return _look(_own())


def _own() -> str:
    try:
        return Path("/proc/self/cgroup").read_text()
    except OSError:
        return ""


@cache
def _look(own: str) -> Cgroups:
    try:
        rows = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        rows = []
    places = {name: path for line in own.splitlines() for name, path in _groups(line)}
    mounts = [mount for row in rows if (mount := _mount(row))]
    if not mounts:
        return Cgroups((), "no cgroup file system is mounted", own)
    unified = _unified(places, mounts)
    if unified and set(unified.controllers) == set(_CONTROLS):
        hierarchies: tuple[Hierarchy, ...] = (unified,)
    else:
        hierarchies = tuple(_version_1(places, mounts))
        lacking = _lacking(hierarchies)
        if unified and (rest := tuple(name for name in unified.controllers if name in lacking)):
            hierarchies = (*hierarchies, replace(unified, controllers=rest))
    if _lacking(hierarchies) and (scope := _scope(mounts)):
        hierarchies = (scope,)
    missing = _lacking(hierarchies)
    reason = f"this user may not make control groups for {', '.join(missing)} here" if missing else ""
    return Cgroups(hierarchies, reason, own)


@dataclass(frozen=True, slots=True)
class _Mount:
    version: Version
    root: str
    point: str
    options: tuple[str, ...]


def _groups(line: str) -> Iterator[tuple[str, str]]:
    _, _, rest = line.partition(":")
    names, _, path = rest.partition(":")
    for name in names.split(","):
        yield name, path


def _mount(row: str) -> _Mount | None:
    before, _, after = row.partition(" - ")
    fields, kind = before.split(), after.split()
    if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
        return None
    return _Mount(1 if kind[0] == "cgroup" else 2, fields[3], fields[4], tuple(kind[2].split(",")))


def _directory(mount: _Mount, path: str) -> str | None:
    """
    Where the group *path* of the kernel is seen below *mount*, or None.
    """
    root = mount.root.rstrip("/")
    if root and path != root and not path.startswith(f"{root}/"):
        return None
    below = path[len(root) :].strip("/")
    if ".." in below.split("/"):
        return None  # it lies outside of this cgroup namespace
    return f"{mount.point}/{below}".rstrip("/")


def _lacking(hierarchies: Iterable[Hierarchy]) -> list[str]:
    held = {name for hierarchy in hierarchies for name in hierarchy.controllers}
    return [name for name in _CONTROLS if name not in held]


def _version_1(places: Mapping[str, str], mounts: list[_Mount]) -> Iterator[Hierarchy]:
    homes: dict[str, list[str]] = {}
    for name in _CONTROLS:
        for mount in mounts:
            home = _directory(mount, places.get(name, "/..")) if mount.version == 1 and name in mount.options else None
            if home and _may_make(home) and _is_home(home):
                homes.setdefault(home, []).append(name)
                break
    for home, names in homes.items():
        counts = "memory" not in names or os.path.exists(f"{home}/memory.memsw.limit_in_bytes") or not _swaps()
        yield Hierarchy(1, tuple(names), home, home, counts)


def _unified(places: Mapping[str, str], mounts: list[_Mount]) -> Hierarchy | None:
    """
    The nearest group above this process that hands most of memory and pids to its
    children. Processor time is counted in every group, without a controller.

    Source: cgroup-v2.rst, "Controllers", "cpu.stat".
    """
    for mount in mounts:
        home = _directory(mount, places.get("", "/..")) if mount.version == 2 else None
        if home is None:
            continue
        bases = [base for base in _upwards(home, mount.point) if _may_make(base)]
        if bases:
            base = max(bases, key=lambda base: len(_handed_down(base)))
            handed = _handed_down(base)
            counts = "memory" not in handed or os.path.exists(f"{home}/memory.swap.max") or not _swaps()
            return Hierarchy(2, tuple(name for name in _CONTROLS if name in handed | {"cpuacct"}), base, home, counts)
    return None


def _scope(mounts: list[_Mount]) -> Hierarchy | None:
    """
    What the systemd of this user can give, where it can give all: from a group of root's,
    as that of a login session, no way leads to one of the user's but through systemd.

    Source: user@.service(5), systemd.resource-control(5) Delegate=.
    """
    uid = os.geteuid()
    bus, manager = f"/run/user/{uid}/bus", f"user.slice/user-{uid}.slice/user@{uid}.service"
    point = next((mount.point for mount in mounts if mount.version == 2 and mount.root == "/"), None)
    if uid == 0 or point is None or not os.path.exists(bus):
        return None
    home = f"{point}/{manager}"
    if not {"memory", "pids"} <= _names(f"{home}/cgroup.controllers"):
        return None
    counts = os.path.exists(f"{home}/memory.swap.max") or not _swaps()
    return Hierarchy(2, tuple(_CONTROLS), point, "", counts, bus)


def _upwards(path: str, top: str) -> Iterator[str]:
    yield path
    while path != top:
        path = os.path.dirname(path)
        yield path


def _handed_down(directory: str) -> set[str]:
    return {"memory", "pids"} & _names(f"{directory}/cgroup.subtree_control")


def _names(path: str) -> set[str]:
    try:
        return set(Path(path).read_text().split())
    except OSError:
        return set()


def _may_make(directory: str) -> bool:
    return all(os.access(path, os.W_OK) for path in (directory, f"{directory}/cgroup.procs"))


def _is_home(directory: str) -> bool:
    try:
        return str(os.getpid()) in Path(directory, "cgroup.procs").read_text().split()
    except OSError:
        return False


def _swaps() -> bool:
    try:
        return len(Path("/proc/swaps").read_text().splitlines()) > 1
    except OSError:
        return True


def control_groups(
    limits: Limits, requirements: Mapping[Control, Grade], found: Cgroups, *, is_counted: bool = True
) -> ControlGroups | None:
    """
    The groups of a run under *limits*; None where none is to be made. Pure.

    Args:
        limits: What they hold.
        requirements: What must be enforced; a run is refused without its group.
        found: Where they are made.
        is_counted: Whether groups that hold no limit are made, too, for the figures.
    """
    groups = [group for row in found.hierarchies if (group := _group(row, limits, is_counted=is_counted))]
    if not groups:
        return None
    held = {control for group in groups for control in group.controls}
    required = tuple(sorted(name for name in held if requirements.get(Control(name)) is Grade.ENFORCED))
    return ControlGroups(tuple(groups), required, None if limits.cpu is None else round(limits.cpu * 1e6))


def watched_limits(limits: Limits) -> tuple[tuple[str, str, int], ...]:
    """
    What is looked at from outside where no group counts. Pure.
    """
    rows = (
        (Control.LIMITS_CPU, "cpu_us", None if limits.cpu is None else round(limits.cpu * 1e6)),
        (Control.LIMITS_MEMORY, "memory_bytes", limits.memory_bytes),
    )
    return tuple((str(control), name, value) for control, name, value in rows if value is not None)


def _group(row: Hierarchy, limits: Limits, *, is_counted: bool) -> ControlGroup | None:
    values = tuple(value for name in row.controllers for value in _values(row, name, limits))
    is_timed = limits.cpu is not None and "cpuacct" in row.controllers
    if not values and not is_timed and not is_counted:
        return None
    bounds = {"memory": limits.memory_bytes, "pids": limits.processes, "cpuacct": limits.cpu}
    return ControlGroup(
        base=row.base,
        home=row.home,
        controls=tuple(str(_CONTROLS[name]) for name in row.controllers if bounds[name] is not None),
        limits=values,
        settled=tuple(_settled(row, limits)),
        figures=tuple(figure for name in row.controllers for figure in _FIGURES[row.version, name]),
        shortage="memory.oom_control" if row.version == 1 and values and "memory" in row.controllers else "",
        scope=row.scope,
    )


def _settled(row: Hierarchy, limits: Limits) -> Iterator[tuple[str, int]]:
    if "pids" in row.controllers and limits.processes is not None:
        yield ("pids.max", limits.processes + _HELPERS)


def _values(row: Hierarchy, name: str, limits: Limits) -> Iterator[tuple[str, int, bool]]:
    """
    (file, value, whether a kernel may lack it), in the order they are written.
    """
    if name == "pids" and limits.processes is not None:
        yield ("pids.max", limits.processes + _HELPERS + _LAUNCHER, False)
    if name != "memory" or limits.memory_bytes is None:
        return
    if row.version == 1:
        yield ("memory.limit_in_bytes", limits.memory_bytes, False)
        yield ("memory.memsw.limit_in_bytes", limits.memory_bytes + _SWAPPED, True)
    else:
        yield ("memory.max", limits.memory_bytes, False)
        yield ("memory.swap.max", 0, True)
        yield ("memory.oom.group", 1, True)
