"""
What a box of bubblewrap enforces, before the shared attack has looked. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.confine import ARCHITECTURES
from sandboxkit.model import Control, ControlState, Enforcement, Grade

if TYPE_CHECKING:
    from sandboxkit.backends.bubblewrap._facts import BubblewrapFacts
    from sandboxkit.model import SandboxSpec

__all__ = ["enforcement"]


def enforcement(spec: SandboxSpec, facts: BubblewrapFacts) -> Enforcement:
    """
    The claim for *spec* on a machine with *facts*.
    """
    layer = f", Landlock ABI {facts.landlock_abi}" if facts.landlock_abi else ", no Landlock on this kernel"
    return Enforcement(
        {
            Control.FS_READ: _enforced("mount namespace of named paths" + layer),
            Control.FS_WRITE: _enforced("mount namespace of named paths" + layer),
            Control.FS_DENY_INSIDE_ALLOW: _deny(facts),
            Control.FS_OVERLAY: _absent("no overlay layer in this version"),
            Control.NET_NONE: _network(spec, facts),
            Control.NET_ALLOWLIST: _allowlist(spec, facts),
            Control.NET_INTERCEPT: _intercept(facts),
            Control.PROCESS_ISOLATION: _isolation(facts),
            Control.PROCESS_KILL_TREE: _enforced("the box's first process takes its namespace along"),
            Control.PROCESS_NESTED_USERNS: _nested(spec, facts),
            Control.SYSCALLS: _syscalls(facts),
            Control.ENV: _enforced("allowlist, handed over after confinement"),
            Control.LIMITS_WALL: _enforced("deadline, then SIGKILL of the whole box"),
            Control.LIMITS_CPU: _cpu(spec, facts),
            Control.LIMITS_MEMORY: _memory(spec, facts),
            Control.LIMITS_PROCESSES: _processes(spec, facts),
            Control.LIMITS_FILE_SIZE: _enforced("RLIMIT_FSIZE of every process"),
            Control.LIMITS_OUTPUT: _enforced("bounded by the reader, then SIGKILL"),
        }
    )


_UNIX_SOCKETS_ABI = 9
"""From here on Landlock decides about connecting to socket files, too."""


def _enforced(reason: str) -> ControlState:
    return ControlState(Grade.ENFORCED, reason)


def _partial(reason: str) -> ControlState:
    return ControlState(Grade.PARTIAL, reason)


def _absent(reason: str) -> ControlState:
    return ControlState(Grade.ABSENT, reason)


def _keeps_root(facts: BubblewrapFacts) -> bool:
    return facts.survey is not None and facts.survey.identity.keeps_root


def _deny(facts: BubblewrapFacts) -> ControlState:
    reasons = list(facts.survey.gaps) if facts.survey else []
    if facts.survey and (loose := len(facts.survey.watched)):
        reasons.insert(
            0, f"{loose} protected names do not exist yet, so they are looked for after the run and moved away"
        )
    if reasons:
        return _partial("; ".join(reasons))
    return _enforced("mounts over denied and protected paths, ancestors pinned")


def _network(spec: SandboxSpec, facts: BubblewrapFacts) -> ControlState:
    if spec.network.mode == "none":
        own = "network namespace with nothing but its own loopback"
        open_sockets = facts.survey is not None and facts.survey.owners and facts.landlock_abi < _UNIX_SOCKETS_ABI
        return _enforced(own + ("; a socket file in a named directory stays one" if open_sockets else ""))
    listed = spec.network.mode == "listed"
    return _absent("the spec lets listed hosts be reached" if listed else "the spec asks for the host's network")


def _allowlist(spec: SandboxSpec, facts: BubblewrapFacts) -> ControlState:
    if not facts.has_proxy:
        return _absent("the proxy is the extra egress, which is not installed; pip install 'sandboxkit[egress]'")
    if spec.network.mode == "host":
        return _absent("the spec asks for the host's network")
    return _enforced(
        "network namespace without a route; one listener in it is served by this process, which dials what it has checked"
    )


def _intercept(facts: BubblewrapFacts) -> ControlState:
    if not facts.has_proxy:
        return _absent("the proxy is the extra egress, which is not installed; pip install 'sandboxkit[egress]'")
    return _enforced("the proxy stands in for hosts by an authority made for one command, which only its box trusts")


def _isolation(facts: BubblewrapFacts) -> ControlState:
    if _keeps_root(facts):
        return _partial("the command keeps the host's uid 0, as the spec allows")
    return _enforced("user, pid, ipc, uts and cgroup namespaces; no capabilities; an unprivileged uid")


def _nested(spec: SandboxSpec, facts: BubblewrapFacts) -> ControlState:
    if spec.process.allow_nested_userns:
        return _absent("the spec allows user namespaces inside")
    counted = facts.program is not None and "--disable-userns" in facts.program.options
    return _enforced("seccomp" + (", and a limit of zero in the box's namespace" if counted else ""))


def _syscalls(facts: BubblewrapFacts) -> ControlState:
    if facts.machine in ARCHITECTURES:
        return _enforced("seccomp allow-list")
    return _absent(f"no table for the architecture {facts.machine!r}")


def _cpu(spec: SandboxSpec, facts: BubblewrapFacts) -> ControlState:
    tree = facts.cgroups.of(Control.LIMITS_CPU)
    if spec.limits.cpu is not None and tree:
        return _enforced(f"the whole tree is counted by cgroup v{tree.version}, looked at every 0.1 s near the limit")
    return _partial(f"RLIMIT_CPU counts each process by itself{_no_group(spec.limits.cpu, facts)}")


def _memory(spec: SandboxSpec, facts: BubblewrapFacts) -> ControlState:
    tree = facts.cgroups.of(Control.LIMITS_MEMORY)
    alone = (
        "RLIMIT_DATA counts each process by itself, not shared memory, nor what the kernel holds for pipes and sockets"
    )
    if spec.limits.memory_bytes is None or not tree:
        return _partial(alone + _no_group(spec.limits.memory_bytes, facts))
    if not tree.counts_swap:
        return _partial(f"cgroup v{tree.version} bounds the whole tree, but not what is swapped out; {alone}")
    return _enforced(f"the whole tree, shared memory and files in memory too, by cgroup v{tree.version}")


def _no_group(limit: float | None, facts: BubblewrapFacts) -> str:
    if limit is None:
        return "; the spec sets no limit"
    return f"; {facts.cgroups.reason}; all together are looked at meanwhile"


def _processes(spec: SandboxSpec, facts: BubblewrapFacts) -> ControlState:
    tree = facts.cgroups.of(Control.LIMITS_PROCESSES)
    if spec.limits.processes is not None and tree:
        return _enforced(f"the whole tree is counted by cgroup v{tree.version}, and RLIMIT_NPROC in the box")
    if _keeps_root(facts):
        return _absent("RLIMIT_NPROC does not bind the host's uid 0")
    if spec.limits.processes is None:
        return _partial("the spec sets no limit")
    return _enforced("RLIMIT_NPROC, counted in the box's own user namespace")
