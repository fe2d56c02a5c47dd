"""
Isolation by Landlock alone, where namespaces are forbidden: seccomp, limits and a
supervisor complete it.
"""

from __future__ import annotations

import os
import platform
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from sandboxkit.backends._contract import Detection, Facts, SandboxBackend
from sandboxkit.backends._journal import finish_others
from sandboxkit.backends._kernel import landlock_abi
from sandboxkit.backends._launched import LaunchedSandbox, Mechanism
from sandboxkit.backends.landlock._detect import refusal, unusable
from sandboxkit.backends.landlock._enforcement import enforcement
from sandboxkit.backends.landlock._facts import LandlockFacts
from sandboxkit.backends.landlock._plan import launch_plan
from sandboxkit.backends.landlock._scratch import scratch
from sandboxkit.errors import BackendUnavailableError, BrokerError, EnforcementError, SpecError
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandboxkit.model import Enforcement, Invocation, LaunchPlan, SandboxSpec

__all__ = ["LandlockBackend", "LandlockFacts"]

_NAME = "landlock"
_MECHANISM = Mechanism(
    name=_NAME,
    enforcement=enforcement,
    plan=launch_plan,
    look=LandlockFacts.surveyed,
    watched=lambda facts: facts.survey.watched if facts.survey else (),
    refusal=refusal,
    survey=lambda facts: facts.survey,
)


class LandlockBackend(SandboxBackend):
    """
    The backend for Linux without user namespaces, as in most containers.

    It has no namespace of processes, so `process.isolation` is never more than
    partial: every spec that is to run here says so in `allow_degraded`. A box opens
    only for a spec it keeps.

    A caller that is root becomes the owner of the named directories where that is one
    ordinary user, and an unused uid where none is named. Root's own directories take
    root, without capabilities.

    Args:
        max_abi: The newest Landlock ABI it uses, for tests; None takes the kernel's.
    """

    def __init__(self, *, max_abi: int | None = None) -> None:
        self._max_abi = max_abi

    @property
    def name(self) -> str:
        """
        `landlock`.
        """
        return _NAME

    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        """
        Whether the kernel has Landlock. The shared attack is what runs a box.
        """
        facts = _facts(self._max_abi)
        if problem := unusable(facts):
            return Detection(False, problem.reason, problem.remedy, facts)
        reason = f"the kernel has Landlock ABI {facts.kernel_abi}"
        if facts.abi < facts.kernel_abi:
            reason += f", of which ABI {facts.abi} is used"
        if spec is None:
            return Detection(True, reason, "", facts)
        finish_others()  # what they left would be taken for the user's own
        return Detection(True, reason, "", facts.surveyed(spec))

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
    async def open(self, spec: SandboxSpec) -> AsyncIterator[LaunchedSandbox[LandlockFacts]]:
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
    ) -> AsyncIterator[LaunchedSandbox[LandlockFacts]]:
        """
        A box under *spec*, on what `detect(spec)` has just found.

        Raises:
            EnforcementError: It would hold less than *spec* requires.
        """
        if not detection.available:
            raise BackendUnavailableError(_NAME, detection.reason, detection.remedy)
        facts = _own(detection.facts)
        if missing := enforcement(spec, facts).missing(spec.requirements()):
            raise EnforcementError({_NAME: f"{'; '.join(missing)}; list in allow_degraded what may hold less well"})
        who = facts.survey.identity if facts.survey else None
        settings = facts.survey.git_identity if facts.survey else b""
        with scratch(settings, (who.uid, who.gid) if who and who.is_root else None) as directory:
            box = LaunchedSandbox(_MECHANISM, spec, replace(facts, scratch=directory))
            try:
                yield box
            finally:
                box.close()


def _own(facts: Facts) -> LandlockFacts:
    if not isinstance(facts, LandlockFacts):
        raise SpecError("these facts are another backend's; use those of LandlockBackend.detect()")
    return facts


def _facts(max_abi: int | None) -> LandlockFacts:
    try:
        python = interpreter()
    except BrokerError:
        python = ""
    abi = landlock_abi()
    return LandlockFacts(
        abi=abi if max_abi is None else min(abi, max_abi),
        kernel_abi=abi,
        machine=os.uname().machine if hasattr(os, "uname") else platform.machine(),
        kernel=platform.release(),
        interpreter=python,
    )
