"""
`sandboxkit audit`: is a log whole, and what does it say?
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import select
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sandboxkit.audit import AuditKey, AuditRecord, Verification, examine, record_schema
from sandboxkit.audit._files import absolute, at_hand
from sandboxkit.audit._follow import Follower, Notice
from sandboxkit.audit._read import Line, last_lines_of, lines
from sandboxkit.cli._exit import Exit
from sandboxkit.cli._log import records_of
from sandboxkit.cli._output import note, printable, say, shortened
from sandboxkit.errors import AuditError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    from sandboxkit.cli._report import Report

__all__ = ["grep", "schema", "tail", "verify"]

_PAUSE_MS = 250
_WIDTH = 200


def _said(verb: Callable[[argparse.Namespace, Report], int]) -> Callable[[argparse.Namespace, Report], int]:
    """
    *verb*, for which a log that cannot be read, or a wrong pattern, is wrong use.
    """

    @functools.wraps(verb)
    def said(options: argparse.Namespace, report: Report) -> int:
        try:
            return verb(options, report)
        except AuditError as exc:
            return report.failed(Exit.USAGE, exc, str(exc))
        except re.error as exc:
            return report.failed(Exit.USAGE, exc, f"PATTERN is no regular expression: {exc}; -F takes it as plain text")

    return said


@_said
def verify(options: argparse.Namespace, report: Report) -> int:
    """
    Says whether the log holds together, and what that does not prove.
    """
    key = AuditKey.from_file(options.key_file) if options.key_file is not None else None
    found = examine(options.log, key=key, expect_head=options.expect_head, anchors=options.anchors)
    if not report.is_json:
        say("\n".join(map(printable, _verification(found))))
    return report.done(Exit.DONE if found.is_whole else Exit.FOUND_WANTING, "verified", found.to_dict())


def _verification(found: Verification) -> Iterator[str]:
    for file in found.files:
        if file.is_whole is None:
            yield f"{file.path}: not checked"
        elif file.last is None:
            yield f"{file.path}: no record"
        else:
            yield f"{file.path}: records {file.first} to {file.last.sequence}"
    for tear in found.tears:
        yield f"recovered: {tear.file}, line {tear.line}: {tear.bytes} bytes of a record that a crash cut off; record {tear.marked_by} says so"
    if found.problem:
        yield f"BROKEN: {found.problem.file}: {found.problem}"
        yield f"remedy: {found.remedy}"
    else:
        yield f"whole: {found.records} records, each follows the one before"
    if found.head:
        yield f"head: {found.head}"
    for claim in found.not_proven:
        yield f"not proven: {claim}"


@_said
def tail(options: argparse.Namespace, report: Report) -> int:
    """
    Shows the last records, and with --follow the coming ones.
    """
    path = absolute(options.log)
    show = _printer(report)
    if options.follow:
        return _follow(Follower(path, options.lines), show)
    with at_hand(path) as files:
        count = _show(lines(last_lines_of(files, options.lines)), show)
    if not count and next(records_of(path), None) is None:
        note(f"{path}: no record yet")
    return Exit.DONE


def _show(found: Iterable[Line | Notice], show: Callable[[AuditRecord], None]) -> int:
    """
    Shows what was *found*, and says how many records that were.
    """
    count = 0
    for item in found:
        if isinstance(item, Notice):
            note(item)
        elif record := AuditRecord.of(item):
            show(record)
            count += 1
        else:
            note(f"{item.file}: a line that is no record: {shortened(_readable(item.text), 100)}")
    return count


def _readable(text: bytes) -> str:
    return text[:400].decode("utf-8", "replace")


def _follow(follower: Follower, show: Callable[[AuditRecord], None]) -> int:
    with contextlib.closing(follower):
        try:
            while True:
                _show(follower.lines(), show)
                if _wait_or_left():
                    return Exit.BROKEN_PIPE
        except KeyboardInterrupt:
            return Exit.INTERRUPTED


def _wait_or_left() -> bool:
    """
    Waits a moment. Whether the reader of our output has gone meanwhile: without a new
    record nothing else would say so.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(_PAUSE_MS))


