"""
The policy that `--policy` describes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.cli._verbs import Usage
from sandboxkit.policy import ExecPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["policy_of"]


def policy_of(given: Iterable[tuple[str, str]]) -> ExecPolicy:
    """
    The built-in rules and those of the files of `--policy`.

    Raises:
        Usage: A level is given twice.
        PolicyError: A file cannot be read or holds a mistake.
    """
    pairs = tuple(given)
    files = dict(pairs)
    levels = [level for level, _ in pairs]
    twice = next((level for level in levels if levels.count(level) > 1), None)
    if twice:
        problem = f"the level {twice} is given two files; name the level of each, as in --policy organisation=FILE"
        raise Usage(problem, "usage: ... --policy [LEVEL=]FILE")
    return ExecPolicy.from_files(
        organisation=files.get("organisation"), user=files.get("user"), project=files.get("project")
    )
