"""
Lines of a spec file, and the spec they make of another. Pure.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from sandboxkit.model import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandboxkit.model import Violation

__all__ = ["is_proposed", "widened"]


def is_proposed(violation: Violation) -> bool:
    """
    Whether the line of *violation* may be proposed: it has one, and that opens nothing
    beyond what was refused: one host and port, but not the network as a whole.
    """
    if violation.spec_line is None:
        return False
    network = tomllib.loads(violation.spec_line).get("network")
    return network is None or network.keys() == {"allow_hosts"}


def widened(base: SandboxSpec, lines: Iterable[str]) -> SandboxSpec:
    """
    *base* with what *lines* allow beyond it: lists get longer, other values are replaced.

    Raises:
        SpecError: The whole is no spec.
    """
    data = base.model_dump(mode="json", exclude_unset=True)
    for line in lines:
        _join(data, tomllib.loads(line))
    files = data.get("filesystem", {})
    if "write" in files and "read" in files:
        files["read"] = [path for path in files["read"] if path not in files["write"]]
        if not files["read"]:
            del files["read"]
    return SandboxSpec.from_dict(data)


def _join(data: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            _join(data.setdefault(key, {}), value)
        elif isinstance(value, list):
            old = data.get(key, [])
            data[key] = [*old, *(item for item in value if item not in old)]
        else:
            data[key] = value
