"""
Simple commands: words, assignments, redirections, and the builtins with a syntax of their own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxkit.model import UNKNOWN, Assignment, Doubt, Unknown
from sandboxkit.shell._draft import Draft, finish
from sandboxkit.shell._redirects import REDIRECTS, check_translated, redirect
from sandboxkit.shell._tables import DECLARES
from sandboxkit.shell._unsure import UnsureError
from sandboxkit.shell._variables import SPLIT
from sandboxkit.shell._word import Words, check_touching, holds_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from sandboxkit.shell._found import Place
    from sandboxkit.shell._reader import Reader

__all__ = ["assignments", "command", "declaration"]

_SUBSCRIPT = re.compile(r"\[[^\[\]'\"\\]+\]\+?=")
_DECLARED = frozenset(("variable_name", "unset", "unsetenv", *DECLARES))


def command(reader: Reader, node: Node, place: Place, outside: Sequence[Node] = ()) -> tuple[int, ...]:
    """
    Reads a command, with the redirections of it that stand *outside* the node.
    """
    index = reader.found.reserve()
    draft = Draft()
    words = draft.words
    children = reader.children(node)
    for number, child in enumerate(children):
        kind = child.type
        if kind == "command_name":
            _name(reader, words, child, index)
        elif kind == "variable_assignment":
            draft.assignments.append(_assignment(reader, child, index, exported=True))
        elif kind in REDIRECTS:
            redirect(reader, child, index, draft)
        elif child.is_named:
            reader.words.into(words, child, index)
        elif kind == "$":
            if number and children[number - 1].end_byte == child.start_byte:
                raise UnsureError("its words cannot be told apart with certainty")
            _dollar(reader, words, child, children[number + 1 : number + 2])
        else:
            raise UnsureError(f"it has {kind!r} where the reader does not expect it")
    if outside:
        reader.source.check_gaps([*children[-1:], *outside], touching=False, one_line=True)
        for child in outside:
            redirect(reader, child, index, draft)
    if words.argv[:1] == [UNKNOWN] and len(words.argv) > 1 and words.may_vanish():
        # An expansion that is probably empty: the next word is the program.
        words.drop_first()
    return finish(reader, index, node, draft, place, outside)


def _name(reader: Reader, words: Words, node: Node, part: int) -> None:
    children = node.children
    for number, child in enumerate(children):
        if child.is_named:
            reader.words.into(words, child, part)
        elif child.type == "$":
            _dollar(reader, words, child, children[number + 1 : number + 2])
        else:
            raise UnsureError(f"it has {child.type!r} where the reader does not expect it")


def _dollar(reader: Reader, words: Words, node: Node, following: Sequence[Node]) -> None:
    if node.end_byte - node.start_byte > 1:
        # The grammar takes -$ of -$"x" for the dollar.
        raise UnsureError("its words cannot be told apart with certainty")
    if not following or following[0].start_byte != node.end_byte:
        words.add("$", node.start_byte)
    elif following[0].type != "string":  # $"…" is a string to translate
        raise UnsureError("it has an expansion the reader does not know")
    else:
        string = following[0]
        reader.tokens.others.add((node.start_byte, string.end_byte))
        reader.tokens.excused.add((string.start_byte, string.end_byte))


def declaration(reader: Reader, node: Node, place: Place, outside: Sequence[Node] = ()) -> tuple[int, ...]:
    """
    Reads `export`, `declare`, `unset` and the like.
    """
    index = reader.found.reserve()
    draft = Draft()
    words = draft.words
    children = reader.children(node)
    exported = children[0].type == "export"
    for child in children:
        kind = child.type
        if kind == "variable_assignment":
            assignment = _assignment(reader, child, index, exported=exported)
            draft.assignments.append(assignment)
            doubt = None if assignment.is_known else Unknown(Doubt.VALUE, f"{assignment.name}=")
            words.add(f"{assignment.name}={assignment.value}", child.start_byte, doubt)
        elif kind in REDIRECTS:
            redirect(reader, child, index, draft)
        elif kind in _DECLARED:
            reader.tokens.add(child)
            words.add(reader.words.slice(child), child.start_byte, literal=True)
        elif child.is_named:
            reader.words.into(words, child, index)
            reader.words.code(words.argv[-1], index, child.start_byte)
            exported |= words.argv[-1].startswith("-") and "x" in words.argv[-1]
        else:
            raise UnsureError(f"it has {kind!r} where the reader does not expect it")
    for child in outside:
        redirect(reader, child, index, draft)
    if any(word.startswith("-") and "i" in word for word in words.argv[1:]):
        reader.words.check_arithmetic(" ".join(each.name for each in draft.assignments))
    if any(word.startswith("-") and "n" in word for word in words.argv[1:]):
        reader.found.variables.references.update((each.name, each.value) for each in draft.assignments)
    return finish(reader, index, node, draft, place, outside)


def assignments(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads assignments in front of nothing.
    """
    index = reader.found.reserve()
    draft = Draft()
    for child in node.children if node.type == "variable_assignments" else [node]:
        draft.assignments.append(_assignment(reader, child, index, exported=False))
    return finish(reader, index, node, draft, place)


def _assignment(reader: Reader, node: Node, part: int, *, exported: bool) -> Assignment:
    if node.type != "variable_assignment":
        raise UnsureError("it has an assignment the reader does not know")
    children = node.children
    check_touching(children)
    reader.tokens.add(node)
    target, operator, *rest = children
    name, _ = reader.words.name(target, part)
    # Whether an assignment ends at a bracket within brackets, bash tells by its quotes.
    if not name.isidentifier() or (target.type == "subscript" and reader.words.slice(target).count("[") > 1):
        raise UnsureError("it has an assignment the reader does not know")
    reader.words.marks = 0
    value, is_known = _value(reader, rest, part)
    variables = reader.found.variables
    variables.set(name, value, appends=operator.type == "+=")
    if reader.words.marks:
        variables.mark(name, reader.words.marks)
    text = value.replace(SPLIT, " ")
    if holds_code(text):
        # Whoever expands it once more runs it: eval, ${…@P}, arithmetic, PS4.
        reader.evaluate(text, part, node.start_byte)
        raise UnsureError(f"the value of {name} holds code")
    return Assignment(variables.target(name), text, is_known and target.type != "subscript", exported)


def _value(reader: Reader, rest: Sequence[Node], part: int) -> tuple[str, bool]:
    if not rest:
        return "", True
    node = rest[-1]
    if len(rest) > 1 and (len(rest) > 2 or reader.words.slice(rest[0]) != "$"):
        raise UnsureError("it has an assignment the reader does not know")
    if len(rest) > 1:
        check_translated(rest[0])
    if node.type != "array":
        return reader.words.value(node, part)
    if not reader.source.ends_word_at(node.end_byte):
        # To the grammar the # of a=(b)#c begins a comment; to bash the word goes on.
        raise UnsureError("its words cannot be told apart with certainty")
    words = Words()
    for child in node.children:
        if child.is_named:
            text = reader.words.slice(child)
            if text.startswith("[") and not _SUBSCRIPT.match(text):
                raise UnsureError("it has a list the reader does not know")
            reader.words.into(words, child, part)
    return SPLIT.join(words.argv), False
