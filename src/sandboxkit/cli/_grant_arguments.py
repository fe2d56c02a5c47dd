"""
The arguments of `sandboxkit grants`, and those that ask for approval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.cli._verbs import named

if TYPE_CHECKING:
    from sandboxkit.cli._verbs import Parser, Verbs

__all__ = ["add_ask_options", "add_grant_arguments"]

_DETAILS = """\
Approvals that `sandboxkit run --ask` was told to remember for good.
"""
_LIST = """\
Lists the approvals that count now, oldest first.
"""
_REVOKE = """\
Forgets the approval with this ID, as `grants list` shows it.
"""
_CLEAR = """\
Forgets all of them, also where the file cannot be read.
"""
_HELP = "where approvals are kept (default: ~/.local/state/sandboxkit/grants.json)"


def add_grant_arguments(root: Verbs) -> None:
    """
    Adds `grants` and its verbs.
    """
    verbs = root.family("grants", "list and revoke what was approved for good", _DETAILS)
    shown = verbs.add("list", "list them", _LIST)
    revoked = verbs.add("revoke", "forget one", _REVOKE, takes="ID")
    revoked.add_argument("id", metavar="ID", help="which")
    cleared = verbs.add("clear", "forget all", _CLEAR)
    for verb in (shown, revoked, cleared):
        verb.add_argument("--grants", metavar="FILE", type=named, help=_HELP)


def add_ask_options(run: Parser) -> None:
    """
    Adds who is asked to `run`.
    """
    run.add_argument(
        "--ask", action="store_true", help="ask at the terminal where the policy wants approval (default: it is a no)"
    )
    run.add_argument("--grants", metavar="FILE", type=named, help=f"with --ask: {_HELP}")
