"""
Redirections, read into the command they belong to.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from sandboxkit.model import UNKNOWN, Doubt, Redirect, SimpleCommand, Unknown
from sandboxkit.shell._unsure import UnsureError
from sandboxkit.shell._variables import SECRET
from sandboxkit.shell._word import Words, holds_code, unmasked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from sandboxkit.shell._draft import Draft
    from sandboxkit.shell._prepare import HereDocument
    from sandboxkit.shell._reader import Reader

__all__ = ["REDIRECTS", "check_translated", "redirect"]

REDIRECTS = frozenset(("file_redirect",))
"""
The kinds of nodes that are redirections.
"""
_DESCRIPTOR = re.compile(r"[0-9]+-?|-")
"""
What `>&` copies, moves or closes; anything else is the name of a file.
"""
_CLOSES = frozenset((">&-", "<&-"))
_EXPANDS_TO_ITSELF = re.compile(r"[\w./+:@%,=^-]*", re.ASCII)
_ELEMENT = re.compile(rb"\{[A-Za-z_]\w*\[.*\]\}", re.DOTALL)
_OPERATORS = frozenset((">", ">>", ">|", "&>", "&>>", ">&", "<", "<&", "<>", "<<", "<<<"))


def redirect(reader: Reader, node: Node, part: int, draft: Draft) -> None:
    """
    Adds the redirection *node* to *draft*, which is to be the part of that index.

    Raises:
        UnsureError: It is none of those known.
    """
    if node.type not in REDIRECTS:
        raise UnsureError("it has a redirection the reader does not know")
    data, children = reader.source.data, node.children
    _take_descriptor(reader, node, part, draft)
    reader.source.check_gaps(children, touching=False)
    if any(b"\n" in data[one.end_byte : other.start_byte] for one, other in pairwise(children)):
        raise UnsureError("it has a redirection to the next line")
    operator, targets = _operator_and_targets(reader, children, part, draft)
    if operator in _CLOSES:
        return
    if targets.argv and targets.argv[0].isdigit() and data[node.end_byte : node.end_byte + 1] in (b"<", b">"):
        raise UnsureError("it has a redirection the reader does not know")
    if not targets.argv or operator not in _OPERATORS:
        raise UnsureError(f"it has a redirection the reader does not know ({operator!r})")
    if operator == ">&":
        _expand_again(reader, targets, part, node.start_byte)
    draft.redirects += _redirected(reader, operator, targets, part)


def _take_descriptor(reader: Reader, node: Node, part: int, draft: Draft) -> None:
    """
    Takes the descriptor of *node* away where the grammar has read it as a word.
    """
    dropped = draft.words.drop_descriptor(node.start_byte)
    if dropped is None:
        _refuse_element(reader, node, part, draft)
        return
    start, end = dropped
    data = reader.source.data
    reader.words.seen.discard(dropped)
    if data[start : start + 1] == b"{":
        reader.words.assigned.append(data[start + 1 : end - 1].decode())


def _refuse_element(reader: Reader, node: Node, part: int, draft: Draft) -> None:
    # Bash keeps the descriptor of {a[1]}>file in an element of a list, whose number it
    # works out by expanding the word once more.
    if reader.source.data[node.start_byte - 1 : node.start_byte] != b"}" or not draft.words.starts:
        return
    start = draft.words.starts[-1]
    word = reader.source.data[start : node.start_byte]
    if _ELEMENT.fullmatch(word):
        target = draft.words.argv[-1]
        if holds_code(target):
            reader.evaluate(unmasked(target), part, start)
        raise UnsureError("it has a redirection the reader does not know")


def _operator_and_targets(reader: Reader, children: Sequence[Node], part: int, draft: Draft) -> tuple[str, Words]:
    operator = ""
    targets = Words()
    for child in children:
        if child.type == "file_descriptor":
            continue
        if operator and reader.words.slice(child) == "$":
            check_translated(child)
            continue
        if not operator and not child.is_named:
            operator = reader.source.operator(child)
            reader.tokens.redirects.add(child.start_byte)
            if operator in _CLOSES:
                reader.tokens.others.add((child.end_byte - 1, child.end_byte))
        elif child.type == "process_substitution" and operator == "<" and not targets.argv:
            parts = reader.found.parts
            first = len(parts)
            reader.words.into(targets, child, part)
            draft.reads += range(first, min(first + 1, len(parts)))
        elif child.is_named and operator:
            # The grammar takes the words behind the target with it.
            reader.words.into(draft.words if targets.argv or operator in _CLOSES else targets, child, part)
        else:
            raise UnsureError("it has a redirection the reader does not know")
    return operator, targets


def check_translated(dollar: Node) -> None:
    """
    Refuses a *dollar* that is no part of the string behind it.

    Raises:
        UnsureError: It is none.
    """
    string = dollar.next_sibling
    if string is None or string.type != "string" or string.start_byte != dollar.end_byte:
        raise UnsureError("it has a dollar that may be a word")


def _expand_again(reader: Reader, targets: Words, part: int, start: int) -> None:
    # Bash expands the word of >& once to see whether it is a descriptor, and what came of
    # it once more for the name of a file: even '$(…)' runs.
    target = unmasked(" ".join(targets.argv))
    if holds_code(target):
        reader.evaluate(target, part, start)
        raise UnsureError("the target of '>&' holds code")
    if not _EXPANDS_TO_ITSELF.fullmatch(target):
        targets.unknown.setdefault(0, Unknown(Doubt.VALUE))


def _redirected(reader: Reader, operator: str, targets: Words, part: int) -> list[Redirect]:
    target = " ".join(targets.argv)
    is_known = not targets.unknown and len(targets.argv) == 1
    if operator == "<<<":
        if any(doubt.is_secret for doubt in targets.unknown.values()):
            _print_secret(reader, part)
        return [Redirect("<<<", target + "\n", is_known)]
    if operator == "<<":
        return [_document(reader, reader.source.document(target), part)]
    if operator in (">&", "<&") and is_known and _DESCRIPTOR.fullmatch(target):
        return []
    return [Redirect(operator, target, is_known)]


def _print_secret(reader: Reader, part: int) -> None:
    """
    Adds what hands a text with a secret to *part*, as `echo` would.
    """
    index = reader.found.reserve()
    place = reader.place.within(part)
    doubt = Unknown(Doubt.VALUE, is_secret=True)
    reader.found.parts[index] = SimpleCommand(
        ("echo", UNKNOWN),
        reader.source.span_of(0, len(reader.source.data)),
        ((1, doubt),),
        setting=place.setting,
        inside=part,
        outer=place.outer,
        function=place.function,
    )


def _document(reader: Reader, document: HereDocument, part: int) -> Redirect:
    body = document.body
    if document.is_literal or ("$" not in body and "`" not in body and "\\" not in body):
        return Redirect("<<", body)
    if reader.expand(body, part, (document.start, document.start + len(body))) & SECRET:
        _print_secret(reader, part)
    return Redirect("<<", body, is_known=False)
