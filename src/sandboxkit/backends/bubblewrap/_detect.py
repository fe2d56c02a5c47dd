"""
What a refused start of bubblewrap means, with the remedy.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

from sandboxkit.backends._obstacles import APPARMOR, CONTAINER, INSTALL, Obstacle, obstacle

if TYPE_CHECKING:
    from sandboxkit.backends.bubblewrap._program import Program

__all__ = ["refusal", "unusable", "user_databases"]

_DEGRADE = 'run as an ordinary user, or accept uid 0 with allow_degraded={"process.isolation"}'

_NO_GROUP = (
    "leave that limit to its default, or list its control in allow_degraded; "
    "sandboxkit doctor shows where control groups can be made"
)

# What the broker says when a step on the way to an unprivileged uid fails.
_STAGING = (
    Obstacle(
        "a path of the spec was replaced while the box was made",
        "open the box anew, and keep the directories above its paths out of other boxes",
        said=re.compile(
            r"open /.*(Too many levels|No such file|Not a directory)|was replaced while|Can't (get type of|find) source"
        ),
    ),
    Obstacle(
        "id-mapped mounts are refused, which a root caller needs to lend the command an unprivileged uid",
        "use a kernel from 5.12 on and a file system with id-mapped mounts (ext4, xfs, btrfs, tmpfs from 6.3), "
        f"give the container CAP_SYS_ADMIN, {_DEGRADE}",
        said=re.compile(r"id-map|create a user namespace for the id map"),
    ),
    Obstacle(
        "a root caller may not make a mount namespace here, so it cannot lend the command an unprivileged uid",
        f"give the container CAP_SYS_ADMIN, {_DEGRADE}",
        said=re.compile(r"unshare the mount namespace|mount: |open /|attach:"),
    ),
)

# What the child says that is the last before the command.
_CHILD = (
    Obstacle(
        "the command's user may not enter its working directory: root whose process.isolation may be degraded "
        "has no capability in the box, and others' private directories are closed to it as to any other user",
        "leave process.isolation out of allow_degraded, so that the command gets a uid to which its directories "
        "belong; or make the directory root's, or open it to others",
        said=re.compile(r"step 'cwd' failed: Permission denied"),
    ),
    Obstacle(
        "the working directory went away, or was replaced, while the box was made",
        "start the command in another one, or again",
        said=re.compile(r"step 'cwd' failed"),
    ),
)

# What bwrap says, where no file of the kernel shows the cause.
_SAID = (
    Obstacle(
        "AppArmor restricts unprivileged user namespaces",
        APPARMOR,
        said=re.compile(r"loopback: Failed|RTM_NEWADDR|setting up uid map: Permission denied"),
    ),
    Obstacle(
        "the container's seccomp or AppArmor profile refuses mounts",
        CONTAINER,
        said=re.compile(r"Failed to make / slave|pivot_root|Can't mount proc|Failed to mount"),
    ),
    Obstacle(
        "creating namespaces is not permitted here, as in a container with the default seccomp profile",
        CONTAINER,
        said=re.compile(r"No permissions to create (a )?new namespace|Operation not permitted"),
    ),
    Obstacle(
        "the limit of user namespaces is used up, or this is a box that forbids them",
        "raise user.max_user_namespaces, or run outside the box",
        said=re.compile(r"No space left on device"),
    ),
)


def unusable(programs: tuple[Program, ...], refused: tuple[str, ...]) -> Obstacle | None:
    """
    Why no program here may be tried, or None.
    """
    if platform.system() != "Linux":
        return Obstacle(f"bubblewrap is for Linux, this is {platform.system()}", "use another backend")
    if not programs:
        return Obstacle("; ".join(refused) if refused else "no bwrap program was found", INSTALL)
    return obstacle("")


def refusal(said: str) -> Obstacle:
    """
    What a failed start means, from *said*, the message of bwrap or of the broker.
    """
    if "control group in " in said:
        return Obstacle(said, _NO_GROUP)
    # A setting that switches user namespaces off also takes root's id-mapped mounts.
    switched_off = obstacle(said) if "user namespace" in said else None
    known = switched_off or _first((*_STAGING, *_CHILD), said) or obstacle(said) or _first(_SAID, said)
    return known or Obstacle(said, "sandboxkit doctor shows what this machine has")


def _first(table: tuple[Obstacle, ...], said: str) -> Obstacle | None:
    return next((known for known in table if known.said is not None and known.said.search(said)), None)


def user_databases() -> tuple[bytes, bytes]:
    """
    The content of /etc/passwd and of /etc/group; empty where they cannot be read.
    """
    return (_content("/etc/passwd"), _content("/etc/group"))


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes() if not os.path.islink(path) else b""
    except OSError:
        return b""
