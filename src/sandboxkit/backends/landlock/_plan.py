"""
From an invocation and a spec to a supervised command in a Landlock domain. Pure.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING

from sandboxkit.backends._cgroups import watched_limits
from sandboxkit.backends._tree import private_environment, working_directory
from sandboxkit.confine import (
    AF_INET,
    AF_INET6,
    AF_NETLINK,
    AF_UNIX,
    alone_filter,
    child_code,
    landlock_rules,
    rlimits,
    seccomp_filter,
)
from sandboxkit.errors import SpecError
from sandboxkit.model import FIRST_FREE_FD, Confinement, Control, LandlockRules, LaunchPlan, PlanFile, Trace

if TYPE_CHECKING:
    from sandboxkit.backends._survey import Survey
    from sandboxkit.backends.landlock._facts import LandlockFacts
    from sandboxkit.model import Invocation, SandboxSpec

__all__ = ["UNIX_SOCKETS_ABI", "launch_plan"]

_STATUS, _REPORT, _PAYLOAD, _CODE = 3, 4, 5, 6
_MANY = 1 << 16
_BOOT = f"import marshal,posix;exec(marshal.loads(posix.read({_CODE},1<<24)))"
_END = 34
"""What `confine/_alone.py` ends its box on."""
_PROGRAMS = 1
"""The supervisor."""
_RLIMIT_NPROC = 6
UNIX_SOCKETS_ABI = 9
"""From here on Landlock decides about connecting to socket files, too."""
_DEVICES = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")


def launch_plan(invocation: Invocation, spec: SandboxSpec, facts: LandlockFacts) -> LaunchPlan:
    """
    How *invocation* is started under *spec*.

    Raises:
        SpecError: The working directory is not visible in the box, or the spec lists hosts
            or makes something writable that this library runs from.
    """
    survey = facts.survey
    if survey is None:
        raise SpecError("the machine was not looked at for this spec; call detect(spec) first")
    if spec.network.mode == "listed":
        raise SpecError(
            "network.mode 'listed' cannot be kept by Landlock, which knows ports and no hosts; use a backend that grades net.allowlist enforced"
        )
    confinement = _confinement(invocation, spec, facts, survey)
    return LaunchPlan(
        backend="landlock",
        argv=(facts.interpreter, "-I", "-S", "-c", _BOOT, str(_PAYLOAD), str(_REPORT)),
        status_fd=_STATUS,
        files=(
            PlanFile(_PAYLOAD, _payload(confinement), "order for the supervisor"),
            PlanFile(_CODE, child_code("alone"), "code of the supervisor"),
        ),
        confinement=confinement,
        end_signal=_END,
        watched=watched_limits(spec.limits),
        trace=Trace(_PROGRAMS, confinement.filters),
        notes=_notes(spec, facts, survey),
    )


def _notes(spec: SandboxSpec, facts: LandlockFacts, survey: Survey) -> tuple[str, ...]:
    notes = ["its home and TMPDIR are a private directory without a bound of its own; /tmp is out of reach"]
    if survey.identity.keeps_root:
        notes.append("the command keeps uid 0, without capabilities")
    notes += [f"nothing can be made, moved or removed directly in {path}" for path in facts.grants.split]
    if survey.watched:
        notes.append(f"{len(survey.watched)} protected names are not held, and looked at after the run")
    return tuple(notes)


def _confinement(invocation: Invocation, spec: SandboxSpec, facts: LandlockFacts, survey: Survey) -> Confinement:
    first = max((FIRST_FREE_FD - 1, *invocation.pass_fds)) + 1
    home = f"{facts.scratch}/home" if facts.scratch else "/"
    is_shown = facts.grants.shows
    return Confinement(
        argv=invocation.argv,
        environment=_environment(invocation, facts, survey),
        cwd=working_directory(invocation.cwd, spec, survey, is_shown, home),
        rlimits=_rlimits(spec, facts),
        landlock=_rules(spec, facts),
        landlock_abi=facts.abi,
        pass_fds=tuple(zip(range(first, _MANY), invocation.pass_fds, strict=False)),
        filters=_filters(spec, facts),
        user=(survey.identity.uid, survey.identity.gid) if _drops(survey) else None,
    )


def _drops(survey: Survey) -> bool:
    return survey.identity.is_root and not survey.identity.keeps_root


def _environment(invocation: Invocation, facts: LandlockFacts, survey: Survey) -> tuple[tuple[str, str], ...]:
    if not facts.scratch:
        return invocation.environment
    return tuple(private_environment(invocation.environment, facts.scratch, survey.home).items())


def _rlimits(spec: SandboxSpec, facts: LandlockFacts) -> tuple[tuple[int, int], ...]:
    """
    Those of every box; the number of processes counts all the user has, so what runs
    already is added.
    """
    return tuple(
        (number, limit + facts.processes if number == _RLIMIT_NPROC else limit)
        for number, limit in rlimits(spec.limits)
    )


def _rules(spec: SandboxSpec, facts: LandlockFacts) -> LandlockRules | None:
    scratch = (f"{facts.scratch}/home", f"{facts.scratch}/tmp") if facts.scratch else ()
    return landlock_rules(
        facts.abi,
        readable=(*facts.grants.readable, "/proc"),
        writable=(*facts.grants.writable, *scratch),
        devices=_DEVICES,
        handle_tcp=spec.network.mode == "none",
    )


def _filters(spec: SandboxSpec, facts: LandlockFacts) -> tuple[bytes, ...]:
    unix = (AF_UNIX,) if facts.abi >= UNIX_SOCKETS_ABI else ()
    internet = (AF_INET, AF_INET6, AF_NETLINK) if spec.network.mode == "host" else ()
    general = seccomp_filter(
        facts.machine,
        allow_ptrace=spec.process.allow_ptrace,
        allow_nested_userns=False,
    )
    own = alone_filter(
        facts.machine, families=(*unix, *internet), allow_metadata=Control.FS_WRITE in spec.allow_degraded
    )
    return (own, general)


def _payload(confinement: Confinement) -> bytes:
    rules = confinement.landlock
    if rules is None:
        raise SpecError("this kernel has no Landlock; use another backend")
    return marshal.dumps(
        {
            "argv": confinement.argv,
            "environment": confinement.environment,
            "cwd": confinement.cwd,
            "rlimits": confinement.rlimits,
            "landlock": (rules.handled_fs, rules.handled_net, rules.scoped, rules.paths, confinement.landlock_abi),
            "pass_fds": confinement.pass_fds,
            "filters": confinement.filters,
            "user": confinement.user,
        }
    )
