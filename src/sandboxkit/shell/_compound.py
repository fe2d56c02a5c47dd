"""
Compound commands: groups, tests, conditions, loops and functions.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from sandboxkit.model import Assignment, Setting, SimpleCommand
from sandboxkit.shell._draft import Draft, finish
from sandboxkit.shell._lists import redirects_alone
from sandboxkit.shell._redirects import REDIRECTS
from sandboxkit.shell._unsure import UnsureError, check_nesting
from sandboxkit.shell._variables import SPLIT
from sandboxkit.shell._word import Words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from sandboxkit.shell._found import Place
    from sandboxkit.shell._reader import Reader

__all__ = [
    "arithmetic_for",
    "case",
    "condition",
    "do_group",
    "for_loop",
    "function",
    "group",
    "subshell",
    "test",
    "while_loop",
]

_COMPARES = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_COMPARED = re.compile(r"(\S+)\s+-(?:eq|ne|lt|le|gt|ge)\s+(\S+)")
_EXPRESSIONS = frozenset(
    ("binary_expression", "unary_expression", "parenthesized_expression", "postfix_expression", "ternary_expression")
)
_OPENING = frozenset(("if", "then", "elif", "else"))
_CLOSING = _OPENING | {"fi", "elif_clause", "else_clause"}
_CONDITION_WORDS = frozenset(("if", "then", "elif", "else", "fi", ";", "\n", "&"))
_FOR_WORDS = frozenset(("for", "select", "in", ";", "\n"))
_ARITHMETIC_FOR_WORDS = frozenset(("for", "((", "))", ";", ",", "\n"))
_BODIES = frozenset(("do_group", "compound_statement"))
_NO_BODY = frozenset(("word", *REDIRECTS))
_OPERATORS = frozenset("|&;<>()")
_CASE_WORDS = frozenset(("case", "in", "esac", "\n"))
_CASE_ENDS = frozenset((";;", ";&", ";;&"))
_ALWAYS = frozenset(((":",), ("true",), ("[", "1", "]"), ("[[", "1", "]]")))
_NEVER = frozenset((("false",),))


def subshell(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads `( … )`.
    """
    cwd = reader.cwd
    last = reader.statements(_filled(node.children[1:-1]), place.with_setting(Setting.SUBSHELL).deeper())
    reader.cwd = cwd
    return last


