"""
`Tokens`: where the grammar has found what, to be compared with the second reading.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandboxkit.shell._unsure import UnsureError

if TYPE_CHECKING:
    from tree_sitter import Node

    from sandboxkit.shell._found import Span
    from sandboxkit.shell._lexer import Lexer

__all__ = ["Tokens"]


@dataclass(slots=True)
class Tokens:
    """
    Where the tokens of one text stand, in bytes.

    Attributes:
        others: Those that are words to the lexer alone, such as keywords and assignments.
        excused: Words that the lexer sees with a dollar in front.
        walked: Substitutions whose commands have been read.
        redirects: Where every redirection's operator begins.
    """

    others: set[Span] = field(default_factory=set)
    excused: set[Span] = field(default_factory=set)
    walked: list[Span] = field(default_factory=list)
    redirects: set[int] = field(default_factory=set)

    def add(self, node: Node) -> None:
        """
        Adds *node* to the others.
        """
        self.others.add((node.start_byte, node.end_byte))

    def compare(self, seen: set[Span], lexer: Lexer) -> None:
        """
        Refuses a text whose words and redirections stand elsewhere in another reading.

        Args:
            seen: Where the words of its commands stand.
            lexer: The other reading.

        Raises:
            UnsureError: They stand elsewhere.
        """
        known = seen | self.others
        if (
            not lexer.words <= known
            or any(self._has_walked(word) for word in lexer.optional - known)
            or not seen - self.excused <= lexer.words | lexer.optional
            or not lexer.redirects <= self.redirects
            or any(self._has_walked((at, at + 1)) for at in lexer.optional_redirects - self.redirects)
            or not self.redirects <= lexer.redirects | lexer.optional_redirects
        ):
            raise UnsureError("its words cannot be told apart with certainty")

    def _has_walked(self, word: Span) -> bool:
        """
        Whether *word* stands in a substitution whose commands have been read.
        """
        return any(start <= word[0] and word[1] <= end for start, end in self.walked)
