"""
`Found`: the commands of a text, as they are found; and `Place`, where each stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sandboxkit.model import Setting, SimpleCommand
from sandboxkit.shell._tree import MAX_DEPTH
from sandboxkit.shell._unsure import TooMuchError
from sandboxkit.shell._variables import Variables

if TYPE_CHECKING:
    from sandboxkit.shell._carried import Stdin

__all__ = ["MAX_COMMANDS", "TOP", "Found", "Place", "Span"]

MAX_COMMANDS = 200
"""
Commands of one text. A text with more is not read, and denied.
"""
# Looked up on its class, a member takes ten times as long.
_SUBSTITUTION = Setting.SUBSTITUTION
_MAX_TEXT = 20_000
_RESERVED = SimpleCommand(())

Span = tuple[int, int]
"""
Where something begins and ends.
"""


@dataclass(slots=True)
class Found:
    """
    What a reading has found so far; texts within texts add to the same.

    Attributes:
        parts: The commands.
        functions: The text of the body of each function, by its name.
        calls: The calls of functions whose bodies were read for them, and the names of
            those that are being read.
        variables: What variables hold.
        files: What files hold that the text writes.
        left: Characters that may still be read.
    """

    parts: list[SimpleCommand] = field(default_factory=list)
    functions: dict[str, str] = field(default_factory=dict)
    variables: Variables = field(default_factory=Variables)
    files: dict[str, str] = field(default_factory=dict)
    left: int = _MAX_TEXT
    calls: set[object] = field(default_factory=set)

    def reserve(self) -> int:
        """
        A place for a command whose words are still to be read.

        Raises:
            TooMuchError: There are `MAX_COMMANDS` already.
        """
        if len(self.parts) >= MAX_COMMANDS:
            raise TooMuchError(f"it holds more than {MAX_COMMANDS} commands")
        self.parts.append(_RESERVED)
        return len(self.parts) - 1

    def saved(self) -> Found:
        """
        What there is to go back to.
        """
        return Found(list(self.parts), dict(self.functions), self.variables.copy(), dict(self.files))

    def go_back(self, before: Found) -> None:
        """
        Forgets what was found since *before*, but for how much was read.
        """
        self.parts[:] = before.parts
        self.functions, self.files = before.functions, before.files
        self.calls.clear()
        self.variables.go_back(before.variables)

    def take(self, characters: int) -> None:
        """
        Counts text that is to be read.

        Raises:
            TooMuchError: It is more than may still be read.
        """
        self.left -= characters
        if self.left < 0:
            raise TooMuchError(f"it holds more than {_MAX_TEXT} characters of text within text")


class Place(NamedTuple):
    """
    Where the commands being read stand.

    Attributes:
        setting, inside, outer, reads_from, function: As for `SimpleCommand`.
        stdin: What they read as standard input, if nothing is piped into them.
        depth: How deep they stand in other commands.
    """

    setting: Setting = Setting.NONE
    inside: int | None = None
    outer: int | None = None
    reads_from: tuple[int, ...] = ()
    function: str | None = None
    stdin: Stdin | None = None
    depth: int = 0

    def with_setting(self, setting: Setting) -> Place:
        """
        The same place, with *setting* too.
        """
        joined = self.setting | setting
        return self if joined is self.setting else self._replace(setting=joined)

    def check_depth(self) -> None:
        """
        Refuses to go deeper.

        Raises:
            TooMuchError: This place is `MAX_DEPTH` deep.
        """
        if self.depth >= MAX_DEPTH:
            raise TooMuchError(f"its commands stand more than {MAX_DEPTH} deep in each other")

    def deeper(self) -> Place:
        """
        A place one deeper.

        Raises:
            TooMuchError: This one is `MAX_DEPTH` deep.
        """
        self.check_depth()
        return self._replace(depth=self.depth + 1)

    def within(self, part: int, writes: tuple[int, ...] = ()) -> Place:
        """
        The place of a substitution in the words of *part*: it reads what that reads, and
        what *writes* to it.

        Raises:
            TooMuchError: This one is `MAX_DEPTH` deep.
        """
        self.check_depth()
        setting = self.setting | _SUBSTITUTION
        return Place(setting, part, self.outer, self.reads_from + writes, self.function, self.stdin, self.depth + 1)


TOP = Place()
"""
The place of a command that stands in no other.
"""
