"""
A backend for machines that many share: at most so many boxes are open at a time, and
whoever wants another one waits. Bubblewrap does the isolating.
"""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from sandboxkit.backends import Detection, Facts, Sandbox, SandboxBackend, hookimpl
from sandboxkit.backends.bubblewrap import BubblewrapBackend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandboxkit.model import Enforcement, ExecResult, Invocation, LaunchPlan, SandboxSpec

__all__ = ["QueuedBackend", "sandboxkit_register_backends"]

AT_A_TIME = 8
POLL_SECONDS = 0.01


class QueuedBackend(SandboxBackend):
    """
    Boxes of bubblewrap, at most eight at a time in this process.
    """

    def __init__(self) -> None:
        self._inner = BubblewrapBackend()
        self._free = threading.Semaphore(AT_A_TIME)  # of any thread and any event loop

    @property
    def name(self) -> str:
        return "queued"

    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        return await self._inner.detect(spec)

    def enforcement(self, spec: SandboxSpec, facts: Facts) -> Enforcement:
        return self._inner.enforcement(spec, facts)

    def plan(self, invocation: Invocation, spec: SandboxSpec, facts: Facts) -> LaunchPlan:
        return replace(self._inner.plan(invocation, spec, facts), backend=self.name)

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        while not self._free.acquire(blocking=False):  # noqa: ASYNC110 - waits for other event loops too
            await anyio.sleep(POLL_SECONDS)
        try:
            async with self._inner.open(spec) as box:
                yield QueuedBox(box)
        finally:
            self._free.release()


class QueuedBox(Sandbox):
    """
    A box of bubblewrap whose results bear this backend's name.
    """

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner

    @property
    def spec(self) -> SandboxSpec:
        return self._inner.spec

    @property
    def enforcement(self) -> Enforcement:
        return self._inner.enforcement

    async def run(self, argv: Any, **options: Any) -> ExecResult:
        return replace(await self._inner.run(argv, **options), backend="queued")

    def start(self, argv: Any, **options: Any) -> Any:
        return self._inner.start(argv, **options)


@hookimpl
def sandboxkit_register_backends() -> list[tuple[SandboxBackend, int]]:
    """
    What this package offers.
    """
    return [(QueuedBackend(), 5)]
