"""
The `sandboxkit` command.
"""

from sandboxkit.cli._main import main

__all__ = ["main"]
