"""
Isolation by bubblewrap: namespaces and mounts outside, seccomp, Landlock and limits
inside, an unprivileged uid throughout.
"""

from __future__ import annotations

import os
import platform
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import anyio.to_thread

from sandboxkit.backends._cgroups import cgroups
from sandboxkit.backends._contract import Detection, Facts, SandboxBackend
from sandboxkit.backends._journal import finish_others
from sandboxkit.backends._kernel import landlock_abi
from sandboxkit.backends._launched import LaunchedSandbox, Mechanism, Outward
from sandboxkit.backends._obstacles import Obstacle
from sandboxkit.backends._remembered import identity_of, recall, remember
from sandboxkit.backends.bubblewrap._detect import refusal, unusable, user_databases
from sandboxkit.backends.bubblewrap._enforcement import enforcement
from sandboxkit.backends.bubblewrap._facts import BubblewrapFacts
from sandboxkit.backends.bubblewrap._plan import launch_plan
from sandboxkit.backends.bubblewrap._program import features, find_programs
from sandboxkit.errors import BackendUnavailableError, BrokerError, LaunchError, SetupError, SpecError
from sandboxkit.model import Control, SandboxSpec
from sandboxkit.process import ensure_broker, interpreter

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Collection

    from sandboxkit.backends.bubblewrap._program import Origin, Program
    from sandboxkit.egress import Resolver
    from sandboxkit.model import Enforcement, Invocation, LaunchPlan
    from sandboxkit.secrets import SecretRegistry

__all__ = ["BubblewrapBackend", "BubblewrapFacts"]

_NAME = "bubblewrap"
_PATIENCE = 20.0
_MECHANISM = Mechanism(
    name=_NAME,
    enforcement=enforcement,
    plan=launch_plan,
    look=BubblewrapFacts.surveyed,
    watched=lambda facts: facts.survey.watched if facts.survey else (),
    refusal=refusal,
    survey=lambda facts: facts.survey,
    mounts=True,
    nests=True,
    discards=True,
    ungrouped=lambda facts, why: replace(facts, cgroups=facts.cgroups.without(why)),
)


