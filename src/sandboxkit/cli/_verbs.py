"""
How verbs are added to the command, alone or in families.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from sandboxkit.cli._output import OutputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import SupportsWrite

__all__ = ["Formatter", "Parser", "Usage", "Verbs", "named"]


def named(text: str) -> str:
    """
    *text* as the name of a file. A variable of a script that is not set gives none.

    Raises:
        ArgumentTypeError: It is empty, or holds what no name can.
    """
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a file; give one")
    return text


class Usage(Exception):  # noqa: N818 - not an error of the tree: it never leaves this room
    """
    Wrong arguments, and the usage line that is right.
    """

    def __init__(self, problem: str, usage: str) -> None:
        self.usage = usage
        super().__init__(problem)


class Parser(argparse.ArgumentParser):
    """
    Raises `Usage` instead of ending the process.
    """

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """
        Prints the help. Argparse's own hides that it could not be written.
        """
        try:
            sys.stdout.write(self.format_help())
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as exc:
            raise OutputError(1, exc) from exc

    def parse_known_args(  # type: ignore[override]  # argparse has overloads for namespaces of other types
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """
        What *args* say to this parser: that of the verb says what is right behind it.

        Raises:
            Usage: Some of them mean nothing.
        """
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        """
        Wrong arguments: *message* says which.

        Raises:
            Usage: Always.
        """
        raise Usage(message, self.format_usage())


class Formatter(argparse.RawDescriptionHelpFormatter):
    """
    Descriptions as they are written, and room for the longest verb, whose indent
    argparse does not count.
    """

    def add_argument(self, action: argparse.Action) -> None:
        """
        Takes *action* into the help.
        """
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            longest = max((len(choice.dest) for choice in action._choices_actions), default=0)
            self._action_max_length = max(self._action_max_length, longest + 4)


@dataclass(frozen=True, slots=True)
class Verbs:
    """
    Where verbs are added: to the command itself, or to a family such as `policy`.

    Attributes:
        actions: What argparse gives for adding them.
        common: The options of every verb.
        called: The words in front of the verb.
    """

    actions: argparse._SubParsersAction[Parser]
    common: Parser
    called: str = "sandboxkit"

    def add(
        self, name: str, summary: str, details: str, *parents: Parser, takes: str = "", epilog: str | None = None
    ) -> Parser:
        """
        The verb *name*, which takes the words shown as *takes* behind its options.
        """
        return self.actions.add_parser(
            name,
            usage=f"{self.called} {name} [options]{takes and ' '}{takes}",
            help=summary,
            description=details,
            epilog=epilog,
            parents=[*parents, self.common],
            formatter_class=Formatter,
            allow_abbrev=False,
        )

    def family(self, name: str, summary: str, details: str) -> Verbs:
        """
        The verbs behind *name*; the one that is given is `options.member`.
        """
        called = f"{self.called} {name}"
        family = self.actions.add_parser(
            name,
            usage=f"{called} VERB [options]",
            help=summary,
            description=details,
            formatter_class=Formatter,
            allow_abbrev=False,
        )
        return Verbs(
            family.add_subparsers(dest="member", metavar="VERB", required=True, parser_class=Parser),
            self.common,
            called,
        )
