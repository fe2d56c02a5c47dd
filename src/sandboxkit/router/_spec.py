"""
The box of a run: what the caller, the rules and the files to protect make of it. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from sandboxkit.model import Access, NetworkPolicy, PolicyAction, SandboxSpec, access_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandboxkit.model import PolicyEvaluation

__all__ = ["effective_spec", "preset", "protected"]

M = TypeVar("M", bound=BaseModel)


def preset(action: PolicyAction, cwd: str) -> SandboxSpec:
    """
    The box where the caller gives none: what is allowed only reads its directory. A
    directory of Windows cannot be shown in a box; there it holds nothing of the host.
    """
    if not cwd.startswith("/"):
        return SandboxSpec.isolated()
    make = SandboxSpec.read_only if action is PolicyAction.ALLOW else SandboxSpec.workspace_write
    return make(cwd)


def effective_spec(evaluation: PolicyEvaluation, asked: SandboxSpec | None, cwd: str) -> SandboxSpec:
    """
    The box of a run.

    A rule's spec only speaks about the fields it names. Where the caller gave a spec,
    those are a ceiling over it; otherwise they replace those of the preset.
    """
    base = asked if asked is not None else preset(evaluation.action, cwd)
    if evaluation.spec is None:
        return base
    completed = _completed(evaluation.spec, base)
    return completed if asked is None else asked.tighten(completed)


def _completed(rule: M, base: M) -> M:
    """
    *rule*, with the fields it does not name taken from *base*; what neither names
    stays unnamed.
    """
    fields: dict[str, object] = {}
    for name in type(rule).model_fields:
        ours, theirs = getattr(rule, name), getattr(base, name)
        if name not in rule.model_fields_set:
            fields |= {name: theirs} if name in base.model_fields_set else {}
        elif isinstance(ours, NetworkPolicy):
            fields[name] = ours if ours.model_fields_set else theirs  # half of each would be neither's
        elif isinstance(ours, BaseModel) and isinstance(theirs, BaseModel):
            fields[name] = _completed(ours, theirs)
        else:
            fields[name] = ours
    return type(rule)(**fields)


def protected(spec: SandboxSpec, paths: Iterable[str]) -> SandboxSpec:
    """
    *spec* with those of *paths* that it lets the box write made read-only.
    """
    filesystem = spec.filesystem
    tree = filesystem.tree()
    inside = tuple(sorted({path for path in paths if access_of(path, tree) is Access.WRITE}))
    if not inside:
        return spec
    ceiling = filesystem.model_copy(update={"read": inside, "write": ("/",), "deny": ()})
    return spec.model_copy(update={"filesystem": filesystem.tighten(ceiling)})
