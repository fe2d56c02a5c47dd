"""
The arguments of `sandboxkit`: every verb with its options and its help.
"""

from __future__ import annotations

import argparse
import os
import sys

from sandboxkit.cli._audit_arguments import add_audit_arguments
from sandboxkit.cli._egress_arguments import add_egress_arguments
from sandboxkit.cli._eval_arguments import add_eval_arguments
from sandboxkit.cli._exit import EPILOG
from sandboxkit.cli._grant_arguments import add_ask_options, add_grant_arguments
from sandboxkit.cli._policy_arguments import add_policy_arguments, add_policy_option
from sandboxkit.cli._verbs import Formatter, Parser, Verbs, named

__all__ = ["ROOMS", "parser"]


_DESCRIPTION = """\
Runs commands you do not trust: decided by rules, in the strongest sandbox this machine
really has, and says what was enforced. What cannot be enforced is refused.
"""

_COMMAND_HELP = "one argument is a command line, read like bash reads it; several are a program and its arguments"


def parser(verb: str | None = None) -> Parser:
    """
    Everything the command takes. Made anew each time, and without importing what
    carries the verbs out.

    Args:
        verb: The one that is known to be given, so that the others are not made; None
            makes all.
    """
    root = Parser(
        prog="sandboxkit",
        description=_DESCRIPTION,
        epilog=EPILOG,
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    root.add_argument("--version", action="store_true", help="print the version")
    verbs = Verbs(root.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser), _common())
    for names, add in _ADDED:
        if verb is None or verb in names:
            add(verbs)
    return root


def _add_others(verbs: Verbs) -> None:
    doctor = verbs.add("doctor", "look at this machine, with remedies", _DOCTOR, takes="[FILE ...]")
    doctor.add_argument(
        "files", metavar="FILE", nargs="*", help="a configuration file: warns where it holds secrets others can read"
    )
    backends = verbs.add("backends", "list the backends", _BACKENDS)
    backends.add_argument(
        "--allow",
        metavar="NAME",
        action="append",
        default=[],
        help="also load the plug-in NAME of an installed package, which runs its code; may be given again",
    )
    verbs.add("demo", "show it at work, and check it", _DEMO)
    completion = verbs.add("completion", "complete the command line in a shell", _COMPLETION, takes="SHELL")
    completion.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


def _common() -> Parser:
    common = Parser(add_help=False, allow_abbrev=False)
    common.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    common.add_argument("--debug", action="store_true", help="print the traceback when sandboxkit itself fails")
    return common


