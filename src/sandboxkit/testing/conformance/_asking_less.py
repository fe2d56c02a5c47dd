"""
A backend tried under specs that ask less of it, as its users must write theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from sandboxkit.backends import SandboxBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractAsyncContextManager

    from sandboxkit.backends import Detection, Facts, Sandbox
    from sandboxkit.model import Control, Enforcement, Invocation, LaunchPlan, SandboxSpec

__all__ = ["asking_less"]


def asking_less(factory: Callable[..., SandboxBackend], controls: Iterable[Control], **options: Any) -> SandboxBackend:
    """
    The backend of *factory*, for which every spec lists *controls* in `allow_degraded`.

    For a backend that no spec opens without. What the behaviours ask of it stays the same,
    and so does what it claims: a spec's requirements are read from the spec as it was
    written. As a `backend_factory`, wrap it in a `functools.partial`.

    Args:
        factory: What makes the backend.
        controls: What specs let hold less well. Name as few as its users must.
        options: Are given to *factory*.
    """
    return _AskingLess(factory(**options), frozenset(controls))


@final
class _AskingLess(SandboxBackend):
    def __init__(self, backend: SandboxBackend, controls: frozenset[Control]) -> None:
        self._backend = backend
        self._controls = controls

    def _lesser(self, spec: SandboxSpec) -> SandboxSpec:
        return spec.model_copy(update={"allow_degraded": spec.allow_degraded | self._controls})

    @property
    def name(self) -> str:
        return self._backend.name

    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        return await self._backend.detect(None if spec is None else self._lesser(spec))

    def enforcement(self, spec: SandboxSpec, facts: Facts) -> Enforcement:
        return self._backend.enforcement(self._lesser(spec), facts)

    def plan(self, invocation: Invocation, spec: SandboxSpec, facts: Facts) -> LaunchPlan:
        return self._backend.plan(invocation, self._lesser(spec), facts)

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._backend.open(self._lesser(spec))
