"""
Words: quotes taken away, expansions guessed, and what is not known written down.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from sandboxkit.model import PIPES, UNKNOWN, Doubt, Unknown
from sandboxkit.shell._braces import braces
from sandboxkit.shell._escape import unescape
from sandboxkit.shell._unsure import UnsureError, check_nesting
from sandboxkit.shell._variables import OUTPUT, SECRET, SPLIT, Variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tree_sitter import Node

    from sandboxkit.shell._source import Source

__all__ = ["PLAIN", "WordReader", "Words", "check_touching", "holds_code", "masked", "unmasked"]

PLAIN = re.compile(r"[A-Za-z0-9_./,@%+=:^-]+")
"""
A word, or the inside of one, that means itself.
"""
# Looked up on its class, a member takes ten times as long.
_VALUE, _WORDS, _PATTERN = Doubt.VALUE, Doubt.WORDS, Doubt.PATTERN
_ANSI_C = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_LEAF = re.compile(r"(?:[^\s\\$`'\"()<>;&|]|\\.)+", re.DOTALL)
_RANGE = re.compile(r"\{[-+\w.]*\}")
_NUMBER = re.compile(r"-?[0-9A-Fa-fxX#_a-zA-Z@]+")
_DIGITS = 9
"""
As many of a number count; Python refuses to read one of thousands of digits.
"""
_SPECIAL = "{},*?[]~!^.\\"
_MASK = {ord(char): chr(0xE000 + ord(char)) for char in _SPECIAL}
_UNMASK = {0xE000 + ord(char): char for char in _SPECIAL} | {ord(SPLIT): " "}
_DESCRIPTOR = re.compile(r"\{[A-Za-z_]\w*\}|\d+")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_QUOTED = re.compile(r"\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_ENDS_IN_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\.\Z", re.DOTALL)
_IN_QUOTES = re.compile(r'\\(["$`\\])')
_NAME_PATTERN = re.compile(r"[*?]|\[[^/]*\]")
_HOME = re.compile(r"~(?=/|$)")
_TILDE = re.compile(r"~[-+]?(?=/|$)")
_TILDES = {"~": "HOME", "~+": "PWD", "~-": "OLDPWD"}
_CODE = re.compile(r"\$[({\[]|`|[<>]\(")
_PROCESS = re.compile(r"[<>]\(")
_PARAMETER = frozenset(("variable_name", "special_variable_name", "word"))
_NUMERIC = frozenset("#?$")
_LISTS = frozenset("@*")
_ASSIGNS = re.compile(
    r"\b([A-Za-z_]\w*+)['\"]?\s*(?:\[[^\]]*\])?\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
_NAMES = re.compile(r"[A-Za-z_]\w*")
_MAX_VALUES = 5
_SINGLE_QUOTES = frozenset(("raw_string", "ansi_c_string"))
_MAX_WORDS = 2000
_SECRET = re.compile(r"SECRET|TOKEN|PASSW|PASSPHRASE|API_?KEY|PRIVATE_?KEY|ACCESS_?KEY|CREDENTIAL|_PWD$", re.IGNORECASE)

# Node kinds that may stand in a word, or in an arithmetic expression.
_ARITHMETIC = frozenset(
    (
        "binary_expression",
        "unary_expression",
        "postfix_expression",
        "parenthesized_expression",
        "ternary_expression",
        "variable_assignment",
        "test_operator",
    )
)
_LEAVES = frozenset(("word", "number", "variable_name", "special_variable_name"))


def masked(text: str) -> str:
    """
    *text* with the characters that mean something outside quotes replaced.
    """
    return text.translate(_MASK)


def holds_code(value: str) -> bool:
    """
    Whether bash would run something if it expanded *value* once more.
    """
    return bool(_CODE.search(value))


def unmasked(text: str) -> str:
    """
    The opposite of `masked`.
    """
    return text.translate(_UNMASK)


class Words:
    """
    Words as they are collected.

    Attributes:
        argv: The words.
        unknown: What is not known about them, by index.
        starts: Where each begins, in bytes of the text.
        literal: Whether each was written without quotes and expansions.
    """

    __slots__ = ("argv", "literal", "starts", "unknown")

    def __init__(self) -> None:
        self.argv: list[str] = []
        self.unknown: dict[int, Unknown] = {}
        self.starts: list[int] = []
        self.literal: list[bool] = []

    def add(self, word: str, start: int, unknown: Unknown | None = None, *, literal: bool = False) -> None:
        """
        Adds *word*.
        """
        if unknown is not None:
            self.unknown[len(self.argv)] = unknown
        self.argv.append(word)
        self.starts.append(start)
        self.literal.append(literal)

    def drop_descriptor(self, end: int) -> tuple[int, int] | None:
        """
        Takes the last word away where it is the `{name}` or number of a redirection at
        *end*, and says where it stood.
        """
        if self.argv and self.starts[-1] + len(self.argv[-1]) == end and _DESCRIPTOR.fullmatch(self.argv[-1]):
            start = self.starts[-1]
            del self.argv[-1], self.starts[-1], self.literal[-1]
            return start, end
        return None

    def may_vanish(self) -> bool:
        """
        Whether the first word may be none.
        """
        return 0 in self.unknown and self.unknown[0].doubt is _WORDS

    def drop_first(self) -> None:
        """
        Takes the first word away; what was not known about it is so of the next.
        """
        unknown = {index - 1: doubt for index, doubt in self.unknown.items() if index > 1}
        self.unknown = {0: self.unknown[0], **unknown} if 0 in self.unknown else unknown
        del self.argv[0], self.starts[0], self.literal[0]


@dataclass(slots=True)
class _Word:
    """
    One word while it is read. Its text is masked where it was quoted.
    """

    text: str = ""
    doubt: Doubt | None = None
    known: int = 0
    is_quoted: bool = False
    is_output: bool = False
    vanishes: bool = False
    is_directory: bool = False
    printed: str | None = None
    is_secret: bool = False

    def doubts(self, doubt: Doubt, *, is_output: bool = False) -> None:
        if self.doubt is None:
            self.known = len(self.text)
        self.doubt = doubt if self.doubt is None else max(doubt, self.doubt)
        self.is_output |= is_output

    def check_directory(self) -> None:
        """
        Doubts a name that begins with `$HOME` or `$PWD` and goes on without a slash.
        """
        if self.is_directory and self.text[1:2] not in ("", "/"):
            self.doubts(_VALUE)
            self.known = 0


class WordReader:
    """
    Reads words of one text.

    Args:
        source: The text, as the parser got it.
        variables: What variables hold so far.
        substitute: Reads the commands of a substitution as parts inside the part of that
            index, and returns what it prints where that is plain to see.
        evaluate: Reads shell text that expands within the part of that index.
    """

    __slots__ = (
        "_depth",
        "_evaluate",
        "_piece_of",
        "_substitute",
        "_variables",
        "assigned",
        "is_number",
        "marks",
        "records",
        "seen",
    )

    def __init__(
        self,
        source: Source,
        variables: Variables,
        substitute: Callable[[Node, int], str | None],
        evaluate: Callable[[str, int, int], None],
    ) -> None:
        self._piece_of = source.piece
        self._depth = 0
        self.is_number = False
        self.seen: set[tuple[int, int]] = set()
        self.records = True
        self.assigned: list[str] = []
        self.marks = 0
        self._variables = variables
        self._substitute = substitute
        self._evaluate = evaluate

    def let_go(self) -> None:
        """
        Forgets who reads substitutions and text: they hold this reader in turn, and the
        tree, which then would stay until the next search for cycles.
        """
        self._substitute, self._evaluate = _nobody, _nobody

    def slice(self, node: Node) -> str:
        """
        The text of *node*.
        """
        return self._piece_of(node.start_byte, node.end_byte)

    def into(self, words: Words, node: Node, part: int) -> None:
        """
        Adds what *node* stands for to *words*; substitutions in it are inside *part*.

        Raises:
            UnsureError: The node is none of those known.
        """
        kind = node.type
        if self.records:
            self.seen.add((node.start_byte, node.end_byte))
        if kind in ("word", "number"):
            text = self.slice(node)
            if PLAIN.fullmatch(text):
                words.add(text, node.start_byte, literal=True)
                return
        elif kind == "raw_string":
            words.add(self.slice(node)[1:-1], node.start_byte)
            return
        word = _Word()
        self._piece(word, node, part, quoted=False)
        self._finish(words, word, node)

    def value(self, node: Node, part: int, *, quoted: bool = False) -> tuple[str, bool]:
        """
        The value of an assignment, and whether it is certain: neither split nor
        expanded as a pattern.
        """
        word = _Word()
        self._piece(word, node, part, quoted=quoted)
        self._tilde(word)
        word.check_directory()
        return word.text.translate({ord(SPLIT): SPLIT} | _UNMASK_ONLY), word.doubt is None

    def _finish(self, words: Words, word: _Word, node: Node) -> None:
        if len(words.argv) > _MAX_WORDS:
            raise UnsureError(f"it stands for more than {_MAX_WORDS} words")
        self._tilde(word)
        word.check_directory()
        text = word.text
        start = node.start_byte
        literal = word.doubt is None and not word.is_quoted
        for item in braces(text) if "{" in text else (text,):
            if not item and literal:
                continue  # of {,a}
            pieces = [piece for piece in item.split(SPLIT) if piece] if SPLIT in item else [item]
            if not pieces or (pieces == [""] and word.vanishes and not word.is_quoted):
                pieces = [""] if word.is_quoted else [UNKNOWN]
            for number, piece in enumerate(pieces):
                words.add(
                    unmasked(piece), start, _unknown(word, piece, is_first=not number and item == text), literal=literal
                )

    def _tilde(self, word: _Word) -> None:
        """
        What a tilde stands for that is not the home: `~+`, `~-`, `~` where HOME was set.
        """
        found = _TILDE.match(word.text)
        if not found or word.is_directory:
            return
        if found[0] == "~" and self._variables.is_home():
            return
        name = _TILDES[found[0]]
        value = self._variables.get(name) or UNKNOWN
        rest = word.text[found.end() :]
        if value != ".":
            word.doubts(_VALUE)
            word.known = 0
        word.text = (value if value == "." else masked(value)) + rest

    def _piece(self, word: _Word, node: Node, part: int, *, quoted: bool) -> None:
        kind = node.type
        if kind in ("word", "number"):
            self._leaf(word, node)
        elif kind == "raw_string":
            word.is_quoted = True
            word.text += masked(self.slice(node)[1:-1])
        elif kind == "ansi_c_string":
            if not _ANSI_C.fullmatch(self.slice(node)):
                raise UnsureError("its quotes cannot be read with certainty")
            word.is_quoted = True
            word.text += masked(unescape(self.slice(node)[2:-1]))
        elif kind in ("string", "translated_string"):
            self._string(word, node, part)
        elif kind == "concatenation":
            self._concatenation(word, node, part)
        elif kind == "simple_expansion":
            self._simple(word, node, quoted=quoted)
        elif kind == "expansion":
            self._expansion(word, node, part, quoted=quoted)
        elif kind == "command_substitution":
            self._command(word, node, part, quoted=quoted)
        elif kind == "process_substitution":
            word.printed = self._substitute(node, part)
            word.text += PIPES
            word.doubts(_VALUE)
            word.text += UNKNOWN
        elif kind == "arithmetic_expansion":
            self.arithmetic(node, part)
            word.doubts(_VALUE)
            word.text += UNKNOWN
        elif kind == "brace_expression":
            if not _RANGE.fullmatch(text := self.slice(node)):
                raise UnsureError("it has braces the reader does not know")
            word.text += text
        elif kind in ("regex", "extglob_pattern", "variable_name", "special_variable_name", "test_operator"):
            self._opaque_leaf(word, node, part)
        else:
            raise UnsureError(f"it has a word the reader does not know ({kind})")

    def _leaf(self, word: _Word, node: Node) -> None:
        text = self.slice(node)
        if node.child_count:
            raise UnsureError("it has a word the reader does not know")
        if not _LEAF.fullmatch(text) and text:
            raise UnsureError(f"its word {text[:30]!r} cannot be read with certainty")
        if "\\" in text:
            word.is_quoted = True
            text = _ESCAPED.sub(lambda found: masked(found[1]), text)
        word.text += text

    def _opaque_leaf(self, word: _Word, node: Node, part: int) -> None:
        """
        A pattern the grammar does not look into.
        """
        text = self.slice(node)
        self._expanded(text, part, node.start_byte)
        unquoted = _QUOTED.sub("", text)
        if unquoted.count("(") != unquoted.count(")"):
            raise UnsureError("its brackets cannot be read with certainty")
        word.doubts(_PATTERN)
        word.text += masked(text)

    def _string(self, word: _Word, node: Node, part: int) -> None:
        word.is_quoted = True
        text = self.slice(node)
        if len(text) < 2 or not text.endswith('"'):
            raise UnsureError("a quote is not closed")
        if node.type == "translated_string" and not text.startswith('$"'):
            raise UnsureError("it has a dollar that may be a word")
        start = node.start_byte + (2 if node.type == "translated_string" else 1)
        self._expanding(word, node, part, start, node.end_byte - 1)

    def document(self, node: Node, part: int) -> None:
        """
        Reads the substitutions in the body of a here-document.
        """
        self._expanding(_Word(), node, part, node.start_byte, node.end_byte, is_document=True)

    def _expanding(self, word: _Word, node: Node, part: int, at: int, end: int, *, is_document: bool = False) -> None:
        for child in node.children:
            if child.type in ('"', '$"', "string_content", "heredoc_content", "$"):
                continue
            self._quoted(word, at, child.start_byte, is_document=is_document)
            self._piece(word, child, part, quoted=True)
            at = child.end_byte
        self._quoted(word, at, end, is_document=is_document)

    def _quoted(self, word: _Word, start: int, end: int, *, is_document: bool = False) -> None:
        if end <= start:
            return
        text = self._piece_of(start, end)
        plain = _IN_QUOTES.sub("", text)
        if "`" in plain or ('"' in plain and not is_document) or _CODE.search(plain):
            raise UnsureError("its quotes cannot be read with certainty")
        word.text += masked(_IN_QUOTES.sub(r"\1", text) if "\\" in text else text)

    def _concatenation(self, word: _Word, node: Node, part: int) -> None:
        at = node.start_byte
        dollar = False
        for child in node.children:
            if child.start_byte != at:
                raise UnsureError("its words cannot be told apart with certainty")
            at = child.end_byte
            if child.type == "$":
                if dollar or child.end_byte - child.start_byte > 1:
                    raise UnsureError("it has an expansion the reader does not know")
                dollar = True
            elif not child.is_named:
                raise UnsureError(f"it has {child.type!r} where the reader does not expect it")
            elif dollar:
                dollar = False
                self._after_dollar(word, child, part)
            else:
                self._piece(word, child, part, quoted=False)
        word.text += "$" if dollar else ""

    def _after_dollar(self, word: _Word, node: Node, part: int) -> None:
        """
        What follows a dollar that the grammar has left alone: a string to translate, or
        a positional parameter with text behind it.
        """
        if node.type == "string":
            self._piece(word, node, part, quoted=False)
            return
        text = self.slice(node)
        if node.type not in ("word", "number") or not text[:1].isdigit() or not PLAIN.fullmatch(text):
            raise UnsureError("it has an expansion the reader does not know")
        self._parameter(word, text[0], quoted=False)
        word.text += text[1:]

    def _simple(self, word: _Word, node: Node, *, quoted: bool) -> None:
        children = node.children
        if len(children) != 2 or children[1].type not in _PARAMETER or children[0].end_byte != node.start_byte + 1:
            raise UnsureError("it has an expansion the reader does not know")
        check_touching(children)
        self._parameter(word, self.slice(children[1]), quoted=quoted)

    def _parameter(self, word: _Word, name: str, *, quoted: bool) -> None:
        if name == "HOME" and not word.text and self._variables.is_home():
            word.text, word.is_directory = "~", True
            return
        if name == "PWD" and not word.text and self._variables.get("PWD") == ".":
            word.text, word.is_directory = ".", True
            return
        is_list = name in _LISTS
        if not self._variables.get(name) and _SECRET.search(name):
            word.is_secret = True
            self.marks |= SECRET
        if self._variables.marks:
            self._mark(word, name)
        word.doubts(_WORDS if is_list or (not quoted and name not in _NUMERIC) else _VALUE)
        self._guess(word, self._variables.get(name), quoted=quoted and not is_list)

    def _mark(self, word: _Word, name: str) -> None:
        marks = self._variables.marks.get(name, 0)
        self.marks |= marks
        word.is_secret |= marks & SECRET != 0

    def _guess(self, word: _Word, value: str, *, quoted: bool) -> None:
        if not quoted:
            word.vanishes = True
            separators = "".join({*self._variables.get("IFS"), " ", "\t", "\n"})
            value = re.sub(f"[{re.escape(separators)}]+", SPLIT, value)
        word.text += masked(value)

    def _expansion(self, word: _Word, node: Node, part: int, *, quoted: bool) -> None:
        """
        `${…}`. Source: bash(1), "Parameter Expansion", version 5.2.
        """
        children = node.children
        if len(children) < 3 or children[-1].type != "}" or _ENDS_IN_ESCAPE.search(self.slice(node)):
            raise UnsureError("it has an expansion the reader does not know")
        check_touching(children[:3])
        if _PROCESS.search(self.slice(node)) and _PROCESS.search(self._own_text(node)):
            # The grammar takes it for text, which it is within quotes alone: bash runs what stands in it.
            raise UnsureError("it has what looks like a process substitution within an expansion")
        if quoted and self._has_single_quotes(children[2:]):
            # Within double quotes they are ordinary characters for some operators.
            raise UnsureError("it has single quotes within an expansion within double quotes")
        inner = children[1:-1]
        sign = ""
        if inner[0].type in ("#", "!") and len(inner) > 1:
            sign = inner.pop(0).type
        name, is_list = self.name(inner.pop(0), part)
        if sign == "!" and not (is_list or [child.type for child in inner] in (["*"], ["@"])):
            raise UnsureError("it has an indirect expansion ('${!…}')")
        operator = inner[0].type if inner else ""
        if operator == "@" and not (len(inner) > 1 and inner[1].type in ("Q", "L", "U", "u", "a", "A", "K", "k", "E")):
            self._evaluate(self._variables.get(name), part, node.start_byte)
            raise UnsureError("it has an expansion that runs what is in a variable ('${…@P}')")
        if self._variables.marks and sign != "#" and operator not in (":+", "+"):
            self._mark(word, name)
        if not inner and not sign:
            if is_list:
                word.doubts(_WORDS)
                self._guess(word, self._variables.get(name), quoted=False)
            else:
                self._parameter(word, name, quoted=quoted)
            return
        word.doubts(_WORDS if is_list or not quoted else _VALUE)
        if sign != "#" and operator not in (":+", "+") and _SECRET.search(name):
            word.is_secret = True
            self.marks |= SECRET
        self._modified(word, name, inner, part, quoted=quoted)

    def _has_single_quotes(self, nodes: Sequence[Node]) -> bool:
        """
        Whether *nodes* hold single quotes, seen by the grammar or in a pattern it does not look into.
        """
        return any(
            child.type in _SINGLE_QUOTES or (child.type == "regex" and "'" in _ESCAPED.sub("", self.slice(child)))
            for child in _descendants(nodes)
        )

    def _own_text(self, node: Node) -> str:
        """
        What is written in *node* outside of the substitutions in it.
        """
        if node.type in ("command_substitution", "process_substitution"):
            return " "
        if not node.child_count:
            return self.slice(node)
        pieces, at = [], node.start_byte
        for child in node.children:
            pieces += [self._piece_of(at, child.start_byte), self._own_text(child)]
            at = child.end_byte
        return "".join((*pieces, self._piece_of(at, node.end_byte)))

    def name(self, node: Node, part: int) -> tuple[str, bool]:
        """
        The name of a variable, and whether all items of a list are meant.
        """
        if node.type == "subscript":
            check_touching(node.children[:2])
            name, *index = (child for child in node.children if child.type not in ("[", "]"))
            for child in index:
                self.operand(child, part)
            written = "".join(self.slice(child) for child in index)
            self.note_assigned(written)
            return self.slice(name), written in _LISTS
        if node.type in _PARAMETER or not node.is_named:
            return self.slice(node), self.slice(node) in _LISTS
        raise UnsureError("it has an expansion the reader does not know")

    def _modified(self, word: _Word, name: str, inner: list[Node], part: int, *, quoted: bool) -> None:
        """
        The value of a variable, changed by an operator and its operands.
        """
        operator = inner[0].type if inner else ""
        operands = _Word()
        self._depth += 1
        try:
            check_nesting(self._depth)
            for child in inner[1:] if inner else ():
                if child.is_named:
                    self._operand(operands, child, part, quoted=quoted)
                elif child.type not in _OPERATORS:
                    raise UnsureError("it has an expansion the reader does not know")
        finally:
            self._depth -= 1
        value = self._variables.get(name)
        if operator in (":-", "-", ":=", "=", ":?", "?"):
            text = masked(value) if value else operands.text
        elif operator in (":+", "+"):
            text = operands.text if value else ""
        elif operator in ("/", "//", "/#", "/%"):
            text = operands.text.removeprefix(masked(value)) or masked(value)
        elif operator in _KEEPS:
            written = " ".join(self.slice(child) for child in inner[1:] if child.is_named)
            text = masked(_changed(value, operator, written if operator == ":" else unmasked(operands.text)))
        elif operator in ("", "*", "@"):
            text = UNKNOWN
        else:
            raise UnsureError(f"it has an expansion the reader does not know ({operator!r})")
        if operator in (":=", "="):
            self.assigned.append(name)
            self._variables.set(name, unmasked(text))
        if quoted:
            word.text += text
        else:
            word.vanishes = True
            word.text += re.sub(r"[ \t\n]+", SPLIT, text)

    def _operand(self, word: _Word, node: Node, part: int, *, quoted: bool) -> None:
        if node.type in _ARITHMETIC:
            self.operand(node, part)
            word.text += UNKNOWN
        elif node.type in ("word", "regex", "concatenation"):
            text = self.slice(node)
            if node.type == "concatenation" and not _CODE.search(text) and "$" not in text:
                word.text += masked(re.sub(r"['\"]", "", text))
            elif node.type == "concatenation":
                for child in node.children:
                    self._operand(word, child, part, quoted=quoted) if child.is_named else None
            else:
                self._pattern(word, node, part)
        else:
            self._piece(word, node, part, quoted=quoted)

    def _pattern(self, word: _Word, node: Node, part: int) -> None:
        text = self.slice(node)
        self._expanded(text, part, node.start_byte)
        name = re.fullmatch(r"\$(\w+)", text)
        word.text += masked(self._variables.get(name[1]) if name else _ESCAPED.sub(r"\1", text).replace('"', ""))

    def _expanded(self, text: str, part: int, start: int) -> None:
        """
        Reads the substitutions in a pattern, which expands as text within double quotes does
        but for single quotes and process substitutions.
        """
        if not _CODE.search(text):
            return
        self._evaluate(text, part, start)
        if "'" in text or _PROCESS.search(text):
            raise UnsureError("its quotes cannot be read with certainty")

    def _command(self, word: _Word, node: Node, part: int, *, quoted: bool) -> None:
        word.doubts(_VALUE if quoted else _WORDS, is_output=True)
        before, self.marks = self.marks, 0
        word.printed = output = self._substitute(node, part)
        self.marks = before | (self.marks & SECRET) if self.marks else before
        if not self.is_number and (output is None or UNKNOWN in output):
            self.marks |= OUTPUT
        self._guess(word, UNKNOWN if output is None else output.rstrip("\n"), quoted=quoted)

    def arithmetic(self, node: Node, part: int) -> None:
        """
        Reads the substitutions in an arithmetic expression.

        Raises:
            UnsureError: It has something the reader does not know.
            TooMuchError: It stands too deep within itself.
        """
        self.note_assigned(self.slice(node))
        self._depth += 1
        try:
            check_nesting(self._depth)
            for child in node.children:
                if child.is_named:
                    self.operand(child, part)
        finally:
            self._depth -= 1

    def note_assigned(self, text: str, depth: int = 0) -> None:
        """
        Notes the variables that *text* sets where bash takes it for arithmetic; what is in
        variables is taken for it too.
        """
        if self._variables.marks:
            self.check_arithmetic(text)
        self.assigned += (found[1] or found[2] for found in _ASSIGNS.finditer(text))
        for name in _NAMES.findall(text) if depth < _MAX_VALUES else ():
            value = self._variables.get(name)
            if value and value != text:
                self.note_assigned(value, depth + 1)

    def check_arithmetic(self, text: str, marks: int = 0) -> None:
        """
        Notes arithmetic with what a command printed, where a variable in *text* holds such
        or *marks* say so: bash runs a substitution in a subscript there. Source: bash(1),
        "ARITHMETIC EVALUATION".
        """
        if marks & OUTPUT or any(map(self._variables.is_output, _NAMES.findall(text))):
            self._variables.evaluates_output = True

    def operand(self, node: Node, part: int) -> None:
        """
        Reads the substitutions in an operand of an arithmetic expression.

        Raises:
            UnsureError: It has something the reader does not know.
        """
        kind = node.type
        if kind in _LEAVES:
            text = self.slice(node)
            if _CODE.search(text):
                self._evaluate(text, part, node.start_byte)
                raise UnsureError("it has code in an arithmetic expression")
            self.note_assigned(text)
            return
        if kind in _ARITHMETIC or kind == "subscript":
            self.arithmetic(node, part)
            return
        word = _Word()
        before, self.marks = self.marks, 0
        self._piece(word, node, part, quoted=True)
        self.check_arithmetic("", self.marks)
        self.marks |= before
        self.note_assigned(unmasked(word.text))
        self.code(unmasked(word.text), part, node.start_byte)

    def code(self, value: str, part: int, start: int) -> None:
        """
        Reads what bash would run of *value* when it takes it for arithmetic: the
        substitutions in a subscript. Source: bash(1), "ARITHMETIC EVALUATION".

        Raises:
            UnsureError: There are such.
        """
        if _CODE.search(value):
            self._evaluate(value, part, start)
            raise UnsureError("it has code in text that bash takes for arithmetic")


_UNMASK_ONLY = {key: value for key, value in _UNMASK.items() if key != ord(SPLIT)}


def _changed(value: str, operator: str, operand: str) -> str:
    """
    The *value* of a variable as an operator leaves it, where that is plain.
    """
    if operator in ("#", "##") and operand:
        return value.removeprefix(operand)
    if operator in ("%", "%%") and operand:
        return value.removesuffix(operand)
    if operator == ",,":
        return value.lower()
    if operator == "^^":
        return value.upper()
    numbers = [int(number[:_DIGITS]) for number in re.findall(r"-?\d+", operand)] if operator == ":" else []
    if numbers and re.fullmatch(r"[-\d: ]+", operand):
        value = "/home/user" if value == "~" else value
        start = numbers[0]
        return value[start : start + numbers[1]] if len(numbers) > 1 and numbers[1] >= 0 <= start else value[start:]
    return value


_KEEPS = frozenset(("%", "%%", "#", "##", "^", "^^", ",", ",,", ":", "@"))
_OPERATORS = frozenset(("/", ":", "Q", "L", "U", "u", "a", "A", "K", "k", "E", "#", "%", "]", "[", "-", "+"))


def _nobody(*_: object) -> None:
    pass


def check_touching(nodes: Sequence[Node]) -> None:
    """
    Refuses blanks between *nodes*: the grammar overlooks some that end a word.

    Raises:
        UnsureError: There are some.
    """
    if any(before.end_byte != after.start_byte for before, after in pairwise(nodes)):
        raise UnsureError("its words cannot be told apart with certainty")


def _descendants(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if node.type not in ("command_substitution", "process_substitution"):
            yield from _descendants(node.children)


def _unknown(word: _Word, piece: str, *, is_first: bool) -> Unknown | None:
    found = _NAME_PATTERN.search(piece)
    if word.doubt is None:
        if found:
            return Unknown(_PATTERN, unmasked(piece[: found.start()]))
        if piece.startswith("~") and not _HOME.match(piece):
            return Unknown(_VALUE, "~")
        return None
    known = word.text[: word.known] if is_first else ""
    in_known = _NAME_PATTERN.search(known)
    known = known[: in_known.start()] if in_known else known
    known = "" if "{" in known or SPLIT in known else unmasked(known)
    return Unknown(max(word.doubt, _PATTERN), known, word.is_output, word.printed, word.is_secret)
