"""
Text to parts: every simple command that would run, as bash would find it.

Only what is on the list of kinds of statements below is read; anything else ends the
reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.model import Assignment, Setting, SimpleCommand
from sandboxkit.shell import _compound as compound
from sandboxkit.shell._effects import SETTERS, directory, note_files, noted, with_declared
from sandboxkit.shell._found import TOP
from sandboxkit.shell._lines import STARTS, Piece, settings
from sandboxkit.shell._lists import and_or_list, negated, pipeline, redirected_statement, redirects
from sandboxkit.shell._reader import Reader
from sandboxkit.shell._simple import assignments, command, declaration
from sandboxkit.shell._start import Starter
from sandboxkit.shell._unwrap import starts_others
from sandboxkit.shell._words import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node

    from sandboxkit.shell._carried import Carried
    from sandboxkit.shell._found import Found, Place, Span

__all__ = ["read", "read_carried", "read_pieces", "read_roughly"]


# Looked up on its class, a member takes ten times as long.
_PIPELINE = Setting.PIPELINE


def read(text: str, found: Found) -> None:
    """
    Adds the commands of *text*, read as bash would, and what they start.

    Raises:
        UnsureError: It is not certain what it means.
        TooMuchError: It holds more than is read.
    """
    Reader(_starter(found), _STATEMENTS, TOP).read(text)


def read_carried(part: SimpleCommand, inner: Carried, found: Found) -> None:
    """
    Adds a command of literal words, and *inner*, which it starts.

    Raises:
        UnsureError: It is not certain what that starts in turn.
        TooMuchError: It holds more than is read.
    """
    index = found.reserve()
    found.parts[index] = part
    _starter(found).add(index, part, inner)


def read_pieces(text: str, found_pieces: list[Piece], found: Found) -> None:
    """
    Adds the commands of a line of plain words, and what they start.

    Args:
        text: The line.
        found_pieces: Its commands.
        found: Where they go.

    Raises:
        UnsureError: It is not certain what one starts.
        TooMuchError: It holds more than is read.
    """
    starter = _starter(found)
    cwd: str | None = None
    before: str | None = None
    last = -1
    for piece, setting in zip(found_pieces, settings(found_pieces), strict=True):
        index = found.reserve()
        if piece.before in STARTS:
            # A list in the background has a directory of its own.
            cwd = before = before if piece.before == "&" else cwd
        exported = bool(piece.argv)
        part = SimpleCommand(
            tuple(piece.argv),
            (piece.start, piece.end),
            tuple(piece.unknown),
            tuple([Assignment(name, value, True, exported) for name, value in piece.assignments]),
            tuple(piece.redirects),
            setting,
            (last,) if piece.before in ("|", "|&") else (),
            cwd=cwd,
        )
        found.parts[index] = part
        last = index
        for name, value in piece.assignments:
            found.variables.set(name, value)
        if not exported:
            continue
        if starts_others(part.argv[0]) or found.files:
            starter.start(index, part, TOP, piece.span_of(text))
        if part.redirects:
            note_files(part, found, None)
        if part.argv[0] == "cd" and not int.__and__(setting, _PIPELINE):
            cwd = directory(part, cwd)


def read_roughly(text: str, found: Found, span: Span | None = None) -> None:
    """
    Adds what may be a command in *text* that cannot be read, and what that would start.

    Raises:
        TooMuchError: It holds more than is read.
    """
    _starter(found).suspect(text, TOP, span)


def _starter(found: Found) -> Starter:
    return Starter(found, _read_started)


def _read_started(starter: Starter, text: str, place: Place, span: Span, cwd: str | None) -> None:
    argv = words(text)
    if argv is None or argv[0] == "[":  # to the grammar a test, which ends with a bracket
        Reader(starter, _STATEMENTS, place, span=span, cwd=cwd).read(text)
    else:
        starter.found.take(len(text))
        _add_words(starter, argv, place, span, cwd)


def _add_words(starter: Starter, argv: tuple[str, ...], place: Place, span: Span, cwd: str | None) -> None:
    """
    Adds one command of plain words, for which no grammar is needed.
    """
    found = starter.found
    index = found.reserve()
    part = SimpleCommand(
        argv,
        span,
        setting=place.setting,
        reads_from=place.reads_from,
        inside=place.inside,
        outer=place.outer,
        function=place.function,
        cwd=cwd,
    )
    if argv[0] in SETTERS:
        part = with_declared(part, found.variables)
    found.parts[index] = part
    starter.start(index, part, place)
    noted(part, found, place.stdin, cwd)


def _nothing(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    return ()


_STATEMENTS: dict[str, Callable[[Reader, Node, Place], tuple[int, ...]]] = {
    "command": command,
    "variable_assignment": assignments,
    "variable_assignments": assignments,
    "declaration_command": declaration,
    "unset_command": declaration,
    "redirected_statement": redirected_statement,
    "file_redirect": redirects,
    "pipeline": pipeline,
    "list": and_or_list,
    "negated_command": negated,
    "subshell": compound.subshell,
    "compound_statement": compound.group,
    "test_command": compound.test,
    "if_statement": compound.condition,
    "elif_clause": compound.condition,
    "else_clause": compound.condition,
    "while_statement": compound.while_loop,
    "do_group": compound.do_group,
    "for_statement": compound.for_loop,
    "c_style_for_statement": compound.arithmetic_for,
    "case_statement": compound.case,
    "function_definition": compound.function,
    "comment": _nothing,
}
"""
The kinds of statements that are read. The list is closed.
"""
