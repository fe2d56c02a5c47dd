"""
Lines of plain words: commands joined by operators, with assignments in front and files to
read from and write to.

Most lines look like this, and need no grammar: what they mean is told by their tokens.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxkit.model import Doubt, Redirect, Setting, Unknown
from sandboxkit.shell._tables import BUILTINS, RESERVED

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["STARTS", "Piece", "pieces", "settings"]

# Looked up on its class, a member takes ten times as long.
_PATTERN = Doubt.PATTERN
_BACKGROUND = Setting.BACKGROUND
_SAFE = "A-Za-z0-9_./:,@%+=^-"
_WHOLE = rf"(?:~(?:/[{_SAFE}]*)?|[{_SAFE}]+)(?=[ \t;&|\n]|$)"
# Nothing may follow a word here: then there is no other way to cut it that could be tried.
_WORD = rf"(?:~(?=/))?(?:[{_SAFE}]+|'[^']*'|\"[^\"$`\\!]*\")+"
_TOKEN = re.compile(
    r"[ \t]*(?:"
    rf"(?P<redirect>&>>|&>|(?:(?<![^ \t;&|\n])[0-9])?(?:>>|>\||>|<))(?![<>&(|])[ \t]*(?P<target>{_WORD})"
    r"|(?P<copy>(?:(?<![^ \t;&|\n])[0-9])?[<>]&[0-9])"
    rf"|(?P<run>{_WHOLE}(?:[ \t]+{_WHOLE})*)"
    rf"|(?P<pattern>(?:~(?=/))?[{_SAFE}]*[*?][*?{_SAFE}]*(?=[ \t;&|\n]|$))"
    rf"|(?P<word>{_WORD})"
    r"|(?P<comment>(?<![^ \t;&|\n])#[^\n]*)"
    r"|(?P<operator>&&|\|\||\|&|[;&|\n]))"
)
_AFTER_WORD = frozenset(("", *" \t;&|\n<>"))
_AFTER_FILE = frozenset(("", *" \t;&|\n"))
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_WILDCARD = re.compile(r"[*?]")
_ONE = re.compile(r"[^ \t]+")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_NOT_HERE = (RESERVED | BUILTINS) - {"cd"}
_MAX_PIECES = 200
_PIPES = frozenset(("|", "|&"))
_BEFORE_LINES = frozenset(("", "\n", ";", "&", "&&", "||", "|", "|&"))
STARTS = frozenset(("", ";", "&", "\n"))
"""
The operators behind which another list begins.
"""
_SETTINGS = {
    (piped, background, conditional): (
        (Setting.PIPELINE if piped else Setting.NONE)
        | (_BACKGROUND if background else Setting.NONE)
        | (Setting.CONDITIONAL if conditional else Setting.NONE)
    )
    for piped in (False, True)
    for background in (False, True)
    for conditional in (False, True)
}


class Piece:
    """
    A simple command of a line, while it is read.

    Attributes:
        argv: Its words.
        unknown: The patterns among them, by index.
        assignments: What it assigns, by name.
        redirects: Its redirections.
        start, end: Where it stands.
        before: The operator in front of it.
        after: The operator behind it.
    """

    __slots__ = ("after", "argv", "assignments", "before", "end", "redirects", "start", "unknown")

    def __init__(self, before: str) -> None:
        self.argv: list[str] = []
        self.unknown: list[tuple[int, Unknown]] = []
        self.assignments: list[tuple[str, str]] = []
        self.redirects: list[Redirect] = []
        self.start = self.end = -1
        self.before = before
        self.after = ""

    def add_run(self, token: re.Match[str]) -> bool:
        """
        Adds the words of *token*, which no quotes are in; False where they mean more.
        """
        words = token["run"].split()
        if not self.argv:
            if self.start < 0:
                self.start = token.start("run")
            while words and (name := _ASSIGNMENT.match(words[0])):
                self.assignments.append((name[1], words.pop(0)[name.end() :]))
            if words and not _may_begin(words[0]):
                return False
        self.argv += words
        self.end = token.end()
        return True

    def add_word(self, token: re.Match[str]) -> bool:
        """
        Adds the word of *token*; False where it means more.
        """
        word, end = token["word"], token.end()
        following = token.string[end : end + 1]
        if following not in _AFTER_WORD or (word.isdigit() and following in ("<", ">")):
            return False  # a descriptor of more than one digit
        if self.start < 0:
            self.start = token.start("word")
        if not self.argv and (name := _ASSIGNMENT.match(word)):
            self.assignments.append((name[1], _unquoted(word[name.end() :])))
        elif self.argv or _may_begin(word):
            self.argv.append(_unquoted(word))
        else:
            return False
        self.end = end
        return True

    def add_other(self, token: re.Match[str]) -> bool:
        """
        Adds the pattern or the redirection of *token*, which must stand behind a word;
        False where it means more.
        """
        if not self.argv:
            return False
        end = token.end()
        if word := token["pattern"]:
            self.unknown.append((len(self.argv), Unknown(_PATTERN, _WILDCARD.split(word, maxsplit=1)[0])))
            self.argv.append(word)
        elif token.string[end : end + 1] not in _AFTER_FILE:
            return False
        elif target := token["target"]:
            self.redirects.append(Redirect(token["redirect"].lstrip("0123456789"), _unquoted(target)))
        self.end = end
        return True

    @property
    def is_piped(self) -> bool:
        """
        Whether it is part of a pipeline.
        """
        return self.before in _PIPES or self.after in _PIPES

    def span_of(self, text: str) -> Callable[[int], tuple[int, int]]:
        """
        Where the rest of it stands in *text* that begins with a word: a question that
        is seldom asked, so that its words are told apart once more for it.
        """
        return lambda word: (self._starts(text)[word + len(self.assignments)], self.end)

    def _starts(self, text: str) -> list[int]:
        found: list[int] = []
        at = self.start
        while at < self.end and (token := _TOKEN.match(text, at, self.end)):
            at = token.end()
            if (kind := token.lastgroup) == "run":
                found += [one.start() for one in _ONE.finditer(text, token.start(kind), at)]
            elif kind in ("word", "pattern"):
                found.append(token.start(kind))
        return found


def pieces(text: str) -> list[Piece] | None:
    """
    The commands of *text*, or None where it is more than plain words, operators and
    files, or wrong.

    Source: bash(1), "SHELL GRAMMAR" and "REDIRECTION", version 5.2.
    """
    found = [piece := Piece("")]
    at, length = 0, len(text)
    while at < length:
        token = _TOKEN.match(text, at)
        if token is None:
            if text[at:].strip(" \t"):
                return None
            break
        kind = token.lastgroup
        at = token.end()
        if kind == "run":
            if not piece.add_run(token):
                return None
        elif kind == "operator":
            if piece.end >= 0:
                if len(found) > _MAX_PIECES:
                    return None  # too many are told elsewhere
                piece.after = token["operator"]
                found.append(piece := Piece(piece.after))
            elif token["operator"] != "\n" or piece.before not in _BEFORE_LINES:
                return None
        elif kind == "word":
            if not piece.add_word(token):
                return None
        elif kind != "comment" and not piece.add_other(token):
            return None
    return found if _is_whole(found) and not _changes_more(found) else None


def _changes_more(found: list[Piece]) -> bool:
    """
    Whether what a piece sets may change how another one is read, or is too much.
    """
    count = 0
    for piece in found:
        if piece.assignments:
            count += len(piece.assignments)
            # A tilde is another directory then, and whoever expands the value once more runs it.
            if any(name == "HOME" or "$" in value or "`" in value for name, value in piece.assignments):
                return True
        if "-v" in piece.argv and piece.argv[:2] == ["printf", "-v"]:
            return True  # it sets a variable
    return count > _MAX_PIECES


def _may_begin(word: str) -> bool:
    return "=" not in word and word not in _NOT_HERE and (word[0].isalnum() or word[0] in "./_[")


def _unquoted(word: str) -> str:
    if "'" not in word and '"' not in word:
        return word
    return _QUOTED.sub(lambda found: found[1] if found[1] is not None else found[2], word)


def _is_whole(found: list[Piece]) -> bool:
    """
    Whether nothing is missing behind the last operator; an empty last piece is dropped.
    """
    if found[-1].end >= 0:
        return True
    if len(found) > 1 and found[-1].before in STARTS:
        found.pop()
        return True
    return False


def settings(found: list[Piece]) -> list[Setting]:
    """
    How each of the pieces stands in the whole.
    """
    result: list[Setting] = []
    is_background = False
    for piece in reversed(found):
        if piece.after not in ("&&", "||", "|", "|&"):
            is_background = piece.after == "&"
        result.append(_SETTINGS[piece.is_piped, is_background, False])
    result.reverse()
    conditional = False
    for index, piece in enumerate(found):
        if piece.before not in ("|", "|&"):
            conditional = piece.before in ("&&", "||")
        if conditional:
            result[index] = _SETTINGS[piece.is_piped, int.__and__(result[index], _BACKGROUND) != 0, True]
    return result
