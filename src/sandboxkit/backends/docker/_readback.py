"""
What the container says of itself, against what was asked: requested is not enforced. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandboxkit.model import Control, Enforcement, Grade

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sandboxkit.backends.docker._facts import DockerFacts
    from sandboxkit.model import SandboxSpec

__all__ = ["held", "misplaced", "too_many_cpus"]

_FILTERED = "2"
_AGENTS = 1
_ROUNDING = 1.001


def held(claim: Enforcement, spec: SandboxSpec, facts: DockerFacts, report: Mapping[str, Any]) -> Enforcement:
    """
    *claim*, lowered where the container's kernel says otherwise.

    Args:
        claim: What was claimed beforehand.
        spec: The spec.
        facts: From `detect(spec)`.
        report: What the agent read in the container, by `_agent.in_force`.
    """
    for control, grade, reason in _short(spec, facts, report):
        claim = claim.lowered(control, grade, f"read back in the container: {reason}")
    return claim


def misplaced(facts: DockerFacts, paths: tuple[str, ...], report: Mapping[str, Any]) -> tuple[str, ...]:
    """
    The bound paths that are something else in the container than on this host: the engine
    is on another machine, or somebody put a link there meanwhile.
    """
    known = {} if _is_own_kernel(facts, report) else facts.places or {}
    return tuple(
        path
        for path, seen in zip(paths, report["places"], strict=True)
        if path in known and (seen is None or tuple(seen) != known[path])
    )


def too_many_cpus(facts: DockerFacts, report: Mapping[str, Any]) -> str:
    """
    What is wrong with the number of processors; empty where nothing is.
    """
    wanted, found = facts.settings.cpus, report["cpus"]
    if wanted is None or (found is not None and found <= wanted * _ROUNDING):
        return ""
    return f"cpus={wanted:g} was asked for, and the container may use {'all' if found is None else f'{found:g}'}"


def _is_own_kernel(facts: DockerFacts, report: Mapping[str, Any]) -> bool:
    """
    Whether gVisor runs the container: by the runtime's name, and by a kernel that is not the engine's.
    """
    return facts.runtime == "runsc" and report["kernel"] != facts.kernel


def _short(spec: SandboxSpec, facts: DockerFacts, report: Mapping[str, Any]) -> Iterator[tuple[Control, Grade, str]]:
    is_own_kernel = _is_own_kernel(facts, report)
    if is_own_kernel:
        for control in (Control.FS_READ, Control.FS_WRITE):
            yield control, Grade.PARTIAL, "gVisor numbers files itself: which ones were bound cannot be compared"
    if report["pid"] != 1:
        yield Control.PROCESS_KILL_TREE, Grade.ABSENT, "its supervisor is not the first process"
        yield Control.PROCESS_ISOLATION, Grade.ABSENT, "it has no namespace of processes"
    if int(report["CapEff"] or "1", 16) or int(report["CapBnd"] or "1", 16):
        yield Control.PROCESS_ISOLATION, Grade.PARTIAL, f"capabilities are left ({report['CapBnd']})"
    if report["NoNewPrivs"] != "1" and not is_own_kernel:
        yield Control.PROCESS_ISOLATION, Grade.PARTIAL, "no_new_privs is off"
    if report["Seccomp"] != _FILTERED and not is_own_kernel:
        yield Control.SYSCALLS, Grade.ABSENT, "no seccomp filter is in force"
        yield Control.PROCESS_NESTED_USERNS, Grade.ABSENT, "no seccomp filter is in force"
    if spec.network.mode != "host" and (others := [name for name in report["interfaces"] if name != "lo"]):
        for control in (Control.NET_NONE, Control.NET_ALLOWLIST):
            yield control, Grade.ABSENT, f"it has the interfaces {', '.join(others)}"
    if report["rootfs"]:
        yield Control.FS_WRITE, Grade.PARTIAL, "its root can be written"
    yield from _limits(spec, facts, report)


def _limits(spec: SandboxSpec, facts: DockerFacts, report: Mapping[str, Any]) -> Iterator[tuple[Control, Grade, str]]:
    memory = spec.limits.memory_bytes
    if memory is not None and not _bounds(report["memory"], memory):
        yield Control.LIMITS_MEMORY, Grade.PARTIAL, f"the limit of memory is {report['memory'] or 'not to be seen'}"
    elif memory is not None and (report["swap"] or 0) > (0 if report["is_v2"] else memory):
        yield Control.LIMITS_MEMORY, Grade.PARTIAL, "what is swapped out is not bounded"
    count = spec.limits.processes
    if count is not None and not facts.counts_by_user and not _bounds(report["processes"], count + _AGENTS):
        yield Control.LIMITS_PROCESSES, Grade.ABSENT, f"the limit of processes is {report['processes'] or 'not there'}"
    if spec.limits.cpu is not None and not report["counts_cpu"]:
        yield Control.LIMITS_CPU, Grade.PARTIAL, "its processor time cannot be read; RLIMIT_CPU counts each process"


def _bounds(found: int | None, wanted: int) -> bool:
    """
    Whether the limit that was found is at most the wanted one, by whole pages.
    """
    return found is not None and 0 < found <= wanted
