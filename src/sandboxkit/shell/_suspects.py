"""
A rough look at text that cannot be read with certainty: for suspicion only.
"""

from __future__ import annotations

import re
from itertools import pairwise
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
_OPENS = frozenset(("case", "for", "if", "select", "until", "while"))
_CLOSES = frozenset(("done", "esac", "fi"))
_GOES_ON = frozenset(("!", "do", "elif", "else", "if", "then", "time", "until", "while"))
_BREAK = re.compile(r"\$\(|[;|\n(){}`]|(?<![<>])&|&(?![\d-])|\bdo\b|\bthen\b|\belse\b")
_DUPLICATE = re.compile(r"\d*[<>]&[\d-]+")
"""`2>&1`: one descriptor in place of another, which ends no command."""
_QUOTES = re.compile(r"[\"'\\\r]")
_JOINED = "\r\r"
"""What a line is joined with: as long as what it was, and taken away like quotes."""
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
    the one before may be piped into it. Where a line may go on in the next one, both ways.
    """
    yield from _suspects(text)
    if "\\\n" in text:
        yield from _suspects(text.replace("\\\n", _JOINED))


def _suspects(text: str) -> Iterator[tuple[tuple[str, ...], tuple[int, int], bool]]:
    begin, count, piped = 0, 0, False
    for end, after in [*((found.start(), found.end()) for found in _BREAK.finditer(text)), (len(text), len(text))]:
        written = _DUPLICATE.sub(" ", text[begin:end])
        piece = _QUOTES.sub("", written)
        piece = _NOTHING.sub("", _BLANK.sub(" ", piece)) if "$" in piece or "`" in piece else piece
        words = _UNSEEN.sub("", piece).split()
        if words and "," in words[0]:
            # What a brace stood before and behind.
            words[:1] = [word for word in words[0].split(",") if word]
        while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in ("!", "time", "if", "while", "until")):
            words.pop(0)
        if words:
            yield tuple(words), (begin, end), piped
            count += 1
        for target in _WRITTEN.findall(written):
            yield ("tee", _QUOTES.sub("", target)), (begin, end), False
        if count >= _MAX:
            return
        begin, piped = after, text[end:after] == "|" or (piped and not words)


def apart(text: str) -> Iterator[str]:
    """
    The commands of *text* that stand beside each other, cut at the operators between them
    and outside of quotes and brackets: where the grammar fails at one, the others can
    still be read. Each has blanks in front, so that it stands where it does in *text*.
    Where there are loops or conditions, each of those as one command too. Nothing where
    there is only one.
    """
    if len(text) > _MAX_APART_TEXT:
        return
    cuts, outer, depth, inside, is_quoted, begins = [0], [0], 0, 0, False, True
    inner = {at for found in _DUPLICATE.finditer(text) for at in range(*found.span())}
    for found in _TOKEN.finditer(text):
        mark = found[0] if found.start() not in inner else ""
        if mark == "`":
            is_quoted = not is_quoted
        elif mark in _OPENING:
            depth += 1
        elif mark in (")", "}"):
            depth = max(0, depth - 1)
        elif mark in _SEPARATORS:
            if not depth and not is_quoted:
                cuts.append(found.end())
                if not inside:
                    outer.append(found.end())
        elif begins and not depth and not is_quoted:
            inside = max(0, inside + _deeper(mark.split()))
        begins = mark in _SEPARATORS or (begins and mark.isspace())
    if 1 < len(cuts) <= _MAX_APART:
        whole = pairwise([*outer, len(text)]) if len(outer) > 1 else ()
        for start, end in dict.fromkeys((*pairwise([*cuts, len(text)]), *whole)):
            yield " " * start + text[start:end].rstrip(";&|\n")


def _deeper(words: list[str]) -> int:
    """
    How many loops and conditions *words*, which begin a command, open; -1 where they close one.
    """
    opened = 0
    for word in words:
        if word in _CLOSES:
            return opened - 1
        opened += word in _OPENS
        if word not in _GOES_ON:
            break
    return opened
