"""
Isolation by Seatbelt, the sandbox of macOS: a profile put on by sandbox-exec(1).
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING

from sandboxkit.backends._contract import Detection, Facts, SandboxBackend
from sandboxkit.backends._launched import LaunchedSandbox, Mechanism, Outward
from sandboxkit.backends.seatbelt._detect import NOT_RUN_HERE, found, refusal, unusable
from sandboxkit.backends.seatbelt._enforcement import enforcement
from sandboxkit.backends.seatbelt._facts import SeatbeltFacts
from sandboxkit.backends.seatbelt._plan import launch_plan
from sandboxkit.backends.seatbelt._scratch import scratch, trusted
from sandboxkit.backends.seatbelt._selftest import selftest
from sandboxkit.errors import BackendUnavailableError, EnforcementError, SpecError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from sandboxkit.backends._verification import Finding
    from sandboxkit.backends.seatbelt._selftest import Stage
    from sandboxkit.egress import Resolver
    from sandboxkit.model import Enforcement, ExecResult, Invocation, LaunchPlan, SandboxSpec
    from sandboxkit.secrets import SecretRegistry

__all__ = ["SeatbeltBackend", "SeatbeltFacts"]

_NAME = "seatbelt"
_MECHANISM = Mechanism(
    name=_NAME,
    enforcement=enforcement,
    plan=launch_plan,
    look=SeatbeltFacts.surveyed,
    watched=lambda facts: facts.survey.watched if facts.survey else (),
    refusal=refusal,
    survey=lambda facts: facts.survey,
    trusted=lambda facts, authority: trusted(facts.scratch, authority),
)


class SeatbeltBackend(SandboxBackend):
    """
    The backend for macOS. **Declared, and not run-tested**: its profiles are tested as
    text, against an evaluator of their language; the first time a Mac sees them is on
    yours, where the shared attack and one of its own are run before anything else, and
    lower what does not hold.

    macOS has no namespaces, no filter of system calls and no limit of memory. So every
    spec that is to run here lists in `allow_degraded`: `process.isolation`,
    `process.kill_tree`, `syscalls` and `limits.memory`. A box opens only for a spec it
    keeps. A root caller is refused.

    Args:
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
        resolver: Resolver | None = None,
        secrets: SecretRegistry | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._outward = Outward(resolver, secrets, ssl_context)
        self._tried: tuple[Finding, ...] | None = None

    @property
    def name(self) -> str:
        """
        `seatbelt`.
        """
        return _NAME

    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        """
        Whether this is a Mac with sandbox-exec(1), and what the backend's own attack finds
        there, once.
        """
        facts = found()
        if problem := unusable(facts):
            return Detection(False, problem.reason, problem.remedy, facts, (NOT_RUN_HERE,))
        if self._tried is None:
            self._tried = await selftest(lambda stage: self._attacked(facts, stage))
        facts = replace(facts, tried=self._tried)
        reason = f"macOS {facts.macos} has {facts.program}"
        return Detection(True, reason, "", facts if spec is None else facts.surveyed(spec), (NOT_RUN_HERE,))

    async def _attacked(self, facts: SeatbeltFacts, stage: Stage) -> ExecResult:
        spec = stage.spec(is_listed=facts.has_proxy)
        looked = facts.surveyed(spec)
        claim = enforcement(spec, looked)
        short = frozenset(control for control, needed in spec.requirements().items() if claim.grade(control) < needed)
        async with self._opened(stage.spec(short, is_listed=facts.has_proxy), looked) as box:
            return await box.run(stage.argv(), cwd=stage.work)

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
    async def open(self, spec: SandboxSpec) -> AsyncIterator[LaunchedSandbox[SeatbeltFacts]]:
        """
        A box under *spec*.

        Raises:
            EnforcementError: It would hold less than *spec* requires.
        """
        async with self.open_detected(spec, await self.detect(spec)) as box:
            yield box

    @asynccontextmanager
    async def open_detected(
        self, spec: SandboxSpec, detection: Detection
    ) -> AsyncIterator[LaunchedSandbox[SeatbeltFacts]]:
        """
        A box under *spec*, on what `detect(spec)` has just found.

        Raises:
            BackendUnavailableError: This is no Mac, or one without what it takes.
            EnforcementError: It would hold less than *spec* requires.
        """
        if not detection.available:
            raise BackendUnavailableError(_NAME, detection.reason, detection.remedy)
        facts = _own(detection.facts)
        if missing := enforcement(spec, facts).missing(spec.requirements()):
            raise EnforcementError({_NAME: f"{'; '.join(missing)}; list in allow_degraded what may hold less well"})
        async with self._opened(spec, facts) as box:
            yield box

    @asynccontextmanager
    async def _opened(self, spec: SandboxSpec, facts: SeatbeltFacts) -> AsyncIterator[LaunchedSandbox[SeatbeltFacts]]:
        settings = facts.survey.git_identity if facts.survey else b""
        mark = f"org.sandboxkit.box.{token_hex(16)}"
        with scratch(settings) as directory:
            boxed = replace(facts, scratch=directory, mark=mark)
            box = LaunchedSandbox(_MECHANISM, spec, boxed, outward=self._outward)
            try:
                yield box
            finally:
                box.close()


def _own(facts: Facts) -> SeatbeltFacts:
    if not isinstance(facts, SeatbeltFacts):
        raise SpecError("these facts are another backend's; use those of SeatbeltBackend.detect()")
    return facts
