"""
A second reading: where words and redirections stand, by bash's rules of quoting alone.

The grammar overlooks blanks, quotes and digits in rare places. What it takes for words
must be words here too, and nothing may be left over.
"""

from __future__ import annotations

import re

from sandboxkit.shell._unsure import UnsureError

__all__ = ["Lexer"]

_MAX_DEPTH = 60
_BLANKS = re.compile(r"[ \t]+")
_PLAIN = re.compile(r"(?:[^ \t\n;&|<>()'\"\\$`]|\\.|'[^']*')+", re.DOTALL)
_OPERATOR = re.compile(r"&>>|&>|&&|&|\|\||\|&|\||;;&|;&|;;|;|<<<|<<-?|<&|<>|<\(|<|>>|>&|>\||>\(|>|\(\(|\(|\)|\n")
_ANSI_C = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)
_SIMPLE = re.compile(r"[ \t]*([A-Za-z0-9_./,@%+:~^-]+)(?:[ \t]+|(?=[;&|\n)]|$))")
_DESCRIPTOR = re.compile(r"\d+|\{[A-Za-z_]\w*\}")
_ARRAY = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_IN_QUOTES = re.compile(r"[^\"\\$`]+|\\.", re.DOTALL)
_IN_BRACES = re.compile(r"[^'\"\\$`{}]+|\\.", re.DOTALL)
_IN_ARITHMETIC = re.compile(r"[^'\"\\$`()\[\]]+|\\.", re.DOTALL)
_TICKED = re.compile(r"(?:[^`\\]|\\.)*`", re.DOTALL)
_BEFORE_COMMAND = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "time", "-p", "coproc"))
_TELLING = _BEFORE_COMMAND | {"case", "esac", "in", "[["}
_UNCLOSED = "a quote or bracket is not closed"


