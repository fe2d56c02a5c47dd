"""
`Source`: the text being read, in the bytes the grammar counts, and its place in the whole.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from sandboxkit.shell._tree import ascii_only
from sandboxkit.shell._unsure import UnsureError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from sandboxkit.shell._found import Span
    from sandboxkit.shell._prepare import HereDocument, Prepared

__all__ = ["SPACE", "Source"]

SPACE = b" \t\n"
"""
What stands between words.
"""
_BLANKS = frozenset((b" ", b"\t", b"\n"))
_BLANK = ord(" ")
_ENDS_WORD = frozenset((b"", *(bytes((each,)) for each in b" \t\n;&|<>()")))
_NO_WORDS = frozenset(
    ("file_redirect", "file_descriptor", "comment", "do_group", "variable_name", "subscript", "array")
)


class Source:
    """
    A text that was made ready for the grammar.

    Args:
        prepared: The text.
        span: Where all of it stands in the source, for text within text; None for the
            source itself.

    Attributes:
        data: The text in UTF-8.
        ascii: The text itself where all of it is ASCII, so that a place in the bytes is
            one in it.
    """

    __slots__ = ("_prepared", "_span", "ascii", "data")

    def __init__(self, prepared: Prepared, span: Span | None) -> None:
        self.data = prepared.text.encode("utf-8", "surrogateescape")
        self.ascii = prepared.text if len(self.data) == len(prepared.text) else None
        self._prepared = prepared
        self._span = span

    @property
    def text(self) -> str:
        """
        The text, as long as `data`: every byte beyond ASCII is a full stop.
        """
        return self.ascii if self.ascii is not None else ascii_only(self.data).decode("ascii")

    @property
    def end(self) -> int:
        """
        Where the text ends in the one it was made from.
        """
        return self.original(len(self.data))

    def original(self, offset: int) -> int:
        """
        Where the byte at *offset* stands in the text this was made from.
        """
        return self._prepared.original(self._character(offset))

    def span_of(self, start: int, end: int) -> Span:
        """
        Where the bytes from *start* to *end* stand in the source.
        """
        if self._span is not None:
            return self._span
        if self.ascii is not None and self._prepared.is_source:
            return start, end
        return self.original(start), self.original(end)

    def operator(self, node: Node) -> str:
        """
        The operator of a redirection that stood where *node* stands.
        """
        if not self._prepared.operators:
            return node.type
        return self._prepared.operators.get(self._character(node.start_byte), node.type)

    def document(self, token: str) -> HereDocument:
        """
        The here-document that *token* stands for.

        Raises:
            UnsureError: There is none.
        """
        document = self._prepared.documents.get(token)
        if document is None:
            raise UnsureError("the end of a here-document cannot be told")
        return document

    def check_operators(self, start: int, end: int) -> None:
        """
        Refuses text that is read once more, but has lost its operators.

        Raises:
            UnsureError: An operator stood between the bytes *start* and *end*.
        """
        begin, end = self._character(start), self._character(end)
        if any(begin <= place < end for place in self._prepared.operators):
            raise UnsureError("it has a redirection from text within text")

    def check_gaps(self, nodes: Sequence[Node], *, touching: bool = True, one_line: bool = False) -> None:
        """
        Refuses text the grammar has left out between *nodes*, words that touch, and
        lines it has joined.

        Args:
            nodes: Nodes, as they follow each other.
            touching: Whether words may touch.
            one_line: Whether all have to stand on one line.

        Raises:
            UnsureError: There is such text, or there are such words or lines.
        """
        data = self.data
        for before, after in pairwise(nodes):
            end, start = before.end_byte, after.start_byte
            if start - end == 1 and data[end] == _BLANK:
                continue
            if end == start:
                if not touching and _is_word(before) and _is_word(after):
                    raise UnsureError("its words cannot be told apart with certainty")
            elif data[end:start].strip(SPACE) or (one_line and b"\n" in data[end:start]):
                raise UnsureError("its words cannot be told apart with certainty")

    def has_blank_at(self, offset: int) -> bool:
        """
        Whether a blank or newline stands at *offset*.
        """
        return self.data[offset : offset + 1] in _BLANKS

    def ends_word_at(self, offset: int) -> bool:
        """
        Whether the text ends at *offset*, or a character that no word goes on with stands there.
        """
        return self.data[offset : offset + 1] in _ENDS_WORD

    def piece(self, start: int, end: int) -> str:
        """
        The text from byte *start* to *end*.
        """
        if self.ascii is not None:
            return self.ascii[start:end]
        return self.data[start:end].decode("utf-8", "surrogateescape")

    def _character(self, offset: int) -> int:
        return offset if self.ascii is not None else len(self.data[:offset].decode("utf-8", "surrogateescape"))


def _is_word(node: Node) -> bool:
    return node.is_named and node.type not in _NO_WORDS
