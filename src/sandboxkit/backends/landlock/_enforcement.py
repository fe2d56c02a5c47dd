"""
What a box of Landlock enforces, before the shared attack has looked. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.backends.landlock._plan import UNIX_SOCKETS_ABI
from sandboxkit.confine import ARCHITECTURES
from sandboxkit.model import Control, ControlState, Enforcement, Grade

if TYPE_CHECKING:
    from sandboxkit.backends.landlock._facts import LandlockFacts
    from sandboxkit.model import SandboxSpec

__all__ = ["enforcement"]

_REFER_ABI, _TRUNCATE_ABI, _TCP_ABI, _IOCTL_ABI, _SCOPE_ABI = 2, 3, 4, 5, 6


def enforcement(spec: SandboxSpec, facts: LandlockFacts) -> Enforcement:
    """
    The claim for *spec* on a machine with *facts*.
    """
    return Enforcement(
        {
            Control.FS_READ: _read(spec, facts),
            Control.FS_WRITE: _write(spec, facts),
            Control.FS_DENY_INSIDE_ALLOW: _deny(spec, facts),
            Control.FS_OVERLAY: _absent("Landlock has no layers; use bubblewrap or a copy of the directory"),
            Control.NET_NONE: _network(spec, facts),
            Control.NET_ALLOWLIST: _absent("Landlock knows ports and no hosts; use a backend with a network namespace"),
            Control.NET_INTERCEPT: _absent(
                "no way leads from its boxes to a proxy; use a backend with a network namespace"
            ),
            Control.PROCESS_ISOLATION: _isolation(facts),
            Control.PROCESS_KILL_TREE: _kill_tree(facts),
            Control.PROCESS_NESTED_USERNS: _enforced("seccomp, whatever the spec allows"),
            Control.SYSCALLS: _syscalls(facts),
            Control.ENV: _enforced("allowlist, handed over after confinement; TMPDIR is the box's own"),
            Control.LIMITS_WALL: _enforced("deadline, then SIGKILL of the whole box"),
            Control.LIMITS_CPU: _partial(
                "RLIMIT_CPU counts each process by itself; all together are looked at meanwhile"
            ),
            Control.LIMITS_MEMORY: _partial(
                "RLIMIT_DATA counts each process by itself, and not shared memory; all together are looked at meanwhile, "
                "without what the kernel holds for pipes and sockets"
            ),
            Control.LIMITS_PROCESSES: _processes(spec, facts),
            Control.LIMITS_FILE_SIZE: _enforced("RLIMIT_FSIZE of every process"),
            Control.LIMITS_OUTPUT: _enforced("bounded by the reader, then SIGKILL"),
        }
    )


def _enforced(reason: str) -> ControlState:
    return ControlState(Grade.ENFORCED, reason)


def _partial(reason: str) -> ControlState:
    return ControlState(Grade.PARTIAL, reason)


def _absent(reason: str) -> ControlState:
    return ControlState(Grade.ABSENT, reason)


def _keeps_root(facts: LandlockFacts) -> bool:
    return facts.survey is not None and facts.survey.identity.keeps_root


def _read(spec: SandboxSpec, facts: LandlockFacts) -> ControlState:
    granted = (
        f"Landlock ABI {facts.abi} grants the named paths; of another can be seen what stat, readlink and getxattr tell"
    )
    if Control.FS_READ in spec.allow_degraded:
        return _partial(
            f"{granted}; so can, as the spec allows, the names of what is used in a directory, by watching it"
        )
    return _enforced(f"{granted}; nothing can be watched by inotify or fanotify, about which Landlock does not decide")


def _write(spec: SandboxSpec, facts: LandlockFacts) -> ControlState:
    if facts.abi < _TRUNCATE_ABI:
        return _partial(
            f"Landlock ABI {facts.abi} does not hold back truncation; use Linux 6.2 or newer (ABI {_TRUNCATE_ABI})"
        )
    if facts.grants.split and Control.FS_DENY_INSIDE_ALLOW not in spec.allow_degraded:
        return _partial(_conflict(facts))
    moves = "" if facts.abi >= _REFER_ABI else "; nothing can be moved between directories"
    if Control.FS_WRITE in spec.allow_degraded:
        return _partial(
            "modes, owners, times and attributes of the user's own files can be changed, as the spec allows"
        )
    return _enforced(f"Landlock ABI {facts.abi}, and no change of modes, owners, times or attributes{moves}")


def _conflict(facts: LandlockFacts) -> str:
    held = facts.grants.held
    more = f" and {len(held) - 1} more" if len(held) > 1 else ""
    return (
        f"{held[0]}{more} must not be written, inside the writable {facts.grants.split[0]}, and Landlock cannot take a "
        "part away from what it grants; name smaller directories in filesystem.write, or list fs.deny_inside_allow in "
        "allow_degraded: protected names are then writable and looked at after the run, and beside a denied path "
        "nothing new can be made"
    )


def _deny(spec: SandboxSpec, facts: LandlockFacts) -> ControlState:
    if facts.grants.split and Control.FS_DENY_INSIDE_ALLOW not in spec.allow_degraded:
        return _absent(_conflict(facts))
    reasons = list(facts.survey.gaps) if facts.survey else []
    if facts.survey and (loose := len(facts.survey.watched)):
        reasons.insert(0, f"{loose} protected names are not held, and looked at after the run")
    if reasons:
        return _partial("; ".join(reasons))
    if facts.abi < _TRUNCATE_ABI:
        return _partial(f"Landlock ABI {facts.abi} does not keep denied files of the user from being emptied")
    if Control.FS_WRITE in spec.allow_degraded:
        return _partial("modes, owners, times and attributes of denied paths can be changed, as the spec allows")
    return _enforced("denied paths lie in no granted directory; those beside them are granted one by one")


def _network(spec: SandboxSpec, facts: LandlockFacts) -> ControlState:
    if spec.network.mode == "host":
        return _absent("the spec asks for the host's network")
    if facts.machine not in ARCHITECTURES:
        return _absent(f"no seccomp table for the architecture {facts.machine!r}")
    tcp = f"; TCP refused by Landlock ABI {facts.abi} too" if facts.abi >= _TCP_ABI else ""
    if facts.abi >= UNIX_SOCKETS_ABI:
        return _enforced(f"seccomp refuses sockets of every family but AF_UNIX, whose reach Landlock bounds{tcp}")
    return _enforced(
        f"seccomp refuses every socket but connected pairs, AF_UNIX too and loopback as well: before ABI "
        f"{UNIX_SOCKETS_ABI} Landlock cannot hold back connections to socket files{tcp}"
    )


def _isolation(facts: LandlockFacts) -> ControlState:
    who = "; the command keeps uid 0, without capabilities" if _keeps_root(facts) else ""
    if facts.abi < _SCOPE_ABI:
        return _absent(
            f"Landlock ABI {facts.abi} lets signals out to processes of the same user; "
            f"use Linux 6.12 or newer (ABI {_SCOPE_ABI}){who}"
        )
    return _partial(
        "no pid namespace: processes outside can be listed, with their command lines, and the names of the user's keys; "
        f"they cannot be signalled or traced{who}"
    )


def _kill_tree(facts: LandlockFacts) -> ControlState:
    if facts.abi < _SCOPE_ABI:
        return _partial("a command can end what would end it, because signals leave the box before ABI 6")
    return _enforced("a supervisor the command cannot reach kills all below it at one stroke")


def _syscalls(facts: LandlockFacts) -> ControlState:
    if facts.machine in ARCHITECTURES:
        return _enforced("seccomp allow-list, without System V and POSIX message queues, semaphores and memory")
    return _absent(f"no table for the architecture {facts.machine!r}")


def _processes(spec: SandboxSpec, facts: LandlockFacts) -> ControlState:
    if _keeps_root(facts):
        return _absent("RLIMIT_NPROC does not bind the host's uid 0")
    if spec.limits.processes is None:
        return _partial("the spec sets no limit")
    return _partial("RLIMIT_NPROC counts all processes of the user, so those that ran before are added")
