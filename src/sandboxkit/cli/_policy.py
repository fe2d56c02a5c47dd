"""
`sandboxkit policy`: rules checked, tried and looked over. Nothing runs.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from sandboxkit.cli._exit import Exit
from sandboxkit.cli._output import printable, say, table
from sandboxkit.cli._policy_files import policy_of
from sandboxkit.cli._replay import Replayed, replayed, said
from sandboxkit.errors import AuditError, PolicyError
from sandboxkit.model import Level, PolicyAction
from sandboxkit.policy import FloorRow, PolicyRule, diagnostic, rules_schema
from sandboxkit.policy._dashboard import dashboard, floor_in_full, may_match, rule_in_full
from sandboxkit.policy._lint import lint_file
from sandboxkit.policy._load import from_file
from sandboxkit.policy._trial import Outcome, trials

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from sandboxkit.cli._report import Report
    from sandboxkit.policy import ExecPolicy
    from sandboxkit.policy._problems import Problem

__all__ = ["lint", "replay", "schema", "show", "test"]


# lint


def lint(options: argparse.Namespace, report: Report) -> int:
    """
    Reports what is wrong and what is doubtful with the files.
    """
    level = Level[options.level.upper()]
    found = [(name, problem) for name in options.files for problem in lint_file(name, level)]
    mistakes = sum(not problem.check for _, problem in found)
    if not report.is_json:
        for name, problem in found:
            say(_line(name, problem))
        say(_sum(mistakes, len(found) - mistakes, len(options.files)))
    code = Exit.FOUND_WANTING if mistakes or (options.strict and found) else Exit.DONE
    fields = {
        "mistakes": mistakes,
        "warnings": len(found) - mistakes,
        "problems": [{"file": name, **problem.to_dict()} for name, problem in found],
    }
    return report.done(code, "linted", fields)


def _line(name: str, problem: Problem) -> str:
    place = f"{name}:{problem.line}" if problem.line else name
    kind = f"warning[{problem.check}]" if problem.check else "error"
    subject = (
        [] if problem.row is None else [repr(problem.rule_id) if problem.rule_id else f"{problem.table}[{problem.row}]"]
    )
    words = ": ".join([*subject, *([problem.key] if problem.key else []), problem.message])
    return printable(f"{place}: {kind}: {words}")


def _sum(mistakes: int, warnings: int, files: int) -> str:
    if not mistakes and not warnings:
        return f"{_count(files, 'file')}: nothing wrong, nothing doubtful"
    return f"{_count(files, 'file')}: {_count(mistakes, 'mistake')}, {_count(warnings, 'warning')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# test


def test(options: argparse.Namespace, report: Report) -> int:
    """
    Tries the examples and tests of a file.
    """
    given = [(options.level, options.file), *options.policy]
    policy = policy_of(given)
    level = Level[options.level.upper()]
    outcomes = list(trials(policy, level, from_file(options.file, level).tests))
    if not outcomes:
        problem = "there is nothing to try in it; give its rules match and not_match, or the file [[tests]]"
        raise PolicyError(problem, source=options.file)
    wrong = [outcome for outcome in outcomes if not outcome.is_right]
    if not report.is_json:
        for outcome in wrong:
            say("\n".join(_failure(outcome)))
        kinds = Counter(outcome.kind for outcome in outcomes)
        tried = ", ".join(f"{kinds[kind]} {kind}" for kind in ("match", "not_match", "tests"))
        say(
            f"{_count(len(outcomes), 'command')} tried ({tried}): {len(outcomes) - len(wrong)} as expected, {len(wrong)} not"
        )
    code = Exit.FOUND_WANTING if wrong else Exit.DONE
    fields = {"tried": len(outcomes), "failed": len(wrong), "outcomes": [_outcome(outcome) for outcome in outcomes]}
    return report.done(code, "tested", fields)


def _failure(outcome: Outcome) -> Iterator[str]:
    subject = f"tests[{outcome.subject}]" if outcome.kind == "tests" else f"{outcome.subject}, {outcome.kind}"
    yield printable(f"FAILED {subject}: {_shown(outcome.command)}")
    yield printable(f"  expected {outcome.expected}, found {outcome.found}")
    if outcome.reason:
        yield printable(f"  {outcome.reason}")
    if outcome.evaluation:
        yield from (f"  {line}".rstrip() for line in diagnostic(outcome.evaluation).splitlines())
    yield ""


def _shown(command: str | Sequence[str]) -> str:
    return command if isinstance(command, str) else json.dumps(list(command), ensure_ascii=False)


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "kind": outcome.kind,
        "subject": outcome.subject,
        "command": outcome.command,
        "expected": outcome.expected,
        "found": outcome.found,
        "right": outcome.is_right,
    }


# show


def show(options: argparse.Namespace, report: Report) -> int:
    """
    Shows the rules in force.
    """
    policy = policy_of(options.policy)
    if options.rule is not None:
        return _show_one(policy, options.rule, report)
    level = Level[options.level.upper()] if options.level else None
    wanted = _filter(options)
    if not report.is_json:
        say(dashboard(policy, level=level, wanted=wanted))
    levels = [one for one in Level if one is not Level.FLOOR and level in (None, one)]
    rules = [_rule(rule, one) for one in levels for rule in policy.rules(one) if wanted(rule)]
    floor = [row for row in policy.floor() if level in (None, Level.FLOOR) and wanted(row)]
    fields = {
        "default": str(policy.default_action),
        "rules_digest": policy.rules_digest,
        "files": list(policy.paths),
        "rules": rules,
        "floor": [row.to_dict() for row in floor],
    }
    return report.done(Exit.DONE, "shown", fields)


def _filter(options: argparse.Namespace) -> Callable[[PolicyRule | FloorRow], bool]:
    action = PolicyAction.from_name(options.action) if options.action else None

    def wanted(rule: PolicyRule | FloorRow) -> bool:
        says = rule.action if isinstance(rule, PolicyRule) else PolicyAction.DENY
        return action in (None, says) and (options.program is None or may_match(rule, options.program))

    return wanted


def _rule(rule: PolicyRule, level: Level) -> dict[str, Any]:
    return {"level": str(level), "rank": rule.rank, **rule.to_dict()}


def _show_one(policy: ExecPolicy, rule_id: str, report: Report) -> int:
    levels = [level for level in Level if level is not Level.FLOOR]
    rules = [(rule, level) for level in levels for rule in policy.rules(level) if rule.id == rule_id]
    floor = [row for row in policy.floor() if row.id == rule_id]
    if not rules and not floor:
        known = [rule.id for rule in policy.rules()] + [row.id for row in policy.floor()]
        near = [known_id for known_id in known if rule_id in known_id][:5]
        hint = f"; near it are {', '.join(near)}" if near else "; `policy show` lists all"
        return report.failed(Exit.FOUND_WANTING, PolicyError("none"), f"no rule has the id {rule_id!r}{hint}")
    if not report.is_json:
        texts = [*(rule_in_full(rule, level) for rule, level in rules), *map(floor_in_full, floor)]
        say("\n\n".join(texts))
    fields = {
        "rules": [_rule(rule, level) for rule, level in rules],
        "floor": [row.to_dict() for row in floor],
    }
    return report.done(Exit.DONE, "shown", fields)


# replay


def replay(options: argparse.Namespace, report: Report) -> int:
    """
    Says what would have been decided about the commands of a log.
    """
    policy = policy_of(options.policy)
    try:
        found = replayed(policy, options.log)
    except AuditError as exc:
        return report.failed(Exit.USAGE, exc, str(exc))
    if not report.is_json:
        say("\n".join(_replay_lines(found)))
    failing = {
        "change": found.changes,
        "looser": [change for change in found.changes if change.after < change.before],
        "stricter": [change for change in found.changes if change.after > change.before],
        None: (),
    }[options.fail_on]
    return report.done(Exit.FOUND_WANTING if failing else Exit.DONE, "replayed", found.to_dict())


def _replay_lines(found: Replayed) -> Iterator[str]:
    changed = sum(change.times for change in found.changes)
    yield f"{_count(found.decisions, 'decision')} judged again, {changed} would change"
    if found.left_out:
        yield f"left out: {said(found.left_out)}"
    if not found.changes:
        return
    yield ""
    counts: Counter[tuple[str, str]] = Counter()
    for change in found.changes:
        counts[str(change.before), str(change.after)] += change.times
    yield table(("before", "after", "decisions"), [(*pair, str(count)) for pair, count in sorted(counts.items())])
    yield ""
    rows = [
        (str(change.before), str(change.after), str(change.times), _clipped(_shown(change.command)), change.reason)
        for change in found.changes
    ]
    yield table(("before", "after", "times", "command", "reason"), rows)


def _clipped(text: str) -> str:
    return text if len(text) <= _MAX_COMMAND else text[: _MAX_COMMAND - 3] + "..."


_MAX_COMMAND = 80


# schema


def schema(options: argparse.Namespace, report: Report) -> int:
    """
    Prints the JSON Schema of a rule file; with `--json` too, as it is JSON already.
    """
    say(json.dumps(rules_schema(), indent=2, ensure_ascii=False))
    return Exit.DONE