class BubblewrapBackend(SandboxBackend):
    """
    The backend for Linux with user namespaces.

    A caller that is root lends its uid to nothing: see `Staging`.

    Args:
        origins: Where a bwrap may come from. The system's is taken before the one of
            the `bwrap` extra: Ubuntu's AppArmor profile covers only that path.
        resolver: The name service for boxes whose spec lists hosts; the machine's own by
            default.
        secrets: The values of what specs inject; each goes only to the hosts it was
            registered for.
        ssl_context: Verifies the real hosts where a spec looks into TLS; by default with the
            certificate authorities of the system.
    """

    def __init__(
        self,
        *,
        origins: Collection[Origin] = ("system", "wheel"),
        resolver: Resolver | None = None,
        secrets: SecretRegistry | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._origins = tuple(origins)
        self._outward = Outward(resolver, secrets, ssl_context)
        self._found: Detection | None = None

    @property
    def name(self) -> str:
        """
        `bubblewrap`.
        """
        return _NAME

    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        """
        Whether a box starts here: one is started, once.
        """
        found = self._found
        if found is None:
            with suppress(BrokerError):  # whoever starts something says so
                ensure_broker()  # it comes up beside what follows
            found = await _detect(self._origins)
            self._found = found if found.available else None  # what is missing may come
        if spec is None or not found.available:
            return found
        finish_others()  # what they left would be taken for the user's own
        return replace(found, facts=_own(found.facts).surveyed(spec))

    def enforcement(self, spec: SandboxSpec, facts: Facts) -> Enforcement:
        """
        What it would enforce for *spec*.
        """
        return enforcement(spec, _own(facts))

    def plan(self, invocation: Invocation, spec: SandboxSpec, facts: Facts) -> LaunchPlan:
        """
        How it would start *invocation*.
        """
        return launch_plan(invocation, spec, _own(facts))

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[LaunchedSandbox[BubblewrapFacts]]:
        """
        A box under *spec*.
        """
        async with self.open_detected(spec, await self.detect(spec)) as box:
            yield box

    @asynccontextmanager
    async def open_detected(
        self, spec: SandboxSpec, detection: Detection
    ) -> AsyncIterator[LaunchedSandbox[BubblewrapFacts]]:
        """
        A box under *spec*, on what `detect(spec)` has just found.
        """
        if not detection.available:
            raise BackendUnavailableError(_NAME, detection.reason, detection.remedy)
        box = LaunchedSandbox(_MECHANISM, spec, _own(detection.facts), outward=self._outward)
        try:
            yield box
        finally:
            box.close()


def _own(facts: Facts) -> BubblewrapFacts:
    if not isinstance(facts, BubblewrapFacts):
        raise SpecError("these facts are another backend's; use those of BubblewrapBackend.detect()")
    return facts


async def _detect(origins: tuple[Origin, ...]) -> Detection:
    programs, refused = await anyio.to_thread.run_sync(find_programs, origins)
    if problem := unusable(programs, refused):
        return Detection(False, problem.reason, problem.remedy, _facts())
    meaning = Obstacle("no program could be tried", "see the warnings")
    for candidate in programs:
        if known := _known(candidate):
            return replace(known, warnings=refused)
        try:
            program = await features(candidate)
        except LaunchError as exc:
            meaning = Obstacle(f"{candidate.path} cannot be executed: {exc}", "reinstall it")
            continue
        if program.missing:
            meaning = Obstacle(
                f"{program.path} {program.version} lacks {', '.join(program.missing)}",
                "install bubblewrap 0.8 or later",
            )
            continue
        facts = replace(_facts(), program=program)
        tried = await _trial(facts)
        if isinstance(tried, BubblewrapFacts):
            _remember(tried)
            return replace(_available(tried), warnings=refused)
        meaning = tried
    return Detection(False, meaning.reason, meaning.remedy, _facts(), warnings=refused)


def _available(facts: BubblewrapFacts) -> Detection:
    program = facts.program
    assert program is not None  # noqa: S101 - what ran a box is a program
    return Detection(True, f"bwrap {program.version} ({program.origin}) runs a box", "", facts)


def _known(candidate: Program) -> Detection | None:
    """
    What was found out of *candidate* a short time ago, if it and the machine are the same.
    """
    facts = _facts()
    match recall(_NAME, identity_of(candidate.path), facts.cgroups.describe()):
        case {"version": str(version), "options": [*options], "ungrouped": str(why)}:
            program = replace(candidate, version=version, options=frozenset(map(str, options)))
            groups = facts.cgroups.without(why) if why else facts.cgroups
            return None if program.missing else _available(replace(facts, program=program, cgroups=groups))
    return None


def _remember(tried: BubblewrapFacts) -> None:
    program, found = tried.program, cgroups()
    if program is not None:
        value = {
            "version": program.version,
            "options": sorted(program.options),
            "ungrouped": "" if tried.cgroups.hierarchies == found.hierarchies else tried.cgroups.reason,
        }
        remember(_NAME, value, identity_of(program.path), found.describe())


def _facts() -> BubblewrapFacts:
    try:
        python = interpreter()
    except BrokerError:
        python = ""
    return BubblewrapFacts(
        landlock_abi=landlock_abi(),
        machine=os.uname().machine if hasattr(os, "uname") else platform.machine(),
        kernel=platform.release(),
        interpreter=python,
        passwd=user_databases(),
        cgroups=cgroups(),
        has_proxy=None not in (find_spec("h11"), find_spec("cryptography")),
    )


async def _trial(facts: BubblewrapFacts) -> Obstacle | BubblewrapFacts:
    """
    Why a box does not start here, or *facts*, without control groups where none could
    be made: only starting one tells.
    """
    spec = SandboxSpec.isolated()
    box = LaunchedSandbox(_MECHANISM, spec, facts.surveyed(spec))
    try:
        result = await box.run([facts.interpreter, "-I", "-S", "-c", "pass"], timeout=_PATIENCE)
    except SetupError as exc:
        return refusal(str(exc.__cause__ or exc))
    except LaunchError as exc:
        return Obstacle(f"a test box did not run: {exc}", "reinstall the Python that runs this program")
    if not result.ok:
        return Obstacle(f"a test box {result.outcome}: {result.text('stderr')[-500:]}", "see the message")
    return _tried(facts, spec, result.enforcement)


def _tried(facts: BubblewrapFacts, spec: SandboxSpec, found: Enforcement) -> BubblewrapFacts:
    claim = enforcement(spec, facts)
    for control in (Control.LIMITS_MEMORY, Control.LIMITS_PROCESSES):
        if found.grade(control) < claim.grade(control):
            return replace(facts, cgroups=facts.cgroups.without(found.reason(control)))
    return facts
