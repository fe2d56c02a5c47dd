"""
What on a machine commonly keeps any sandbox from starting, and the remedy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["APPARMOR", "CONTAINER", "INSTALL", "Obstacle", "obstacle"]

INSTALL = "install it (apt install bubblewrap, dnf install bubblewrap), or pip install 'sandboxkit[bwrap]'"
CONTAINER = (
    "allow user namespaces in the container: run it with --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined, or with a profile that permits clone, unshare, mount and pivot_root"
)
APPARMOR = (
    "install the distribution's bubblewrap, whose AppArmor profile permits /usr/bin/bwrap, "
    "or set kernel.apparmor_restrict_unprivileged_userns=0"
)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """
    One thing that stands in the way.

    Attributes:
        reason: What it is.
        remedy: What removes it.
        said: What the failed start says where this is the cause; None for anything.
        path: The kernel's file that shows it; empty where the words are enough.
        shows: What that file holds then.
    """

    reason: str
    remedy: str
    said: re.Pattern[str] | None = None
    path: str = ""
    shows: re.Pattern[str] | None = None


_NAMESPACES = re.compile(
    r"namespace|uid.?map|not permitted|permission denied|RTM_NEWADDR|pivot_root|unshare|No space left", re.IGNORECASE
)
_FORBIDDEN = re.compile(r"not permitted|permission denied|No permissions|RTM_NEWADDR", re.IGNORECASE)

_OBSTACLES: tuple[Obstacle, ...] = (
    Obstacle(
        "WSL 1 has no Linux kernel, hence no namespaces",
        "convert the distribution: wsl --set-version NAME 2",
        path="/proc/version",
        shows=re.compile(r"\A(?!.*WSL2).*Microsoft", re.DOTALL),
    ),
    Obstacle(
        "user namespaces are switched off (kernel.unprivileged_userns_clone=0)",
        "sysctl -w kernel.unprivileged_userns_clone=1",
        said=_NAMESPACES,
        path="/proc/sys/kernel/unprivileged_userns_clone",
        shows=re.compile(r"\A0$"),
    ),
    Obstacle(
        "user namespaces are switched off (user.max_user_namespaces=0)",
        "sysctl -w user.max_user_namespaces=15000",
        said=_NAMESPACES,
        path="/proc/sys/user/max_user_namespaces",
        shows=re.compile(r"\A0$"),
    ),
    Obstacle(
        "AppArmor restricts unprivileged user namespaces (kernel.apparmor_restrict_unprivileged_userns=1)",
        APPARMOR,
        said=_FORBIDDEN,
        path="/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        shows=re.compile(r"\A1$"),
    ),
    Obstacle(
        "this process runs under a seccomp filter, as in a container with the default profile",
        CONTAINER,
        said=_FORBIDDEN,
        path="/proc/self/status",
        shows=re.compile(r"^Seccomp:\t2$", re.MULTILINE),
    ),
    Obstacle(
        "bwrap is not installed",
        INSTALL,
        said=re.compile(r"bwrap.*(not found|No such file)|(not found|No such file).*bwrap", re.IGNORECASE | re.DOTALL),
    ),
    Obstacle(
        "this process may open no more files",
        "raise its limit (ulimit -n 1024), or close what it no longer needs",
        said=re.compile(r"Too many open files"),
    ),
    Obstacle(
        "this process may write no longer files",
        "raise its limit (ulimit -f unlimited)",
        said=re.compile(r"File too large"),
    ),
    Obstacle(
        "this process may start no more threads or processes, or has no memory left for them",
        "raise its limits (ulimit -u, ulimit -v), or those of its container",
        said=re.compile(r"can't start new thread|Resource temporarily unavailable|Cannot allocate memory"),
    ),
    Obstacle(
        "no directory for temporary files can be written",
        "free /tmp, or name another directory in TMPDIR",
        said=re.compile(r"No usable temporary directory"),
    ),
)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def obstacle(said: str, read: Callable[[str], str] = _read) -> Obstacle | None:
    """
    The obstacle behind a failed start, if it is a known one.

    Args:
        said: What the failed start said.
        read: Gives the content of a file of the kernel, or an empty text.
    """
    return next((known for known in _OBSTACLES if _stands(known, said, read)), None)


def _stands(known: Obstacle, said: str, read: Callable[[str], str]) -> bool:
    if known.said is not None and not known.said.search(said):
        return False
    return known.shows is None or known.shows.search(read(known.path)) is not None
