"""
`Reader`: one text, read along its syntax tree; and what all kinds of statements need.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxkit.model import UNKNOWN, Assignment, Setting, SimpleCommand
from sandboxkit.shell._escape import printed
from sandboxkit.shell._lexer import Lexer
from sandboxkit.shell._prepare import Prepared, prepare
from sandboxkit.shell._source import SPACE, Source
from sandboxkit.shell._stdin import prints_number, stdin_of
from sandboxkit.shell._tokens import Tokens
from sandboxkit.shell._tree import SYNTAX, syntax_tree
from sandboxkit.shell._unsure import UnsureError
from sandboxkit.shell._word import WordReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tree_sitter import Node

    from sandboxkit.shell._found import Found, Place, Span
    from sandboxkit.shell._start import Starter

__all__ = ["ONE_LINE", "Reader"]

ONE_LINE = frozenset(
    ("command", "declaration_command", "unset_command", "variable_assignments", "redirected_statement")
)
"""
Kinds of nodes whose children stand on one line.
"""
_SEPARATORS = frozenset((";", "&", "\n"))
_KEYWORDS = re.compile(r"\b(?:time|coproc)\s|!\s")
_QUOTED_IN_TICKS = re.compile(r"\\([`$\\])")


class Reader:
    """
    Reads one text.

    Args:
        starter: Adds what its commands start.
        kinds: How each kind of statement is read: given the reader, the node and the place,
            with the commands whose output is the statement's as the result.
        place: How the text stands in the whole.
        span: Where all of it stands in the source, for text within text; None for the
            source itself.
        cwd: The directory it begins in, as for `SimpleCommand`.

    Attributes:
        found: Where its commands go.
        source: The text.
        words: Reads its words.
        tokens: Where its tokens stand.
        outside: Redirections that belong to a node but stand outside it, by its id.
        unsure: What was not certain first.
        place: Where the statement stands that is being read.
        cwd: The directory that it begins in.
        text: The text as it was given.
        fed: The first commands of each `>( )`, with the part whose word it is.
    """

    __slots__ = (
        "_children",
        "_kinds",
        "_parent",
        "_span",
        "cwd",
        "fed",
        "found",
        "outside",
        "place",
        "source",
        "starter",
        "text",
        "tokens",
        "unsure",
        "words",
    )

    source: Source
    text: str
    words: WordReader

    def __init__(
        self,
        starter: Starter,
        kinds: Mapping[str, Callable[[Reader, Node, Place], tuple[int, ...]]],
        place: Place,
        *,
        span: Span | None = None,
        cwd: str | None = None,
    ) -> None:
        self.starter = starter
        self.found: Found = starter.found
        self.place = place
        self.cwd = cwd
        self.tokens = Tokens()
        self.unsure: str | None = None
        self.outside: dict[int, Sequence[Node]] = {}
        self.fed: list[tuple[int, int]] = []
        self._kinds = kinds
        self._span = span
        self._parent = 0
        self._children: Sequence[Node] = ()

    def read(self, text: str) -> None:
        """
        Reads the commands of *text*.

        Raises:
            UnsureError: It is not certain what it means.
            TooMuchError: It holds more than is read.
        """
        self.text = text
        joined = text.replace("\\\n", "") if "\\" in text else text
        if not _KEYWORDS.search(joined) and not ("\n" in text and "|" in text):
            self._read(prepare(text))
            return
        before, cwd = self.found.saved(), self.cwd
        try:
            self._read(prepare(text))
        except UnsureError:
            # The second reading knows nothing of the first.
            self.found.go_back(before)
            again = Reader(self.starter, self._kinds, self.place, span=self._span, cwd=cwd)
            again.text = text
            again._read(prepare(text, simpler=True))

    def _read(self, prepared: Prepared) -> None:
        root = self._tree(prepared)
        try:
            self._commands(root.children)
        finally:
            self.words.let_go()

    def _commands(self, children: Sequence[Node]) -> None:
        start, end = (children[0].start_byte, children[-1].end_byte) if children else (0, 0)
        data = self.source.data
        if data[:start].strip(SPACE) or data[end:].strip(SPACE):
            raise UnsureError("its words cannot be told apart with certainty")
        self.statements(children, self.place)
        self._check_sure()
        if self.words.assigned:
            index = self.found.reserve()
            span = self.source.span_of(start, end)
            assignments = tuple(self.assigned_in_words())
            self.found.parts[index] = SimpleCommand((), span, assignments=assignments, setting=self.place.setting)
        self.tokens.compare(self.words.seen, Lexer(self.source.text))

    def read_document(self, body: str) -> int:
        """
        Reads the substitutions in *body*, text that expands as within double quotes but
        in which quotes mean nothing; returns its marks.

        Raises:
            UnsureError: It is not certain what it means.
            TooMuchError: It holds more than is read.
        """
        token = "E"  # noqa: S105 - a word of the text
        while token in body:
            token += "E"
        # Without the dot the grammar takes a body that begins with a backslash for words in front of it.
        start, body, end = f": <<{token}\n", f".{body}", f"{token}\n"
        self.text = f"{start}{body}{end}"
        root = self._tree(Prepared(self.text))
        try:
            return self._expanding(root, (len(start), len(self.source.data) - len(end)))
        finally:
            self.words.let_go()

    def _expanding(self, root: Node, place: tuple[int, int]) -> int:
        """
        Reads the one here-document of *root*, whose body is all of the bytes at *place*.
        """
        nodes = [node for child in root.children for node in child.children if node.type == "heredoc_redirect"]
        bodies = [child for node in nodes for child in node.children if child.type == "heredoc_body"]
        if len(bodies) != 1 or self.place.inside is None:
            raise UnsureError("what expands in a here-document cannot be told")
        body_node = bodies[0]
        if (body_node.start_byte, body_node.end_byte) != place:
            raise UnsureError("what expands in a here-document cannot be told")
        self.words.document(body_node, self.place.inside)
        self._check_sure()
        self.tokens.compare(self.words.seen, Lexer(self.source.text, (body_node.start_byte, body_node.end_byte)))
        return self.words.marks

    def _tree(self, prepared: Prepared) -> Node:
        self.found.take(len(prepared.text))
        self.source = Source(prepared, self._span)
        root = syntax_tree(prepared.text, self.source.data)
        if root.has_error:
            raise UnsureError(SYNTAX)
        self.words = WordReader(self.source, self.found.variables, self._substitute, self.evaluate)
        return root

    # Statements

    def statements(self, nodes: Sequence[Node], place: Place) -> tuple[int, ...]:
        """
        Reads statements; returns the commands whose output is theirs together.
        """
        self.source.check_gaps(nodes)
        return self.among(nodes, place, _SEPARATORS)

    def among(self, nodes: Sequence[Node], place: Place, words: frozenset[str]) -> tuple[int, ...]:
        """
        Reads the statements of *nodes*, which stand among *words*; returns the commands
        whose output is theirs together.
        """
        last: list[int] = []
        for number, node in enumerate(nodes):
            if node.is_named:
                last += self.one(nodes, number, place)
            elif node.type not in words:
                raise UnsureError(f"it has {node.type!r} where the reader does not expect it")
        return tuple(last)

    def one(self, nodes: Sequence[Node], number: int, place: Place) -> tuple[int, ...]:
        """
        Reads the statement at *number*, in the background where an `&` follows it.
        """
        if number + 1 >= len(nodes) or nodes[number + 1].type != "&":
            return self.statement(nodes[number], place)
        return self.apart(nodes[number], place.with_setting(Setting.BACKGROUND))

    def apart(self, node: Node, place: Place) -> tuple[int, ...]:
        """
        Reads a statement that cannot change the directory of those behind it.
        """
        cwd = self.cwd
        last = self.statement(node, place)
        self.cwd = cwd
        return last

    def statement(self, node: Node, place: Place) -> tuple[int, ...]:
        """
        Reads a statement; returns the commands whose output is its own.

        Where that is not certain, the reading goes on behind it, so that what else the
        text would do is seen; it is refused in the end.
        """
        kind = node.type
        read = self._kinds.get(kind, _unknown)
        outer, self.place = self.place, place
        try:
            children = self.children(node)
            self.source.check_gaps(children, touching=False, one_line=kind in ONE_LINE)
            for child in children:
                if not child.is_named:
                    self.tokens.add(child)
            if self.outside and self.outside.get(node.id):
                read = self._kinds["redirected_statement"]
            return read(self, node, place)
        except UnsureError as problem:
            self.unsure = self.unsure or str(problem)
            return ()
        finally:
            self.place = outer

    def _check_sure(self) -> None:
        if self.unsure is not None:
            raise UnsureError(self.unsure)

    def children(self, node: Node) -> Sequence[Node]:
        """
        The children of *node*, which every look at them would make anew.
        """
        if self._parent != node.id:
            self._parent, self._children = node.id, node.children
        return self._children

    def assigned_in_words(self) -> list[Assignment]:
        """
        The assignments that words and arithmetic have made since the last command.
        """
        names = dict.fromkeys(map(self.found.variables.target, self.words.assigned))
        self.words.assigned.clear()
        return [Assignment(name, UNKNOWN, is_known=False) for name in names]

    # Text within words

    def _within(self, place: Place, span: Span) -> Reader:
        return Reader(self.starter, self._kinds, place, span=span, cwd=self.cwd)

    def expand(self, body: str, part: int, span: Span) -> int:
        """
        Reads the substitutions in *body*, which stands at *span* within *part*; returns
        its marks.

        Raises:
            UnsureError: It is not certain what it means.
            TooMuchError: It holds more than is read.
        """
        place, span = self.place.within(part), self._span or span
        try:
            return self._within(place, span).read_document(body)
        except UnsureError:
            self.starter.suspect(body, place, span)
            raise

    def evaluate(self, text: str, part: int, start: int) -> None:
        """
        Reads quoted text whose substitutions bash would run all the same.

        Raises:
            UnsureError: It is not certain what it means.
            TooMuchError: It holds more than is read.
        """
        source = self.source
        source.check_operators(start, start + len(text.encode("utf-8", "surrogateescape")))
        place = source.original(start)
        body = text if text.endswith("\n") else text + "\n"
        try:
            self.expand(body, part, (place, min(place + len(text), source.end)))
        except UnsureError:
            self.starter.suspect(text, self.place.within(part), source.span_of(start, start + 1))
            raise

    def _substitute(self, node: Node, part: int) -> str | None:
        """
        Reads the commands of a substitution; returns what it prints where that is plain
        to see.
        """
        first, cwd, words = len(self.found.parts), self.cwd, self.words
        assigned, words.assigned = words.assigned, []
        records, words.records = words.records, True
        children, parts = node.children, self.found.parts
        last: tuple[int, ...] = ()
        opener = children[0].type
        place = self.place.within(part, (part,) if opener == ">(" else ())
        if opener == "`" and "\\" in words.slice(node):
            # Within backticks a backslash quotes `, \ and $ once more.
            self.source.check_operators(node.start_byte, node.end_byte)
            text = _QUOTED_IN_TICKS.sub(r"\1", words.slice(node)[1:-1])
            self._within(place, self.source.span_of(node.start_byte, node.end_byte)).read(text)
        else:
            self.tokens.walked.append((node.start_byte, node.end_byte))
            last = self.statements(children[1:-1], place)
            if opener == ">(":
                self.fed.append((first, part))
        self.cwd = cwd
        words.records = records
        words.assigned = assigned + words.assigned
        words.is_number = len(last) == 1 and prints_number(parts[last[0]], parts)
        return self._printed(first)

    def _printed(self, first: int) -> str | None:
        """
        What the parts from *first* on print, where they are one command whose output is
        plain to see.
        """
        parts = self.found.parts
        if len(parts) != first + 1:
            return None
        part = parts[first]
        output = stdin_of(part, parts, self.place.stdin) if part.argv == ("cat",) else printed(part.argv)
        return output.text if output else None


def _unknown(reader: Reader, node: Node, place: Place) -> tuple[int, ...]:
    raise UnsureError(f"it has syntax the reader does not know ({node.type})")
