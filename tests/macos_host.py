"""
Makes a fresh interpreter look like one on macOS to whatever it imports afterwards: the
names Linux has and macOS has not are gone. What is left is POSIX, which both have.

`become_macos` is called first in a process of its own.

Source: the "Availability" notes of docs.python.org/3.11/library/os.html, fcntl.html
and signal.html. Of select the event loop here is made, so epoll stays.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys

from tests.windows_host import load_others, without_modules

__all__ = ["become_macos"]

LINUX_NAMES = {
    os: """
        MFD_ALLOW_SEALING MFD_CLOEXEC O_PATH eventfd eventfd_read eventfd_write getrandom getxattr
        listxattr memfd_create pidfd_open pipe2 posix_fadvise sched_getaffinity sched_setaffinity setresuid setxattr
        splice unshare setns
    """,
    fcntl: "F_ADD_SEALS F_GET_SEALS F_SEAL_SEAL F_SEAL_SHRINK F_SEAL_GROW F_SEAL_WRITE F_SETLEASE F_NOTIFY",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo SIGRTMIN",
}


def become_macos() -> None:
    """
    Takes away what macOS does not have.
    """
    load_others()
    without_modules("landlock", "pyseccomp")
    for module, names in LINUX_NAMES.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "darwin"
