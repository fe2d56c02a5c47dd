"""
Whether bubblewrap runs here, found out by running it, with the remedy where it does not.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxkit.backends.bubblewrap._program import Program

__all__ = ["Refusal", "refusal", "unusable", "user_databases"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """
    Why it does not run, and what would help.
    """

    reason: str
    remedy: str


_INSTALL = "install it (apt install bubblewrap, dnf install bubblewrap), or pip install 'sandboxkit[bwrap]'"
_CONTAINER = (
    "allow user namespaces in the container: run it with --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined, or with a profile that permits clone, unshare, mount and pivot_root"
)
_APPARMOR = (
    "install the distribution's bubblewrap, whose AppArmor profile permits /usr/bin/bwrap, "
    "or set kernel.apparmor_restrict_unprivileged_userns=0"
)
_SYSCTLS = {
    "kernel.unprivileged_userns_clone": ("/proc/sys/kernel/unprivileged_userns_clone", "1"),
    "user.max_user_namespaces": ("/proc/sys/user/max_user_namespaces", "15000"),
}
_APPARMOR_SYSCTL = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"

# What bwrap or the broker says, to what it means; the first that is found counts.
_SIGNS: tuple[tuple[re.Pattern[str], Refusal], ...] = (
    (
        re.compile(r"open /.*(Too many levels|No such file|Not a directory)|was replaced while"),
        Refusal(
            "a path of the spec was replaced while the box was made",
            "open the box anew, and keep the directories above its paths out of other boxes",
        ),
    ),
    (
        re.compile(r"id-map|create a user namespace for the id map"),
        Refusal(
            "id-mapped mounts are refused, which a root caller needs to lend the command an unprivileged uid",
            "use a kernel from 5.12 on and a file system with id-mapped mounts (ext4, xfs, btrfs, tmpfs from 6.3), give the "
            'container CAP_SYS_ADMIN, run as an ordinary user, or accept uid 0 with allow_degraded={"process.isolation"}',
        ),
    ),
    (
        re.compile(r"unshare the mount namespace|mount: |open /|attach:"),
        Refusal(
            "a root caller may not make a mount namespace here, so it cannot lend the command an unprivileged uid",
            "give the container CAP_SYS_ADMIN, run as an ordinary user, or accept uid 0 with "
            'allow_degraded={"process.isolation"}',
        ),
    ),
    (
        re.compile(r"loopback: Failed|RTM_NEWADDR|setting up uid map: Permission denied"),
        Refusal("AppArmor restricts unprivileged user namespaces", _APPARMOR),
    ),
    (
        re.compile(r"Failed to make / slave|pivot_root|Can't mount proc|Failed to mount"),
        Refusal("the container's seccomp or AppArmor profile refuses mounts", _CONTAINER),
    ),
    (
        re.compile(r"No permissions to create (a )?new namespace|Operation not permitted"),
        Refusal(
            "creating namespaces is not permitted here, as in a container with the default seccomp profile", _CONTAINER
        ),
    ),
)


def unusable(programs: tuple[Program, ...], refused: tuple[str, ...]) -> Refusal | None:
    """
    Why no program here may be tried, or None.
    """
    if platform.system() != "Linux":
        return Refusal(f"bubblewrap is for Linux, this is {platform.system()}", "use another backend")
    if _is_wsl1():
        return Refusal(
            "WSL 1 has no Linux kernel, hence no namespaces", "convert the distribution: wsl --set-version NAME 2"
        )
    if not programs:
        reason = "; ".join(refused) if refused else "no bwrap program was found"
        return Refusal(reason, _INSTALL)
    return None


def _is_wsl1() -> bool:
    version = _read("/proc/version")
    return "Microsoft" in version and "WSL2" not in version


def refusal(said: str) -> Refusal:
    """
    What a failed start means, from *said*, the message of bwrap or of the broker.
    """
    for name, (path, value) in _SYSCTLS.items():
        if _read(path) == "0":
            return Refusal(f"user namespaces are switched off ({name}=0)", f"sysctl -w {name}={value}")
    if _read(_APPARMOR_SYSCTL) == "1" and "ermission" in said:
        return Refusal("AppArmor restricts unprivileged user namespaces", _APPARMOR)
    for sign, meaning in _SIGNS:
        if sign.search(said):
            return meaning
    if "No space left on device" in said:
        return Refusal(
            "the limit of user namespaces is used up, or this is a box that forbids them",
            "raise user.max_user_namespaces, or run outside the box",
        )
    return Refusal(
        f"a test box did not start: {said}", "see the message; sandboxkit doctor shows what this machine has"
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def user_databases() -> tuple[bytes, bytes]:
    """
    The content of /etc/passwd and of /etc/group; empty where they cannot be read.
    """
    return (_bytes("/etc/passwd"), _bytes("/etc/group"))


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes() if not os.path.islink(path) else b""
    except OSError:
        return b""
