"""
The `sandboxkit` command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """
    The `sandboxkit` command.

    Args:
        arguments: What follows the program's name; None is the process's own.

    Returns:
        The exit code; `sandboxkit --help` lists them.
    """
    try:  # Ctrl-C meanwhile is no traceback
        from sandboxkit.cli._interrupt import came, listen

        if arguments is None:
            listen()
    except KeyboardInterrupt:
        return 130
    try:
        from sandboxkit.cli._main import main as carried_out
    except BaseException:
        if came():
            return 130
        raise
    return carried_out(arguments)
