"""
A rough reading of text that is more than plain words: good for suspicion only.

It finds the words of every command it can see, also inside substitutions, so that a
decision can become stricter. It may see commands where there are none and miss others;
nothing may ever be allowed because of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sandboxkit.shell._tables import RESERVED

__all__ = ["PLACEHOLDER", "Fragment", "fragments", "unescape"]

PLACEHOLDER = "\N{HORIZONTAL ELLIPSIS}"
"""
Stands in a word for what a substitution would put there.
"""

_MAX_VALUE = 200
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=(.*)", re.DOTALL)
_PARAMETER = re.compile(r"\$(?:\{(\w+|[@*#?$!-])\}|([A-Za-z_]\w*|[0-9@*#?$!-]))")
_DEFAULTED = re.compile(r"\$\{[#!]?(\w*)(:?[-=+?])?")
_ANSI_C = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|(.))", re.DOTALL)
_ANSI_C_LETTERS = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "v": "\v",
}
_VARIABLES = {"HOME": "~", "IFS": " ", "PWD": ".", "TMPDIR": "/tmp"}
_LATER_WORD = RESERVED - {"in", "[[", "]]", "for", "select", "case", "function"}
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


@dataclass(frozen=True, slots=True)
class Fragment:
    """
    One command as far as it can be seen.

    Attributes:
        words: Its words without quotes; empty where it only assigns or redirects.
        assignments: `NAME=value` words that stood before it.
        span: Where it stands, as (start, end) in characters.
        reads_from: The index of the fragment piped into it, or None.
        inside: The index of the fragment whose substitution it is, or None.
        writes: The targets of its output redirections.
        stdin: What its here-document or here-string holds.
    """

    words: tuple[str, ...]
    assignments: tuple[str, ...]
    span: tuple[int, int]
    reads_from: int | None = None
    inside: int | None = None
    writes: tuple[str, ...] = ()
    stdin: str = ""


def fragments(text: str) -> tuple[Fragment, ...]:
    """
    The commands that can be seen in *text*, in the order they begin.

    Linear in the length of *text*. Quotes and backslashes are taken away, variables
    set in the text are filled in, unset ones are empty. Fragments with nothing in them
    are kept out; `reads_from` and `inside` point into the result.
    """
    return _Reader(text).read()


@dataclass(slots=True)
class _Open:
    """
    A fragment while it is read.
    """

    index: int
    start: int
    reads_from: int | None = None
    inside: int | None = None
    closer: str = ""
    is_quoted: bool = False
    braces: int = 0
    words: list[str] = field(default_factory=list)
    assignments: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    stdin: str = ""
    word: list[str] | None = None
    wants: str = ""
    end: int = 0
    heredocs: list[tuple[str, bool]] = field(default_factory=list)

    def add(self, text: str) -> None:
        if self.word is None:
            self.word = []
        self.word.append(text)


class _Reader:
    """
    One pass over the text with a stack of open substitutions.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._variables = dict(_VARIABLES)
        self._all: list[_Open] = []
        self._stack: list[int] = []
        self._last: int | None = None

    def read(self) -> tuple[Fragment, ...]:
        self._begin(closer="")
        while self._position < len(self._text):
            self._step()
        for index in reversed(self._stack):
            self._end_fragment(self._all[index])
        return _frozen(self._all)

    @property
    def _top(self) -> _Open:
        return self._all[self._stack[-1]]

    def _begin(self, *, closer: str, inside: int | None = None, reads_from: int | None = None) -> None:
        self._all.append(_Open(len(self._all), self._position, reads_from, inside, closer))
        self._stack.append(len(self._all) - 1)

    def _next(self, *, piped: bool = False) -> None:
        """
        Ends the fragment on top and begins its neighbour.
        """
        index = self._stack.pop()
        old = self._all[index]
        self._end_fragment(old)
        self._begin(closer=old.closer, inside=old.inside, reads_from=self._last if piped else None)

    def _push(self, closer: str, *, substitution: bool) -> None:
        index = self._stack[-1]
        if substitution:
            self._top.add(PLACEHOLDER)
        self._begin(closer=closer, inside=index if substitution else self._top.inside)

    def _pop(self) -> None:
        self._end_fragment(self._all[self._stack.pop()])

    def _end_fragment(self, fragment: _Open) -> None:
        self._end_word(fragment)
        fragment.end = self._position
        words = fragment.words
        if words or fragment.assignments:
            # A pipe behind a closed group or loop reads from its last command.
            self._last = fragment.index
        if len(words) > 2 and words[0] in ("for", "select") and words[2] == "in":
            self._variables[words[1]] = " ".join(words[3:])[:_MAX_VALUE]
            words.clear()

    def _end_word(self, fragment: _Open) -> None:
        if fragment.word is None:
            return
        word = "".join(fragment.word)
        fragment.word = None
        wants, fragment.wants = fragment.wants, ""
        if wants == ">":
            fragment.writes.append(word)
        elif wants == "<<<":
            fragment.stdin += word + "\n"
        elif not fragment.words:
            self._first_word(fragment, word)
        else:
            fragment.words.append(word)

    def _first_word(self, fragment: _Open, word: str) -> None:
        assignment = _ASSIGNMENT.fullmatch(word)
        if assignment:
            self._variables[assignment[1]] = assignment[2][:_MAX_VALUE]
            fragment.assignments.append(word)
        elif word and word not in _LATER_WORD:
            fragment.words.append(word)

    def _step(self) -> None:
        char = self._text[self._position]
        top = self._top
        if char == "\\":
            self._backslash(top)
        elif char == "$":
            self._dollar(top)
        elif char == "`":
            self._backtick(top)
        elif char == '"':
            self._double_quote(top)
        elif top.is_quoted:
            self._take(top, char)
        elif char == "'":
            self._single_quote(top, ansi_c=False)
        else:
            self._unquoted(top, char)

    def _take(self, top: _Open, text: str) -> None:
        top.add(text)
        self._position += 1

    def _unquoted(self, top: _Open, char: str) -> None:
        if char in " \t\r":
            self._position += 1
            self._end_word(top)
        elif char == "#" and top.word is None:
            end = self._text.find("\n", self._position)
            self._position = len(self._text) if end < 0 else end
        elif char in "<>":
            self._redirect(top, char)
        elif char in "\n;|&":
            self._operator(top, char)
        elif char in "(){}":
            self._bracket(top, char)
        else:
            self._take(top, char)

    def _operator(self, top: _Open, char: str) -> None:
        pair = self._text[self._position : self._position + 2]
        if pair == "&>":
            self._position += 1
            self._redirect(top, ">")
            return
        self._position += 2 if pair in ("&&", "||", "|&", ";;") else 1
        if char == "\n":
            self._end_word(top)
            self._heredocs(top)
        self._next(piped=char == "|" and pair != "||")

    def _bracket(self, top: _Open, char: str) -> None:
        self._position += 1
        if char == "(":
            self._end_word(top)
            self._push(")", substitution=False)
        elif char == ")":
            self._close(")")
        elif char == "}" and top.braces:
            top.braces -= 1
        elif top.word is None and self._stands_alone():
            self._next()
        else:
            top.add(char)

    def _stands_alone(self) -> bool:
        following = self._text[self._position : self._position + 1]
        return not following or following in " \t\n;|&)"

    def _close(self, closer: str) -> None:
        if len(self._stack) > 1 and self._top.closer == closer:
            self._pop()
        else:
            self._next()

    def _redirect(self, top: _Open, char: str) -> None:
        rest = self._text[self._position : self._position + 3]
        if rest[1:2] == "(":
            self._position += 2
            self._push(")", substitution=True)
            return
        if top.word is not None and "".join(top.word).isdigit():
            top.word = None
        self._end_word(top)
        if rest == "<<<":
            self._position += 3
            top.wants = "<<<"
        elif rest.startswith("<<"):
            self._heredoc_word(top)
        else:
            self._position += 2 if rest[:2] in (">>", ">|", ">&", "<>", "<&") else 1
            top.wants = ">" if char == ">" or rest.startswith("<>") else ""

    def _heredoc_word(self, top: _Open) -> None:
        found = re.compile(r"<<-?[ \t]*([^\s;|&<>()]+)").match(self._text, self._position)
        if not found:
            self._position += 2
            return
        self._position = found.end()
        delimiter = re.sub(r"['\"\\]", "", found[1])
        top.heredocs.append((delimiter, delimiter != found[1]))

    def _heredocs(self, top: _Open) -> None:
        for delimiter, is_literal in top.heredocs:
            body, end = self._heredoc_body(delimiter)
            top.stdin += body
            # Text that is neither expanded nor read by a shell is only data.
            if is_literal and not any(word.rpartition("/")[2] in _SHELLS for word in top.words):
                top.stdin = ""
                self._position = end
        top.heredocs.clear()

    def _heredoc_body(self, delimiter: str) -> tuple[str, int]:
        start = self._position
        found = re.compile(rf"^\t*{re.escape(delimiter)}$", re.MULTILINE).search(self._text, start)
        if not found:
            return self._text[start:], start
        return self._text[start : found.start()], found.end()

    def _backslash(self, top: _Open) -> None:
        char = self._text[self._position + 1 : self._position + 2]
        self._position += 2
        if char == "`" and any(self._all[index].closer == "`" for index in self._stack):
            # Inside backticks an escaped one opens the next depth.
            self._push("\\`", substitution=True) if top.closer != "\\`" else self._pop()
        elif char and char != "\n":
            top.add(char)

    def _backtick(self, top: _Open) -> None:
        self._position += 1
        if top.closer == "`":
            self._pop()
        else:
            self._push("`", substitution=True)

    def _double_quote(self, top: _Open) -> None:
        self._position += 1
        if top.is_quoted:
            top.is_quoted = False
        elif self._text.find('"', self._position) >= 0:
            top.is_quoted = True
            top.add("")

    def _single_quote(self, top: _Open, *, ansi_c: bool) -> None:
        end = self._text.find("'", self._position + 1)
        if end < 0:
            self._position += 1
            return
        inner = self._text[self._position + 1 : end]
        self._position = end + 1
        top.add(unescape(inner) if ansi_c else inner)

    def _dollar(self, top: _Open) -> None:
        following = self._text[self._position + 1 : self._position + 2]
        if following in ("(", "["):
            self._position += 2
            self._push(")" if following == "(" else "]", substitution=True)
        elif following in ("'", '"') and not top.is_quoted:
            self._position += 1
            if following == "'":
                self._single_quote(top, ansi_c=True)
        else:
            self._parameter(top)

    def _parameter(self, top: _Open) -> None:
        found = _PARAMETER.match(self._text, self._position)
        if found:
            self._position = found.end()
            self._expand(top, self._variables.get(found[1] or found[2], ""))
        elif found := _DEFAULTED.match(self._text, self._position):
            self._position = found.end()
            top.braces += 1
            top.add("" if found[2] else self._variables.get(found[1], ""))
        else:
            self._take(top, "$")

    def _expand(self, top: _Open, value: str) -> None:
        if top.is_quoted:
            top.add(value)
            return
        separator = self._variables["IFS"].strip()[:1]
        value = value.replace(separator, " ") if separator else value
        for index, piece in enumerate(re.split(r"\s+", value)):
            if index:
                self._end_word(top)
            if piece:
                top.add(piece)


def _ansi_c(found: re.Match[str]) -> str:
    for digits, base in ((found[1], 16), (found[2], 16), (found[3], 16), (found[4], 8)):
        if digits is not None:
            return chr(min(int(digits, base), 0x10FFFF))
    return _ANSI_C_LETTERS.get(found[5], found[5])


def unescape(text: str) -> str:
    """
    *text* with the backslash escapes of `printf`, `echo -e` and ``$'…'`` decoded.
    """
    return _ANSI_C.sub(_ansi_c, text) if "\\" in text else text


def _frozen(found: list[_Open]) -> tuple[Fragment, ...]:
    kept = [index for index, each in enumerate(found) if each.words or each.assignments or each.writes]
    place = {index: position for position, index in enumerate(kept)}
    return tuple(
        Fragment(
            words=tuple(each.words),
            assignments=tuple(each.assignments),
            span=(each.start, max(each.start, each.end)),
            reads_from=place.get(each.reads_from) if each.reads_from is not None else None,
            inside=place.get(each.inside) if each.inside is not None else None,
            writes=tuple(each.writes),
            stdin=each.stdin,
        )
        for each in (found[index] for index in kept)
    )
