"""
The arguments of `sandboxkit policy`. Loads nothing, so that `--help` stays quick.
"""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING

from sandboxkit.cli._verbs import named

if TYPE_CHECKING:
    from sandboxkit.cli._verbs import Parser, Verbs

__all__ = ["LEVELS", "add_policy_arguments", "add_policy_option"]

LEVELS = ("organisation", "user", "project")
_ACTIONS = ("allow", "sandbox", "ask", "deny")

_DETAILS = """\
Looks at rules, without running anything.

  lint    finds what is wrong with rule files, and what is doubtful
  test    tries the examples and [[tests]] of a rule file
  show    shows the rules in force, or one of them in full
  replay  says what other rules would have decided about the commands of an audit log
  schema  prints the JSON Schema of a rule file
"""
_LINT = """\
Reads every FILE and reports all mistakes at once, with file, line and key, and warnings
about what is doubtful. Ends with 1 where there is a mistake; --strict counts warnings too.
"""
_TEST = """\
Loads FILE as a part of the whole policy, tries each rule's `match` and `not_match`
examples and the commands in [[tests]] with it, and reports what came out otherwise. Ends
with 1 where anything did, and with 119 where the file cannot be loaded.
"""
_SHOW = """\
Shows the default action, how many rules each level has for each action, and every rule,
those that decide first on top. With RULE-ID, that rule in full; ends with 1 where there
is none.
"""
_REPLAY = """\
Evaluates the command of every `decided` record of LOG again, for the place it was judged
for, and shows which would come out otherwise. Records in which the command or the place
was masked or cut are left out and counted. Without --policy the built-in rules alone are
meant. The log is not verified; see `audit verify`.
"""
_SCHEMA = """\
Prints the JSON Schema (2020-12) of a rule file.
"""


def add_policy_arguments(root: Verbs) -> None:
    """
    Adds `policy` and its verbs.
    """
    verbs = root.family("policy", "check, try and look over rules", _DETAILS)
    lint = verbs.add("lint", "find what is wrong with rule files", _LINT, takes="FILE...")
    lint.add_argument("files", metavar="FILE", type=named, nargs="+", help="a rule file: .json, otherwise TOML")
    _add_level(lint, "whose rules the files hold (default: user); of a project less is taken")
    lint.add_argument("--strict", action="store_true", help="end with 1 for warnings too")
    test = verbs.add("test", "try the examples of a rule file", _TEST, takes="FILE")
    test.add_argument("file", metavar="FILE", type=named, help="the rule file: .json, otherwise TOML")
    _add_level(test, "whose rules the file holds (default: user)")
    add_policy_option(test, "another rule file that is in force too")
    show = verbs.add("show", "show the rules in force", _SHOW, takes="[RULE-ID]")
    show.add_argument("rule", metavar="RULE-ID", nargs="?", help="show this rule in full")
    add_policy_option(show, "a rule file that is in force beside the built-in rules")
    show.add_argument("--level", choices=("floor", *LEVELS, "builtin"), help="only the rules of this level")
    show.add_argument("--action", choices=_ACTIONS, help="only the rules with this action")
    show.add_argument("--program", metavar="NAME", help="only the rules that may be about this program")
    replay = verbs.add("replay", "say what other rules would have decided", _REPLAY, takes="LOG")
    replay.add_argument("log", metavar="LOG", type=named, help="the audit log; its older files are found beside it")
    add_policy_option(replay, "a rule file to judge by, beside the built-in rules")
    replay.add_argument(
        "--fail-on",
        choices=("change", "looser", "stricter"),
        help="end with 1 where any decision would change, or would become looser, or stricter",
    )
    verbs.add("schema", "print the form of a rule file", _SCHEMA)


def add_policy_option(verb: Parser, meaning: str) -> None:
    """
    Adds `--policy`, which may be given once for each level.
    """
    verb.add_argument(
        "--policy",
        metavar="[LEVEL=]FILE",
        type=_leveled,
        action="append",
        default=[],
        help=f"{meaning}; LEVEL is organisation, user (the default) or project (repeatable)",
    )


def _add_level(verb: Parser, meaning: str) -> None:
    verb.add_argument("--level", choices=LEVELS, default="user", help=meaning)


def _leveled(text: str) -> tuple[str, str]:
    level, equals, path = text.partition("=")
    if not equals or level not in LEVELS:
        if equals and re.fullmatch("[a-z]+", level) and not os.path.lexists(text):
            raise argparse.ArgumentTypeError(f"{level!r} is no level; use {', '.join(LEVELS)}, or ./{text} for a file")
        level, path = "user", text
    if not path or "\0" in path:
        raise argparse.ArgumentTypeError("a rule file has a name; write --policy FILE or --policy LEVEL=FILE")
    return level, path
