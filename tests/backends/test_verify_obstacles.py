"""
A failed start names what stands in the way, and what removes it.
"""

from __future__ import annotations

import pytest

from sandboxkit.backends._obstacles import obstacle

WSL1 = "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com) (gcc version 5.4.0)"
WSL2 = "Linux version 5.15.90.1-microsoft-standard-WSL2 (oe-user@oe-host)"
UBUNTU = {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}

CASES = [
    ("anything", {"/proc/version": WSL1}, "WSL 1", "wsl --set-version NAME 2"),
    ("bwrap: setting up uid map: Permission denied", UBUNTU, "AppArmor", "install the distribution's bubblewrap"),
    (
        "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
        UBUNTU,
        "AppArmor",
        "kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (
        "bwrap: No permissions to create new namespace",
        {"/proc/sys/kernel/unprivileged_userns_clone": "0"},
        "kernel.unprivileged_userns_clone=0",
        "sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        "bwrap: Creating new namespace failed: No space left on device",
        {"/proc/sys/user/max_user_namespaces": "0"},
        "user.max_user_namespaces=0",
        "sysctl -w user.max_user_namespaces=15000",
    ),
    (
        "bwrap: No permissions to create a new namespace",
        {"/proc/self/status": "Name:\tpython\nSeccomp:\t2\nSeccomp_filters:\t1"},
        "seccomp filter, as in a container",
        "--security-opt seccomp=unconfined",
    ),
    ("[Errno 2] No such file or directory: 'bwrap'", {}, "bwrap is not installed", "apt install bubblewrap"),
    ("the backend raised OSError: [Errno 24] Too many open files", {}, "open no more files", "ulimit -n"),
    ("the backend raised OSError: [Errno 27] File too large", {}, "no longer files", "ulimit -f"),
    ("the backend raised RuntimeError: can't start new thread", {}, "no more threads", "ulimit -u"),
    ("[Errno 2] No usable temporary directory found in ['/tmp']", {}, "temporary files", "TMPDIR"),
]


@pytest.mark.parametrize(("said", "files", "reason", "remedy"), CASES)
def test_a_known_obstacle_is_named_with_its_remedy(said: str, files: dict[str, str], reason: str, remedy: str) -> None:
    found = obstacle(said, lambda path: files.get(path, ""))
    assert found
    assert reason in found.reason
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("said", "files"),
    [
        ("out of memory", UBUNTU),
        ("out of memory", {"/proc/version": WSL2}),
        ("Operation not permitted", {"/proc/self/status": "Seccomp:\t0"}),
        ("the backend raised ZeroDivisionError: oops", {"/proc/self/status": "Seccomp:\t2"}),
        ("python: No such file or directory", {}),
    ],
)
def test_what_is_not_known_is_not_guessed(said: str, files: dict[str, str]) -> None:
    assert obstacle(said, lambda path: files.get(path, "")) is None


def test_the_machines_own_files_are_read() -> None:
    obstacle("Operation not permitted")
