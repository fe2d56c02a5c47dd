"""
Pipelines and lists: what joins commands, and the redirections behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.model import Setting
from sandboxkit.shell._draft import Draft, finish
from sandboxkit.shell._reader import ONE_LINE
from sandboxkit.shell._redirects import REDIRECTS, redirect
from sandboxkit.shell._simple import command, declaration
from sandboxkit.shell._stdin import stdin_of
from sandboxkit.shell._unsure import UnsureError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from sandboxkit.shell._found import Place
    from sandboxkit.shell._reader import Reader

__all__ = ["and_or_list", "negated", "pipeline", "redirected_statement", "redirects", "redirects_alone"]

# Looked up on its class, a member takes ten times as long.
_PIPELINE, _CONDITIONAL = Setting.PIPELINE, Setting.CONDITIONAL
_CHAINS = frozenset(("pipeline", "list", "negated_command"))


def pipeline(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads commands of which each reads what the one before prints.
    """
    place = place.with_setting(_PIPELINE)
    last: tuple[int, ...] = ()
    is_first = True
    for child in node.children:
        if child.is_named:
            if child.type == "negated_command" and not is_first:
                raise UnsureError("it has a '!' behind a '|'")
            last = reader.apart(child, place if is_first else place._replace(reads_from=last))
            is_first = False
        elif child.type not in ("|", "|&"):
            raise UnsureError(f"it has {child.type!r} where the reader does not expect it")
    return last


def and_or_list(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads commands joined by `&&` and `||`.
    """
    last: list[int] = []
    for child in _flat(reader, node):
        last += reader.statement(child, place.with_setting(_CONDITIONAL) if last else place)
    return tuple(last)


def _flat(reader: Reader, node: Node) -> list[Node]:
    """
    The commands of a list, which nests to the left, in their order.
    """
    found: list[Node] = []
    while True:
        children = node.children
        if len(children) != 3 or children[1].type not in ("&&", "||"):
            raise UnsureError("it has a list the reader does not know")
        reader.source.check_gaps(children, touching=False)
        found.append(children[2])
        if children[0].type != "list":
            return [children[0], *reversed(found)]
        node = children[0]


def negated(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads a command with a `!` in front.
    """
    if not reader.source.has_blank_at(node.start_byte + 1):
        raise UnsureError("it has a '!' that bash takes for a part of a word")
    return reader.statements(node.children[1:], place)


def redirected_statement(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads a statement with redirections behind it, within the node or outside it.
    """
    if outside := reader.outside.pop(node.id, None):
        return _redirected(reader, node, node, outside, place)
    body, *behind = node.children
    if any(child.type not in REDIRECTS for child in behind):
        raise UnsureError("it has a redirection the reader does not know")
    if body.type in REDIRECTS:
        return redirects_alone(reader, node, [body, *behind], place)
    if body.type not in _CHAINS:
        return _redirected(reader, node, body, behind, place)
    # They belong to the last command of a pipeline or list alone.
    last = body
    while last.type in _CHAINS:
        last = last.children[-1]
    reader.outside[last.id] = behind
    return reader.statement(body, place)


def _redirected(reader: Reader, node: Node, body: Node, behind: Sequence[Node], place: Place) -> tuple[int, ...]:
    if body.type in ONE_LINE:
        reader.source.check_gaps([*body.children, *behind], touching=False, one_line=True)
    if body.type == "command":
        return command(reader, body, place, behind)
    if body.type in ("declaration_command", "unset_command"):
        return declaration(reader, body, place, behind)
    (index,) = redirects_alone(reader, node, behind, place)
    parts = reader.found.parts
    part = parts[index]
    stdin = stdin_of(part, parts, place.stdin)
    # What stands in the body reads the file as it would what `cat FILE` prints.
    is_file = any(redirect.operator == "<" for redirect in part.redirects)
    sources = (*part.reads_from, index) if is_file else part.reads_from
    return reader.statement(body, place._replace(stdin=stdin, reads_from=sources))


def redirects(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads a redirection without a command.
    """
    return redirects_alone(reader, node, [node], place)


def redirects_alone(reader: Reader, node: Node, nodes: Sequence[Node], place: Place) -> tuple[int, ...]:
    """
    Reads redirections without a command of their own as a part without words.
    """
    index = reader.found.reserve()
    draft = Draft()
    for child in nodes:
        redirect(reader, child, index, draft)
    if draft.words.argv and node.type != "file_redirect" and node.children[0].type not in REDIRECTS:
        raise UnsureError("it has words behind a compound command")
    return finish(reader, index, node, draft, place)
