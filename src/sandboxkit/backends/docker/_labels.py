"""
Whose a container is: labels, by which only this library's own are ever touched.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LABEL", "Owner", "is_left", "is_own_name", "maker", "new_name", "own_labels"]

LABEL = "sandboxkit.box"
_OWNER = "sandboxkit.owner"
_MACHINE = "sandboxkit.machine"
_PID: Final = re.compile("[0-9]{1,10}")
_UNKNOWN: Final = "unknown"
_NAME: Final = re.compile("sandboxkit-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Owner:
    """
    One process of one machine, which no later one can be taken for.

    Attributes:
        boot: The boot of the machine, by its id.
        pid: Its pid.
        started: When it started, in the kernel's ticks since that boot; where there is no
            /proc, in seconds since 1970.

    Source: proc_pid_stat(5), field 22; random(4), boot_id; psutil, Process.create_time.
    """

    boot: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Owner:
        """
        This process.
        """
        return cls(_boot(), os.getpid(), _started(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """
        The owner that a label names, or None.
        """
        boot, _, rest = text.partition("/")
        pid, _, started = rest.partition("/")
        return cls(boot, int(pid), started) if _PID.fullmatch(pid) else None

    def __str__(self) -> str:
        return f"{self.boot}/{self.pid}/{self.started}"

    def is_gone(self, *, is_running: bool) -> bool:
        """
        Whether it has ended, for an owner of this machine.

        Args:
            is_running: Whether its container runs. Copies of one machine have one id and,
                often, one name; what tells them apart is the boot. None of an earlier boot's
                containers runs: their input has ended.
        """
        if self.boot != _boot():
            return not is_running
        return _started(self.pid) not in (self.started, _UNKNOWN)


def new_name() -> str:
    """
    A name for a container. A container has the labels of its image as well, so these alone do
    not say whose it is.
    """
    return f"sandboxkit-{secrets.token_hex(8)}"


def is_own_name(name: str) -> bool:
    """
    Whether *name* is one of those.
    """
    return _NAME.fullmatch(name) is not None


def own_labels() -> dict[str, str]:
    """
    The labels of a container this process makes.
    """
    return {LABEL: "1", _OWNER: str(Owner.current()), _MACHINE: _machine()}


def is_left(labels: Mapping[str, str], *, is_running: bool) -> bool:
    """
    Whether a container was made by this library, on this machine, by a process that has
    ended. One of another machine's is never taken for left: whether its owner lives cannot be
    seen from here.
    """
    if labels.get(LABEL) != "1" or labels.get(_MACHINE) != _machine():
        return False
    owner = Owner.parse(labels.get(_OWNER, ""))
    return owner is not None and owner.is_gone(is_running=is_running)


def maker(labels: Mapping[str, str]) -> int | None:
    """
    The pid of the process that made a container, on its machine; None if it does not say.
    """
    owner = Owner.parse(labels.get(_OWNER, ""))
    return owner.pid if owner else None


@cache
def _machine() -> str:
    """
    What tells machines that share an engine apart.
    """
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            if text := Path(path).read_text().strip():
                return f"{text}/{platform.node()}/{_pid_namespace()}"
        except OSError:
            continue
    return f"{platform.node()}/{_pid_namespace()}"


def _pid_namespace() -> str:
    """
    Whose processes are meant by a pid, and told apart by when they started.
    """
    if sys.platform != "linux":
        return sys.platform  # never told apart as those of Linux are
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return sys.platform


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _UNKNOWN


def _started(pid: int) -> str:
    """
    When *pid* started; empty where there is none, or it is a zombie.
    """
    if sys.platform != "linux":
        return _started_elsewhere(pid)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _started_elsewhere(pid: int) -> str:
    """
    Likewise where there is no /proc. Of one that nobody may look at nothing is known, nor of
    any without psutil, which the extra brings along there.
    """
    try:
        import psutil
    except ModuleNotFoundError:
        return _UNKNOWN
    try:
        found = psutil.Process(pid)
        return "" if found.status() == psutil.STATUS_ZOMBIE else f"{found.create_time():.3f}"
    except psutil.NoSuchProcess:
        return ""
    except psutil.AccessDenied:
        return _UNKNOWN
