"""
Arguments in, exit code out; and no traceback, whatever happens between.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from sandboxkit.cli._exit import EPILOG, Exit, exit_of
from sandboxkit.cli._output import note, say, wired, without_reader
from sandboxkit.cli._report import Report
from sandboxkit.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


class _Usage(Exception):  # noqa: N818 - not an error of the tree: it never leaves this module
    """
    Wrong arguments, and the usage line that is right.
    """

    def __init__(self, problem: str, usage: str) -> None:
        self.usage = usage
        super().__init__(problem)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Usage(message, self.format_usage())


class _Verb(Protocol):
    def __call__(self, options: argparse.Namespace, report: Report) -> int: ...


_DESCRIPTION = """\
Runs commands you do not trust: decided by rules, in the strongest sandbox this machine
really has, and says what was enforced. What cannot be enforced is refused.
"""

_COMMAND_HELP = "one argument is a command line, read like bash reads it; several are a program and its arguments"


def _parser() -> _Parser:
    common = _Parser(add_help=False, allow_abbrev=False)
    common.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    common.add_argument("--debug", action="store_true", help="print the traceback when sandboxkit itself fails")
    box = _Parser(add_help=False, allow_abbrev=False)
    box.add_argument("--spec", metavar="FILE", help="the box, as a TOML or JSON file; the options below add to it")
    box.add_argument(
        "--network",
        choices=("none", "host"),
        help="none (the default): nothing outside the box; host: the host's network, unfiltered",
    )
    box.add_argument(
        "--write",
        metavar="PATH",
        action="append",
        default=[],
        help="a directory or file the command may write (repeatable)",
    )
    box.add_argument(
        "--read", metavar="PATH", action="append", default=[], help="a directory or file it may read (repeatable)"
    )
    box.add_argument("--timeout", metavar="S", type=_seconds, help="seconds until everything is ended (default: 600)")

    parser = _Parser(
        prog="sandboxkit",
        description=_DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser)

    def verb(name: str, summary: str, details: str, *parents: _Parser) -> _Parser:
        return verbs.add_parser(
            name,
            usage=f"sandboxkit {name} [options]{' -- CMD' if name in _TAKE_COMMAND else ''}",
            help=summary,
            description=details,
            epilog=EPILOG if name in _TAKE_COMMAND else None,
            parents=[*parents, common],
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    run = verb("run", "run a command in a box", _RUN, box)
    run.add_argument(
        "--status-fd", metavar="N", type=_descriptor, help="write the outcome as one line of JSON to this descriptor"
    )
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD", help=_COMMAND_HELP)
    for name, summary, details in (
        ("check", "say what the policy decides", _CHECK),
        ("explain", "say what would be done", _EXPLAIN),
    ):
        added = verb(name, summary, details, *([box] if name == "explain" else []))
        added.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD", help=_COMMAND_HELP)
    verb("doctor", "look at this machine, with remedies", _DOCTOR)
    verb("backends", "list the backends", _BACKENDS)
    verb("demo", "show it at work, and check it", _DEMO)
    return parser


_RUN = """\
Runs CMD in a box. Without --spec it may read the working directory and the system's own
files, writes nothing but its private /tmp and home, and has no network. A working
directory that is or holds your home is only read if --read names it.

Standard input is handed over when it is a pipe or a file: it is read to its end first,
at most 64 MiB. A terminal never enters the box. Output is shown when the command ends.
"""
_CHECK = """\
Says what the policy decides about CMD and which rules matched. Runs nothing.
"""
_EXPLAIN = """\
Says what `run` would do with CMD: the decision, the backend, the plan step by step, and
what would be enforced. Runs nothing.
"""
_DOCTOR = """\
Looks at the machine and at every backend, and says how to mend what is missing.
Ends with 1 if no backend is available.
"""
_BACKENDS = """\
Lists the backends in the order they are preferred.
"""
_DEMO = """\
Runs a few commands in a temporary directory of its own that show what is allowed, boxed
and refused, and ends with what was enforced. Ends with 1 if anything that must be
refused was not.
"""

_ROOMS = {
    "run": "_run",
    "check": "_check",
    "explain": "_check",
    "doctor": "_doctor",
    "backends": "_doctor",
    "demo": "_demo",
}
_TAKE_COMMAND = ("run", "check", "explain")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 365 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds; give a positive one, at most a year")
    return seconds


def _descriptor(text: str) -> int:
    try:
        os.fstat(int(text))
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"descriptor {text} is not open; open it in the shell, for example {text}>status.json"
        ) from None
    return int(text)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """
    The options before the first `--`, and everything after it as the command.
    """
    head, tail = list(arguments), []
    if "--" in head:
        at = head.index("--")
        head, tail = head[:at], head[at:]
    parser = _parser()
    options = parser.parse_args(head)
    if hasattr(options, "command"):
        options.command = [*options.command, *tail] if options.command else tail[1:]
        if not options.command:
            raise _Usage("a command is missing", f"usage: sandboxkit {options.verb} [options] -- CMD")
    elif tail[1:]:
        parser.error(f"{options.verb or 'sandboxkit'} takes no command")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """
    The `sandboxkit` command.

    Args:
        arguments: What follows the program's name; None is the process's own.

    Returns:
        The exit code; `sandboxkit --help` lists them.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    wired()
    try:
        code = _dispatched(given)
        sys.stdout.flush()
    except BrokenPipeError:
        without_reader()
        code = Exit.BROKEN_PIPE
    except OSError as exc:
        without_reader()
        note(f"the output cannot be written: {exc.strerror}")
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
    except _Usage as exc:
        return report.failed(Exit.USAGE, exc, f"{exc}\n{exc.usage.strip()}\ntry: sandboxkit --help")
    except KeyboardInterrupt as exc:
        return report.failed(Exit.INTERRUPTED, exc, "interrupted; what was started has been ended")
    except BrokenPipeError:
        raise
    except Exception as exc:  # noqa: BLE001 - the last resort: a line instead of a traceback
        if is_debugging:
            traceback.print_exc()
        code = exit_of(exc)
        is_known = isinstance(exc, SandboxError)
        return report.failed(
            code, exc, str(exc) if is_known else f"unexpected {type(exc).__name__}: {exc}; --debug shows where"
        )


def _carried_out(options: argparse.Namespace, report: Report) -> int:
    if options.version:
        from importlib.metadata import version

        say(f"sandboxkit {version('sandboxkit')}")
        return Exit.DONE
    if options.verb is None:
        raise _Usage(f"a verb is missing: {', '.join(_ROOMS)}", "usage: sandboxkit VERB ...")
    room = importlib.import_module(f"sandboxkit.cli.{_ROOMS[options.verb]}")
    return cast("_Verb", getattr(room, options.verb))(options, report)
