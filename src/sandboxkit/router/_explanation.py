"""
What a run would do, without doing it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.model import Enforcement, LaunchPlan, PolicyEvaluation, SandboxSpec

__all__ = ["Explanation"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """
    What `AutoSandboxRouter.route` would do with a command.

    Attributes:
        evaluation: The policy's decision.
        mode: How it would run; `refused` where it would not. What needs approval has
            the mode it would have once approved.
        spec: The box.
        backend: The backend that would run it, `direct`, or None.
        plan: How it would be started, or None.
        enforcement: What would be enforced, or None.
        refusals: Why it would not run: by backend, or under `policy`, `approval`,
            `isolation` or `program`.
        others: Why each of the other backends would not be taken, where one is.
    """

    evaluation: PolicyEvaluation
    mode: Literal["sandbox", "direct", "unsandboxed", "refused"]
    spec: SandboxSpec
    backend: str | None = None
    plan: LaunchPlan | None = None
    enforcement: Enforcement | None = None
    refusals: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form. Values of variables are left out.
        """
        spec = self.spec.model_dump(mode="json")
        spec["environment"]["set"] = sorted(spec["environment"]["set"])
        return {
            "evaluation": self.evaluation.to_dict(),
            "mode": self.mode,
            "spec": spec,
            "backend": self.backend,
            "plan": self.plan.to_dict() if self.plan else None,
            "enforcement": self.enforcement.to_dict() if self.enforcement else None,
            "refusals": dict(self.refusals),
            "others": dict(self.others),
        }
