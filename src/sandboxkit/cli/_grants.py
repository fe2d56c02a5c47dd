"""
`sandboxkit grants`: what was approved for good.
"""

from __future__ import annotations

import os
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
    store = GrantStore(options.grants)
    grants = store.grants()
    if not report.is_json:
        rows = [(grant.id, _day(grant.expires), grant.cwd, grant.command) for grant in grants]
        nothing = f"nothing is approved for good{_missing(store)}"
        say(table(("id", "until", "directory", "command"), rows) if rows else nothing)
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
    store = GrantStore(options.grants)
    missing = _missing(store)
    count = store.clear()
    if not report.is_json:
        say(f"forgotten: {count}{missing}")
    return report.done(Exit.DONE, "cleared", {"count": count})


def _missing(store: GrantStore) -> str:
    """
    What to say where there is no file: its name may be another one than was meant.
    """
    return "" if os.path.lexists(store.path) else printable(f" ({store.path} is not there)")


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
