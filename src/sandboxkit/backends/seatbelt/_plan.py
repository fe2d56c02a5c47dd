"""
From an invocation and a spec to a command under sandbox-exec(1). Pure.
"""

from __future__ import annotations

import marshal
import math
from typing import TYPE_CHECKING

from sandboxkit.backends._proxied import proxied_environment
from sandboxkit.backends._tree import Node, Tree, private_environment, working_directory
from sandboxkit.backends.seatbelt._nodes import box_nodes
from sandboxkit.backends.seatbelt._profile import Box, profile, real
from sandboxkit.confine import child_code
from sandboxkit.errors import SpecError
from sandboxkit.model import FIRST_FREE_FD, Access, Confinement, LaunchPlan, PlanFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.backends._survey import Survey
    from sandboxkit.backends.seatbelt._facts import SeatbeltFacts
    from sandboxkit.model import Invocation, SandboxSpec

__all__ = ["launch_plan"]

_REPORT, _PAYLOAD, _CODE = 4, 5, 6
_MANY = 1 << 16
_BOOT = f"import marshal,posix;exec(marshal.loads(posix.read({_CODE},1<<24)))"


def launch_plan(invocation: Invocation, spec: SandboxSpec, facts: SeatbeltFacts) -> LaunchPlan:
    """
    How *invocation* is started under *spec*.

    Raises:
        SpecError: The working directory is not visible in the box, the network is one
            Seatbelt cannot keep, or the spec makes something writable that this library
            runs from.
    """
    survey = facts.survey
    if survey is None:
        raise SpecError("the machine was not looked at for this spec; call detect(spec) first")
    nodes = _nodes(spec, survey, facts.scratch)
    confinement = _confinement(invocation, spec, facts, nodes)
    made = profile(_box(invocation, spec, facts, survey, nodes))
    return LaunchPlan(
        backend="seatbelt",
        argv=(
            facts.program,
            *made.arguments(),
            *(facts.interpreter, "-I", "-S", "-c", _BOOT, str(_PAYLOAD), str(_REPORT)),
        ),
        status_fd=_REPORT,
        files=(
            PlanFile(_PAYLOAD, _payload(confinement, spec, facts), "order for the last step inside"),
            PlanFile(_CODE, child_code("seated"), "code of the last step inside"),
        ),
        confinement=confinement,
        mark=facts.mark,
        notes=(*_notes(survey), *_way_note(invocation, spec)),
    )


def _notes(survey: Survey) -> tuple[str, ...]:
    notes = ["its home and TMPDIR are a private directory without a bound of its own; /tmp is out of reach"]
    if survey.watched:
        notes.append(f"{len(survey.watched)} protected names cannot be made, nor moved to where they would be")
    return tuple(notes)


def _way_note(invocation: Invocation, spec: SandboxSpec) -> tuple[str, ...]:
    if spec.network.mode != "listed":
        return ()
    port = f"port {invocation.proxy.port}" if invocation.proxy else "a port that is chosen when it starts, TCP"
    return (f"its only way out is {port} of this machine's loopback, where the application serves it, by a token",)


def _nodes(spec: SandboxSpec, survey: Survey, scratch: str) -> Mapping[str, Node]:
    """
    What the box shows; a denied path that does not exist is denied all the same.
    """
    denied = (path for path, access in spec.filesystem.tree().items() if access is Access.DENY)
    return {**dict.fromkeys(denied, Node.HIDDEN), **box_nodes(spec, survey, scratch)}


def _box(
    invocation: Invocation, spec: SandboxSpec, facts: SeatbeltFacts, survey: Survey, nodes: Mapping[str, Node]
) -> Box:
    return Box(
        nodes=nodes,
        missing=tuple(place.path for place in survey.watched),
        sockets=(facts.scratch,) if facts.scratch else (),
        network=spec.network.mode,
        proxy_port=invocation.proxy.port if invocation.proxy else None,
        debugging=spec.process.allow_ptrace,
        terminal=spec.process.tty,
        mark=facts.mark,
    )


def _confinement(
    invocation: Invocation, spec: SandboxSpec, facts: SeatbeltFacts, nodes: Mapping[str, Node]
) -> Confinement:
    survey = facts.survey
    if survey is None:
        raise SpecError("the machine was not looked at for this spec; call detect(spec) first")
    first = max((FIRST_FREE_FD - 1, *invocation.pass_fds)) + 1
    home = f"{facts.scratch}/home" if facts.scratch else "/"

    def is_shown(path: str) -> bool:
        return Tree(nodes, frozenset()).at(real(path)) in (Node.READ, Node.WRITE)

    return Confinement(
        argv=invocation.argv,
        environment=_environment(invocation, spec, facts, survey),
        cwd=working_directory(invocation.cwd, spec, survey, is_shown, home),
        pass_fds=tuple(zip(range(first, _MANY), invocation.pass_fds, strict=False)),
    )


def _environment(
    invocation: Invocation, spec: SandboxSpec, facts: SeatbeltFacts, survey: Survey
) -> tuple[tuple[str, str], ...]:
    given, proxy = dict(invocation.environment), invocation.proxy
    if facts.scratch:
        given = private_environment(invocation.environment, facts.scratch, survey.home)
    if proxy is not None:
        given = proxied_environment(spec.network, given, port=proxy.port, authority=proxy.authority, token=proxy.token)
    return tuple(given.items())


def _rlimits(spec: SandboxSpec, facts: SeatbeltFacts) -> tuple[tuple[str, int], ...]:
    """
    (name in the module resource, limit): the numbers of macOS are not those of Linux.

    No core is dumped. macOS does not enforce RLIMIT_DATA and RLIMIT_AS, so they are left.

    Source: getrlimit(2) of macOS.
    """
    limits = spec.limits
    counted = limits.processes is not None and facts.processes is not None
    wanted = {
        "RLIMIT_CPU": None if limits.cpu is None else math.ceil(limits.cpu),
        "RLIMIT_FSIZE": limits.file_size_bytes,
        "RLIMIT_CORE": 0,
        "RLIMIT_NPROC": (limits.processes or 0) + (facts.processes or 0) if counted else None,
        "RLIMIT_NOFILE": limits.open_files,
    }
    return tuple((name, limit) for name, limit in wanted.items() if limit is not None)


def _payload(confinement: Confinement, spec: SandboxSpec, facts: SeatbeltFacts) -> bytes:
    return marshal.dumps(
        {
            "argv": confinement.argv,
            "environment": confinement.environment,
            "cwd": confinement.cwd,
            "rlimits": _rlimits(spec, facts),
            "pass_fds": confinement.pass_fds,
        }
    )
