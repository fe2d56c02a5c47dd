"""
The arguments of `sandboxkit egress`. Loads nothing, so that `--help` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.cli._verbs import named

if TYPE_CHECKING:
    from sandboxkit.cli._verbs import Parser, Verbs

__all__ = ["add_egress_arguments"]

_DETAILS = """\
Says where connections may go, without making one.

  check  says what a policy decides about a URL
"""
_CHECK = """\
Says what an egress policy decides about one request to URL: how the URL is written, its
name, the rules, the port, and every address its name has. Nothing is connected to and no
redirect followed. Without --policy every public address may be reached.

The name service of this machine is asked, unless the name is refused before, an --address
is given, or --no-lookup. Ends with 0 where the request is allowed, with 120 where it is
denied and with 121 where a rule asks.
"""


def add_egress_arguments(root: Verbs) -> None:
    """
    Adds `egress` and its verbs.
    """
    verbs = root.family("egress", "say where connections may go", _DETAILS)
    check = verbs.add("check", "say what is decided about a URL", _CHECK, takes="URL")
    check.add_argument("url", metavar="URL", help="the URL, as a program would be given it")
    check.add_argument("--policy", metavar="FILE", type=named, help="an egress policy: .json, otherwise TOML")
    check.add_argument("--method", metavar="METHOD", default="GET", help="the HTTP method (default: GET)")
    _add_hosts(check, "allow", "may be reached; then nothing else may be")
    _add_hosts(check, "ask", "may be reached once approved")
    _add_hosts(check, "deny", "may not be reached")
    check.add_argument(
        "--permit-host",
        metavar="HOST",
        action="append",
        default=[],
        help="a name that is not refused for being reserved, such as app.test (repeatable)",
    )
    check.add_argument(
        "--permit-network",
        metavar="NETWORK",
        action="append",
        default=[],
        help="a network that is not refused for being private, such as 10.9.0.0/16 (repeatable)",
    )
    check.add_argument(
        "--address",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="judge these addresses instead of asking the name service (repeatable)",
    )
    check.add_argument("--no-lookup", action="store_true", help="judge the name and the rules alone")


def _add_hosts(verb: Parser, action: str, meaning: str) -> None:
    verb.add_argument(
        f"--{action}",
        metavar="HOST",
        action="append",
        default=[],
        help=f"[scheme://]host[:port][/path] that {meaning}; *. and **. may stand in front (repeatable)",
    )
