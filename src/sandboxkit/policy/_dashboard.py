"""
The rules in force, for a person to look over.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sandboxkit.model import Level, PolicyAction
from sandboxkit.policy._dump import as_toml
from sandboxkit.policy._excerpt import columns, shown
from sandboxkit.policy._match import CompiledRule
from sandboxkit.policy._rule import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sandboxkit.policy._floor import FloorRow
    from sandboxkit.policy._policy import ExecPolicy

__all__ = ["dashboard", "floor_in_full", "matcher_of", "may_match", "rule_in_full"]

_LEVELS = (Level.ORGANISATION, Level.USER, Level.BUILTIN, Level.PROJECT)
_WIDTH = 48
_NO_RULES = "  no rules"


def dashboard(
    policy: ExecPolicy,
    *,
    level: Level | None = None,
    wanted: Callable[[PolicyRule | FloorRow], bool] = lambda _: True,
) -> str:
    """
    *policy* as tables: what is done by default, how many rules each level has for each
    action, and every rule, those that decide first on top.

    Args:
        policy: The rules.
        level: Only the rules of this level.
        wanted: Only the rules, and rows of the floor, that it takes.
    """
    blocks = [_head(policy), _counts(policy)]
    if level in (None, Level.FLOOR):
        rows = [(row.id, "deny", "", _of_floor(row), row.reason) for row in policy.floor() if wanted(row)]
        blocks.append(_block("floor: denied whatever the rules say", rows))
    for one in _LEVELS:
        if level in (None, one):
            rules = sorted(filter(wanted, policy.rules(one)), key=lambda rule: (-rule.rank, -rule.action, rule.id))
            blocks.append(_block(_TITLES[one], [_row(rule) for rule in rules]))
    return "\n\n".join(blocks)


_TITLES = {
    Level.ORGANISATION: "organisation: decides before all below",
    Level.USER: "user: decides before the built-in rules",
    Level.BUILTIN: "builtin",
    Level.PROJECT: "project: only counts where it is stricter",
}


def _head(policy: ExecPolicy) -> str:
    lines = [
        f"default action  {policy.default_action}, where no rule matches",
        f"rule set        {policy.rules_digest}",
        *(f"file            {shown(path)}" for path in policy.paths),
    ]
    return "\n".join(lines)


def _counts(policy: ExecPolicy) -> str:
    head = ("level", "rules", *(str(action) for action in PolicyAction), "disabled")
    rows: list[tuple[str, ...]] = [("floor", str(len(policy.floor())), "-", "-", "-", str(len(policy.floor())), "-")]
    for level in _LEVELS:
        rules = policy.rules(level)
        counted = Counter(rule.action for rule in rules if rule.enabled)
        disabled = sum(not rule.enabled for rule in rules)
        numbers = (len(rules), *(counted[action] for action in PolicyAction), disabled)
        rows.append((str(level), *(str(number) if number else "-" for number in numbers)))
    return "\n".join(_table(head, rows, right=range(1, len(head))))


def _block(title: str, rows: Sequence[Sequence[str]]) -> str:
    head = ("rule", "action", "priority", "matches", "reason")
    return "\n".join([title, *(_table(head, rows, right=(2,)) if rows else (_NO_RULES,))])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int]) -> Iterator[str]:
    lines = [list(head), *([shown(cell) for cell in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = []
        for number, (cell, width) in enumerate(zip(line, widths, strict=True)):
            room = " " * (width - columns(cell))
            cells.append(room + cell if number in right else cell + room)
        yield "  " + "  ".join(cells).rstrip()


def _row(rule: PolicyRule) -> tuple[str, str, str, str, str]:
    action = str(rule.action) if rule.enabled else f"({rule.action})"
    return rule.id, action, str(rule.rank), _cut(matcher_of(rule) + _conditions(rule)), rule.reason or rule.name


def matcher_of(rule: PolicyRule) -> str:
    """
    What *rule* matches, on one line: alternatives as ``{a,b}``, what follows as ``…``.
    """
    if rule.prefix is not None:
        words = [word if isinstance(word, str) else "{" + ",".join(word) + "}" for word in rule.prefix]
        return " ".join((*words, "…"))
    return f"glob {rule.glob}" if rule.glob is not None else f"regex {rule.regex}"


def _conditions(rule: PolicyRule) -> str:
    named = [
        *sorted(rule.constraints.model_fields_set),
        *(["spec"] if rule.spec else []),
        *(["direct"] if rule.direct else []),
    ]
    return f" if {', '.join(named)}" if named else ""


def _of_floor(row: FloorRow) -> str:
    conditions = [name for name in row.to_dict() if name not in ("id", "reason", "match", "not_match", "programs")]
    programs = "{" + ",".join(row.programs) + "}" if row.programs else "any program"
    return _cut(f"{programs} {', '.join(conditions)}".strip())


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "\N{HORIZONTAL ELLIPSIS}"


def may_match(rule: PolicyRule | FloorRow, program: str) -> bool:
    """
    Whether *rule* can be about *program*, disabled or not, as far as its matcher shows;
    globs and regexes that do not begin with a program can be about any.
    """
    if isinstance(rule, PolicyRule):
        programs = CompiledRule.of(rule, Level.USER).programs
        return programs is None or program in programs
    return program in rule.programs or not (rule.programs or program in rule.except_programs)


def rule_in_full(rule: PolicyRule, level: Level) -> str:
    """
    Everything *rule* says, as it would stand in a file, below what that means.
    """
    state = "" if rule.enabled else ", disabled"
    lines = [f"# {level} rule, priority {rule.rank}{state}", f"# matches {matcher_of(rule)}"]
    return shown_lines("\n".join((*lines, as_toml([rule], version=None).strip())))


def floor_in_full(row: FloorRow) -> str:
    """
    Everything the *row* of the floor says.
    """
    lines = [f"{key} = {value!r}" for key, value in row.to_dict().items()]
    return shown_lines("\n".join(("# row of the floor: it denies whatever the rules say", *lines)))


def shown_lines(text: str) -> str:
    """
    *text* with its lines kept and everything else escaped that steers a terminal.
    """
    return "\n".join(map(shown, text.split("\n")))
