"""
The arguments of `sandboxkit audit`. Loads nothing, so that `--help` stays quick.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandboxkit.cli._verbs import named

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxkit.audit import Head
    from sandboxkit.cli._verbs import Verbs

__all__ = ["add_audit_arguments"]

_DETAILS = """\
Reads the logs that JsonlAudit writes, over all the files of a log.

  verify  checks that nothing was changed, inserted or taken out; ends with 1 if something was
  tail    shows the last records, with --follow also the coming ones
  grep    shows the records that fit; ends with 1 if there is none
  schema  prints the JSON Schema of a record
"""

_VERIFY = """\
Checks the chain of hashes over all files of the log. Ends with 0 where it holds, with 1
at the first line that does not fit. It also says what that does not prove.
"""
_TAIL = """\
Shows the last records of the log, one a line. --json prints each as an object on a line.
"""
_GREP = """\
Shows the records that fit every option given, and PATTERN in one of their fields.
--json prints each as an object on a line. Ends with 1 if there is none.
"""
_SCHEMA = """\
Prints the JSON Schema (2020-12) of a record.
"""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_ACTIONS = ("allow", "sandbox", "ask", "deny")


def add_audit_arguments(root: Verbs) -> None:
    """
    Adds `audit` and its verbs.
    """
    verbs = root.family("audit", "check and read the records", _DETAILS)
    verify = verbs.add("verify", "check that a log holds together", _VERIFY, takes="LOG")
    verify.add_argument(
        "log", metavar="LOG", type=named, help="the file that is being written; the older ones are found beside it"
    )
    verify.add_argument(
        "--expect-head",
        metavar="HASH",
        type=_head,
        help="a head that was kept elsewhere, as HASH or NUMBER:HASH: it must be there",
    )
    verify.add_argument(
        "--anchors", metavar="FILE", type=named, help="heads that were kept elsewhere, in the file of a FileAnchor"
    )
    verify.add_argument(
        "--key-file", metavar="FILE", type=named, help="the key of the log, in a file that only you can read"
    )

    tail = verbs.add("tail", "show the last records", _TAIL, takes="LOG")
    tail.add_argument("log", metavar="LOG", type=named, help="the log")
    tail.add_argument("-n", "--lines", metavar="N", type=_count, default=10, help="how many (default: 10)")
    tail.add_argument("-f", "--follow", action="store_true", help="go on with each record as it comes, over rotations")

    grep = verbs.add("grep", "show the records that fit", _GREP, takes="PATTERN LOG")
    grep.add_argument("pattern", metavar="PATTERN", help="a regular expression, looked for in every field; '' fits all")
    grep.add_argument("log", metavar="LOG", type=named, help="the log")
    grep.add_argument("-F", "--fixed-strings", action="store_true", help="PATTERN is plain text")
    grep.add_argument("-i", "--ignore-case", action="store_true", help="upper and lower case are the same")
    grep.add_argument("--field", metavar="NAME", help="look only in this field, for example command")
    grep.add_argument("--kind", choices=("decided", "egress", "finished"), help="only records of this kind")
    grep.add_argument("--run", metavar="ID", help="only records of the run whose id begins so")
    grep.add_argument("--action", choices=_ACTIONS, help="only decisions for this action")
    grep.add_argument("--since", metavar="TIME", type=_time, help=f"not before: {_TIMES}")
    grep.add_argument("--until", metavar="TIME", type=_time, help="not after")

    verbs.add("schema", "print the JSON Schema of a record", _SCHEMA)


_TIMES = "2026-01-31, 2026-01-31T12:00 (local, or with Z or an offset), seconds since the epoch, or 15m, 2h, 3d ago"


def _head(text: str) -> Head:
    from sandboxkit.audit import Head

    try:
        return Head.parse(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of records; give 0 or more")
    return int(text)


def _time(text: str) -> float:
    if found := re.fullmatch(r"([0-9]{1,9})([smhd])", text):
        return time.time() - int(found[1]) * _UNITS[found[2]]
    readers: tuple[Callable[[str], float], ...] = (float, lambda word: datetime.fromisoformat(word).timestamp())
    for reader in readers:
        try:
            seconds = reader(text)
            datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            continue
        if math.isfinite(seconds):
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is no time; give {_TIMES}")
