"""
Arguments in, exit code out; and no traceback, whatever happens between.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import sys
import traceback
from typing import TYPE_CHECKING, Protocol, cast

from sandboxkit.cli._exit import Exit, exit_of
from sandboxkit.cli._interrupt import came
from sandboxkit.cli._options import ROOMS, parser
from sandboxkit.cli._output import OutputError, note, say, wired, without_reader
from sandboxkit.cli._report import Report
from sandboxkit.cli._verbs import Usage
from sandboxkit.errors import SandboxError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

__all__ = ["main"]

_OBJECTS = 500_000
"""
How many new objects there are before garbage is looked for. Importing makes a tenth of
that, of which none is garbage, and the usual 700 costs a twelfth of the start.
"""
_INTERRUPTED = "interrupted; what was started has been ended"
_TAKE_TEXT = ("eval", "render")


class _Verb(Protocol):
    def __call__(self, options: argparse.Namespace, report: Report) -> int: ...


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """
    The options before the first `--`, and everything after it as the command; or as the
    text, where a verb takes one.
    """
    head, tail = list(arguments), []
    if "--" in head and head[0] not in _TAKE_TEXT:
        at = head.index("--")
        head, tail = head[:at], head[at:]
    root = parser(head[0] if head and head[0] in ROOMS else None)
    options = root.parse_args(head)
    if hasattr(options, "command"):
        options.command = [*options.command, *tail] if options.command else tail[1:]
        if not options.command:
            raise Usage("a command is missing", f"usage: sandboxkit {options.verb} [options] -- CMD")
    elif tail[1:]:
        root.error(f"{options.verb or 'sandboxkit'} takes no command")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """
    The `sandboxkit` command.

    Args:
        arguments: What follows the program's name; None is the process's own.

    Returns:
        The exit code; `sandboxkit --help` lists them.
    """
    if arguments is None:
        gc.set_threshold(_OBJECTS)
        atexit.register(gc.freeze)  # so that what ends the interpreter does not look for garbage, several times
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        wired()
        code = _dispatched(given)
    except KeyboardInterrupt:  # before there was a report to say it in
        code = Exit.INTERRUPTED
    except BrokenPipeError:
        without_reader()
        code = Exit.BROKEN_PIPE
    except OutputError as exc:
        without_reader()
        note(str(exc))
        code = Exit.INTERNAL
    return int(code)


def _dispatched(given: Sequence[str]) -> int:
    ours = given[: given.index("--")] if "--" in given else given
    report, is_debugging = Report(is_json="--json" in ours), False
    try:
        options = _parsed(given)
        if options.verb:
            report, is_debugging = (
                Report(is_json=options.json, status_fd=getattr(options, "status_fd", None)),
                options.debug,
            )
        return _carried_out(options, report)
    except SystemExit as exc:  # --help has printed
        return exc.code if isinstance(exc.code, int) else Exit.DONE
    except Usage as exc:
        return report.failed(Exit.USAGE, exc, f"{exc}\n{exc.usage.strip()}\ntry: sandboxkit --help")
    except KeyboardInterrupt as exc:
        return report.failed(Exit.INTERRUPTED, exc, _INTERRUPTED)
    except (BrokenPipeError, OutputError):
        raise
    except Exception as exc:  # noqa: BLE001 - the last resort: a line instead of a traceback
        if came():  # while a class was made, for example
            return report.failed(Exit.INTERRUPTED, exc, _INTERRUPTED)
        if is_debugging:
            traceback.print_exc()
        return report.failed(exit_of(exc), exc, _said(exc))


def _said(exc: Exception) -> str:
    if isinstance(exc, SandboxError):
        return str(exc)
    if isinstance(exc, MemoryError):
        return "no memory is left for this process; free some, or raise ulimit -v"
    return f"unexpected {type(exc).__name__}: {exc}; --debug shows where"


def _carried_out(options: argparse.Namespace, report: Report) -> int:
    if options.version:
        from importlib.metadata import version

        say(f"sandboxkit {version('sandboxkit')}")
        return Exit.DONE
    if options.verb is None:
        raise Usage(f"a verb is missing: {', '.join(ROOMS)}", "usage: sandboxkit VERB ...")
    if options.verb == "run" and sys.platform == "linux":
        from sandboxkit.process import start_early

        start_early()  # while this process loads what decides and plans
    room = importlib.import_module(f"sandboxkit.cli.{ROOMS[options.verb]}")
    return cast("_Verb", getattr(room, getattr(options, "member", options.verb)))(options, report)
