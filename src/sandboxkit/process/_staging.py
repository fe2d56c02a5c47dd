"""
How the broker of a root caller starts a program as an unprivileged user that sees the
caller's files as its own.

The broker itself goes into a private mount namespace, with a copy of each source that is
mapped to the user, takes the user's id, starts the program and comes back: exec gives the
program no way back. Forking an interpreter for that would take milliseconds.

Part of the broker: standard library only, imports nothing of the package. An ordinary
user's broker does not load it.

Source: openat2(2), open_tree(2), move_mount(2), mount_setattr(2), user_namespaces(7),
setresuid(2).
"""

from __future__ import annotations

import ctypes
import os
import struct

TYPE_CHECKING = False  # as in typing, whose import is spared
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x4000, 0x40000
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_OPENAT2, SYS_MOUNT_SETATTR = 428, 429, 437, 442  # one number on all architectures
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
RESOLVE_NO_SYMLINKS = 0x04
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 0x4
MOUNT_ATTR_IDMAP = 0x00100000

libc = ctypes.CDLL(None, use_errno=True)


class Stages:
    """
    The ways to an unprivileged user and back, with what is kept for the next one.
    """

    def __init__(self) -> None:
        self.maps = IdMaps()
        self.home: Home | None = None

    def act(self, staging: dict[str, Any], action: Callable[[], int], moves: list[tuple[int, int]]) -> int:
        """
        What *action* gives with the uid and the files that *staging* gives.
        """
        namespaces = self.namespaces(staging)
        lend_streams(moves, staging["uid"], staging["gid"])
        home = self.home = self.home or Home()
        # Where this is refused there is nothing to come back from, and no right to.
        checked("unshare the mount namespace", libc.unshare(CLONE_NEWNS))
        try:
            stage(staging, namespaces)
            return action()
        finally:
            home.come_back()

    def namespaces(self, staging: dict[str, Any]) -> list[int | None]:
        """
        For each source of *staging* the namespace that maps its owner, or None.
        """
        user = (staging["uid"], staging["gid"])
        return [self.maps.namespace(tuple(owner), user) if owner else None for _, owner in staging["sources"]]


class StagingError(OSError):
    """
    A step on the way to an unprivileged uid was refused.
    """

    stage = "staging"
    """What the application is told."""


def checked(step: str, value: int) -> int:
    """
    *value*, unless it says that the kernel refused *step*.
    """
    if value < 0:
        number = ctypes.get_errno()
        raise StagingError(number, f"{step}: {os.strerror(number)}")
    return value


def kernel(step: str, number: int, *arguments: int | bytes) -> int:
    """
    Makes the kernel call *number* for *step*.
    """
    raw = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return checked(step, libc.syscall(ctypes.c_long(number), *raw))


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes | None) -> None:
    """
    mount(2).
    """
    checked("mount", libc.mount(source, target, kind, ctypes.c_ulong(flags), data))


def exchange(owner: int, seen: int) -> str:
    """
    An id map that shows *owner* as *seen* and leaves every other id as it is; on disk
    *seen* has no counterpart, so nothing can be given to it.
    """
    if owner == seen:
        return "0 0 4294967295\n"
    low, high = sorted((owner, seen))
    rows = [
        (0, 0, low),
        (owner, seen, 1),
        (low + 1, low + 1, high - low - 1),
        (high + 1, high + 1, 4294967295 - high - 1),
    ]
    return "".join(f"{first} {shown} {count}\n" for first, shown, count in rows if count)


class IdMaps:
    """
    User namespaces that only hold an id map, one for each map, kept for reuse.
    """

    def __init__(self) -> None:
        self.namespaces: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}

    def namespace(self, owner: tuple[int, ...], user: tuple[int, ...]) -> int:
        """
        A descriptor of a user namespace that shows *owner*'s files as *user*'s.
        """
        if (owner, user) not in self.namespaces:
            maps = [exchange(*pair) for pair in zip(owner, user, strict=True)]
            self.namespaces[owner, user] = self.create(*maps)
        return self.namespaces[owner, user]

    def create(self, uid_map: str, gid_map: str) -> int:
        """
        Makes the namespace in a short-lived child and keeps it by descriptor.
        """
        ready, done = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            refused = libc.unshare(CLONE_NEWUSER)
            os.write(ready[1], b"%d" % (ctypes.get_errno() if refused else 0))
            os.close(done[1])
            os.read(done[0], 1)
            os._exit(0)
        try:
            number = int(os.read(ready[0], 16))
            if number:
                raise StagingError(number, f"create a user namespace for the id map: {os.strerror(number)}")
            for name, text in (("uid_map", uid_map), ("gid_map", gid_map)):
                with open(f"/proc/{pid}/{name}", "w") as file:
                    file.write(text)
            return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            for fd in (*ready, *done):
                os.close(fd)
            os.waitpid(pid, 0)


