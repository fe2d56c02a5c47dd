"""
A control group of the broker's own, asked of systemd.

In a login session the group a user's processes are in belongs to root. The user's own
service manager can make a scope for a process and leave all below it to that process:
the broker goes there, away from the application, which stays where it is. systemd
removes the scope, and what is left in it, once the last process has gone, however that
ended.

Part of the broker: standard library only, imports nothing of the package. `busctl`, which
comes with systemd, speaks D-Bus for us: one call a broker, and no parser of our own.

Does not bind what the user may do elsewhere: a command that could reach the user's bus
could ask for a scope too, so no box shows that.

Source: org.freedesktop.systemd1(5) StartTransientUnit, systemd.scope(5), busctl(1),
systemd's docs/CGROUP_DELEGATION.md, unix(7) SO_PEERCRED.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time

PROGRAMS = ("/usr/bin/busctl", "/bin/busctl", "/run/current-system/sw/bin/busctl")
PATIENCE_SECONDS = 5.0
"""For systemd's answer, and again until it has moved us; usually some hundredths."""
PAUSE_SECONDS = 0.002
MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")


def enter(bus: str, point: str, name: str) -> tuple[str, str]:
    """
    Moves this process into a new scope that is left to it.

    Args:
        bus: The socket of the user's bus.
        point: Where version 2 of control groups is mounted, from its root on.
        name: The scope's, without its ending; no other unit of this user may have it.

    Returns:
        The scope's directory, whose groups may have limits, and that of the group in it in
        which this process is now: only a group without processes has limited ones below.

    Raises:
        OSError: systemd refused, or what it did is not what was asked.
    """
    look(bus)
    ask(bus, f"{name}.scope")
    base = f"{point.rstrip('/')}{wait(f'{name}.scope')}"
    home = f"{base}/launcher"
    os.mkdir(home, 0o755)
    write(f"{home}/cgroup.procs", "0")
    with open(f"{base}/cgroup.controllers") as file:
        had = {"memory", "pids"} & set(file.read().split())
    write(f"{base}/cgroup.subtree_control", " ".join(f"+{controller}" for controller in sorted(had)))
    return base, home


def write(path: str, text: str) -> None:
    """
    Writes *text* to the existing file *path*.
    """
    with open(path, "r+b", buffering=0) as file:
        file.write(text.encode())


def look(bus: str) -> None:
    """
    Checks that it is this user's own manager that listens, and that it counts processes
    as we do: in another pid namespace our number would be another process's.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PATIENCE_SECONDS)
        probe.connect(bus)
        found = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", found)
    if uid != os.geteuid():
        raise PermissionError(1, f"{bus} is uid {uid}'s")
    if pid == 0:
        raise PermissionError(1, f"who listens at {bus} is outside of this pid namespace")


def ask(bus: str, name: str) -> None:
    """
    Has systemd begin to make the scope *name* and to move this process there.
    """
    program = next((path for path in PROGRAMS if os.access(path, os.X_OK)), None)
    if program is None:
        raise FileNotFoundError(2, f"none of {', '.join(PROGRAMS)} exists, by which systemd is asked")
    unit = ("Description", "s", "Boxes of sandboxkit", "Delegate", "b", "true", "PIDs", "au", "1", str(os.getpid()))
    call = (*MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", "3", *unit, "0")
    address = f"--address=unix:path={bus}"
    said = os.memfd_create("sandboxkit-said", os.MFD_CLOEXEC)
    try:
        argv = [program, address, f"--timeout={PATIENCE_SECONDS:.0f}", "call", *call]
        pid = os.posix_spawn(program, argv, {}, file_actions=[(os.POSIX_SPAWN_DUP2, said, 2)])
        if finish(pid):
            why = os.pread(said, 300, 0).decode(errors="replace").strip()
            raise OSError(5, f"systemd made no scope: {why or 'no answer'}")
    finally:
        os.close(said)


def finish(pid: int) -> int:
    """
    The status of our child *pid*, which is killed where it takes too long.
    """
    fd = os.pidfd_open(pid)
    try:
        if not select.select([fd], [], [], PATIENCE_SECONDS)[0]:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    finally:
        os.close(fd)
    return os.waitpid(pid, 0)[1]


def wait(name: str) -> str:
    """
    The path of the scope *name* in the kernel's tree, once this process is in it: the
    answer only says that systemd will see to it.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with open("/proc/self/cgroup") as file:
            path = next((row[3:].rstrip("\n") for row in file if row.startswith("0::")), "")
        if path.rpartition("/")[2] == name:
            return path
        time.sleep(PAUSE_SECONDS)
    raise TimeoutError(110, f"systemd did not move the launcher into {name} within {PATIENCE_SECONDS:.0f} s")
