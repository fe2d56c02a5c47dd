"""
What a container enforces, before it was made and looked at. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.confine import ARCHITECTURES
from sandboxkit.model import Control, ControlState, Enforcement, Grade

if TYPE_CHECKING:
    from sandboxkit.backends.docker._facts import DockerFacts
    from sandboxkit.model import SandboxSpec

__all__ = ["enforcement"]

_AGENT = "python"
_SANDBOX_KERNEL = "runsc"
_ELSEWHERE = (
    "the engine is reached over a network, and does not bind this machine's files; copy them with "
    "DockerBackend(workspace='copy')"
)
_NO_ULIMITS = "rootless Podman's interface ignores the limits of a process, and the image has no python3 that sets them"


def enforcement(spec: SandboxSpec, facts: DockerFacts) -> Enforcement:
    """
    The claim for *spec* on an engine with *facts*.
    """
    return Enforcement(
        {
            Control.FS_READ: _files(spec, facts, f"mount namespace of {_root(facts)} and the named paths"),
            Control.FS_WRITE: _files(spec, facts, "read-only root, and only the named paths writable"),
            Control.FS_DENY_INSIDE_ALLOW: _deny(spec, facts),
            Control.FS_OVERLAY: _absent("no layer that is shown as changes; a copied workspace comes nearest"),
            Control.NET_NONE: _network(spec),
            Control.NET_ALLOWLIST: _allowlist(spec, facts),
            Control.NET_INTERCEPT: _absent(
                "no authority of the proxy is put into a container in this version; use bubblewrap"
            ),
            Control.PROCESS_ISOLATION: _isolation(facts),
            Control.PROCESS_KILL_TREE: _kill_tree(facts),
            Control.PROCESS_NESTED_USERNS: _nested(spec, facts),
            Control.SYSCALLS: _syscalls(facts),
            Control.ENV: _enforced("allowlist, handed over in the container"),
            Control.LIMITS_WALL: _wall(facts),
            Control.LIMITS_CPU: _cpu(spec, facts),
            Control.LIMITS_MEMORY: _memory(spec, facts),
            Control.LIMITS_PROCESSES: _processes(spec, facts),
            Control.LIMITS_FILE_SIZE: _file_size(facts),
            Control.LIMITS_OUTPUT: _enforced("bounded by the reader, then SIGKILL"),
        }
    )


def _enforced(reason: str) -> ControlState:
    return ControlState(Grade.ENFORCED, reason)


def _partial(reason: str) -> ControlState:
    return ControlState(Grade.PARTIAL, reason)


def _absent(reason: str) -> ControlState:
    return ControlState(Grade.ABSENT, reason)


def _root(facts: DockerFacts) -> str:
    return "the host's system" if facts.is_hosts_system else "the image"


def _files(spec: SandboxSpec, facts: DockerFacts, how: str) -> ControlState:
    if _is_elsewhere(spec, facts):
        return _absent(_ELSEWHERE)
    return _enforced(f"{how}, as copies" if facts.is_copy else how)


def _is_elsewhere(spec: SandboxSpec, facts: DockerFacts) -> bool:
    """
    Whether the paths of *spec* would be those of another machine.
    """
    named = spec.filesystem.read or spec.filesystem.write
    return bool(named) and facts.is_remote and not facts.is_copy


def _deny(spec: SandboxSpec, facts: DockerFacts) -> ControlState:
    if _is_elsewhere(spec, facts):
        return _absent(_ELSEWHERE)
    if facts.is_copy:
        return _enforced("what is denied or protected is not copied")
    reasons = list(facts.survey.gaps) if facts.survey else []
    if facts.survey and (loose := len(facts.survey.watched)):
        reasons.insert(
            0, f"{loose} protected names do not exist yet, so they are looked for after the run and moved away"
        )
    if reasons:
        return _partial("; ".join(reasons))
    return _enforced("mounts over denied and protected paths, ancestors pinned")


def _network(spec: SandboxSpec) -> ControlState:
    if spec.network.mode != "none":
        listed = spec.network.mode == "listed"
        return _absent("the spec lets listed hosts be reached" if listed else "the spec asks for the host's network")
    return _enforced(
        "network namespace with nothing but its own loopback; a socket file in a named directory stays one"
    )


def _allowlist(spec: SandboxSpec, facts: DockerFacts) -> ControlState:
    if facts.no_way_out:
        return _absent(facts.no_way_out)
    if spec.network.mode == "host":
        return _absent("the spec asks for the host's network")
    return _enforced(
        "network namespace without a route; one listener in it for each command is served by this process, which "
        "dials what it has checked"
    )


def _isolation(facts: DockerFacts) -> ControlState:
    if facts.survey is not None and facts.survey.identity.keeps_root and not facts.is_rootless:
        return _partial("the command is the host's uid 0, because its directories are root's; without capabilities")
    return _enforced("pid, ipc, uts and mount namespaces; no capabilities; no_new_privs; an unprivileged uid")


def _kill_tree(facts: DockerFacts) -> ControlState:
    if facts.supervisor == _AGENT:
        return _enforced("the container's first process ends all that is left, and the kernel the container with it")
    return _enforced("each command has a container of its own, which ends with it")


def _nested(spec: SandboxSpec, facts: DockerFacts) -> ControlState:
    if spec.process.allow_nested_userns:
        return _absent("the spec allows user namespaces inside")
    return _syscalls(facts)


def _syscalls(facts: DockerFacts) -> ControlState:
    if facts.runtime == _SANDBOX_KERNEL:
        return _enforced("gVisor's own kernel answers them")
    if not facts.has_seccomp:
        return _absent("the engine applies no seccomp profile")
    if facts.machine not in ARCHITECTURES:
        return _absent(f"no table for the architecture {facts.machine!r}")
    if facts.reads_profile:
        return _enforced("seccomp allow-list, handed to the engine as a profile")
    if facts.supervisor == _AGENT:
        return _enforced("seccomp allow-list, which the container's first process puts on itself and all it starts")
    return _partial("the engine's own profile: it reads another one from a file of its machine alone")


def _wall(facts: DockerFacts) -> ControlState:
    if facts.supervisor == "none":
        return _partial("the image has neither python3 nor /bin/sh, so only the application holds the deadline")
    return _enforced("a deadline inside the container, and one outside, which removes it")


def _cpu(spec: SandboxSpec, facts: DockerFacts) -> ControlState:
    if facts.supervisor != _AGENT and facts.keeps_user:
        return _absent(_NO_ULIMITS)
    if facts.supervisor != _AGENT:
        return _partial("RLIMIT_CPU counts each process by itself; the image has no python3 that would count all")
    if spec.limits.cpu is None:
        return _partial("RLIMIT_CPU counts each process by itself; the spec sets no limit")
    if not facts.cgroup:
        return _partial("RLIMIT_CPU counts each process by itself; the engine has no control groups")
    return _enforced("the whole container is counted by its control group, looked at every 0.05 s")


def _memory(spec: SandboxSpec, facts: DockerFacts) -> ControlState:
    if spec.limits.memory_bytes is None:
        return _partial("the spec sets no limit")
    if "memory" not in facts.bounds:
        if facts.supervisor != _AGENT:
            return _absent("the engine cannot bound memory, and the image has no python3 that could")
        return _partial("RLIMIT_DATA counts each process by itself; the engine cannot bound the whole")
    if "swap" not in facts.bounds:
        return _partial("the container is bounded as a whole, but not what is swapped out")
    return _enforced(f"the whole container, files in memory too, by cgroup v{facts.cgroup}, without swap")


def _processes(spec: SandboxSpec, facts: DockerFacts) -> ControlState:
    if spec.limits.processes is None:
        return _partial("the spec sets no limit")
    if facts.counts_by_user and facts.supervisor == _AGENT:
        return _partial("RLIMIT_NPROC counts the user's processes in the container's user namespace")
    if "processes" not in facts.bounds:
        return _absent("the engine cannot bound the number of processes")
    return _enforced(f"the whole container is counted by cgroup v{facts.cgroup}")


def _file_size(facts: DockerFacts) -> ControlState:
    if facts.supervisor != _AGENT and facts.keeps_user:
        return _absent(_NO_ULIMITS)
    whose = "set by the engine" if facts.supervisor != _AGENT else "of every process"
    return _enforced(f"RLIMIT_FSIZE {whose}")
