"""
What a box of Seatbelt is declared to enforce. Pure.

Nobody has run it on the machines this library is tested on, which are Linux. What is
stated is what the profile says; on a Mac it is lowered by the shared attack and by the
backend's own before anything runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.model import Control, ControlState, Enforcement, Grade

if TYPE_CHECKING:
    from sandboxkit.backends.seatbelt._facts import SeatbeltFacts
    from sandboxkit.model import SandboxSpec

__all__ = ["enforcement"]

_NO_PROXY = "the proxy is the extra egress, which is not installed; pip install 'sandboxkit[egress]'"


def enforcement(spec: SandboxSpec, facts: SeatbeltFacts) -> Enforcement:
    """
    The claim for *spec* on a machine with *facts*.
    """
    claim = Enforcement(
        {
            Control.FS_READ: _enforced("the profile names what can be read, executed and mapped"),
            Control.FS_WRITE: _enforced("the profile names what can be written; no hard link can be made"),
            Control.FS_DENY_INSIDE_ALLOW: _deny(facts),
            Control.FS_OVERLAY: _absent("Seatbelt has no layers; use a copy of the directory"),
            Control.NET_NONE: _network(spec),
            Control.NET_ALLOWLIST: _allowlist(spec, facts),
            Control.NET_INTERCEPT: _intercept(facts),
            Control.PROCESS_ISOLATION: _partial(
                "processes outside cannot be signalled or inspected; that they exist can be found out"
            ),
            Control.PROCESS_KILL_TREE: _partial(
                "macOS has no call that ends a tree: processes are looked for by their sandbox, stopped and killed until "
                "none is found; and nobody does that when the process that keeps the command is killed"
            ),
            Control.PROCESS_NESTED_USERNS: _enforced("macOS has no user namespaces"),
            Control.SYSCALLS: _partial("Seatbelt decides by operation and object, not by system call"),
            Control.ENV: _enforced("allowlist, handed over inside the sandbox; TMPDIR is the box's own"),
            Control.LIMITS_WALL: _enforced("deadline of a supervisor outside, then SIGKILL"),
            Control.LIMITS_CPU: _partial("RLIMIT_CPU counts each process by itself"),
            Control.LIMITS_MEMORY: _absent("macOS enforces no limit of memory on a process"),
            Control.LIMITS_PROCESSES: _processes(spec, facts),
            Control.LIMITS_FILE_SIZE: _enforced("RLIMIT_FSIZE of every process"),
            Control.LIMITS_OUTPUT: _enforced("bounded by the reader, then SIGKILL"),
        }
    )
    for finding in facts.tried:
        claim = claim.lowered(finding.control, finding.grade, finding.reason)
    return claim


def _enforced(reason: str) -> ControlState:
    return ControlState(Grade.ENFORCED, reason)


def _partial(reason: str) -> ControlState:
    return ControlState(Grade.PARTIAL, reason)


def _absent(reason: str) -> ControlState:
    return ControlState(Grade.ABSENT, reason)


def _deny(facts: SeatbeltFacts) -> ControlState:
    """
    Volumes of macOS take different spellings for one name, and a rule is about a path.
    """
    survey = facts.survey
    if survey is not None and survey.gaps:
        return _partial("; ".join(survey.gaps))
    if survey is not None and survey.watched:
        return _partial(
            f"{len(survey.watched)} names that do not exist yet are denied as they and the tables spell them, "
            "and looked at after the run"
        )
    return _enforced("denied paths, and what leads to them, cannot be opened, moved or replaced")


def _network(spec: SandboxSpec) -> ControlState:
    if spec.network.mode == "host":
        return _absent("the spec asks for the host's network")
    if spec.network.mode == "listed":
        return _absent("the spec lets listed hosts be reached")
    return _enforced(
        "the profile allows no address, loopback as little; sockets by path in the box's own directory only"
    )


def _allowlist(spec: SandboxSpec, facts: SeatbeltFacts) -> ControlState:
    """
    The port is the machine's and the token a variable of the command: who reads that gets
    what the spec lists, and had a network before.
    """
    if not facts.has_proxy:
        return _absent(_NO_PROXY)
    if spec.network.mode == "host":
        return _absent("the spec asks for the host's network")
    return _enforced(
        "the profile allows one TCP port of the machine's 127.0.0.1, on which this process serves this command by a "
        "token of its own, and dials what it has checked; the user's other programs can read that token"
    )


def _intercept(facts: SeatbeltFacts) -> ControlState:
    if not facts.has_proxy:
        return _absent(_NO_PROXY)
    return _enforced(
        "the proxy stands in for hosts by an authority made for one command, which only its box is told of"
    )


def _processes(spec: SandboxSpec, facts: SeatbeltFacts) -> ControlState:
    if facts.processes is None:
        return _absent("the user's processes could not be counted, so no limit is set")
    if spec.limits.processes is None:
        return _partial("the spec sets no limit")
    return _partial("RLIMIT_NPROC counts all processes of the user, so those that ran before are added; no threads")
