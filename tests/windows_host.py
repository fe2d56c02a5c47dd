"""
Makes a fresh interpreter look like one on Windows to whatever it imports afterwards:
the modules, the names of `os` and the platform's name that Windows does not have are gone.

`become_windows` is called first in a process of its own. Packages of others are loaded before, as
they have releases for Windows and are not what is looked at.

Source: the "Availability" notes of docs.python.org/3.11/library/os.html, and the list of
modules that are Unix-specific services there.
"""

from __future__ import annotations

import importlib.abc
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

POSIX_MODULES = frozenset(
    """
    crypt curses fcntl grp nis ossaudiodev posix pty pwd readline resource spwd syslog termios tty
    landlock pyseccomp
    """.split()
)
"""Those of the standard library, and the packages this project takes on Linux only."""

POSIX_NAMES = frozenset(
    """
    O_ASYNC O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_TMPFILE ST_RDONLY WNOHANG
    POSIX_SPAWN_OPEN POSIX_SPAWN_DUP2 POSIX_SPAWN_CLOSE chown eventfd fchmod fchown fork forkpty getegid geteuid
    getgid getgroups getpgid getpgrp getsid getuid initgroups kqueue lchown memfd_create mkfifo mknod openpty pidfd_open
    pipe2 posix_spawn posix_spawnp register_at_fork sched_getaffinity setegid seteuid setgid setgroups setpgid setresuid
    setreuid setsid setuid splice statvfs tcgetpgrp tcsetpgrp ttyname uname wait3 wait4 waitid
    WEXITSTATUS WIFEXITED WIFSIGNALED WIFSTOPPED WTERMSIG
    F_LOCK O_ACCMODE O_DSYNC O_SYNC P_ALL P_PIDFD RTLD_NOW SCHED_OTHER WCONTINUED WCOREDUMP WUNTRACED
    chroot confstr copy_file_range ctermid fchdir fdatasync fpathconf fstatvfs getloadavg getpriority getresgid
    getresuid getxattr killpg lchflags listxattr lockf major makedev minor nice pathconf posix_fadvise
    posix_fallocate pread preadv pwrite pwritev readv removexattr sched_setaffinity sched_yield sendfile setgroups
    setpriority setregid setresgid setxattr sync sysconf tcsetpgrp wait writev
    """.split()
)
SOCKET_NAMES = ("AF_NETLINK", "AF_PACKET", "AF_VSOCK", "SCM_RIGHTS", "recv_fds", "send_fds")
SIGNALS = ("SIGKILL", "SIGCHLD", "SIGHUP", "SIGXCPU", "SIGUSR1", "pthread_sigmask")


class _Absent(importlib.abc.MetaPathFinder):
    """
    Finds nothing of *modules*.
    """

    def __init__(self, modules: frozenset[str]) -> None:
        self._modules = modules

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in self._modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def load_others() -> None:
    """
    Imports what is others' business: packages, and what of the standard library they ask for.
    """
    import asyncio.subprocess
    import shutil
    import sysconfig
    import tempfile
    import zoneinfo

    import anyio
    import anyio._backends._asyncio
    import anyio.abc
    import anyio.from_thread
    import pluggy
    import pydantic.fields
    import tree_sitter
    import tree_sitter_bash

    sysconfig.get_config_vars()
    anyio.run(anyio.sleep, 0)
    _ = (asyncio.subprocess, pluggy, pydantic.fields, tree_sitter, tree_sitter_bash, shutil, tempfile, zoneinfo)


def without_modules(*names: str) -> None:
    """
    Lets none of *names* be imported any more.
    """
    sys.meta_path.insert(0, _Absent(frozenset(names)))
    for name in names:
        sys.modules.pop(name, None)


def become_windows() -> None:
    """
    Takes away what Windows does not have.
    """
    load_others()
    without_modules(*POSIX_MODULES)
    for name in POSIX_NAMES:
        if hasattr(os, name):
            delattr(os, name)
    for name in SOCKET_NAMES:
        if hasattr(socket, name):
            delattr(socket, name)
    for name in SIGNALS:
        if hasattr(signal, name):
            delattr(signal, name)
    # anyio sets it there on every listener; what stands in for it does no harm.
    socket.SO_EXCLUSIVEADDRUSE = socket.SO_KEEPALIVE  # type: ignore[attr-defined]  # Windows has it
    sys.platform = "win32"
