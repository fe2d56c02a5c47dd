"""
Control groups of one run, as the broker makes, reads and removes them.

A run has one group ("leaf") in each hierarchy its plan names. The launcher is in them
when it starts the program, so everything the box will ever fork is inside from its first
instruction, and moves on at once: what ends for want of memory inside cannot be the
launcher.

Part of the broker: standard library only, imports nothing of the package. Which files
are written and read is the plan's to say.

Source: Documentation/admin-guide/cgroup-v1/cgroups.rst, cgroup-v2.rst.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False  # as in typing, whose import is spared
if TYPE_CHECKING:
    from typing import Any

PREFIX = "sandboxkit-"
ROUNDING = 1 << 16
"""The kernel rounds limits of memory down to a page, of at most 64 KiB."""
REMOVE_SECONDS = 0.05
REMOVE_PAUSE = 0.002


class GroupError(OSError):
    """
    A control group that the run must have could not be made.
    """

    stage = "cgroup"


def put(path: str, text: str) -> None:
    """
    Writes *text* to the existing file *path* in one call, as the kernel's files need it.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def get(path: str) -> str:
    """
    The content of the kernel's file *path*.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 65536).decode()
    finally:
        os.close(fd)


def number(path: str, key: str) -> int | None:
    """
    The number in *path*, or in its row *key* where that is not empty; None where this
    kernel has no such file or row.
    """
    try:
        for row in get(path).splitlines():
            words = row.split()
            if not key or words[0] == key:
                return int(words[-1])
    except (OSError, ValueError, IndexError):
        pass  # what cannot be read is not known
    return None


def limit(path: str, value: int, is_optional: bool) -> None:
    """
    Sets the limit *path* and reads it back.

    Raises:
        OSError: It was refused, or something else was set.
    """
    try:
        put(path, str(value))
    except FileNotFoundError:
        if is_optional:
            return
        raise
    held = number(path, "")
    if held is None or not 0 <= value - held < ROUNDING:
        raise OSError(22, f"{path} reads back {held} after {value} was written")


def started(pid: int) -> str | None:
    """
    When process *pid* started, in clock ticks since boot, or None where it has ended,
    its parent having heard of that or not.

    Source: proc_pid_stat(5), state and starttime.
    """
    try:
        words = get(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return None if words[0] in "ZX" else words[19]
    except (OSError, IndexError):
        return None


class Names:
    """
    Names of leaves that no other broker of this machine uses, living or dead: they hold
    the pid namespace, the process id in it, the start time, and a count.
    """

    def __init__(self) -> None:
        self.space = f"{PREFIX}{os.stat('/proc/self/ns/pid').st_ino}-"
        self.own = f"{self.space}{os.getpid()}-{started(os.getpid())}-"
        self.count = 0
        self.cleaned: set[str] = set()

    def new(self) -> str:
        """
        A name that was not given before.
        """
        self.count += 1
        return f"{self.own}{self.count}"

    def clean(self, base: str) -> None:
        """
        Removes, once, what dead brokers left in *base*. Only what is empty, so nothing
        that runs is touched, and only names of this pid namespace, whose numbers can be
        compared.
        """
        if base in self.cleaned:
            return
        self.cleaned.add(base)
        try:
            found = [name for name in os.listdir(base) if name.startswith(self.space)]
        except OSError:
            return
        for name in found:
            pid, _, rest = name.removeprefix(self.space).partition("-")
            if pid.isdigit() and started(int(pid)) != rest.partition("-")[0]:
                remove(f"{base}/{name}")


def remove(path: str) -> bool:
    """
    Removes the group *path*; whether it is gone.
    """
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def members(path: str) -> list[int]:
    """
    The processes in the group *path*, as far as this pid namespace shows them.
    """
    try:
        return [int(pid) for pid in get(f"{path}/cgroup.procs").split() if pid != "0"]
    except OSError:
        return []


def end(path: str) -> None:
    """
    Kills every process in the group *path*.
    """
    try:
        put(f"{path}/cgroup.kill", "1")  # version 2, Linux 5.14
    except OSError:
        for pid in members(path):
            if pid != os.getpid():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass  # it has ended


def listen(path: str, file: str) -> int | None:
    """
    A descriptor that becomes readable when the group *path* is short of memory, or None
    on a kernel without that event; the counters tell then, after the run.

    Source: Documentation/admin-guide/cgroup-v1/memory.rst, section 10.
    """
    event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        fd = os.open(f"{path}/{file}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            put(f"{path}/cgroup.event_control", f"{event} {fd}")
        finally:
            os.close(fd)
    except OSError:
        os.close(event)
        return None
    return event


def go(home: str) -> None:
    """
    Takes the launcher to the group *home*; where it cannot go it would be bounded by the
    limits of a box, so it ends.
    """
    try:
        put(f"{home}/cgroup.procs", "0")
    except OSError:
        os._exit(70)


def import_scope() -> Any:
    """
    What asks systemd. Only who must ask pays for its import; it lies beside this file,
    which is in the path of whoever imported this one.
    """
    return __import__("_scope")


class Leaves:
    """
    The groups of one run; until they are armed, of the run that comes next.

    Args:
        order: What the plan says: `groups`, each with `base`, `home`, `controls`,
            `limits`, `settled`, `figures` and `shortage`, the controls that are `required`, and
            the limit `cpu_us`. Besides, what became of groups that have no place: `failed`.
        names: Where a name comes from.
    """

    def __init__(self, order: dict[str, Any], names: Names) -> None:
        self.bases = [group["base"] for group in order["groups"]]
        self.cpu_us: int | None = None
        self.is_armed = False
        self.failed: dict[str, str] = dict(order.get("failed", {}))
        self.rows: list[tuple[dict[str, Any], str]] = []
        self.shortage: int | None = None
        name = names.new()
        for group in order["groups"]:
            names.clean(group["base"])
            path = f"{group['base']}/{name}"
            try:
                os.mkdir(path, 0o755)
            except OSError as error:
                self.refuse(group, error)
            else:
                self.rows.append((group, path))

    def refuse(self, group: dict[str, Any], error: OSError) -> None:
        """
        Notes that *group* is not had.
        """
        why = f"control group in {group['base']}: {error.strerror or error}"
        self.failed.update(dict.fromkeys(group["controls"], why))

    def drop(self, group: dict[str, Any], path: str, error: OSError) -> None:
        """
        Does without the leaf *path*.
        """
        self.rows.remove((group, path))
        go(group["home"])
        remove(path)
        self.refuse(group, error)

    def enter(self) -> None:
        """
        Puts the launcher into the leaves.
        """
        for group, path in list(self.rows):
            try:
                put(f"{path}/cgroup.procs", "0")
            except OSError as error:
                self.drop(group, path, error)

    def leave(self) -> None:
        """
        Takes the launcher home.
        """
        for group, _ in self.rows:
            go(group["home"])

    def arm(self, order: dict[str, Any]) -> None:
        """
        Gives the leaves the limits of *order*.

        Raises:
            GroupError: One that is required is not had.
        """
        fresh = {group["base"]: group for group in order["groups"]}
        self.rows = [(fresh[group["base"]], path) for group, path in self.rows]
        self.cpu_us = order["cpu_us"]
        self.is_armed = True
        for group, path in list(self.rows):
            try:
                for file, value, is_optional in group["limits"]:
                    limit(f"{path}/{file}", value, is_optional)
            except OSError as error:
                self.drop(group, path, error)
                continue
            if group["shortage"]:
                self.shortage = listen(path, group["shortage"])
        for control in order["required"]:
            if control in self.failed:
                raise GroupError(1, self.failed[control])

    def settle(self) -> None:
        """
        Takes back the room the launcher had, which has left.
        """
        for group, path in self.rows:
            for file, value in group["settled"]:
                try:
                    put(f"{path}/{file}", str(value))
                except OSError:
                    pass  # the limit before, which leaves that room, still holds

    def controls(self) -> set[str]:
        """
        The limits the leaves hold for the whole run.
        """
        return {control for group, _ in self.rows for control in group["controls"]} if self.is_armed else set()

    def unused_cpu(self) -> float | None:
        """
        Seconds of processor time that are left to the run, or None where there is no
        limit or nobody counts.
        """
        used = self.figures(only="cpu_us").get("cpu_us")
        return None if used is None or self.cpu_us is None else (self.cpu_us - used) / 1e6

    def figures(self, only: str = "") -> dict[str, int]:
        """
        What was used, by the names the plan gives the figures.
        """
        found: dict[str, int] = {}
        for group, path in self.rows:
            for name, file, key, divisor in group["figures"]:
                if not only or name == only:
                    value = number(f"{path}/{file}", key)
                    if value is not None:
                        found[name] = value // divisor
        return found

    def is_short(self) -> bool:
        """
        Whether the run's own limit of memory was reached. The event and the kills alone
        do not tell: they come from the limit of a group above, too.
        """
        return self.figures(only="memory_refusals").get("memory_refusals", 0) > 0

    def report(self) -> dict[str, object]:
        """
        What the application is told at the end; nothing of a run that asked for no group.
        """
        if not self.is_armed:
            return {}
        return {"figures": self.figures(), "failed": self.failed}

    def remove(self) -> bool:
        """
        Removes the leaves, ending what is still inside; whether all are gone.
        """
        if self.shortage is not None:
            os.close(self.shortage)
            self.shortage = None
        deadline = time.monotonic() + REMOVE_SECONDS
        while not self.is_gone():
            for _, path in self.rows:
                end(path)
            if time.monotonic() > deadline:
                return False
            time.sleep(REMOVE_PAUSE)
        return True

    def is_gone(self) -> bool:
        """
        Removes what is empty; whether nothing is left.
        """
        self.rows = [row for row in self.rows if not remove(row[1])]
        return not self.rows


class Nursery:
    """
    Where the launcher waits: in the leaves of the run that comes next, without limits.

    Entering a group can take the kernel 10 to 25 ms (it waits for every processor), so
    it is done when a program has just been started, beside it, and not before the next.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.waiting: Leaves | None = None
        self.remains: list[Leaves] = []
        self.scope: tuple[str, str] | OSError | None = None

    def take(self, order: dict[str, Any] | None) -> Leaves | None:
        """
        The leaves of a run by *order*, with the launcher inside; those of a run without
        an order have no limits.

        Raises:
            GroupError: One that is required is not had.
        """
        leaves, self.waiting = self.waiting, None
        if order is None:
            return leaves
        self.place(order)
        if leaves is None or leaves.failed or leaves.bases != [group["base"] for group in order["groups"]]:
            if leaves:
                leaves.leave()
                self.clear(leaves)
            leaves = Leaves(order, self.names)
            leaves.enter()
        try:
            leaves.arm(order)
        except BaseException:
            leaves.leave()
            self.clear(leaves)
            raise
        return leaves

    def place(self, order: dict[str, Any]) -> None:
        """
        Says in *order* where the groups are that only systemd can give a place. Where it
        does not, they are left out, and why is told like any other failure.
        """
        for group in [group for group in order["groups"] if group["scope"]]:
            if self.scope is None:
                self.scope = self.ask(group)
            if isinstance(self.scope, OSError):
                order["groups"].remove(group)
                why = f"control group in a scope of systemd: {self.scope.strerror or self.scope}"
                order.setdefault("failed", {}).update(dict.fromkeys(group["controls"], why))
            else:
                group["base"], group["home"] = self.scope

    def ask(self, group: dict[str, Any]) -> tuple[str, str] | OSError:
        """
        Base and home in a scope of our own, or why there is none. Asked once, whatever the
        answer: it may take seconds to say no.
        """
        try:
            base, home = import_scope().enter(group["scope"], group["base"], self.names.own.rstrip("-"))
        except OSError as error:
            return error
        return base, home

    def move_on(self, leaves: Leaves, order: dict[str, Any] | None) -> None:
        """
        Takes the launcher out of *leaves*, into those of the next run.
        """
        if order is None:
            leaves.leave()
            leaves.settle()
            return
        after = Leaves(order, self.names)
        after.enter()
        had = {group["base"] for group, _ in after.rows}
        for group, _ in leaves.rows:
            if group["base"] not in had:
                go(group["home"])
        leaves.settle()
        self.waiting = after

    def clear(self, leaves: Leaves) -> None:
        """
        Removes *leaves*, and what could not be removed before.
        """
        if not leaves.remove():
            self.remains.append(leaves)
        self.remains = [old for old in self.remains if not old.is_gone()]

    def close(self) -> None:
        """
        Takes the launcher home and removes what is left.
        """
        if self.waiting:
            self.waiting.leave()
            self.remains.append(self.waiting)
            self.waiting = None
        for leaves in self.remains:
            leaves.remove()
