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
    try:
        from sandboxkit.cli._main import main as carried_out  # here, so that Ctrl-C meanwhile is no traceback
    except KeyboardInterrupt:
        return 130
    return carried_out(arguments)
