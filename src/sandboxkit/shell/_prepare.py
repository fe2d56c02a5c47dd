"""
The pass before the parser: lines that go on are joined and here-documents set aside,
because the grammar reads both wrongly in places.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from sandboxkit.shell._tables import RESERVED
from sandboxkit.shell._unsure import TooMuchError, UnsureError

__all__ = ["HereDocument", "Prepared", "prepare"]

_DELIMITER = re.compile(r"""<<(-?)[ \t]*((?:[^\s;&|<>()$`"'\\]|\\.|'[^'\n]*'|"[^"\n$`\\]*")+)""")
_ANSI_C_REST = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)
_JOINS = re.compile(r"(?:\\\n)*([(&|<>])")
_AFTER_DELIMITER = frozenset(("", *" \t\n;&|<>()"))
_BEFORE_COMMENT = frozenset(" \t\n;&|()<>")
_MAX_DOCUMENTS = 20
_LOOK_BACK = 40
_GOES_ON = re.compile(
    r"(?:^|[;(\n]|(?<![<>])[&|]|(?:^|[\s;&|(])(?:\{|then|do|else|elif|in|if|while|until|!|time))[ \t]*$|\)[ \t]*$"
)
_PIPED = re.compile(r"(?:^|[^|])\|&?[ \t\n]*$")
_TIME = r"time(?:[ \t]+-p)?(?:[ \t]+--)?"
_BEGINS = re.compile(
    r"(?:^|[;(\n]|(?<![<>])[&|]|(?:\(\)|\bfunction[ \t]+\w+)(?=[ \t]*\{))[ \t]*"
    rf"(?:(?:\{{|then|do|else|elif|if|while|until|!|{_TIME})[ \t]+)*$"
)
_SUBSTITUTION = re.compile(r"[$<>]\([ \t]*$")
_NAME = rf"(?!(?:{'|'.join(sorted(filter(str.isalpha, RESERVED)))})\b)[A-Za-z_]\w*"
_NO_COMMAND = r"(?:-p|--|do|done|elif|else|esac|fi|in|then)(?=[\s;&|()<>]|$)"
_KEYWORD = re.compile(
    rf"(?:{_TIME}|!)[ \t]+(?=&>|[^\s)}};&|])(?!{_NO_COMMAND}|[A-Za-z_]\w*\+?=\()|coproc(?:[ \t]+{_NAME})?[ \t]+"
    r"(?=[({]|\[\[[ \t]|(?:if|for|while|until|case|select)[ \t(])"
    r"(?!(?:[({]|if|while|until)(?:[ \t\n]|\\\n)*+[A-Za-z_]\w*+(?:\[[^\]]*\])?\+?=\()"
)
"""
Where a coprocess begins with a list that a variable gets, bash 5.2 takes the words of that list
for keywords, and refuses some; the grammar refuses them all.
"""
_JOINED_TWICE = re.compile(r"[^\n]*\\\\\n")
_OPENERS = {"$((": "arithmetic", "$(": "command", "${": "braces", "<(": "command", ">(": "command"}


@dataclass(frozen=True, slots=True)
class HereDocument:
    """
    The text between a `<<WORD` and its end.

    Attributes:
        body: The text; without leading tabs for `<<-`.
        is_literal: Whether a part of WORD was quoted, so that nothing in it expands.
        start: Where the body begins in the source text.
    """

    body: str
    is_literal: bool
    start: int


@dataclass(slots=True)
class Prepared:
    """
    Text the parser can read.

    Attributes:
        text: The text.
        documents: The here-documents, by the word that stands for each in `text`.
        operators: The operators `<<`, `<<<` and `<>` by the place of the `<` or `>` that
            stands for each in `text`: the grammar takes them only in some places.
    """

    text: str
    documents: dict[str, HereDocument] = field(default_factory=dict)
    operators: dict[int, str] = field(default_factory=dict)
    _places: list[int] = field(default_factory=list)
    _originals: list[int] = field(default_factory=list)

    @property
    def is_source(self) -> bool:
        """
        Whether `text` is the source text itself.
        """
        return not self._places

    def original(self, place: int) -> int:
        """
        Where the character at *place* of `text` stands in the source.
        """
        if not self._places:
            return place
        nearest = bisect_right(self._places, place) - 1
        return self._originals[nearest] + place - self._places[nearest]


def prepare(text: str, *, simpler: bool = False) -> Prepared:
    """
    *text* without backslash-newlines and here-documents, and with simpler operators.

    A backslash-newline goes as bash removes it: not within single quotes, comments and
    quoted here-documents.

    Args:
        text: The text.
        simpler: Also takes away `time`, `!` and `coproc` in places where the grammar does
            not know them, as what they stand in front of runs all the same; and ends
            lines with a semicolon, as it joins some that it should not.

    Raises:
        UnsureError: It cannot be told where a quote or here-document ends.
        TooMuchError: It holds too many here-documents.

    Source: bash(1), "Escape Character" and "Here Documents".
    """
    if not simpler and "\\\n" not in text and "<<" not in text and "<>" not in text:
        return Prepared(text)
    return _Pass(text, simpler=simpler).run()


