"""
Decisions that were made already.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from sandboxkit.policy._decide import Judgements, decide
from sandboxkit.shell import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxkit.model import EvaluationContext, PolicyEvaluation
    from sandboxkit.policy._layer import RuleSet

__all__ = ["Memo"]

_MAX_ENTRIES = 512
_MAX_TEXT = 1000


class Memo:
    """
    The decisions of one rule set in one context. A decision depends on nothing else, so
    it is the same value again, for a whole command and for each part of one. Threads
    may share one.

    Args:
        rules: The rule set.
        context: The context.
    """

    __slots__ = ("_entries", "_judgements", "context", "rules")

    def __init__(self, rules: RuleSet, context: EvaluationContext | None) -> None:
        self.rules = rules
        self.context = context
        self._judgements: Judgements = OrderedDict()
        self._entries: OrderedDict[str, PolicyEvaluation] = OrderedDict()

    def is_for(self, rules: RuleSet, context: EvaluationContext | None) -> bool:
        """
        Whether its decisions are those of *rules* in *context*.
        """
        return self.rules is rules and (self.context is context or self.context == context)

    def evaluation(self, command: str | Sequence[str]) -> PolicyEvaluation:
        """
        The decision about *command*.

        Raises:
            CommandError: As `parse` does.
        """
        if type(command) is not str or len(command) > _MAX_TEXT or (self.context is not None and self.context.numbers):
            # Numbers belong to the caller, who may change them.
            return decide(self.rules, parse(command), self.context)
        found = self._entries.get(command)
        if found is None:
            found = decide(self.rules, parse(command), self.context, self._judgements)
            if len(self._entries) >= _MAX_ENTRIES:
                # One at a time: to let go of all of them takes as long as many decisions.
                self._entries.popitem(last=False)
            self._entries[command] = found
        return found