def stage(order: dict[str, Any], namespaces: list[int | None]) -> None:
    """
    Takes an unprivileged uid, in a new mount namespace that gets every source.

    Root stays the saved uid, for the way back; a program that is executed meanwhile
    does not get it, because exec overwrites the saved uid with the effective one.
    """
    mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
    trees: list[int] = []
    try:
        for (path, _), namespace in zip(order["sources"], namespaces, strict=True):
            clone_tree(path, namespace, trees)
        directory = os.fsencode(order["directory"])
        mount(b"tmpfs", directory, b"tmpfs", MS_NOSUID | MS_NODEV, b"size=1m,mode=0755")
        for number, tree in enumerate(trees):
            attach(tree, b"%s/%d" % (directory, number))
        for number, (size, inodes, mode) in enumerate(order["memory"], len(trees)):
            place = b"%s/%d" % (directory, number)
            os.mkdir(place)
            options = b"size=%d,nr_inodes=%d,mode=%o,uid=%d,gid=%d"
            data = options % (size, inodes, mode, order["uid"], order["gid"])
            mount(b"tmpfs", place, b"tmpfs", MS_NOSUID | MS_NODEV, data)
    finally:
        for tree in trees:
            os.close(tree)
    os.setresgid(order["gid"], order["gid"], 0)
    os.setresuid(order["uid"], order["uid"], 0)


def attach(tree: int, place: bytes) -> None:
    """
    Mounts the detached *tree* at *place*, which is made for it.
    """
    if os.fstat(tree).st_mode & 0o170000 == 0o040000:
        os.mkdir(place)
    else:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    kernel("attach", SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH)


class Home:
    """
    Where the broker of a root caller belongs, to come back from staging.
    """

    def __init__(self) -> None:
        self.namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self.root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        os.setgroups([])  # no started program is to have root's other groups

    def come_back(self) -> None:
        """
        Takes the uid, the mount namespace and the root directory again; without them
        the broker would be of no use, so it ends.
        """
        try:
            os.setresuid(0, 0, 0)
            os.setresgid(0, 0, 0)
            checked("come back", libc.setns(self.namespace, CLONE_NEWNS))
            os.fchdir(self.root)
            os.chroot(".")  # setns() also leaves a chroot the application lives in
            os.chdir("/")
        except OSError:
            os._exit(70)


def lend_streams(moves: list[tuple[int, int]], uid: int, gid: int) -> None:
    """
    Gives the pipes of the standard streams to the user the command will be: opening
    /dev/stderr opens the pipe anew, and only its owner may.
    """
    for source, target in moves:
        if target <= 2 and os.fstat(source).st_mode & 0o170000 == 0o010000:
            os.fchown(source, uid, gid)


def clone_tree(path: str, namespace: int | None, trees: list[int]) -> None:
    """
    Adds to *trees* a detached copy of the mount at *path*, id-mapped by *namespace*
    unless None.

    The path was real when the plan was made; a link put there since is refused, since
    root would follow it anywhere.
    """
    how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS)
    place = kernel(f"open {path}", SYS_OPENAT2, AT_FDCWD, os.fsencode(path), how, len(how))
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE
    try:
        tree = kernel(f"open {path}", SYS_OPEN_TREE, place, b"", flags)
    finally:
        os.close(place)
    trees.append(tree)
    if namespace is not None:
        attributes = struct.pack("QQQQ", MOUNT_ATTR_IDMAP, 0, 0, namespace)
        kernel(f"id-map {path}", SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, len(attributes))
