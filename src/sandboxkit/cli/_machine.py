"""
What this machine's kernel offers to any sandbox, with a remedy for what it does not.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from sandboxkit.backends._cgroups import cgroups
from sandboxkit.model import is_inside
from sandboxkit.secrets import secret_in

__all__ = ["Feature", "machine", "open_secrets", "own_code_inside"]

_ALL_IDS = ["0", "0", "4294967295"]
_LARGEST = 1 << 20
"""Characters of a configuration file that are read."""
_OLDEST = (5, 12)
"""The first kernel with id-mapped mounts, by which a root caller lends an unprivileged uid."""


_ELSEWHERE = {"win32": "no backend uses a mechanism of Windows: use Docker with an image and copies, or run in WSL 2"}


@dataclass(frozen=True, slots=True)
class Feature:
    """
    One thing a sandbox may need.

    Attributes:
        name: What it is called.
        state: How this machine has it.
        remedy: What would make it better; empty where nothing needs to be done.
    """

    name: str
    state: str
    remedy: str = ""


def machine() -> tuple[Feature, ...]:
    """
    The features of this machine, read from the kernel's own files.
    """
    linux = (_user_namespaces(), _seccomp(), _landlock(), _cgroup(), _tracing()) if sys.platform == "linux" else ()
    return (_kernel(), _user(), *linux, _python())


def own_code_inside(directory: str) -> tuple[str, ...]:
    """
    What this program itself runs from and lies in *directory*: a command that may write
    there could change what runs unconfined the next time.
    """
    ours = {os.path.realpath(path) for path in (sys.prefix, sys.executable, str(Path(__file__).parent.parent))}
    return tuple(sorted(path for path in ours if is_inside(path, os.path.realpath(directory))))


def open_secrets(path: str) -> str | None:
    """
    What is wrong with the configuration file at *path*: it holds a secret, and somebody
    else than its owner may read or write it.

    Raises:
        OSError: It cannot be looked at.
    """
    with open(path, encoding="utf-8", errors="surrogateescape", opener=_without_waiting) as file:
        found, text = os.fstat(file.fileno()), file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise OSError(errno.EFBIG, f"it has more than {_LARGEST} characters")
    kind = secret_in(text)
    if kind is None or sys.platform == "win32":
        return None
    if found.st_mode & 0o077:
        return f"{path} holds a secret ({kind}) and has the mode {found.st_mode & 0o777:04o}: chmod 0600 it"
    if found.st_uid not in (os.geteuid(), 0):
        return f"{path} holds a secret ({kind}) and belongs to another user (uid {found.st_uid}): chown it"
    return None


def _without_waiting(path: str, flags: int) -> int:
    """
    Opens files alone: a pipe would be waited for, and a device has no configuration.
    """
    fd = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no file")


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _kernel() -> Feature:
    release = platform.release()
    numbers = tuple(map(int, re.findall(r"\d+", release)[:2]))
    is_old = sys.platform == "linux" and numbers < _OLDEST
    remedy = "use Linux 5.12 or newer" if is_old else _ELSEWHERE.get(sys.platform, "")
    return Feature("kernel", f"{platform.system()} {release} {platform.machine()}", remedy)


def _user() -> Feature:
    if sys.platform == "win32":
        return Feature("user", "an account of Windows")
    uid = os.geteuid()
    if uid != 0:
        return Feature("user", f"uid {uid}")
    if sys.platform != "linux":
        return Feature("user", "root, which no backend here lends to a command", "run as an ordinary user")
    if (_read("/proc/self/uid_map") or "").split() != _ALL_IDS:
        return Feature("user", "uid 0 of a user namespace: an ordinary user of the host")
    return Feature("user", "root; commands get an unprivileged uid of their own")


def _user_namespaces() -> Feature:
    settings: dict[str, tuple[str, str, str]] = {
        "user.max_user_namespaces": ("0", "switched off", "15000"),
        "kernel.unprivileged_userns_clone": ("0", "switched off for ordinary users", "1"),
        "kernel.apparmor_restrict_unprivileged_userns": ("1", "restricted by AppArmor to programs with a profile", "0"),
    }
    if not os.path.exists("/proc/self/ns/user"):
        return Feature("user namespaces", "not in this kernel", "use a kernel with CONFIG_USER_NS=y")
    for name, (bad, meaning, good) in settings.items():
        if _read(f"/proc/sys/{name.replace('.', '/')}") == bad:
            return Feature("user namespaces", f"{meaning} ({name}={bad})", f"sysctl -w {name}={good}")
    limit = _read("/proc/sys/user/max_user_namespaces")
    return Feature("user namespaces", f"on, at most {limit}" if limit else "on")


def _seccomp() -> Feature:
    actions = (_read("/proc/sys/kernel/seccomp/actions_avail") or "").split()
    if "errno" in actions:
        return Feature("seccomp", f"filters: {' '.join(actions)}")
    if "Seccomp:" in (_read("/proc/self/status") or ""):
        return Feature("seccomp", "on")
    return Feature("seccomp", "not in this kernel", "use a kernel with CONFIG_SECCOMP_FILTER=y")


def _landlock() -> Feature:
    modules = _read("/sys/kernel/security/lsm")
    if modules is None:
        return Feature("landlock", "not listed, because securityfs is not mounted; a backend below may know its ABI")
    if "landlock" in modules.split(","):
        return Feature("landlock", "on; a backend below names its ABI")
    return Feature(
        "landlock", f"off (security modules: {modules})", "use Linux 5.13 or newer, and boot with landlock in lsm="
    )


def _cgroup() -> Feature:
    found = cgroups()
    if not found.reason:
        return Feature("cgroup", f"limits hold for whole trees ({found.describe()})")
    bus = f"/run/user/{os.geteuid()}/bus"
    remedy = (
        f"so that limits hold for whole trees, log in with systemd and its user bus ({bus}; loginctl enable-linger "
        "keeps it), start this in a group delegated to you (systemd-run -p Delegate=yes), or run it as root"
    )
    return Feature(
        "cgroup",
        f"{found.describe()}; the other limits hold for each process, not for their sum"
        if found.hierarchies
        else found.describe(),
        remedy,
    )


def _tracing() -> Feature:
    """
    Whether a run can be explained, which takes ptrace(2).

    Source: Documentation/admin-guide/LSM/Yama.rst.
    """
    value = _read("/proc/sys/kernel/yama/ptrace_scope")
    setting = f"kernel.yama.ptrace_scope={value}"
    if value == "3":
        remedy = "to have runs explained, no longer set it to 3, and restart: until then the kernel keeps it"
        return Feature("tracing", f"forbidden ({setting})", remedy)
    if value == "2" and os.geteuid() != 0:
        return Feature(
            "tracing", f"forbidden to ordinary users ({setting})", f"sysctl -w {setting[:-1]}1, for --explain"
        )
    return Feature("tracing", "on" if value is None else f"on ({setting})")


def _python() -> Feature:
    return Feature("python", f"{platform.python_version()} {sys.executable}")
