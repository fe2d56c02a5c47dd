"""
A rough look at text that cannot be read with certainty: for suspicion only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["apart", "suspects"]

_MAX = 100
_MAX_APART = 20
_MAX_APART_TEXT = 2_000
_TOKEN = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|\$\(|[(){}`]|\|\||&&|[;&|\n]|[^\\'"$(){}`|&;\n]+|.""", re.DOTALL)
_SEPARATORS = frozenset((";", "&", "|", "\n", "||", "&&"))
_OPENING = frozenset(("(", "$(", "{"))
_BREAK = re.compile(r"\$\(|[;&|\n(){}`]|\bdo\b|\bthen\b|\belse\b")
_QUOTES = re.compile(r"[\"'\\\r]")
_WRITTEN = re.compile(r"(?:<>|>>|>\||>)&?\s*([^\s;&|<>()]+)")
_BLANK = re.compile(r"\$(?:IFS\b|\{IFS\})")
_NOTHING = re.compile(r"\$[@*1-9]|\$\{[@*1-9]\}|\$\(\)|``")
_UNSEEN = re.compile(r"[^\x20-\x7e]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=\S*")


def suspects(text: str) -> Iterator[tuple[tuple[str, ...], tuple[int, int], bool]]:
    """
    The words, and the place, of everything in *text* that may be a command, with `tee`
    for what may be written to: quotes,
    backslashes and invisible characters taken away, cut at every operator; and whether
    the one before may be piped into it.
    """
    begin, count, piped = 0, 0, False
    for end, after in [*((found.start(), found.end()) for found in _BREAK.finditer(text)), (len(text), len(text))]:
        piece = _QUOTES.sub("", text[begin:end])
        piece = _NOTHING.sub("", _BLANK.sub(" ", piece)) if "$" in piece or "`" in piece else piece
        words = _UNSEEN.sub("", piece).split()
        if words and "," in words[0]:
            # What a brace stood before and behind.
            words[:1] = [word for word in words[0].split(",") if word]
        while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in ("!", "time", "if", "while", "until")):
            words.pop(0)
        for target in _WRITTEN.findall(text, begin, end):
            yield ("tee", _QUOTES.sub("", target)), (begin, end), False
        if words:
            yield tuple(words), (begin, end), piped
            count += 1
        if count >= _MAX:
            return
        begin, piped = after, text[end:after] == "|" or (piped and not words)


def apart(text: str) -> Iterator[str]:
    """
    The commands of *text* that stand beside each other, cut at the operators between them
    and outside of quotes and brackets: where the grammar fails at one, the others can
    still be read. Each has blanks in front, so that it stands where it does in *text*.
    Nothing where there is only one.
    """
    if len(text) > _MAX_APART_TEXT:
        return
    cuts, depth, is_quoted = [0], 0, False
    for found in _TOKEN.finditer(text):
        mark = found[0]
        if mark == "`":
            is_quoted = not is_quoted
        elif mark in _OPENING:
            depth += 1
        elif mark in (")", "}"):
            depth = max(0, depth - 1)
        elif mark in _SEPARATORS and not depth and not is_quoted:
            cuts.append(found.end())
    if 1 < len(cuts) <= _MAX_APART:
        for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
            yield " " * start + text[start:end].rstrip(";&|\n")