def _box() -> Parser:
    box = Parser(add_help=False, allow_abbrev=False)
    box.add_argument(
        "--spec", metavar="FILE", type=named, help="the box, as a TOML or JSON file; the options below add to it"
    )
    box.add_argument(
        "--network",
        choices=("none", "listed", "host"),
        help="none (the default): nothing outside the box; listed: what --allow-host and the spec list; host: the host's network, unfiltered",
    )
    box.add_argument(
        "--allow-host",
        metavar="HOST[:PORT]",
        action="append",
        default=[],
        help="a host the command may reach, through a proxy it is told about (repeatable); *.HOST is one label more",
    )
    box.add_argument(
        "--intercept",
        action="store_true",
        help="look into TLS, so that rules about paths hold for https; the command trusts the proxy alone",
    )
    box.add_argument(
        "--inject",
        metavar="NAME=HOST[:PORT][/PATH]",
        action="append",
        default=[],
        help="let the command use the secret in the variable NAME there by https, and never see it (repeatable)",
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
    return box


def _add_commands(verbs: Verbs) -> None:
    box = _box()
    run = verbs.add("run", "run a command in a box", _RUN, box, takes="-- CMD", epilog=EPILOG)
    run.add_argument(
        "--status-fd", metavar="N", type=_descriptor, help="write the outcome as one line of JSON to this descriptor"
    )
    run.add_argument(
        "--explain",
        action="store_true",
        help="say what the command was refused, and the line of a spec that would allow it; takes longer",
    )
    add_ask_options(run)
    run.add_argument(
        "--audit",
        metavar="FILE",
        type=named,
        help="add what is decided and how it ends to this log; what cannot be recorded is not run",
    )
    run.add_argument(
        "--audit-key",
        metavar="FILE",
        type=named,
        help="with --audit: the key of the log, in a file that only you can read",
    )
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD", help=_COMMAND_HELP)
    learn = verbs.add("learn", "find the smallest box a command passes in", _LEARN, box, takes="-- CMD")
    learn.add_argument("-o", "--output", metavar="FILE", type=named, help="write the spec to this file, not to stdout")
    learn.add_argument("--force", action="store_true", help="replace FILE where it exists")
    learn.add_argument(
        "--within",
        metavar="PATH",
        action="append",
        default=[],
        help="approve lines about paths in this directory without asking (repeatable)",
    )
    learn.add_argument("--max-runs", metavar="N", type=_count, default=50, help="runs to give up after (default: 50)")
    learn.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD", help=_COMMAND_HELP)
    check = verbs.add("check", "say what the policy decides", _CHECK, takes="-- CMD", epilog=EPILOG)
    explain = verbs.add("explain", "say what would be done", _EXPLAIN, box, takes="-- CMD", epilog=EPILOG)
    for verb in (run, learn, check, explain):
        add_policy_option(verb, "a rule file that decides beside the built-in rules")
    for verb in (check, explain):
        verb.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD", help=_COMMAND_HELP)


_RUN = """\
Runs CMD in a box. Without --spec it may read the working directory and the system's own
files, writes nothing but its private /tmp and home, and has no network. A working
directory that is or holds your home is only read if --read names it.

Standard input is handed over when it is a pipe or a file: it is read to its end first,
at most 64 MiB. A terminal never enters the box. Output is shown when the command ends.
"""
_LEARN = """\
Runs CMD in a box that reads the working directory, writes nothing and has no network, and
asks at the terminal about each line of a spec that would allow what it was refused, one at
a time, until it ends with 0. Then it leaves out the lines that were not needed and prints
the spec. What the command writes is thrown away after each run.

Never proposed are credentials, protected files and the whole network. With --network
listed, each host that was refused is asked about. Ends with 1 where the command does not
pass.
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
Lists the backends in the order they are preferred. Those of other packages are there
only where --allow names them. Ends with 1 if one of these cannot be loaded.
"""
_DEMO = """\
Runs a few commands in a temporary directory of its own that show what is allowed, boxed
and refused, and ends with what was enforced. Ends with 1 if anything that must be
refused was not.
"""
_COMPLETION = """\
Prints a script that completes the command line of sandboxkit:

  bash  source <(sandboxkit completion bash)
  zsh   sandboxkit completion zsh >"${fpath[1]}/_sandboxkit"
  fish  sandboxkit completion fish >~/.config/fish/completions/sandboxkit.fish
"""

_ADDED = (
    (("run", "learn", "check", "explain"), _add_commands),
    (("policy",), add_policy_arguments),
    (("egress",), add_egress_arguments),
    (("audit",), add_audit_arguments),
    (("grants",), add_grant_arguments),
    (("eval", "render"), add_eval_arguments),
    (("doctor", "backends", "demo", "completion"), _add_others),
)
"""
The verbs in the order the help lists them, and what adds them.
"""

ROOMS = {
    "run": "_run",
    "learn": "_learn",
    "check": "_check",
    "explain": "_check",
    "policy": "_policy",
    "egress": "_egress",
    "audit": "_audit",
    "grants": "_grants",
    "eval": "_eval",
    "render": "_eval",
    "doctor": "_doctor",
    "backends": "_doctor",
    "demo": "_demo",
    "completion": "_completion",
}
"""
The module with the function for each verb, or for the members of each family.
"""


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 365 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds; give a positive one, at most a year")
    return seconds


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= 10_000):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of runs; give one from 1 to 10000")
    return int(text)


def _descriptor(text: str) -> int:
    if sys.platform == "win32":
        raise argparse.ArgumentTypeError(f"descriptor {text}: Windows hands none to a program; use a pipe to stdout")
    import fcntl  # not at the top: Windows has none, and --help works there

    try:
        mode = fcntl.fcntl(int(text), fcntl.F_GETFL) & os.O_ACCMODE
    except (ValueError, OverflowError, OSError):
        mode = None
    if mode in (None, os.O_RDONLY):
        problem = "is not open" if mode is None else "is open to read only"
        raise argparse.ArgumentTypeError(
            f"descriptor {text} {problem}; open it in the shell, for example {text}>status.json"
        )
    return int(text)