class Lexer:
    """
    Reads *text* once, or only the part of it that is the body of a here-document.

    Attributes:
        words: Where every word of a command stands, as (start, end).
        optional: Likewise for words of commands within `${…}` and arithmetic.
        redirects, optional_redirects: Where every redirection's operator begins.

    Raises:
        UnsureError: A quote or bracket is not closed, or they stand too deep in each other.

    Source: bash(1), "DEFINITIONS", "QUOTING" and "SHELL GRAMMAR", version 5.2.
    """

    def __init__(self, text: str, document: tuple[int, int] | None = None) -> None:
        self.words: set[tuple[int, int]] = set()
        self.optional: set[tuple[int, int]] = set()
        self.redirects: set[int] = set()
        self.optional_redirects: set[int] = set()
        self._text = text
        self._at = 0
        self._depth = 0
        self._is_optional = False
        self._is_ticked = False
        if document is None:
            self._commands("")
        else:
            self._document(*document)

    def _commands(self, closer: str) -> None:
        """
        Reads commands up to *closer* and behind it.
        """
        self._deeper()
        text, length = self._text, len(self._text)
        begins, is_ticked, cases = True, self._is_ticked, 0
        self._is_ticked = closer == "`"
        words = self.optional if self._is_optional else self.words
        while self._at < length:
            found = _SIMPLE.match(text, self._at)
            if found and found[1] not in _TELLING:
                words.add(found.span(1))
                self._at = found.end()
                begins = False
                continue
            char = text[self._at]
            if char == " " or char == "\t":
                self._at = _BLANKS.match(text, self._at).end()  # type: ignore[union-attr]  # it begins with one
                continue
            if char == closer and not (cases and char == ")"):
                self._at += 1
                self._depth -= 1
                self._is_ticked = is_ticked
                return
            if char == "#":
                end = text.find("\n", self._at)
                self._at = length if end < 0 else end
                continue
            if char in "&|;<>()\n" and self._operator():
                begins = True
                continue
            start = self._at
            could_begin, begins = begins, self._command_word(begins=begins)
            word = text[start : self._at] if could_begin else ""
            cases += (word == "case") - (word == "esac" and cases > 0)
            if cases and text[start : self._at] == "in":
                begins = True
        if closer:
            raise UnsureError(_UNCLOSED)
        self._depth -= 1

    def _operator(self) -> bool:
        """
        Takes an operator, and what stands in its brackets; False where a word begins.
        """
        found = _OPERATOR.match(self._text, self._at)
        operator = found[0] if found else ""
        if not found or operator in ("<(", ">("):
            return False
        if "<" in operator or ">" in operator:
            (self.optional_redirects if self._is_optional else self.redirects).add(self._at)
        self._at = found.end()
        if operator == "((":
            self._arithmetic("))")
        elif operator == "(":
            self._commands(")")
        return True

    def _command_word(self, *, begins: bool) -> bool:
        """
        Takes a word, and says whether a command begins behind it.
        """
        text, start = self._text, self._at
        self._word()
        word = text[start : self._at]
        following = text[self._at : self._at + 1]
        if following in ("<", ">") and text[self._at + 1 : self._at + 2] != "(" and _DESCRIPTOR.fullmatch(word):
            return begins
        if following == "(" and _ARRAY.fullmatch(word):
            self._at += 1
            self._commands(")")
        (self.optional if self._is_optional else self.words).add((start, self._at))
        if begins and word == "[[":
            self._test()
            return False
        return (begins and word in _BEFORE_COMMAND) or word in ("then", "else", "do")

    def _word(self) -> None:
        text, length = self._text, len(self._text)
        while self._at < length:
            found = _PLAIN.match(text, self._at)
            if found:
                self._at = found.end()
                continue
            char = text[self._at]
            if char == "$":
                self._dollar()
            elif char == '"':
                self._quotes()
            elif char == "`" and not self._is_ticked:
                self._backticks()
            elif char in "<>" and text.startswith("(", self._at + 1):
                self._at += 2
                self._commands(")")
            elif char == "'" or char == "\\":
                raise UnsureError(_UNCLOSED)
            else:
                return

    def _dollar(self) -> None:
        text, at = self._text, self._at
        following = text[at + 1 : at + 2]
        self._at += 2
        if following == "(":
            if text.startswith("(", at + 2):
                self._at += 1
                self._arithmetic("))")
            else:
                self._commands(")")
        elif following == "{":
            self._braces(quoted=False)
        elif following == "[":
            self._arithmetic("]")
        elif following == "'":
            found = _ANSI_C.match(text, self._at)
            if not found:
                raise UnsureError(_UNCLOSED)
            self._at = found.end()
        elif following == "$":
            pass
        else:
            self._at -= 1

    def _quotes(self) -> None:
        text, length = self._text, len(self._text)
        self._at += 1
        while self._at < length:
            found = _IN_QUOTES.match(text, self._at)
            if found:
                self._at = found.end()
                continue
            char = text[self._at]
            if char == '"':
                self._at += 1
                return
            self._expansion(char, quoted=True)
        raise UnsureError(_UNCLOSED)

    def _document(self, start: int, end: int) -> None:
        self._at = start
        while self._at < end:
            found = _IN_QUOTES.match(self._text, self._at, end)
            if found:
                self._at = found.end()
            elif self._text[self._at] == '"':
                self._at += 1
            else:
                self._expansion(self._text[self._at], quoted=True)

    def _expansion(self, char: str, *, quoted: bool) -> None:
        """
        Takes what a dollar or backtick begins, within quotes or brackets.
        """
        if char == "`":
            self._backticks()
        elif char != "$":
            self._at += 1
        elif self._text.startswith("${", self._at):
            self._at += 2
            self._braces(quoted=quoted)
        elif quoted and self._text.startswith(("$'", '$"'), self._at):
            self._at += 1
        else:
            self._dollar()

    def _braces(self, *, quoted: bool) -> None:
        """
        Takes the rest of `${…}`.
        """
        self._deeper()
        before, self._is_optional = self._is_optional, True
        text, length = self._text, len(self._text)
        while self._at < length:
            found = _IN_BRACES.match(text, self._at)
            if found:
                self._at = found.end()
                continue
            char = text[self._at]
            if char == "}":
                self._at += 1
                self._is_optional = before
                self._depth -= 1
                return
            self._bracketed(char, quoted=quoted)
        raise UnsureError(_UNCLOSED)

    def _bracketed(self, char: str, *, quoted: bool) -> None:
        if char == '"':
            self._quotes()
        elif char == "'" and not quoted:
            end = self._text.find("'", self._at + 1)
            if end < 0:
                raise UnsureError(_UNCLOSED)
            self._at = end + 1
        else:
            self._expansion(char, quoted=quoted)

    def _arithmetic(self, closer: str) -> None:
        """
        Takes the rest of `((…))`, `$((…))` or `$[…]`.
        """
        self._deeper()
        before, self._is_optional = self._is_optional, True
        text, length, open_ = self._text, len(self._text), 0
        opener, end = ("(", ")") if closer == "))" else ("[", "]")
        while self._at < length:
            found = _IN_ARITHMETIC.match(text, self._at)
            if found:
                self._at = found.end()
                continue
            char = text[self._at]
            if char == end and not open_:
                if not text.startswith(closer, self._at):
                    raise UnsureError(_UNCLOSED)
                self._at += len(closer)
                self._is_optional = before
                self._depth -= 1
                return
            open_ += (char == opener) - (char == end)
            if text.startswith("${", self._at):
                self._at += 2  # bash looks for the end of all before it looks at the braces
            else:
                self._bracketed(char, quoted=False)
        raise UnsureError(_UNCLOSED)

    def _backticks(self) -> None:
        end = _TICKED.match(self._text, self._at + 1)
        if not end:
            raise UnsureError(_UNCLOSED)
        if "\\" in end[0]:
            self._at = end.end()  # it is read once more, without its backslashes
            return
        self._at += 1
        self._commands("`")

    def _test(self) -> None:
        """
        Takes the rest of `[[ … ]]`, where less-than is no redirection.
        """
        before, self._is_optional = self._is_optional, True
        text, length = self._text, len(self._text)
        while self._at < length:
            char = text[self._at]
            if char in " \t\n&|<>()":
                self._at += 1
                continue
            start = self._at
            self._word()
            if self._at == start:
                raise UnsureError(_UNCLOSED)
            if text[start : self._at] == "]]":
                self._is_optional = before
                self.words.add((start, self._at)) if not before else self.optional.add((start, self._at))
                return
        raise UnsureError(_UNCLOSED)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnsureError("its quotes and brackets stand too deep in each other")
