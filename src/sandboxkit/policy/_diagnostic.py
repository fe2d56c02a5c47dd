"""
A decision as a compiler would print it: the command with carets, reasons, notes, help.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from sandboxkit.model import Command, PolicyAction, Setting
from sandboxkit.policy._advice import advice
from sandboxkit.policy._excerpt import Mark, columns, excerpt, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandboxkit.model import PartDecision, PolicyEvaluation, RuleMatch, SimpleCommand

__all__ = ["diagnostic"]

WIDTH = 100
_MAX_MARKS = 8
_MAX_NOTES = 10
_MAX_PARTS = 40
_MAX_LABEL = 300
_MAX_DEPTH = 6
_MAX_SEARCH = 10_000
_GAP = "\N{HORIZONTAL ELLIPSIS}"
_FRAME = re.compile(
    r"(?:allowed: |runs in a sandbox: |needs approval: |denied: )?(.*?)(?: \([a-z]+ rule [a-z0-9._-]+\))?", re.DOTALL
)
"""
What a reason says besides the action and the rule, which stand elsewhere.
"""


def diagnostic(evaluation: PolicyEvaluation, *, width: int = WIDTH) -> str:
    """
    *evaluation* for a person: what decided, and where in the command it stands.

    The action and its reason come first, then the command with carets under every part
    that decided, each with its rule and level; then notes, what would lead to another
    decision, and, for a command of several parts, the tree of all of them.

    Nothing in it can steer a terminal or hide: control characters, invisible ones and
    those that turn the direction of writing are escaped. Long lines are cut around what
    matters, and long lists are cut with a count of the rest, so the text is for reading
    only; `PolicyEvaluation.to_dict()` has everything.

    Args:
        evaluation: The decision.
        width: Columns the command may take, at least 40. Reasons are not wrapped.
    """
    return "\n".join(_lines(evaluation, max(40, width)))


def _lines(evaluation: PolicyEvaluation, width: int) -> Iterator[str]:
    text = evaluation.command.text
    marks = list(_marks(evaluation))
    yield f"{evaluation.action}: {_short(_bare(evaluation.reason))}"
    yield from excerpt(text, marks[:_MAX_MARKS] or [Mark(0, len(text), ())], width=width)
    remarks = [*_notes(evaluation, len(marks) - _MAX_MARKS), *(("help", line) for line in advice(evaluation))]
    yield from (line for kind, remark in remarks for line in _remark(kind, remark))
    if len(_telling(evaluation)) > 1:
        yield ""
        yield from _tree(evaluation, width)


def _telling(evaluation: PolicyEvaluation) -> frozenset[int]:
    """
    The parts that say something: all but those that may be none and do no harm.
    """
    harmless = {each.part for each in evaluation.parts if each.action is PolicyAction.ALLOW}
    parts = enumerate(evaluation.command.parts)
    return frozenset(index for index, part in parts if not (part.stands(Setting.SUSPECT) and index in harmless))


def _bare(reason: str) -> str:
    found = _FRAME.fullmatch(reason)
    return found[1] if found else reason


def _remark(kind: str, text: str) -> Iterator[str]:
    first, *rest = text.split("\n")
    yield f"  = {kind}: {shown(first)}"
    yield from (f"    {' ' * len(kind)}  {shown(line)}" for line in rest)


def _notes(evaluation: PolicyEvaluation, more: int) -> Iterator[tuple[str, str]]:
    command = evaluation.command
    if command.opaque and command.opaque not in evaluation.reason:
        yield "note", f"it could not be read to its end: {command.opaque}"
    if more > 0:
        yield "note", f"{more} more places decided too"
    deciding = [decision for decision in evaluation.parts if decision.action is evaluation.action]
    notes = list(dict.fromkeys(note for decision in deciding for note in decision.notes))
    yield from (("note", note) for note in notes[:_MAX_NOTES])
    if len(notes) > _MAX_NOTES:
        yield "note", f"and {len(notes) - _MAX_NOTES} more notes of this kind"


def _marks(evaluation: PolicyEvaluation) -> Iterator[Mark]:
    """
    The places that decided, in the order of the text.
    """
    labels: dict[tuple[int, int], list[str]] = {}
    for span, label in _labels(evaluation):
        labels.setdefault(span, []).append(label)
    for (start, end), said in sorted(labels.items()):
        yield Mark(start, end, tuple(dict.fromkeys(said)))


def _labels(evaluation: PolicyEvaluation) -> Iterator[tuple[tuple[int, int], str]]:
    command, action = evaluation.command, evaluation.action
    decided = [match for match in evaluation.matches if match.decided and match.action is action]
    for match in decided:
        yield _span(command, match.part, match.span), _label(match, command)
    named = {match.part for match in decided}
    for decision in evaluation.parts:
        if decision.action is action and decision.part not in named:
            yield _span(command, decision.part, None), f"{action}: {_short(_bare(decision.reason))}"


def _label(match: RuleMatch, command: Command) -> str:
    part = command.parts[match.part] if match.part is not None and match.part < len(command.parts) else None
    is_other = match.words and part is not None and match.words != part.argv
    seen = f" (seen as {_short(' '.join(match.words), 80)!r})" if is_other else ""
    return f"{match.action}: {_short(match.reason or 'a rule says so')}{seen} [{_rule(match)}]"


def _rule(match: RuleMatch) -> str:
    return f"{shown(match.rule_id)}, {match.level}"


def _short(text: str, limit: int = _MAX_LABEL) -> str:
    return shown(text if len(text) <= limit else text[:limit] + _GAP)


def _span(command: Command, part: int | None, given: tuple[int, int] | None) -> tuple[int, int]:
    """
    Where to put the carets in `Command.text`.
    """
    whole = (0, len(command.text))
    if part is None or part >= len(command.parts):
        return given or whole
    span = given or command.parts[part].span
    if span is None:
        return (_words_span(command, command.parts[part]) if command.source is None else None) or whole
    return _started(command, command.parts[part], span)


def _started(command: Command, part: SimpleCommand, span: tuple[int, int]) -> tuple[int, int]:
    """
    *span* without the words of what starts *part*, where the text shows them apart.
    """
    if part.outer is None or command.source is None or command.parts[part.outer].span != span:
        return span
    words = " ".join(part.argv)
    found = command.source.rfind(words, *span) if len(words) <= _MAX_SEARCH else -1
    return span if found < 0 else (found, found + len(words))


def _words_span(command: Command, part: SimpleCommand) -> tuple[int, int] | None:
    """
    The words of *part* in a command that was given as a list.
    """
    words = command.argv or ()
    count = len(part.argv)
    for first in range(len(words) - count + 1) if count else ():
        if words[first : first + count] == part.argv:
            return _length(words[:first]), _length(words[: first + count]) - 1
    return None


def _length(words: tuple[str, ...]) -> int:
    # The text of a list is its words, quoted where they need it, with a blank between.
    return len(Command(None, (), argv=words).text) + 1 if words else 0


def _tree(evaluation: PolicyEvaluation, width: int) -> Iterator[str]:
    command = evaluation.command
    decisions = {decision.part: decision for decision in evaluation.parts}
    rows = [_row(command, index, decisions.get(index), evaluation) for index in sorted(_telling(evaluation))]
    room = min(max(map(columns, (row[1] for row in rows[:_MAX_PARTS])), default=0), width // 2)
    yield "parts:"
    for action, text, because in rows[:_MAX_PARTS]:
        yield f"  {action:<7}  {text}{' ' * max(0, room - columns(text))}  {because}".rstrip()
    if len(rows) > _MAX_PARTS:
        rest = Counter(action for action, _, _ in rows[_MAX_PARTS:])
        yield f"  and {len(rows) - _MAX_PARTS} more: {', '.join(f'{count} {action}' for action, count in rest.items())}"


def _row(
    command: Command, index: int, decision: PartDecision | None, evaluation: PolicyEvaluation
) -> tuple[str, str, str]:
    part = command.parts[index]
    depth, how = _depth(command, part)
    text = "  " * depth + how + (_part_text(part) or _source_text(command, part))
    matches = decision.matches if decision else [match for match in evaluation.matches if match.part == index]
    action = decision.action if decision else max((m.action for m in matches if m.decided), default=None)
    named = [_rule(match) for match in matches if match.decided and match.action is action]
    because = ", ".join(named) or (_short(_bare(decision.reason), 80) if decision else "")
    return "?" if action is None else str(action), text, because


def _depth(command: Command, part: SimpleCommand) -> tuple[int, str]:
    depth, how = 0, ""
    while depth < _MAX_DEPTH and (parent := part.outer if part.outer is not None else part.inside) is not None:
        how = how or ("starts: " if part.outer is not None else "within: ")
        part = command.parts[parent]
        depth += 1
    return depth, how


def _source_text(command: Command, part: SimpleCommand) -> str:
    # What only assigns in a loop, for example, has no words of its own.
    return _short((command.source or "")[slice(*part.span)] if part.span else "", 49)


def _part_text(part: SimpleCommand) -> str:
    words: Iterable[str] = part.argv or (
        *(f"{assigned.name}={assigned.value}" for assigned in part.assignments),
        *(f"{redirect.operator} {redirect.target}" for redirect in part.redirects),
    )
    own = tuple(words)[: part.own] if part.argv and part.own is not None else tuple(words)
    return _short(" ".join(own), 49)