@dataclass(slots=True)
class _Waiting:
    """
    A here-document whose body begins after this line.
    """

    token: str
    delimiter: str
    is_literal: bool
    strips_tabs: bool


class _Pass:
    def __init__(self, text: str, *, simpler: bool) -> None:
        self._text = text
        self._simpler = simpler
        self._at = 0
        self._done: list[str] = []
        self._length = 0
        self._copied = 0
        self._open: list[str] = ["command"]
        self._waiting: list[_Waiting] = []
        self._result = Prepared("", _places=[0], _originals=[0])
        self._joins = [found.start() for found in re.finditer(r"\\\n", text)] if simpler else []
        self._joined = text.replace("\\\n", "") if simpler else text

    def run(self) -> Prepared:
        while self._at < len(self._text):
            self._step()
        if self._waiting:
            raise UnsureError("a here-document does not end")
        self._leave_out(len(self._text), len(self._text))
        self._result.text = "".join(self._done)
        return self._result

    def _leave_out(self, begin: int, end: int, instead: str = "") -> None:
        """
        Copies up to *begin* and goes on at *end*.
        """
        for piece in (self._text[self._copied : begin], instead):
            if piece:
                self._done.append(piece)
                self._length += len(piece)
        self._copied = self._at = end
        self._result._places.append(self._length)
        self._result._originals.append(end)

    def _step(self) -> None:
        char, inside = self._text[self._at], self._open[-1]
        if char == "\\":
            self._backslash()
        elif char in "$<>" and (opener := self._opener(inside)):
            self._open.append(_OPENERS[opener])
            self._at += len(opener)
        elif char == "`":
            self._open.pop() if inside == "backticks" else self._open.append("backticks")
            self._at += 1
        elif inside == "quotes":
            self._open.pop() if char == '"' else None
            self._at += 1
        else:
            self._outside_quotes(char, inside)

    def _backslash(self) -> None:
        if self._text.startswith("\\\n", self._at):
            self._leave_out(self._at, self._at + 2)
        else:
            self._at += 2

    def _opener(self, inside: str) -> str:
        found = next((opener for opener in _OPENERS if self._text.startswith(opener, self._at)), "")
        return "" if inside in ("quotes", "arithmetic") and found in ("<(", ">(") else found

    def _outside_quotes(self, char: str, inside: str) -> None:
        text, at = self._text, self._at
        if char == "'":
            self._single_quote(inside)
        elif char == '"':
            self._open.append("quotes")
            self._at += 1
        elif char == "#" and inside not in ("braces", "arithmetic") and (not at or text[at - 1] in _BEFORE_COMMENT):
            end = text.find("\n", at)
            self._at = len(text) if end < 0 else end
        elif char == "<" and text.startswith("<<", at):
            self._here(inside)
        elif char == "<" and text.startswith("<>", at) and inside not in ("braces", "arithmetic"):
            self._operator("<>", ">")
        elif char == "\n" and self._waiting:
            self._bodies()
        elif char == "\n" and self._simpler and inside == "command" and self._ends_command():
            self._leave_out(at, at, ";")
            self._at = at + 1
        elif self._simpler and char in "tc!" and (keyword := self._keyword()):
            # A blank stays: without it two brackets would become one.
            self._leave_out(at, keyword, " ")
        else:
            self._bracket(char, inside)

    def _ends_command(self) -> bool:
        """
        Whether a command ends with the line. Behind a backslash it may go on: two of them are
        one within backticks.
        """
        return self._text[self._at - 1 : self._at] != "\\" and not _GOES_ON.search(self._before())

    def _keyword(self) -> int:
        """
        Where the compound command begins that a keyword here stands in front of, or 0.
        """
        # A keyword and its options may go on in the next line, anywhere in them.
        found = _KEYWORD.match(self._joined, self._at - 2 * bisect_left(self._joins, self._at))
        if not found or not _BEGINS.search(before := self._before()) or (found[0][0] in "!t" and _PIPED.search(before)):
            return 0
        end = self._at_source(found.end())
        if "backticks" in self._open and _JOINED_TWICE.match(self._text, end):
            raise UnsureError("a keyword within backticks stands in a line that is joined there")
        # At the beginning of $( ) bash 5.2 takes this `time` for a program, and refuses it.
        is_refused = found[0].startswith("time") and _SUBSTITUTION.search(before)
        return 0 if is_refused else end

    def _at_source(self, place: int) -> int:
        """
        Where the character at *place* of the joined text stands in the source.
        """
        gone = bisect_left(range(len(self._joins)), place, key=lambda number: self._joins[number] - 2 * number)
        return place + 2 * gone

    def _before(self) -> str:
        """
        The end of what stands before this place once lines are joined, as bash sees it.

        What is cut off in front of it counts as a word: no command begins behind it.
        """
        end = self._text[max(self._copied, self._at - _LOOK_BACK - 1) : self._at]
        pieces = len(self._done)
        while pieces and len(end) <= _LOOK_BACK:
            pieces -= 1
            end = self._done[pieces] + end
        return end if len(end) <= _LOOK_BACK else f"x{end[-_LOOK_BACK:]}"

    def _single_quote(self, inside: str) -> None:
        if inside == "braces" and "quotes" in self._open:
            self._at += 1  # within "${x:-'…'}" it is an ordinary character
            return
        if self._at and self._text[self._at - 1] == "$":
            found = _ANSI_C_REST.match(self._text, self._at + 1)
            end = found.end() - 1 if found else -1
        else:
            end = self._text.find("'", self._at + 1)
        if end < 0:
            raise UnsureError("a quote is not closed")
        self._at = end + 1

    def _bracket(self, char: str, inside: str) -> None:
        width = 1
        if char == "(":
            is_double = self._text.startswith("((", self._at) and inside != "arithmetic"
            self._open.append("arithmetic" if is_double else "parentheses")
            width += is_double
        elif char == ")" and inside in ("command", "parentheses") and len(self._open) > 1:
            self._close()
        elif char == ")" and inside == "arithmetic":
            self._open.pop()
            width += self._text.startswith("))", self._at)
        elif char == "}" and inside == "braces":
            self._open.pop()
        self._at += width

    def _close(self) -> None:
        if re.search(r"\bcase\b", self._text):
            raise UnsureError("it has a 'case' within parentheses beside joined lines or here-documents")
        self._open.pop()

    def _here(self, inside: str) -> None:
        if inside in ("braces", "arithmetic"):
            if "$((" not in self._text[: self._at] and inside == "arithmetic":
                raise UnsureError("it has '<<' within parentheses")
            self._at += 2
        elif self._text.startswith("<<<", self._at):
            self._operator("<<<", "<")
        else:
            self._document()

    def _operator(self, operator: str, instead: str) -> None:
        begin, end = self._at, self._at + len(operator)
        if found := _JOINS.match(self._text, end):
            # Without the rest of the operator it would be another: a process substitution, or `<&`.
            raise UnsureError(f"it has {found[1]!r} behind {operator!r}")
        # Without a blank `&<>` would become `&>`, which takes what follows for one command's.
        blank = " " if operator == "<>" and self._before().endswith(("&", "<", ">")) else ""
        self._result.operators[self._length + begin - self._copied + len(blank)] = operator
        self._leave_out(begin, end, blank + instead)

    def _document(self) -> None:
        found = _DELIMITER.match(self._text, self._at)
        if not found or self._text[found.end() : found.end() + 1] not in _AFTER_DELIMITER:
            raise UnsureError("the end of a here-document cannot be told")
        word = found[2]
        if "backticks" in self._open and "\\" in word:
            raise UnsureError("the end of a here-document cannot be told")
        delimiter = re.sub(r"\\(.)|['\"]", r"\1", word)
        token = self._token()
        if len(self._waiting) + len(self._result.documents) >= _MAX_DOCUMENTS:
            raise TooMuchError(f"it holds more than {_MAX_DOCUMENTS} here-documents")
        self._waiting.append(_Waiting(token, delimiter, delimiter != word, bool(found[1])))
        self._result.operators[self._length + found.start() - self._copied] = "<<"
        self._leave_out(found.start(), found.end(), f"<{token}")

    def _token(self) -> str:
        number = len(self._result.documents) + len(self._waiting)
        token = f"here{number}"
        while token in self._text:
            token += "x"
        return token

    def _bodies(self) -> None:
        begin = at = self._at + 1
        for waiting in self._waiting:
            at = self._body(waiting, at)
        if "backticks" in self._open and "\\" in self._text[begin:at]:
            raise UnsureError("a here-document within backticks has a backslash, which quotes once more there")
        self._waiting.clear()
        self._leave_out(begin, at)

    def _body(self, waiting: _Waiting, start: int) -> int:
        """
        Reads one body and returns where the line behind its end begins.
        """
        lines: list[str] = []
        at = start
        joined = ""
        while at < len(self._text):
            end = self._text.find("\n", at)
            end = len(self._text) if end < 0 else end
            line = self._text[at:end]
            at = end + 1
            if not waiting.is_literal and re.search(r"(?:^|[^\\])(?:\\\\)*\\$", line):
                joined += line[:-1]
                continue
            line, joined = joined + line, ""
            line = line.lstrip("\t") if waiting.strips_tabs else line
            if line == waiting.delimiter:
                body = "".join(f"{each}\n" for each in lines)
                self._result.documents[waiting.token] = HereDocument(body, waiting.is_literal, start)
                return min(at, len(self._text))
            if line.startswith(waiting.delimiter) and len(self._open) > 1:
                # Within $( ) bash 5.2 ends it here if the line has a `)`, and reads on behind the word.
                raise UnsureError("the end of a here-document cannot be told")
            lines.append(line)
        raise UnsureError("a here-document does not end")
