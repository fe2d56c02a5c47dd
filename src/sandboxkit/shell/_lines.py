"""
Lines of plain words: commands joined by operators, with files to read from and write to.

Most lines look like this, and need no grammar: what they mean is told by their tokens.
"""

from __future__ import annotations

import re

from sandboxkit.model import Redirect, Setting
from sandboxkit.shell._tables import BUILTINS, RESERVED

__all__ = ["Piece", "pieces", "settings"]

# Nothing may follow a word here: then there is no other way to cut it that could be tried.
_WORD = r"(?:[A-Za-z0-9_./:,@%+=^-]+|'[^']*'|\"[^\"$`\\!]*\")+"
_TOKEN = re.compile(
    r"[ \t]*(?:"
    rf"(?P<redirect>(?:(?<![^ \t;&|\n])[0-9]|&)?(?:>>|>\||>|<))(?![<>&(|])[ \t]*(?P<target>{_WORD})"
    r"|(?P<copy>(?:(?<![^ \t;&|\n])[0-9])?[<>]&[0-9])"
    rf"|(?P<word>{_WORD})"
    r"|(?P<operator>&&|\|\||\|&|[;&|\n]))"
)
_AFTER_WORD = frozenset(("", *" \t;&|\n<>"))
_AFTER_FILE = frozenset(("", *" \t;&|\n"))
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_NOT_HERE = (RESERVED | BUILTINS) - {"cd"}
_MAX_PIECES = 200
_PIPES = frozenset(("|", "|&"))
_STARTS = frozenset(("", ";", "&", "\n"))
_SETTINGS = {
    (piped, background, conditional): (
        (Setting.PIPELINE if piped else Setting.NONE)
        | (Setting.BACKGROUND if background else Setting.NONE)
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
        starts: Where each begins.
        redirects: Its redirections.
        start, end: Where it stands.
        before: The operator in front of it.
        after: The operator behind it.
    """

    __slots__ = ("after", "argv", "before", "end", "redirects", "start", "starts")

    def __init__(self, before: str) -> None:
        self.argv: list[str] = []
        self.starts: list[int] = []
        self.redirects: list[Redirect] = []
        self.start = self.end = -1
        self.before = before
        self.after = ""

    @property
    def is_piped(self) -> bool:
        """
        Whether it is part of a pipeline.
        """
        return self.before in _PIPES or self.after in _PIPES


def pieces(text: str) -> list[Piece] | None:
    """
    The commands of *text*, or None where it is more than plain words, operators and
    files, or wrong.

    Source: bash(1), "SHELL GRAMMAR" and "REDIRECTION", version 5.2.
    """
    found = [Piece("")]
    at, length = 0, len(text)
    while at < length:
        token = _TOKEN.match(text, at)
        if token is None:
            return found if not text[at:].strip(" \t") and _is_whole(found) else None
        piece = found[-1]
        kind = token.lastgroup
        at = token.end()
        if kind != "operator" and text[at : at + 1] not in (_AFTER_WORD if kind == "word" else _AFTER_FILE):
            return None
        if kind == "word":
            word = token["word"]
            if word.isdigit() and text[at : at + 1] in ("<", ">"):
                return None  # a descriptor of more than one digit
            start = token.start("word")
            if not piece.argv and (
                "=" in word or word in _NOT_HERE or (not word[0].isalnum() and word[0] not in "./_[")
            ):
                return None
            if word == "-v" and piece.argv == ["printf"]:
                return None  # it sets a variable
            piece.argv.append(_unquoted(word))
            piece.starts.append(start)
            piece.start = start if piece.start < 0 else piece.start
            piece.end = at
        elif kind == "operator":
            operator = token["operator"]
            if not piece.argv:
                if (
                    operator == "\n"
                    and not piece.redirects
                    and piece.before in ("", "\n", ";", "&", "&&", "||", "|", "|&")
                ):
                    continue
                return None
            if len(found) > _MAX_PIECES:
                return None  # too many are told elsewhere
            piece.after = operator
            found.append(Piece(operator))
        elif not piece.argv:
            return None
        else:
            if kind == "target":
                operator = token["redirect"].lstrip("0123456789")
                piece.redirects.append(Redirect(operator, _unquoted(token["target"])))
            piece.end = at
    return found if _is_whole(found) else None


def _unquoted(word: str) -> str:
    if "'" not in word and '"' not in word:
        return word
    return _QUOTED.sub(lambda found: found[1] if found[1] is not None else found[2], word)


def _is_whole(found: list[Piece]) -> bool:
    """
    Whether nothing is missing behind the last operator; an empty last piece is dropped.
    """
    if found[-1].argv:
        return True
    if len(found) > 1 and found[-1].before in _STARTS:
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
            result[index] = _SETTINGS[piece.is_piped, result[index] & Setting.BACKGROUND != 0, True]
    return result