def group(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads `{ …; }`.
    """
    children = node.children
    if children[0].type == "((":
        return test(reader, node, place)
    if not reader.source.has_blank_at(node.start_byte + 1):
        raise UnsureError("it has a brace that bash takes for a part of a word")
    return reader.statements(_filled(children[1:-1]), place.deeper())


def test(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads `[[ … ]]`, `[ … ]`, `(( … ))`: a builtin whose words are its operands.
    """
    opener = node.children[0]
    is_arithmetic = opener.type == "(("
    if not is_arithmetic and not reader.source.has_blank_at(opener.end_byte):
        raise UnsureError("it has a bracket that bash takes for a part of a word")
    index = reader.found.reserve()
    draft, words = Draft(), reader.words
    # Within [[ ]] the words of a command are not told by blanks alone.
    records, words.records = words.records, opener.type == "["
    words.marks = 0
    _operands(reader, node, index, draft.words, opener.type)
    argv = draft.words.argv
    if words.marks and opener.type == "[[":
        compared = [each for found in _COMPARED.finditer(words.slice(node)) for each in found.groups()]
        if compared:
            words.check_arithmetic(" ".join(compared), words.marks if "$(" in words.slice(node) else 0)
    if is_arithmetic or (opener.type == "[[" and not _COMPARES.isdisjoint(argv)):
        words.note_assigned(" ".join(argv))
    words.records = records
    return finish(reader, index, node, draft, place)


def _operands(reader: Reader, node: Node, part: int, words: Words, opener: str, depth: int = 0) -> None:
    check_nesting(depth)
    is_arithmetic = opener == "(("
    if opener == "[":
        # The grammar reads on over the end of the line, where bash begins another command.
        reader.source.check_gaps(node.children, one_line=True)
    for child in node.children:
        if opener == "[" and not _OPERATORS.isdisjoint(child.type) and not child.is_named:
            # To the grammar it compares; to bash another command or a file stands behind it.
            raise UnsureError(f"it has {child.type!r} within single brackets")
        if opener == "[[" and child.type == "|":
            raise UnsureError("it has '|' within double brackets")
        if not child.is_named or child.type == "test_operator":
            reader.tokens.add(child)
            words.add(reader.words.slice(child), child.start_byte, literal=True)
        elif child.type in _EXPRESSIONS:
            _operands(reader, child, part, words, opener, depth + 1)
        elif is_arithmetic:
            reader.words.operand(child, part)
            words.add(reader.words.slice(child), child.start_byte)
        else:
            reader.words.into(words, child, part)
            for word in words.argv[-1:]:
                reader.words.code(word, part, child.start_byte)


def condition(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads `if`, `elif`, `else`: keywords between statements.
    """
    place = place.deeper().with_setting(Setting.CONDITIONAL)
    children = node.children
    for before, after in pairwise(children):
        if before.type in _OPENING and after.type in _CLOSING:
            raise UnsureError("it has a compound command without a command")
    if children[-1].type in _OPENING:
        raise UnsureError("it has a compound command without a command")
    return reader.among(children, place, _CONDITION_WORDS)


def while_loop(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads `while` and `until`.
    """
    place = place.deeper().with_setting(Setting.LOOP)
    keyword, *rest = node.children
    asked = [child for child in rest if child.type != "do_group"]
    body = [child for child in rest if child.type == "do_group"]
    last = reader.statements(asked, place)
    always = _ALWAYS if keyword.type == "while" else _NEVER
    if all(reader.found.parts[index].argv in always for index in last):
        place = _endless(place, body)
    return last + reader.statements(body, place)


def do_group(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads `do …; done`.
    """
    return reader.statements(_filled(node.children[1:-1]), place)


def for_loop(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads `for` and `select`.
    """
    place = place.deeper().with_setting(Setting.LOOP)
    index = reader.found.reserve()
    items = Words()
    reader.words.marks = 0
    name = ""
    body: list[Node] = []
    listed: list[Node] = []
    for child in node.children:
        kind = child.type
        if kind in _FOR_WORDS:
            listed += [child] if kind == "in" else []
            continue
        if kind == "variable_name" and not name:
            name = reader.words.slice(child)
            reader.tokens.add(child)
            if not name.isidentifier():
                raise UnsureError("it has a loop the reader does not know")
        elif kind in _BODIES:
            body.append(child)
        else:
            listed.append(child)
            reader.words.into(items, child, index)
    reader.source.check_gaps(listed, one_line=True)
    reader.source.check_gaps(node.children[:2], one_line=True)
    variables = reader.found.variables
    values = items.argv or [variables.get("@")]
    variables.set(name, SPLIT.join(values))
    if reader.words.marks:
        variables.mark(name, reader.words.marks)
    value = " ".join(values).replace(SPLIT, " ")
    # The words of a loop are no command, but their substitutions are inside one.
    _put_wordless(reader, index, node, place, (Assignment(variables.target(name), value, is_known=False),))
    return reader.statements(body, place)


def arithmetic_for(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads `for (( … ))`.
    """
    place = place.deeper().with_setting(Setting.LOOP)
    index = reader.found.reserve()
    body: list[Node] = []
    reader.source.check_gaps(node.children[:2], one_line=True)
    semicolons: list[int] = []
    for number, child in enumerate(node.children):
        kind = child.type
        if kind in _BODIES:
            body.append(child)
        elif child.is_named:
            reader.words.operand(child, index)
        elif kind == ";":
            semicolons.append(number)
        elif kind not in _ARITHMETIC_FOR_WORDS:
            raise UnsureError(f"it has {kind!r} where the reader does not expect it")
    finish(reader, index, node, Draft(), place)
    if len(semicolons) > 1 and semicolons[0] + 1 == semicolons[1]:
        place = _endless(place, body)
    return reader.statements(body, place)


def case(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads `case`.
    """
    index = reader.found.reserve()
    subject = Words()
    items: list[Node] = []
    for child in node.children:
        if not child.is_named and child.type not in _CASE_WORDS:
            raise UnsureError("it has a case the reader does not know")  # bash refuses `case a in;`
        if child.type == "case_item":
            items.append(child)
        elif child.is_named and child.type != "comment":
            reader.words.into(subject, child, index)
    word = next((at for at, child in enumerate(node.children) if child.is_named and child.type != "comment"), 0)
    reader.source.check_gaps(node.children[: word + 1], one_line=True)  # as bash wants it
    if items:
        final = items[-1].children[-1]
        if final.is_named and b"\n" not in reader.source.data[final.end_byte : node.end_byte]:
            raise UnsureError("it has an 'esac' that bash takes for a word")
    _put_wordless(reader, index, node, place)
    return tuple(each for item in items for each in _case_item(reader, item, index, place))


def _case_item(reader: Reader, node: Node, part: int, place: Place) -> tuple[int, ...]:
    children = node.children
    end = next((at for at, child in enumerate(children) if child.type == ")"), None)
    if end is None:
        raise UnsureError("it has a case the reader does not know")
    reader.source.check_gaps(children)
    reader.source.check_gaps(children[: end + 1], one_line=True)
    patterns = Words()
    for child in children[:end]:
        if child.is_named:
            reader.words.into(patterns, child, part)
    body = [child for child in children[end + 1 :] if child.type not in _CASE_ENDS]
    return reader.statements(body, place.deeper().with_setting(Setting.CONDITIONAL))


def function(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    """
    Reads a function: its body, as if it were called where it is defined. A call with
    arguments reads it once more.
    """
    children = node.children
    names = [child for child in children if child.type == "word"]
    bodies = [child for child in children if child.is_named and child.type not in _NO_BODY]
    redirects = [child for child in children if child.type in REDIRECTS]
    if len(names) != 1 or len(bodies) != 1 or (bodies[0].type == "test_command" and bodies[0].children[0].type == "["):
        raise UnsureError("it has a function the reader does not know")
    head = next((at for at, child in enumerate(children) if child.type == ")"), 1)
    reader.source.check_gaps(children[: head + 1 if children[head].type == ")" else 2], one_line=True)
    name = reader.words.slice(names[0])
    reader.tokens.add(names[0])
    if name.isdigit():
        raise UnsureError("it has a function the reader does not know")
    source = reader.source
    body = reader.text[source.original(bodies[0].start_byte) : source.original(bodies[0].end_byte)]
    reader.found.functions[name] = body
    if redirects:
        redirects_alone(reader, node, redirects, place)
    place = place.deeper().with_setting(Setting.FUNCTION)._replace(function=name, reads_from=())
    reader.apart(bodies[0], place)
    return ()


def _put_wordless(
    reader: Reader, index: int, node: Node, place: Place, assignments: tuple[Assignment, ...] = ()
) -> None:
    """
    Puts a command without words at *index* of the parts.
    """
    reader.found.parts[index] = SimpleCommand(
        (),
        reader.source.span_of(node.start_byte, node.end_byte),
        assignments=assignments,
        setting=place.setting,
        inside=place.inside,
        outer=place.outer,
    )


def _endless(place: Place, body: Sequence[Node]) -> Place:
    """
    *place* for the *body* of a loop without end, which starts processes without waiting.
    """
    inner = body[0].children if body else []
    return place.with_setting(Setting.ENDLESS) if len(inner) > 2 and inner[-2].type == "&" else place


def _filled(nodes: Sequence[Node]) -> Sequence[Node]:
    """
    *nodes*, which bash refuses where no command is among them.
    """
    if all(node.type == "comment" or not node.is_named for node in nodes):
        raise UnsureError("it has a compound command without a command")
    return nodes
