"""
Reading commands: text or words in, a `Command` out. Pure, and never a guess.
"""

from sandboxkit.shell._found import MAX_COMMANDS
from sandboxkit.shell._parse import MAX_TEXT, parse
from sandboxkit.shell._quote import quote
from sandboxkit.shell._tree import MAX_DEPTH
from sandboxkit.shell._unwrap import starts_others

__all__ = [
    "MAX_COMMANDS",
    "MAX_DEPTH",
    "MAX_TEXT",
    "parse",
    "quote",
    "starts_others",
]
