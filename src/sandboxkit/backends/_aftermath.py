"""
What is looked at when a command has ended, for every backend: what it made or changed that it
should not have, and what a program outside took out of the box's hold meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.backends._journal import Journal
from sandboxkit.backends._protection import Watched, new_repositories, violations
from sandboxkit.backends._replaced import REPLACED, replacements
from sandboxkit.model import Control, ControlState, Enforcement, FilesystemPolicy, Grade, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandboxkit.backends._survey import Survey

__all__ = ["Aftermath"]

_HOLDS = Control.FS_DENY_INSIDE_ALLOW


class Aftermath:
    """
    The look at the host after one command. What it needs is written down at once, for the
    case that this application is killed before.

    Args:
        filesystem: What the spec says of files.
        survey: The host as it was before the command; None where no part of it is shown.
        watched: What is compared.
        mounts: Whether what is denied or protected is held by a mount: see `_replaced`.
    """

    def __init__(
        self,
        filesystem: FilesystemPolicy,
        survey: Survey | None,
        watched: Sequence[Watched],
        *,
        mounts: bool,
    ) -> None:
        self._filesystem = filesystem
        self._repositories = survey.repositories if survey else None
        self._anchors = survey.anchors if survey and mounts else {}
        self._watched = watched
        self._found: tuple[Violation, ...] | None = None
        self._missed: tuple[str, ...] = ()
        self._journal = Journal(watched, filesystem, self._repositories)

    def settle(self) -> tuple[Violation, ...]:
        """
        What was done under protected names, which is moved away, and what was replaced. Done
        once, also where nobody waits for the command's result.
        """
        if self._found is None:
            looked = violations(self._watched)
            made, self._missed = new_repositories(self._filesystem, self._repositories)
            self._found = (*replacements(self._anchors), *looked, *made)
            self._journal.close()
        return self._found

    def lowered(self, held: Enforcement) -> Enforcement:
        """
        *held*, less where something was not held in place or not looked at.
        """
        for why in self._not_held():
            state = held.states[_HOLDS]
            weaker = ControlState(min(state.grade, Grade.PARTIAL), f"{state.reason}; {why}")
            held = Enforcement({**held.states, _HOLDS: weaker})
        return held

    def _not_held(self) -> Iterator[str]:
        count = sum(found.kind == REPLACED for found in self.settle())
        if self._journal.problem:
            yield self._journal.problem
        yield from self._missed
        if count:
            yield f"{count} paths were replaced from outside during the run, and not held from then on"
