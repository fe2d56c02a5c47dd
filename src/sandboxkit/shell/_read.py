"""
Text to parts: every simple command that would run, as bash would find it.

Only what is on the lists of node kinds below is read; anything else ends the reading.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from sandboxkit.model import PIPES, UNKNOWN, Assignment, Doubt, Redirect, Setting, SimpleCommand, Unknown
from sandboxkit.shell._escape import printed
from sandboxkit.shell._lexer import Lexer
from sandboxkit.shell._lines import Piece, settings
from sandboxkit.shell._prepare import HereDocument, Prepared, prepare
from sandboxkit.shell._suspects import suspects
from sandboxkit.shell._tables import RESERVED
from sandboxkit.shell._tree import MAX_DEPTH, SYNTAX, ascii_only, syntax_tree
from sandboxkit.shell._unsure import TooMuchError, UnsureError
from sandboxkit.shell._unwrap import Carried, Inner, Stdin, carried, starts_others
from sandboxkit.shell._variables import SPLIT, Variables
from sandboxkit.shell._word import WordReader, Words, check_touching, holds_code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tree_sitter import Node

__all__ = ["MAX_COMMANDS", "Found", "read", "read_pieces", "read_roughly", "read_words"]

MAX_COMMANDS = 200
"""
Commands of one text. A text with more is not read, and denied.
"""
_MAX_TEXT = 20_000
_MAX_STATEMENTS = 60
_CLOSES = frozenset((">&-", "<&-"))
_OPERATORS = frozenset((">", ">>", ">|", "&>", "&>>", ">&", "<", "<&", "<>", "<<", "<<<"))
_REDIRECTS = frozenset(("file_redirect",))
_SPACE = b" \t\n"
_BLANK = ord(" ")
_BLANKS = frozenset((b" ", b"\t", b"\n"))
_SEPARATORS = frozenset((";", "&", "\n"))
_DECLARES = frozenset(("declare", "typeset", "local", "readonly", "export"))
_NEEDS = {"printf": ("-v",), "wait": ("-p",)}
_ALONE = Setting.PIPELINE | Setting.BACKGROUND
_SETTERS = _DECLARES | {"read", "mapfile", "readarray", "getopts", "unset", "let", "wait", "printf"}
_COMPOUND = RESERVED - {"time", "coproc", "[["}


@dataclass(slots=True)
class Found:
    """
    What a reading has found so far; texts within texts add to the same.

    Attributes:
        parts: The commands.
        functions: The names of functions.
        variables: What variables hold.
        files: What files hold that the text writes.
        left: Characters that may still be read.
    """

    parts: list[SimpleCommand] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    variables: Variables = field(default_factory=Variables)
    files: dict[str, str] = field(default_factory=dict)
    left: int = _MAX_TEXT

    def reserve(self) -> int:
        """
        A place for a command whose words are still to be read.
        """
        if len(self.parts) >= MAX_COMMANDS:
            raise TooMuchError(f"it holds more than {MAX_COMMANDS} commands")
        self.parts.append(_RESERVE)
        return len(self.parts) - 1


@cache
def _setting(value: int) -> Setting:
    # Made anew, a combination of flags takes microseconds.
    return Setting(value)


class _Place(NamedTuple):
    """
    Where the commands being read stand.
    """

    setting: Setting = Setting.NONE
    inside: int | None = None
    outer: int | None = None
    reads_from: tuple[int, ...] = ()
    function: str | None = None
    stdin: Stdin | None = None
    depth: int = 0

    def with_setting(self, setting: Setting) -> _Place:
        joined = int.__or__(self.setting, setting)
        return self if joined == self.setting else self._replace(setting=_setting(joined))


_Span = tuple[int, int]
_RESERVE = SimpleCommand(())
_TOP = _Place()


def read(text: str, found: Found) -> None:
    """
    Reads *text* as bash would.

    Raises:
        UnsureError: It is not certain what it means.
        TooMuchError: It holds more than is read.
    """
    _Reader(found, _TOP, span=None).read(text)


def read_words(part: SimpleCommand, found: Found) -> None:
    """
    Reads a command of literal words: itself, and what it starts.

    Raises:
        UnsureError: It is not certain what it starts.
        TooMuchError: It holds more than is read.
    """
    index = found.reserve()
    found.parts[index] = part
    _Starter(found).start(index, part, _TOP)


def read_pieces(found_pieces: list[Piece], found: Found) -> None:
    """
    Adds the commands of a line of plain words, and what they start.

    Raises:
        UnsureError: It is not certain what one starts.
        TooMuchError: It holds more than is read.
    """
    starter = _Starter(found)
    cwd: str | None = None
    last = -1
    for piece, setting in zip(found_pieces, settings(found_pieces), strict=True):
        index = found.reserve()
        part = SimpleCommand(
            tuple(piece.argv),
            (piece.start, piece.end),
            redirects=tuple(piece.redirects),
            setting=setting,
            reads_from=(last,) if piece.before in ("|", "|&") else (),
            cwd=cwd,
        )
        found.parts[index] = part
        last, starts, end = index, piece.starts, piece.end
        place = _TOP._replace(setting=setting)
        starter.start(index, part, place, lambda word: (starts[word], end))  # noqa: B023 - called at once
        starter.note_files(part, place)
        if part.argv[0] == "cd" and not int.__and__(setting, _ALONE):
            cwd = _directory(part, cwd)


def read_roughly(text: str, found: Found, place: _Place | None = None, span: tuple[int, int] | None = None) -> None:
    """
    Adds what may be a command in *text* that cannot be read, and what that would start.
    """
    place = (place or _TOP).with_setting(Setting.SUSPECT)
    last: tuple[int, ...] = ()
    for argv, where, is_piped in suspects(text):
        index = found.reserve()
        part = SimpleCommand(
            argv,
            span or where,
            setting=place.setting,
            reads_from=last if is_piped else (),
            inside=place.inside,
            outer=place.outer,
        )
        last = (index,)
        found.parts[index] = part
        with suppress(UnsureError):
            _Starter(found).start(index, part, place._replace(depth=place.depth + 1))


class _Starter:
    """
    Adds the commands that a command starts: behind wrappers and in text for a shell.
    """

    def __init__(self, found: Found) -> None:
        self._found = found

    def start(
        self,
        index: int,
        part: SimpleCommand,
        place: _Place,
        span_of: Callable[[int], _Span | None] | None = None,
    ) -> None:
        """
        Adds what *part*, at *index*, starts.
        """
        if not part.argv or not (
            starts_others(part.argv[0])
            or part.argv[0] in self._found.functions
            or (self._found.files and "/" in part.argv[0])
        ):
            return
        stdin = self._stdin(part, place)
        inner = carried(part, stdin)
        if self._found.files and (written := self._written(part)) is not None:
            guess = Inner(text=written, setting=Setting.SUSPECT)
            inner = Carried([*inner.commands, guess], inner.own) if inner else Carried([guess])
        if part.program in self._found.functions and len(part.argv) > 2:
            # It may run its arguments.
            unknown = tuple((at - 1, doubt) for at, doubt in part.unknown if at)
            inner = Carried([Inner(part.argv[1:], unknown, 1, setting=Setting.SUSPECT)])
        if inner is None:
            if stdin is not None and part.program in self._found.functions:
                raise UnsureError("it has text as the input of a function")
            return
        if place.depth >= MAX_DEPTH:
            raise TooMuchError(f"its commands stand more than {MAX_DEPTH} deep in each other")
        if inner.own is not None:
            self._found.parts[index] = replace(part, own=inner.own)
        for each in inner.commands:
            span = span_of(each.start) if span_of and each.start else part.span
            self._inner(index, part, each, place._replace(stdin=stdin), span)

    def note_files(self, part: SimpleCommand, place: _Place) -> None:
        """
        Keeps what *part* prints into files, which later commands may run.
        """
        if part.redirects and part.argv[0] in _PRINTS:
            output = self._stdin(part, place) if part.argv[0] == "cat" else printed(part.argv)
            targets = [redirect.target for redirect in part.redirects if redirect.writes]
            self._found.files.update((_here(target), output.text) for target in targets if output)

    def _written(self, part: SimpleCommand) -> str | None:
        """
        The text of the script that *part* runs, where a command before has written it.
        """
        words = (part.argv[0], *(word for word in part.argv[1:] if not word.startswith("-")))
        names = words[:1] if "/" in words[0] and len(words) == 1 else words[1:2]
        return next((self._found.files[name] for name in map(_here, names) if name in self._found.files), None)

    def _inner(self, outer: int, part: SimpleCommand, inner: Inner, place: _Place, span: _Span | None) -> None:
        setting = _setting(int.__or__(int.__or__(part.setting, inner.setting), Setting.WRAPPED))
        place = place._replace(setting=setting, outer=outer, inside=part.inside, depth=place.depth + 1)
        if inner.text is not None:
            self._text(part, inner, place.with_setting(Setting.TEXT), span)
            return
        index = self._found.reserve()
        started = SimpleCommand(
            argv=inner.argv,
            span=span,
            unknown=inner.unknown,
            assignments=inner.assignments,
            setting=setting,
            reads_from=part.reads_from,
            inside=part.inside,
            outer=outer,
            function=part.function,
            cwd=inner.cwd or (None if int.__and__(inner.setting, Setting.REMOTE) else part.cwd),
        )
        started = self._with_declared(started)
        self._found.parts[index] = started
        if not inner.argv:
            for assignment in inner.assignments:
                self._found.variables.set(assignment.name, assignment.value)
        self.start(index, started, place)

    def _with_declared(self, part: SimpleCommand) -> SimpleCommand:
        """
        *part* with what it assigns where `export` and the like stand behind a keyword or
        wrapper, so that the grammar takes them for programs.
        """
        program = part.program
        if program not in _SETTERS or _NEEDS.get(program, part.argv[1:2]) != part.argv[1:2]:
            return part
        exported = program == "export" or any(word.startswith("-") and "x" in word for word in part.argv[1:])
        unknown = {index for index, _ in part.unknown}
        named = {assignment.name for assignment in part.assignments}
        assignments = list(part.assignments)
        for index, word in enumerate(part.argv[1:3] if program in _NEEDS else part.argv[1:], 1):
            name, assigned, value = word.partition("=")
            name = name.rstrip("+").partition("[")[0]
            if name.isidentifier() and name not in named and (assigned or program not in _DECLARES or part.own is None):
                is_known = bool(assigned) and index not in unknown
                exports = exported and program in _DECLARES
                assignments.append(Assignment(name, value if assigned else UNKNOWN, is_known, exports))
                if assigned:
                    self._found.variables.set(name, value, appends=word.partition("=")[0].endswith("+"))
        if part.argv[1:2] == ("-n",) and program in _DECLARES:
            self._found.variables.references.update((each.name, each.value) for each in assignments)
        return replace(part, assignments=tuple(assignments))

    def _text(self, part: SimpleCommand, inner: Inner, place: _Place, span: _Span | None) -> None:
        text, span = inner.text or "", span or part.span or (0, 0)
        if inner.arguments:
            self._found.variables.set_arguments(inner.arguments[1:])
            self._found.variables.set("0", inner.arguments[0])
        place = place._replace(reads_from=part.reads_from, function=part.function)
        is_remote = int.__and__(inner.setting, Setting.REMOTE)
        reader = _Reader(self._found, place, span=span, cwd=inner.cwd or (None if is_remote else part.cwd))
        if not int.__and__(place.setting, Setting.SUSPECT):
            reader.read(text)
            return
        try:
            reader.read(text)
        except UnsureError:
            read_roughly(text, self._found, place, span)

    def _stdin(self, part: SimpleCommand, place: _Place) -> Stdin | None:
        """
        What the command reads as standard input, where the text says it.
        """
        for redirect in reversed(part.redirects):
            if redirect.is_text:
                return Stdin(redirect.target, redirect.is_known)
            if redirect.operator.startswith("<") and not redirect.target.startswith(PIPES):
                return None
        outputs = [output for source in part.reads_from if (output := self._output(source, place))]
        if not outputs:
            return None if part.reads_from else place.stdin
        is_known = len(outputs) == len(part.reads_from) and all(output.is_known for output in outputs)
        return Stdin("\n".join(output.text for output in outputs), is_known)

    def _output(self, index: int, place: _Place) -> Stdin | None:
        part = self._found.parts[index]
        if part.argv == ("cat",):
            return self._stdin(part, place._replace(stdin=None))
        if part.own is not None:
            inner = [number for number, each in enumerate(self._found.parts) if each.outer == index]
            return self._output(inner[0], place) if len(inner) == 1 else None
        output = printed(part.argv)
        if output is None:
            return None
        if part.program == "echo" and "\\" in output.text and part.stands(Setting.FOREIGN):
            # Some shells decode escapes without being asked to.
            decoded = printed(("echo", "-e", *part.argv[1:])) or output
            return Stdin(f"{output.text}\n{decoded.text}")
        return Stdin(output.text, output.is_known and not part.unknown and output.text.isascii())


class _Reader(_Starter):
    """
    Reads one text.

    Args:
        found: Where the parts go.
        place: How the text stands in the whole.
        span: Where all of it stands in the source, for text within text; None for the
            source itself.
        cwd: The directory it begins in, as for `SimpleCommand`.
    """

    def __init__(self, found: Found, place: _Place, *, span: _Span | None, cwd: str | None = None) -> None:
        super().__init__(found)
        self._place = place
        self._span = span
        self._cwd = cwd
        self._prepared = Prepared("")
        self._data = b""
        self._is_ascii = True
        self._words: WordReader
        self._outside: dict[int, Sequence[Node]] = {}
        self._tokens: set[_Span] = set()
        self._excused: set[_Span] = set()
        self._walked: list[_Span] = []
        self._redirects: set[int] = set()
        self._parent = 0
        self._found_children: Sequence[Node] = ()

    def read(self, text: str) -> None:
        """
        Reads the commands of *text*.
        """
        first = len(self._found.parts)
        try:
            self._read(prepare(text))
        except UnsureError:
            if not _KEYWORDS.search(text) and not ("\n" in text and "|" in text):
                raise
            del self._found.parts[first:]
            self._read(prepare(text, simpler=True))

    def _read(self, prepared: Prepared) -> None:
        children = self._tree(prepared).children
        start, end = (children[0].start_byte, children[-1].end_byte) if children else (0, 0)
        if self._data[:start].strip(_SPACE) or self._data[end:].strip(_SPACE):
            raise UnsureError("its words cannot be told apart with certainty")
        self._statements(children, self._place)
        if self._words.assigned:
            index = self._found.reserve()
            self._found.parts[index] = SimpleCommand(
                (), self._span_of(start, end), assignments=tuple(self._noted()), setting=self._place.setting
            )
        self._compare(Lexer(self._ascii()))

    def _ascii(self) -> str:
        return self._prepared.text if self._is_ascii else ascii_only(self._data).decode("ascii")

    def _compare(self, lexer: Lexer) -> None:
        """
        Refuses a text whose words and redirections stand elsewhere in another reading.
        """
        seen, redirects = self._words.seen, self._redirects
        known = seen | self._tokens
        if (
            not lexer.words <= known
            or any(self._has_walked(word) for word in lexer.optional - known)
            or not seen - self._excused <= lexer.words | lexer.optional
            or not lexer.redirects <= redirects
            or not redirects <= lexer.redirects | lexer.optional_redirects
        ):
            raise UnsureError("its words cannot be told apart with certainty")

    def _has_walked(self, word: _Span) -> bool:
        """
        Whether *word* stands in a substitution whose commands have been read.
        """
        return any(start <= word[0] and word[1] <= end for start, end in self._walked)

    def read_document(self, body: str) -> None:
        """
        Reads the substitutions in *body*, text that expands as within double quotes but
        in which quotes mean nothing.
        """
        token = "E"  # noqa: S105 - a word of the text
        while token in body:
            token += "E"
        root = self._tree(Prepared(f": <<{token}\n{body}{token}\n"))
        nodes = [node for child in root.children for node in child.children if node.type == "heredoc_redirect"]
        bodies = [child for node in nodes for child in node.children if child.type == "heredoc_body"]
        if len(bodies) != 1 or self._place.inside is None:
            raise UnsureError("what expands in a here-document cannot be told")
        body_node = bodies[0]
        self._words.document(body_node, self._place.inside)
        self._compare(Lexer(self._ascii(), (body_node.start_byte, body_node.end_byte)))

    def _tree(self, prepared: Prepared) -> Node:
        found, text = self._found, prepared.text
        found.left -= len(text)
        if found.left < 0:
            raise TooMuchError(f"it holds more than {_MAX_TEXT} characters of text within text")
        if self._place.depth > MAX_DEPTH:
            raise TooMuchError(f"its commands stand more than {MAX_DEPTH} deep in each other")
        self._prepared = prepared
        self._data = text.encode("utf-8", "surrogateescape")
        self._is_ascii = len(self._data) == len(text)
        self._words = WordReader(self._data, found.variables, self._substitute, self._evaluate)
        root = syntax_tree(text, self._data)
        if root.has_error:
            raise UnsureError(SYNTAX)
        return root

    # Where things stand

    def _place_of(self, offset: int) -> int:
        return offset if self._is_ascii else len(self._data[:offset].decode("utf-8", "surrogateescape"))

    def _original(self, offset: int) -> int:
        return self._prepared.original(self._place_of(offset))

    def _check_operators(self, start: int, end: int) -> None:
        """
        Refuses text that is read once more, but has lost its operators.
        """
        begin, end = self._place_of(start), self._place_of(end)
        if any(begin <= place < end for place in self._prepared.operators):
            raise UnsureError("it has a redirection from text within text")

    def _span_of(self, start: int, end: int) -> _Span:
        if self._span is not None:
            return self._span
        if self._is_ascii and self._prepared.is_source:
            return start, end
        return self._original(start), self._original(end)

    def _check_gaps(self, nodes: Sequence[Node], *, touching: bool = True, one_line: bool = False) -> None:
        """
        Refuses text the grammar has left out between *nodes*, words that touch, and
        lines it has joined.
        """
        data = self._data
        for before, after in pairwise(nodes):
            end, start = before.end_byte, after.start_byte
            if start - end == 1 and data[end] == _BLANK:
                continue
            if end == start:
                if not touching and _is_word(before) and _is_word(after):
                    raise UnsureError("its words cannot be told apart with certainty")
            elif data[end:start].strip(_SPACE) or (one_line and b"\n" in data[end:start]):
                raise UnsureError("its words cannot be told apart with certainty")

    # Statements

    def _statements(self, nodes: Sequence[Node], place: _Place) -> tuple[int, ...]:
        """
        Reads statements; returns the commands whose output is theirs together.
        """
        last: list[int] = []
        self._check_gaps(nodes)
        for number, node in enumerate(nodes):
            if node.is_named:
                last += self._one(nodes, number, place)
            elif node.type not in _SEPARATORS:
                raise UnsureError(f"it has {node.type!r} where the reader does not expect it")
        return tuple(last)

    def _one(self, nodes: Sequence[Node], number: int, place: _Place) -> tuple[int, ...]:
        """
        Reads a statement, in the background where an `&` follows it.
        """
        if number + 1 >= len(nodes) or nodes[number + 1].type != "&":
            return self._statement(nodes[number], place)
        cwd = self._cwd
        last = self._statement(nodes[number], place.with_setting(Setting.BACKGROUND))
        self._cwd = cwd
        return last

    def _children(self, node: Node) -> Sequence[Node]:
        # Every look at a node's children makes them anew.
        if self._parent != node.id:
            self._parent, self._found_children = node.id, node.children
        return self._found_children

    def _statement(self, node: Node, place: _Place) -> tuple[int, ...]:
        reader = _STATEMENTS.get(node.type)
        if reader is None:
            raise UnsureError(f"it has syntax the reader does not know ({node.type})")
        outer, self._place = self._place, place
        try:
            self._check_gaps(self._children(node), touching=False, one_line=node.type in _ONE_LINE)
            self._tokens.update(
                (child.start_byte, child.end_byte) for child in self._children(node) if not child.is_named
            )
            if self._outside and (redirects := self._outside.pop(node.id, None)):
                return self._redirected_body(node, node, redirects, place)
            return reader(self, node, place)
        finally:
            self._place = outer

    def _deeper(self, place: _Place) -> _Place:
        if place.depth >= MAX_DEPTH:
            raise TooMuchError(f"its commands stand more than {MAX_DEPTH} deep in each other")
        return place._replace(depth=place.depth + 1)

    def _nothing(self, node: Node, place: _Place) -> tuple[int, ...]:
        return ()

    def _command(self, node: Node, place: _Place, outside: Sequence[Node] = ()) -> tuple[int, ...]:
        index = self._found.reserve()
        line = _Line()
        children = self._children(node)
        for number, child in enumerate(children):
            kind = child.type
            if kind == "command_name":
                self._name(line, child, index)
            elif kind == "variable_assignment":
                line.assignments.append(self._assigned(child, index, exported=True))
            elif kind in _REDIRECTS:
                self._redirect(child, index, line)
            elif child.is_named:
                self._words.into(line.words, child, index)
            elif kind == "$":
                if number and children[number - 1].end_byte == child.start_byte:
                    raise UnsureError("its words cannot be told apart with certainty")
                self._dollar(line, child, children[number + 1] if number + 1 < len(children) else None)
            else:
                raise UnsureError(f"it has {kind!r} where the reader does not expect it")
        if outside:
            self._check_gaps([*children[-1:], *outside], touching=False, one_line=True)
        for child in outside:
            self._redirect(child, index, line)
        if line.words.argv[:1] == [UNKNOWN] and len(line.words.argv) > 1 and line.words.may_vanish():
            # An expansion that is probably empty: the next word is the program.
            line.words.drop_first()
        return self._add(index, node, line, place, outside)

    def _dollar(self, line: _Line, node: Node, following: Node | None) -> None:
        if node.end_byte - node.start_byte > 1:
            # The grammar takes -$ of -$"x" for the dollar.
            raise UnsureError("its words cannot be told apart with certainty")
        if following is None or following.start_byte != node.end_byte:
            line.words.add("$", node.start_byte)
        elif following.type != "string":  # $"…" is a string to translate
            raise UnsureError("it has an expansion the reader does not know")
        else:
            self._tokens.add((node.start_byte, following.end_byte))
            self._excused.add((following.start_byte, following.end_byte))

    def _name(self, line: _Line, node: Node, part: int) -> None:
        children = node.children
        for number, child in enumerate(children):
            if child.is_named:
                self._words.into(line.words, child, part)
            elif child.type == "$":
                self._dollar(line, child, children[number + 1] if number + 1 < len(children) else None)
            else:
                raise UnsureError(f"it has {child.type!r} where the reader does not expect it")

    def _add(self, index: int, node: Node, line: _Line, place: _Place, outside: Sequence[Node] = ()) -> tuple[int, ...]:
        words = line.words
        end = outside[-1].end_byte if outside else node.end_byte
        line.assignments += self._noted()
        part = SimpleCommand(
            argv=tuple(words.argv),
            span=self._span_of(node.start_byte, end),
            unknown=tuple(words.unknown.items()),
            assignments=tuple(line.assignments),
            redirects=tuple(line.redirects),
            setting=place.setting,
            reads_from=(*place.reads_from, *line.reads) if line.reads else place.reads_from,
            inside=place.inside,
            outer=place.outer,
            function=place.function,
            cwd=self._cwd,
        )
        part = self._with_declared(part)
        self._found.parts[index] = part
        if part.argv:
            self._check_keywords(words)
            starts = words.starts
            self.start(
                index, part, place, lambda word: self._span_of(starts[word], end) if word < len(starts) else None
            )
            self._note(part, place)
        return (index,)

    def _noted(self) -> list[Assignment]:
        """
        The assignments that words and arithmetic have made since the last command.
        """
        names = dict.fromkeys(map(self._found.variables.target, self._words.assigned))
        noted = [Assignment(name, UNKNOWN, is_known=False) for name in names]
        self._words.assigned.clear()
        return noted

    def _check_keywords(self, words: Words) -> None:
        if not words.literal[0]:
            return
        first = words.argv[0]
        if first in _COMPOUND:
            raise UnsureError(f"it has the reserved word {first!r} where the reader does not expect it")
        if first in ("time", "coproc"):
            # Reserved words too; the grammar takes them for programs.
            rest = words.argv[2:] if words.argv[1:2] == ["-p"] else words.argv[1:]
            rest = rest[1:] if rest[:1] == ["--"] else rest
            if not rest or (first == "time" and rest[0].startswith("-")):
                raise UnsureError(f"it has {first!r} in front of nothing, or of an option it does not take")
            for word, literal in zip(words.argv[1:], words.literal[1:], strict=True):
                if not literal and "=" in word:
                    raise UnsureError(f"it has {first!r} in front of what may be an assignment")
                if literal and word in RESERVED:
                    raise UnsureError(f"it has {first!r} in front of a compound command")

    def _note(self, part: SimpleCommand, place: _Place) -> None:
        """
        What later commands see of *part*: variables, and the directory.
        """
        argv, variables = part.argv, self._found.variables
        self.note_files(part, place)
        if argv == ("exec",) and any(redirect.operator.startswith("<") for redirect in part.redirects):
            raise UnsureError("it changes where everything behind it reads from")
        if argv[0] in _MOVES:
            variables.set("OLDPWD", self._cwd or ".")
            self._cwd = _directory(part, self._cwd)
        elif argv[0] in _SAME_SHELL or argv[0] in self._found.functions:
            self._follow(part)
        elif argv[0] == "set" and (arguments := _positional(argv)) is not None:
            variables.set_arguments(arguments)
        elif argv[:2] == ("printf", "-v") and len(argv) > 3:
            output = printed(("printf", *argv[3:]))
            variables.set(argv[2], output.text if output else UNKNOWN)
        elif argv[0] == "read":
            text = (self._stdin(part, place) or Stdin(UNKNOWN)).text.strip()
            for name in argv[1:]:
                variables.set(name, text)

    def _follow(self, part: SimpleCommand) -> None:
        """
        Notes where a function, or a command that this shell runs for *part*, leads.
        """
        parts = self._found.parts
        for moved in parts:
            if moved.argv and moved.program in _MOVES and not moved.stands(_APART):
                outer = None if moved.outer is None else parts[moved.outer]
                if moved.function == part.program or (
                    outer and outer.span == part.span and outer.program in _SAME_SHELL
                ):
                    self._cwd = _directory(moved, self._cwd)

    def _bare_assignments(self, node: Node, place: _Place) -> tuple[int, ...]:
        index = self._found.reserve()
        line = _Line()
        for child in node.children if node.type == "variable_assignments" else [node]:
            line.assignments.append(self._assigned(child, index, exported=False))
        return self._add(index, node, line, place)

    def _assigned(self, node: Node, part: int, *, exported: bool) -> Assignment:
        if node.type != "variable_assignment":
            raise UnsureError("it has an assignment the reader does not know")
        check_touching(node.children)
        self._tokens.add((node.start_byte, node.end_byte))
        target, operator, *rest = node.children
        name, _ = self._words.name(target, part)
        if not name.isidentifier():
            raise UnsureError("it has an assignment the reader does not know")
        value, is_known = self._value(rest, part)
        self._found.variables.set(name, value, appends=operator.type == "+=")
        text = value.replace(SPLIT, " ")
        if holds_code(text):
            # Whoever expands it once more runs it: eval, ${…@P}, arithmetic, PS4.
            self._evaluate(text, part, node.start_byte)
            raise UnsureError(f"the value of {name} holds code")
        name = self._found.variables.target(name)
        return Assignment(name, text, is_known and target.type != "subscript", exported)

    def _value(self, rest: Sequence[Node], part: int) -> tuple[str, bool]:
        if not rest:
            return "", True
        node = rest[-1]
        if len(rest) > 1 and (len(rest) > 2 or self._words.slice(rest[0]) != "$"):
            raise UnsureError("it has an assignment the reader does not know")
        if len(rest) > 1:
            self._check_translated(rest[0])
        if node.type != "array":
            return self._words.value(node, part)
        words = Words()
        for child in node.children:
            if child.is_named:
                if self._data[child.start_byte : child.start_byte + 1] == b"[" and not _SUBSCRIPT.match(
                    self._words.slice(child)
                ):
                    raise UnsureError("it has a list the reader does not know")
                self._words.into(words, child, part)
        return SPLIT.join(words.argv), False

    def _declaration(self, node: Node, place: _Place, outside: Sequence[Node] = ()) -> tuple[int, ...]:
        index = self._found.reserve()
        line = _Line()
        words = line.words
        exported = node.children[0].type == "export"
        for child in node.children:
            kind = child.type
            if kind == "variable_assignment":
                assignment = self._assigned(child, index, exported=exported)
                line.assignments.append(assignment)
                doubt = None if assignment.is_known else Unknown(Doubt.VALUE, f"{assignment.name}=")
                words.add(f"{assignment.name}={assignment.value}", child.start_byte, doubt)
            elif kind in _REDIRECTS:
                self._redirect(child, index, line)
            elif kind in ("variable_name", "unset", "unsetenv", *_DECLARES):
                self._tokens.add((child.start_byte, child.end_byte))
                words.add(self._words.slice(child), child.start_byte, literal=True)
            elif child.is_named:
                self._words.into(words, child, index)
                self._words.code(words.argv[-1], index, child.start_byte)
                exported |= words.argv[-1].startswith("-") and "x" in words.argv[-1]
            else:
                raise UnsureError(f"it has {kind!r} where the reader does not expect it")
        for child in outside:
            self._redirect(child, index, line)
        if any(word.startswith("-") and "n" in word for word in words.argv[1:]):
            self._found.variables.references.update((each.name, each.value) for each in line.assignments)
        return self._add(index, node, line, place, outside)

    # Redirections

    def _redirect(self, node: Node, part: int, line: _Line) -> None:
        if node.type not in _REDIRECTS:
            raise UnsureError("it has a redirection the reader does not know")
        operator = ""
        targets = Words()
        dropped = line.words.drop_descriptor(node.start_byte)
        if dropped:
            self._words.seen.discard(dropped)
        if dropped and self._data[dropped[0] : dropped[0] + 1] == b"{":
            self._words.assigned.append(self._data[dropped[0] + 1 : dropped[1] - 1].decode())
        self._check_gaps(node.children, touching=False)
        if any(b"\n" in self._data[one.end_byte : other.start_byte] for one, other in pairwise(node.children)):
            raise UnsureError("it has a redirection to the next line")
        for child in node.children:
            if child.type == "file_descriptor":
                continue
            if operator and self._words.slice(child) == "$":
                self._check_translated(child)
                continue
            if not operator and not child.is_named:
                operator = self._operator(child)
                self._redirects.add(child.start_byte)
                if operator in _CLOSES:
                    self._tokens.add((child.end_byte - 1, child.end_byte))
            elif child.type == "process_substitution" and operator == "<" and not targets.argv:
                first = len(self._found.parts)
                self._words.into(targets, child, part)
                line.reads += range(first, min(first + 1, len(self._found.parts)))
            elif child.is_named and operator:
                # The grammar takes the words behind the target with it.
                self._words.into(line.words if targets.argv or operator in _CLOSES else targets, child, part)
            else:
                raise UnsureError("it has a redirection the reader does not know")
        if operator in _CLOSES:
            return
        if targets.argv and targets.argv[0].isdigit() and self._data[node.end_byte : node.end_byte + 1] in (b"<", b">"):
            raise UnsureError("it has a redirection the reader does not know")
        if not targets.argv or operator not in _OPERATORS:
            raise UnsureError(f"it has a redirection the reader does not know ({operator!r})")
        line.redirects += self._redirected(operator, targets, part)

    def _check_translated(self, dollar: Node) -> None:
        """
        Refuses a *dollar* that is no part of the string behind it.
        """
        string = dollar.next_sibling
        if string is None or string.type != "string" or string.start_byte != dollar.end_byte:
            raise UnsureError("it has a dollar that may be a word")

    def _operator(self, node: Node) -> str:
        if not self._prepared.operators:
            return node.type
        return self._prepared.operators.get(self._place_of(node.start_byte), node.type)

    def _redirected(self, operator: str, targets: Words, part: int) -> list[Redirect]:
        target = " ".join(targets.argv)
        is_known = not targets.unknown and len(targets.argv) == 1
        if operator == "<<<":
            return [Redirect("<<<", target + "\n", is_known)]
        if operator == "<<":
            document = self._prepared.documents.get(target)
            if document is None:
                raise UnsureError("the end of a here-document cannot be told")
            return [self._document(document, part)]
        if operator in (">&", "<&") and is_known and (target.rstrip("-").isdigit() or target == "-"):
            return []
        return [Redirect(operator, target, is_known)]

    def _document(self, document: HereDocument, part: int) -> Redirect:
        body = document.body
        if document.is_literal or ("$" not in body and "`" not in body and "\\" not in body):
            return Redirect("<<", body)
        self._expand(body, part, (document.start, document.start + len(body)))
        return Redirect("<<", body, is_known=False)

    # Substitutions

    def _inside(self, part: int) -> _Place:
        setting = _setting(int.__or__(self._place.setting, Setting.SUBSTITUTION))
        return self._deeper(self._place._replace(inside=part, reads_from=(), setting=setting))

    def _expand(self, body: str, part: int, span: _Span) -> None:
        reader = _Reader(self._found, self._inside(part), span=self._span or span, cwd=self._cwd)
        try:
            reader.read_document(body)
        except UnsureError:
            read_roughly(body, self._found, self._inside(part), self._span or span)
            raise

    def _substitute(self, node: Node, part: int) -> str | None:
        first, cwd, place = len(self._found.parts), self._cwd, self._inside(part)
        assigned, self._words.assigned = self._words.assigned, []
        records, self._words.records = self._words.records, True
        children = node.children
        if children[0].type == "`" and "\\" in self._words.slice(node):
            # Within backticks a backslash quotes `, \ and $ once more.
            self._check_operators(node.start_byte, node.end_byte)
            text = _unticked(self._words.slice(node)[1:-1])
            span = self._span_of(node.start_byte, node.end_byte)
            _Reader(self._found, place, span=span, cwd=cwd).read(text)
        else:
            self._walked.append((node.start_byte, node.end_byte))
            self._statements(children[1:-1], place)
        self._cwd = cwd
        self._words.records = records
        self._words.assigned = assigned + self._words.assigned
        added = self._found.parts[first:]
        if len(added) != 1:
            return None
        if added[0].argv == ("cat",) and added[0].redirects and added[0].redirects[-1].is_text:
            return added[0].redirects[-1].target
        output = printed(added[0].argv)
        return output.text if output else None

    def _evaluate(self, text: str, part: int, start: int) -> None:
        """
        Reads quoted text whose substitutions bash would run all the same.
        """
        self._check_operators(start, start + len(text.encode("utf-8", "surrogateescape")))
        place = self._original(start)
        body = text if text.endswith("\n") else text + "\n"
        try:
            self._expand(body, part, (place, min(place + len(text), self._end)))
        except UnsureError:
            read_roughly(text, self._found, self._inside(part), self._span_of(start, start + 1))
            raise

    @property
    def _end(self) -> int:
        return self._original(len(self._data))

    # Compound commands

    def _redirected_statement(self, node: Node, place: _Place) -> tuple[int, ...]:
        body, *redirects = node.children
        if any(child.type not in _REDIRECTS for child in redirects):
            raise UnsureError("it has a redirection the reader does not know")
        if body.type in _REDIRECTS:
            return self._redirects_alone(node, [body, *redirects], place)
        if body.type not in _CHAINS:
            return self._redirected_body(node, body, redirects, place)
        # They belong to the last command of a pipeline or list alone.
        last = body
        while last.type in _CHAINS:
            last = last.children[-1]
        self._outside[last.id] = redirects
        return self._statement(body, place)

    def _redirected_body(self, node: Node, body: Node, redirects: Sequence[Node], place: _Place) -> tuple[int, ...]:
        if body.type in _ONE_LINE:
            self._check_gaps([*body.children, *redirects], touching=False, one_line=True)
        if body.type == "command":
            return self._command(body, place, redirects)
        if body.type in ("declaration_command", "unset_command"):
            return self._declaration(body, place, redirects)
        (index,) = self._redirects_alone(node, redirects, place)
        part = self._found.parts[index]
        stdin = self._stdin(part, place)
        return self._statement(body, place._replace(stdin=stdin, reads_from=part.reads_from))

    def _redirects_alone(self, node: Node, redirects: Sequence[Node], place: _Place) -> tuple[int, ...]:
        index = self._found.reserve()
        line = _Line()
        for child in redirects:
            self._redirect(child, index, line)
        words = line.words
        if words.argv and node.type != "file_redirect" and node.children[0].type not in _REDIRECTS:
            raise UnsureError("it has words behind a compound command")
        return self._add(index, node, line, place)

    def _redirect_statement(self, node: Node, place: _Place) -> tuple[int, ...]:
        return self._redirects_alone(node, [node], place)

    def _pipeline(self, node: Node, place: _Place) -> tuple[int, ...]:
        place = place.with_setting(Setting.PIPELINE)
        last: tuple[int, ...] = ()
        is_first = True
        for child in node.children:
            if child.is_named:
                if child.type == "negated_command" and not is_first:
                    raise UnsureError("it has a '!' behind a '|'")
                cwd = self._cwd
                last = self._statement(child, place if is_first else place._replace(reads_from=last))
                self._cwd = cwd
                is_first = False
            elif child.type not in ("|", "|&"):
                raise UnsureError(f"it has {child.type!r} where the reader does not expect it")
        return last

    def _list(self, node: Node, place: _Place) -> tuple[int, ...]:
        last: list[int] = []
        for child in self._flat(node):
            last += self._statement(child, place.with_setting(Setting.CONDITIONAL) if last else place)
        return tuple(last)

    def _flat(self, node: Node) -> list[Node]:
        """
        The commands of a list, which nests to the left, in their order.
        """
        found: list[Node] = []
        while True:
            children = node.children
            if len(children) != 3 or children[1].type not in ("&&", "||"):
                raise UnsureError("it has a list the reader does not know")
            self._check_gaps(children, touching=False)
            found.append(children[2])
            if children[0].type != "list":
                return [children[0], *reversed(found)]
            node = children[0]

    def _negated(self, node: Node, place: _Place) -> tuple[int, ...]:
        if self._data[node.start_byte + 1 : node.start_byte + 2] not in _BLANKS:
            raise UnsureError("it has a '!' that bash takes for a part of a word")
        return self._statements(node.children[1:], place)

    def _subshell(self, node: Node, place: _Place) -> tuple[int, ...]:
        cwd = self._cwd
        last = self._statements(_filled(node.children[1:-1]), self._deeper(place.with_setting(Setting.SUBSHELL)))
        self._cwd = cwd
        return last

    def _group(self, node: Node, place: _Place) -> tuple[int, ...]:
        if node.children[0].type == "((":
            return self._test(node, place)
        if self._data[node.start_byte + 1 : node.start_byte + 2] not in _BLANKS:
            raise UnsureError("it has a brace that bash takes for a part of a word")
        return self._statements(_filled(node.children[1:-1]), self._deeper(place))

    def _test(self, node: Node, place: _Place) -> tuple[int, ...]:
        """
        `[[ … ]]`, `[ … ]`, `(( … ))`: a builtin whose words are its operands.
        """
        opener = node.children[0]
        if opener.type != "((" and self._data[opener.end_byte : opener.end_byte + 1] not in _BLANKS:
            raise UnsureError("it has a bracket that bash takes for a part of a word")
        index = self._found.reserve()
        line = _Line()
        # Within [[ ]] the words of a command are not told by blanks alone.
        records, self._words.records = self._words.records, opener.type == "["
        self._operands(node, index, line, is_arithmetic=opener.type == "((")
        if opener.type == "((" or (opener.type == "[[" and not _COMPARES.isdisjoint(line.words.argv)):
            self._words.note_assigned(" ".join(line.words.argv))
        self._words.records = records
        return self._add(index, node, line, place)

    def _operands(self, node: Node, part: int, line: _Line, *, is_arithmetic: bool) -> None:
        for child in node.children:
            if not child.is_named or child.type == "test_operator":
                self._tokens.add((child.start_byte, child.end_byte))
                line.words.add(self._words.slice(child), child.start_byte, literal=True)
            elif child.type in _EXPRESSIONS:
                self._operands(child, part, line, is_arithmetic=is_arithmetic)
            elif is_arithmetic:
                self._words.operand(child, part)
                line.words.add(self._words.slice(child), child.start_byte)
            else:
                self._words.into(line.words, child, part)
                for word in line.words.argv[-1:]:
                    self._words.code(word, part, child.start_byte)

    def _compound(self, node: Node, place: _Place) -> tuple[int, ...]:
        """
        `if`, `elif`, `else`, `case` items: keywords between statements.
        """
        place = self._deeper(place).with_setting(Setting.CONDITIONAL)
        last: list[int] = []
        children = node.children
        for before, after in pairwise(children):
            if before.type in _OPENING and (
                after.type in _OPENING or after.type in ("fi", "elif_clause", "else_clause")
            ):
                raise UnsureError("it has a compound command without a command")
        if children[-1].type in _OPENING:
            raise UnsureError("it has a compound command without a command")
        for number, child in enumerate(children):
            if child.is_named:
                last += self._one(children, number, place)
            elif child.type not in _COMPOUND_WORDS:
                raise UnsureError(f"it has {child.type!r} where the reader does not expect it")
        return tuple(last)

    def _while(self, node: Node, place: _Place) -> tuple[int, ...]:
        place = self._deeper(place).with_setting(Setting.LOOP)
        keyword, *rest = node.children
        condition = [child for child in rest if child.type != "do_group"]
        body = [child for child in rest if child.type == "do_group"]
        last = self._statements(condition, place)
        parts = [self._found.parts[index] for index in last]
        always = _ALWAYS if keyword.type == "while" else _NEVER
        if all(part.argv in always for part in parts):
            place = _endless(place, body)
        return last + self._statements(body, place)

    def _do_group(self, node: Node, place: _Place) -> tuple[int, ...]:
        return self._statements(_filled(node.children[1:-1]), place)

    def _for(self, node: Node, place: _Place) -> tuple[int, ...]:
        place = self._deeper(place).with_setting(Setting.LOOP)
        index = self._found.reserve()
        line = _Line()
        name = ""
        body: list[Node] = []
        for child in node.children:
            if child.type in ("for", "select", "in", *_SEPARATORS):
                continue
            if child.type == "variable_name" and not name:
                name = self._words.slice(child)
                self._tokens.add((child.start_byte, child.end_byte))
                if not name.isidentifier():
                    raise UnsureError("it has a loop the reader does not know")
            elif child.type in ("do_group", "compound_statement"):
                body.append(child)
            else:
                self._words.into(line.words, child, index)
        # The words of a loop are no command, but their substitutions are inside one.
        words = line.words.argv or [self._found.variables.get("@")]
        self._found.variables.set(name, SPLIT.join(words))
        name = self._found.variables.target(name)
        self._found.parts[index] = SimpleCommand(
            (),
            self._span_of(node.start_byte, node.end_byte),
            assignments=(Assignment(name, " ".join(words).replace(SPLIT, " "), is_known=False),),
            setting=place.setting,
            inside=place.inside,
            outer=place.outer,
        )
        return self._statements(body, place)

    def _c_for(self, node: Node, place: _Place) -> tuple[int, ...]:
        place = self._deeper(place).with_setting(Setting.LOOP)
        index = self._found.reserve()
        line = _Line()
        body: list[Node] = []
        for child in node.children:
            if child.type in ("do_group", "compound_statement"):
                body.append(child)
            elif child.is_named:
                self._words.operand(child, index)
            elif child.type not in ("for", "((", "))", ";", ",", "\n"):
                raise UnsureError(f"it has {child.type!r} where the reader does not expect it")
        self._add(index, node, line, place)
        semicolons = [number for number, child in enumerate(node.children) if child.type == ";"]
        if len(semicolons) > 1 and semicolons[0] + 1 == semicolons[1]:
            place = _endless(place, body)
        return self._statements(body, place)

    def _case(self, node: Node, place: _Place) -> tuple[int, ...]:
        index = self._found.reserve()
        line = _Line()
        items: list[Node] = []
        for child in node.children:
            if child.type == "case_item":
                items.append(child)
            elif child.is_named and child.type != "comment":
                self._words.into(line.words, child, index)
        if (
            items
            and items[-1].children[-1].is_named
            and b"\n" not in self._data[items[-1].children[-1].end_byte : node.end_byte]
        ):
            raise UnsureError("it has an 'esac' that bash takes for a word")
        span = self._span_of(node.start_byte, node.end_byte)
        self._found.parts[index] = SimpleCommand(
            (), span, setting=place.setting, inside=place.inside, outer=place.outer
        )
        return tuple(each for item in items for each in self._case_item(item, index, place))

    def _case_item(self, node: Node, part: int, place: _Place) -> tuple[int, ...]:
        children = node.children
        end = next((at for at, child in enumerate(children) if child.type == ")"), None)
        if end is None:
            raise UnsureError("it has a case the reader does not know")
        self._check_gaps(children)
        patterns = Words()
        for child in children[:end]:
            if child.is_named:
                self._words.into(patterns, child, part)
        body = [child for child in children[end + 1 :] if child.type not in (";;", ";&", ";;&")]
        return self._statements(body, self._deeper(place).with_setting(Setting.CONDITIONAL))

    def _function(self, node: Node, place: _Place) -> tuple[int, ...]:
        names = [child for child in node.children if child.type == "word"]
        bodies = [child for child in node.children if child.is_named and child.type not in ("word", *_REDIRECTS)]
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        if len(names) != 1 or len(bodies) != 1:
            raise UnsureError("it has a function the reader does not know")
        name = self._words.slice(names[0])
        self._tokens.add((names[0].start_byte, names[0].end_byte))
        if name.isdigit():
            raise UnsureError("it has a function the reader does not know")
        self._found.functions.add(name)
        if redirects:
            self._redirects_alone(node, redirects, place)
        place = self._deeper(place).with_setting(Setting.FUNCTION)._replace(function=name, reads_from=())
        cwd = self._cwd
        self._statement(bodies[0], place)
        self._cwd = cwd
        return ()


@dataclass(slots=True)
class _Line:
    """
    A simple command while it is read.
    """

    words: Words = field(default_factory=Words)
    assignments: list[Assignment] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)


_ONE_LINE = frozenset(
    ("command", "declaration_command", "unset_command", "variable_assignments", "redirected_statement")
)
_CHAINS = frozenset(("pipeline", "list", "negated_command"))
_SUBSCRIPT = re.compile(r"\[[^\[\]'\"]+\]\+?=")
_COMPARES = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_KEYWORDS = re.compile(r"\b(?:time|coproc)\s|!\s")
_PRINTS = frozenset(("cat", "echo", "printf"))
_MOVES = frozenset(("cd", "pushd", "popd"))
_SAME_SHELL = frozenset(("command", "builtin", "eval", "time"))
_APART = Setting.SUBSHELL | Setting.SUBSTITUTION | Setting.PIPELINE
_EXPRESSIONS = frozenset(
    ("binary_expression", "unary_expression", "parenthesized_expression", "postfix_expression", "ternary_expression")
)
_OPENING = frozenset(("if", "then", "elif", "else"))
_COMPOUND_WORDS = frozenset(("if", "then", "elif", "else", "fi", ";", "\n", "&"))
_ALWAYS = frozenset(((":",), ("true",), ("[", "1", "]"), ("[[", "1", "]]")))
_NEVER = (("false",),)
_NO_WORDS = frozenset(
    ("file_redirect", "file_descriptor", "comment", "do_group", "variable_name", "subscript", "array")
)
_STATEMENTS: dict[str, Callable[[_Reader, Node, _Place], tuple[int, ...]]] = {
    "command": _Reader._command,
    "variable_assignment": _Reader._bare_assignments,
    "variable_assignments": _Reader._bare_assignments,
    "declaration_command": _Reader._declaration,
    "unset_command": _Reader._declaration,
    "redirected_statement": _Reader._redirected_statement,
    "file_redirect": _Reader._redirect_statement,
    "pipeline": _Reader._pipeline,
    "list": _Reader._list,
    "negated_command": _Reader._negated,
    "subshell": _Reader._subshell,
    "compound_statement": _Reader._group,
    "test_command": _Reader._test,
    "if_statement": _Reader._compound,
    "elif_clause": _Reader._compound,
    "else_clause": _Reader._compound,
    "while_statement": _Reader._while,
    "do_group": _Reader._do_group,
    "for_statement": _Reader._for,
    "c_style_for_statement": _Reader._c_for,
    "case_statement": _Reader._case,
    "function_definition": _Reader._function,
    "comment": _Reader._nothing,
}
"""
The kinds of statements that are read. The list is closed.
"""


def _here(name: str) -> str:
    return name.removeprefix("./")


def _directory(part: SimpleCommand, before: str | None) -> str:
    """
    Where a `cd` leads, as it is written.
    """
    operands = [word for word in part.argv[1:] if not word.startswith("-") or word == "-"]
    target = operands[0] if operands else "~" if part.program == "cd" else "-"
    is_guess = bool(part.unknown) and not (target.startswith(("/", "~")) and UNKNOWN not in target)
    if is_guess or target == "-" or target.startswith("+") or part.program == "popd":
        return UNKNOWN
    if target.startswith(("/", "~")) or before is None:
        return target
    return f"{before}/{target}"


def _positional(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    """
    What `set` makes the positional parameters, or None where it leaves them.
    """
    at = 1
    while at < len(argv) and argv[at][:1] in ("-", "+"):
        if argv[at] in ("--", "-"):
            return argv[at + 1 :]
        at += 2 if argv[at][1:].endswith("o") else 1
    return argv[at:] or None


def _endless(place: _Place, body: Sequence[Node]) -> _Place:
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


def _is_word(node: Node) -> bool:
    return node.is_named and node.type not in _NO_WORDS


def _unticked(text: str) -> str:
    return re.sub(r"\\([`$\\])", r"\1", text)