@_said
def grep(options: argparse.Namespace, report: Report) -> int:
    """
    Shows the records that fit.
    """
    fits = _filter(options)
    show = _printer(report)
    count = 0
    for record in records_of(options.log):
        if fits(record):
            show(record)
            count += 1
    return Exit.DONE if count else Exit.FOUND_WANTING


def _filter(options: argparse.Namespace) -> Callable[[AuditRecord], bool]:
    text = re.escape(options.pattern) if options.fixed_strings else options.pattern
    pattern = re.compile(text, re.IGNORECASE if options.ignore_case else 0)
    since = options.since if options.since is not None else float("-inf")
    until = options.until if options.until is not None else float("inf")

    def fits(record: AuditRecord) -> bool:
        if options.kind and record.kind != options.kind:
            return False
        if options.run and not record.run_id.startswith(options.run):
            return False
        if options.action and record.action != options.action:
            return False
        return since <= record.time <= until and _has(record, pattern, options.field)

    return fits


def _has(record: AuditRecord, pattern: re.Pattern[str], name: str | None) -> bool:
    fields = record.to_dict()
    wanted = list(fields.values()) if name is None else fields.get(name)
    return any(pattern.search(text) for text in _texts(wanted))


def _texts(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case None:
                pass
            case dict() as held:
                waiting += [*held.values(), *held.keys()]
            case list() as held:
                waiting += held
            case bool() as held:
                yield str(held).lower()
            case held:
                yield str(held)


@_said
def schema(options: argparse.Namespace, report: Report) -> int:
    """
    Prints the JSON Schema of a record.
    """
    say(json.dumps(record_schema(), indent=2))
    return Exit.DONE


def _printer(report: Report) -> Callable[[AuditRecord], None]:
    if report.is_json:
        return lambda record: say(json.dumps(record.to_dict()))
    return lambda record: say(_described(record))


def _described(record: AuditRecord) -> str:
    about = {"decided": _decided, "egress": _egress}.get(record.kind, _finished)(record)
    words = [
        _clock(record.time),
        f"#{record.head.sequence}",
        printable(record.run_id[:8]),
        shortened(record.kind, 12),
        *about,
    ]
    if record.masked:
        words.append("[masked]")
    if record.cut:
        words.append("[cut]")
    return " ".join(words)


def _decided(record: AuditRecord) -> Iterator[str]:
    fields = record.fields
    yield shortened(str(record.action), 12)
    yield shortened(str(fields.get("outcome")), 20)
    if mode := fields.get("mode"):
        yield f"({shortened(str(mode), 20)}, {shortened(str(fields.get('backend')), 40)})"
    if record.cwd is not None:
        yield f"in {shortened(record.cwd, 100)}:"
    yield shortened(str(fields.get("command")), _WIDTH)
    if error := fields.get("error"):
        yield f"-- {shortened(str(error), _WIDTH)}"


def _egress(record: AuditRecord) -> Iterator[str]:
    fields = record.fields
    yield shortened(str(fields.get("action")), 12)
    yield f"{shortened(str(fields.get('destination')), _WIDTH)}:"
    yield shortened(str(fields.get("reason")), _WIDTH)
    if problem := fields.get("problem"):
        yield f"-- {shortened(str(problem), _WIDTH)}"


def _finished(record: AuditRecord) -> Iterator[str]:
    fields = record.fields
    yield shortened(str(fields.get("outcome")), 20)
    if error := fields.get("error"):
        yield f"-- {shortened(str(error), _WIDTH)}"
        return
    yield shortened(str(fields.get("termination")), 20)
    if fields.get("exit_code") is not None:
        yield f"code {shortened(str(fields['exit_code']), 12)}"
    if fields.get("signal") is not None:
        yield f"signal {shortened(str(fields['signal']), 12)}"
    yield f"after {shortened(str(fields.get('duration_s')), 12)} s"


def _clock(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return "at no time"
