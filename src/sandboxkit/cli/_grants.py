"""
`sandboxkit grants`: what was approved for good.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandboxkit.approval import GrantStore
from sandboxkit.cli._exit import Exit
from sandboxkit.cli._output import printable, say, table

if TYPE_CHECKING:
    import argparse

    from sandboxkit.cli._report import Report

__all__ = ["clear", "list", "revoke"]


def list(options: argparse.Namespace, report: Report) -> int:  # noqa: A001 - the verb's name; the builtin is not used here
    """
    Prints what counts now.
    """
    grants = GrantStore(options.grants).grants()
    if not report.is_json:
        rows = [(grant.id, _day(grant.expires), grant.cwd, grant.command) for grant in grants]
        say(table(("id", "until", "directory", "command"), rows) if rows else "nothing is approved for good")
    return report.done(Exit.DONE, "listed", {"grants": [grant.to_dict() for grant in grants]})


def revoke(options: argparse.Namespace, report: Report) -> int:
    """
    Forgets one.
    """
    grant = GrantStore(options.grants).revoke(options.id)
    if not report.is_json:
        say(f"forgotten: {printable(grant.command)}")
    return report.done(Exit.DONE, "revoked", {"grants": [grant.to_dict()]})


def clear(options: argparse.Namespace, report: Report) -> int:
    """
    Forgets all.
    """
    count = GrantStore(options.grants).clear()
    if not report.is_json:
        say(f"forgotten: {count}")
    return report.done(Exit.DONE, "cleared", {"count": count})


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
