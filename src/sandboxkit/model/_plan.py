"""
`LaunchPlan`: everything `process/` needs to start one command, and nothing it may decide.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "FIRST_FREE_FD",
    "Confinement",
    "ControlGroup",
    "ControlGroups",
    "Invocation",
    "LandlockRules",
    "LaunchPlan",
    "Mount",
    "PlanFile",
    "Staging",
    "Trace",
]

FIRST_FREE_FD = 10
"""
Descriptors below this number have a fixed use in a launched program. The command's own
are handed to the in-box child above it, and get the numbers they were asked for last.
"""


@dataclass(frozen=True, slots=True)
class LoopbackProxy:
    """
    The proxy of one command, on the loopback of the machine, which other programs reach too.

    Attributes:
        port: Its port.
        token: What a client must show.
        authority: Where the box finds the certificate by which to know it, where it looks
            into TLS; otherwise empty.
    """

    port: int
    token: str = field(repr=False)
    authority: str = ""


@dataclass(frozen=True, slots=True)
class Invocation:
    """
    A command as it is to be executed: after every decision, before any planning.

    Attributes:
        argv: The program and its arguments; never passed through a shell again.
        environment: Its whole environment, already filtered by the spec.
        cwd: Its working directory on the host, absolute; None lets the spec choose.
        pass_fds: Numbers of the descriptors it gets besides 0, 1 and 2.
        instead: (path the spec lets it write, what is shown there in its place).
        authority: The certificate, in PEM, of the proxy that looks into its TLS; it is made
            when that starts, and empty in a plan that is only shown.
        proxy: Its proxy, where that listens on the machine's loopback; None where it does
            not, and in a plan that is only shown.
    """

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None
    pass_fds: tuple[int, ...] = ()
    instead: tuple[tuple[str, str], ...] = ()
    authority: bytes = b""
    proxy: LoopbackProxy | None = None


@dataclass(frozen=True, slots=True)
class PlanFile:
    """
    Bytes the started program finds at a fixed file descriptor (a sealed memfd).

    Attributes:
        fd: The descriptor's number in the started program.
        content: The bytes.
        note: What it is, for people.
    """

    fd: int
    content: bytes
    note: str


@dataclass(frozen=True, slots=True)
class Mount:
    """
    One step of building the box's file tree, in order.

    Attributes:
        kind: What is done at *target*: `data` is a read-only file with other content
            than the host's, `file` a copy the box may change.
        target: The path in the box.
        source: The host path for binds; the link's text for a symlink.
        size: Bytes, for a tmpfs.
        inodes: Files and directories it may hold at most, for a tmpfs; None leaves it to
            the kernel, which allows one for every two pages of the machine's memory.
        perms: Mode, for a tmpfs or data file.
        owner: The (uid, gid) on disk that is shown as the box's user; None leaves
            the ownership as it is.
        fd: The descriptor that holds a data file's content, or that a bind's source
            is opened on.
    """

    kind: Literal["bind", "ro-bind", "dev-bind", "tmpfs", "proc", "dev", "symlink", "remount-ro", "data", "file"]
    target: str
    source: str = ""
    size: int | None = None
    inodes: int | None = None
    perms: int | None = None
    owner: tuple[int, int] | None = None
    fd: int | None = None


@dataclass(frozen=True, slots=True)
class LandlockRules:
    """
    A Landlock domain, as numbers of the kernel's interface.

    Attributes:
        handled_fs: File rights that are refused unless a rule grants them.
        handled_net: TCP rights, likewise.
        scoped: Scopes (abstract sockets, signals).
        paths: (path in the box, granted rights); a path that is missing is skipped.

    Source: landlock(7), Documentation/userspace-api/landlock.rst.
    """

    handled_fs: int
    handled_net: int
    scoped: int
    paths: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Confinement:
    """
    What the in-box child is handed: the command, and the rights it runs with.

    Attributes:
        argv: The command's words.
        environment: Its whole environment.
        cwd: Its working directory, a path in the box.
        rlimits: (resource number, limit), soft and hard alike.
        landlock: The domain, or None where the kernel has no Landlock.
        landlock_abi: The ABI the numbers belong to.
        pass_fds: (descriptor the child gets, its number in the command), for all the
            command keeps besides 0, 1 and 2.
        filters: seccomp programs the child itself puts on the command, in order.
        user: The (uid, gid) a root caller's child becomes first, or None.
        proxy_port: The loopback port in the box at which the child makes the listener it
            hands out, or None for a box without a way out.
    """

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    cwd: str
    rlimits: tuple[tuple[int, int], ...] = ()
    landlock: LandlockRules | None = None
    landlock_abi: int = 0
    pass_fds: tuple[tuple[int, int], ...] = ()
    filters: tuple[bytes, ...] = ()
    user: tuple[int, int] | None = None
    proxy_port: int | None = None


@dataclass(frozen=True, slots=True)
class Staging:
    """
    How a root caller gives up its uid before the sandbox program starts.

    In a private mount namespace every source is cloned to `directory`/N, the
    writable ones id-mapped, and then the uid is dropped: the dropped uid could not
    walk through root's home to reach them.

    Attributes:
        uid: The user the sandbox program runs as.
        gid: Its group; there are no supplementary ones.
        sources: (host path, owner) in order; number N of them is `directory`/N. An
            owner is the (uid, gid) that is shown as the box's user, and the user's new
            files get; None leaves the ownership as it is.
        directory: Where they are staged, in the private namespace only.
        memory: (bytes, inodes, mode) of each file system in memory that is staged after
            the sources; its number counts on from theirs.

    Source: mount_setattr(2), open_tree(2), user_namespaces(7), tmpfs(5).
    """

    uid: int
    gid: int
    sources: tuple[tuple[str, tuple[int, int] | None], ...]
    directory: str
    memory: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """
    A control group that one run gets in one hierarchy, and that is removed after it.

    Attributes:
        base: The directory it is made in, on the host; with a `scope`, where the hierarchy
            is mounted, and the launcher finds the directory itself.
        home: The directory of the group the launcher returns to; empty with a `scope`.
        controls: Names of the controls that hold only with it.
        limits: (file in the group, value, whether a kernel may lack the file), in the
            order they are written; each is read back.
        settled: (file, value): what takes the place of a limit once the launcher has left
            the group.
        figures: (name, file, key, divisor): what is read after the run. The key names
            a row of the file; where it is empty, the file is one number.
        shortage: The file of version 1 whose event, want of memory, ends the run; empty
            where the kernel ends the whole group by itself.
        scope: The socket of the user's bus, by which systemd is asked for a group of the
            launcher's own, in which this one is made; empty where `base` is there already.

    Source: cgroups(7), Documentation/admin-guide/cgroup-v1/memory.rst, section 10.
    """

    base: str
    home: str
    controls: tuple[str, ...]
    limits: tuple[tuple[str, int, bool], ...] = ()
    settled: tuple[tuple[str, int], ...] = ()
    figures: tuple[tuple[str, str, str, int], ...] = ()
    shortage: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """
    The control groups of one run: everything the box starts is in them.

    Attributes:
        groups: One for each hierarchy.
        required: Names of the controls without whose group nothing is started.
        cpu_us: Microseconds of processor time, summed over the tree, after which the
            run is ended; None is no limit.
    """

    groups: tuple[ControlGroup, ...]
    required: tuple[str, ...] = ()
    cpu_us: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """
    What it takes to follow a command and see what it is refused.

    Attributes:
        programs: How many processes execute a program, the launcher the first, before one
            of them executes the command.
        filters: The seccomp programs the command runs under: they tell which refusals
            were theirs.
    """

    programs: int
    filters: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """
    One command, ready to start.

    Attributes:
        backend: The backend that planned it, or `direct`.
        argv: What is executed on the host: the sandbox program, or the command itself.
        environment: The environment of *argv*; empty for a sandbox program.
        cwd: The working directory of *argv*, on the host.
        files: Contents handed over at fixed descriptors.
        status_fd: Where the sandbox program and the in-box child report; None for
            a command run without them.
        confinement: The command inside, or None for a command run directly.
        mounts: How the box's file tree is built, in order.
        rlimits: Limits set on *argv* itself before it starts, for direct runs.
        staging: The uid drop of a root caller, or None.
        open_files: (descriptor here, its number in *argv*) the plan itself brings.
        places: (host path, the number of a descriptor of it in *argv*), opened when the
            plan is run and only if no symbolic link has come into the path since.
        end_signal: The signal that makes what is started end its whole tree and itself;
            None where ending it is enough.
        groups: The control groups that bound the whole tree, or None.
        watched: (control, `cpu_us` or `memory_bytes`, limit) of what all processes together
            keep to. The broker adds up what it sees of them, where no control group counts.
        trace: How to follow the command where that is asked for; None where its backend
            does not say.
        mark: A name that tells its processes from others where no namespace does; such a
            plan has a keeper of its own instead of the broker. Empty for none.
        listener_fd: The descriptor in *argv* by which the in-box child hands out the
            listener of its only way out; None for a box without one.
        notes: What a reader should know.
    """

    backend: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    cwd: str = "/"
    files: tuple[PlanFile, ...] = ()
    status_fd: int | None = None
    confinement: Confinement | None = None
    mounts: tuple[Mount, ...] = ()
    rlimits: tuple[tuple[int, int], ...] = ()
    staging: Staging | None = None
    open_files: tuple[tuple[int, int], ...] = ()
    places: tuple[tuple[str, int], ...] = ()
    end_signal: int | None = None
    groups: ControlGroups | None = None
    watched: tuple[tuple[str, str, int], ...] = ()
    trace: Trace | None = None
    mark: str = ""
    listener_fd: int | None = None
    notes: tuple[str, ...] = field(default=())

    def describe(self) -> str:
        """
        The plan as text for people, one step a line.
        """
        inner = self.confinement
        lines = [f"backend   {self.backend}", f"executes  {shlex.join(self.argv)}"]
        if inner:
            lines += [f"command   {shlex.join(inner.argv)}", f"in        {inner.cwd}"]
            lines += [f"sets      {name}" for name, _ in inner.environment]
        if self.staging:
            lines.append(f"as        uid {self.staging.uid}, gid {self.staging.gid}")
        if inner and inner.user:
            lines.append(f"as        uid {inner.user[0]}, gid {inner.user[1]}")
        if inner and inner.proxy_port is not None:
            lines.append(f"proxy     127.0.0.1:{inner.proxy_port} in the box, served by the application")
        lines += [_line(mount) for mount in self.mounts]
        if inner and inner.landlock:
            lines.append(f"landlock  abi {inner.landlock_abi}, {len(inner.landlock.paths)} paths")
        lines += [f"cgroup    {_group_line(group)}" for group in (self.groups.groups if self.groups else ())]
        lines += [f"file      fd {file.fd}: {file.note}, {len(file.content)} bytes" for file in self.files]
        return "\n".join([*lines, *(f"note      {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form. Values of the command's environment are left out.
        """
        inner = self.confinement
        return {
            "backend": self.backend,
            "argv": list(self.argv),
            "command": list(inner.argv) if inner else list(self.argv),
            "cwd": inner.cwd if inner else self.cwd,
            "environment": [name for name, _ in (inner.environment if inner else self.environment)],
            "uid": self.staging.uid if self.staging else inner.user[0] if inner and inner.user else None,
            "mounts": [_line(mount).split(maxsplit=1)[1] for mount in self.mounts],
            "landlock_abi": inner.landlock_abi if inner and inner.landlock else None,
            "proxy_port": inner.proxy_port if inner else None,
            "rlimits": [list(row) for row in (inner.rlimits if inner else self.rlimits)],
            "cgroups": [_group_line(group) for group in (self.groups.groups if self.groups else ())],
            "notes": list(self.notes),
        }


def _group_line(group: ControlGroup) -> str:
    bounds = " ".join(f"{file}={value}" for file, value, _ in group.limits)
    return f"one in {group.base}: {bounds or 'only counts'}"


def _line(mount: Mount) -> str:
    source = f" from {mount.source}" if mount.source and mount.source != mount.target else ""
    size = f" size {mount.size}" if mount.size is not None else ""
    inodes = f" inodes {mount.inodes}" if mount.inodes is not None else ""
    perms = f" mode {mount.perms:04o}" if mount.perms is not None else ""
    mapped = f" owned by uid {mount.owner[0]}" if mount.owner else ""
    return f"mount     {mount.kind} {mount.target}{source}{size}{inodes}{perms}{mapped}"
