"""
The grammar: text in, a syntax tree out, within a bounded number of steps.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from sandboxkit.shell._unsure import TooMuchError, UnsureError

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

__all__ = ["MAX_DEPTH", "SYNTAX", "ascii_only", "syntax_tree"]

MAX_DEPTH = 20
"""
How deep commands may stand within commands. Deeper text is not read, and denied.
"""
_MAX_BRACKETS = 60
_MAX_ROUNDS = 150
"""
Rounds of a hundred steps of the parser; a script of 10,000 dense characters takes 140.
"""
_SMALL = 300
SYNTAX = "it has a syntax error, or syntax the reader does not know"
_BRACKETS = re.compile(r"[()]|\$\[")
_ABSURD = re.compile(r"(?:[|&;<>][ \t]*){6}")
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")


class _Local(threading.local):
    parser: Parser | None = None


_local = _Local()


def _parser() -> Parser:
    if _local.parser is None:
        # Loaded at the first command that is more than plain words.
        import tree_sitter
        import tree_sitter_bash

        _local.parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    return _local.parser


def ascii_only(data: bytes) -> bytes:
    """
    *data* with a full stop for every byte beyond ASCII.
    """
    return _BEYOND_ASCII.sub(b".", data)


def syntax_tree(text: str, data: bytes) -> Node:
    """
    The root of the tree of *text*, whose UTF-8 form is *data*. It may hold errors. The
    text of its nodes is to be taken from *data*: the grammar sees ASCII only.

    Raises:
        TooMuchError: Brackets are nested too deeply, or the parser takes too long.
        UnsureError: It has an error, and much text behind it.
    """
    # The grammar's scanner asks the C library whether a character is a digit, which is
    # undefined above 255 and ends the process; every byte of them becomes a full stop.
    data = ascii_only(data)
    if len(data) <= _SMALL:
        return _parser().parse(data).root_node
    _check_brackets(text)
    rounds, failed = 0, False

    def stops(_: int, has_error: bool) -> bool:
        nonlocal rounds, failed
        rounds, failed = rounds + 1, has_error
        return has_error or rounds > _MAX_ROUNDS

    parser = _parser()
    try:
        return parser.parse(lambda offset, _: data[offset:], progress_callback=stops).root_node
    except ValueError:
        parser.reset()
        if failed:
            # Going on would take the longer the more is wrong.
            raise UnsureError(SYNTAX) from None
        raise TooMuchError("it holds more words than are read") from None


def _check_brackets(text: str) -> None:
    # The grammar's scanner looks ahead to the end of the text from every open bracket,
    # and what it cannot read costs it the more the more of it there is.
    if _ABSURD.search(text):
        raise UnsureError(SYNTAX)
    depth = closed = 0
    for found in _BRACKETS.finditer(text):
        depth += 1 if found[0] != ")" else -1
        if depth > _MAX_BRACKETS:
            raise TooMuchError(f"its brackets are nested more than {_MAX_BRACKETS} deep")
        if depth < 0:
            depth, closed = 0, closed + 1
            if closed > _MAX_BRACKETS:
                raise UnsureError(SYNTAX)
