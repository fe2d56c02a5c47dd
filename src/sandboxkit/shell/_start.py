"""
The commands that a command starts: behind wrappers, and in text for a shell.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from sandboxkit.model import Setting, SimpleCommand
from sandboxkit.shell._carried import Carried, Inner, Stdin
from sandboxkit.shell._effects import SETTERS, with_declared, written_script
from sandboxkit.shell._found import Place
from sandboxkit.shell._stdin import stdin_of
from sandboxkit.shell._suspects import suspects
from sandboxkit.shell._tree import MAX_DEPTH
from sandboxkit.shell._unsure import TooMuchError, UnsureError
from sandboxkit.shell._unwrap import carried, starts_others
from sandboxkit.shell._variables import SPLIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxkit.shell._found import Found, Span

__all__ = ["Starter"]


# Looked up on its class, a member takes ten times as long.
_WRAPPED, _SUSPECT, _TEXT, _REMOTE = Setting.WRAPPED, Setting.SUSPECT, Setting.TEXT, Setting.REMOTE


_TAKES = re.compile(r"\$\{?[!#]?[1-9@*]|\bfor\s+\w+\s*(?:;|\n|\bdo\b)")
_SHIFTS = re.compile(r"\b(?:while|until)\b.*\bshift\b", re.DOTALL)


class Starter:
    """
    Adds the commands that a command starts to what was found.

    Args:
        found: Where they go.
        read: Reads shell text at a place: with this starter, the text, the place, where
            all of it stands in the source, and the directory it begins in.
    """

    __slots__ = ("_read", "found")

    def __init__(self, found: Found, read: Callable[[Starter, str, Place, Span, str | None], None]) -> None:
        self.found = found
        self._read = read

    def start(
        self,
        index: int,
        part: SimpleCommand,
        place: Place,
        span_of: Callable[[int], Span | None] | None = None,
    ) -> None:
        """
        Adds what *part*, at *index*, starts.

        Args:
            index: Its index among the parts.
            part: The command.
            place: Where it stands.
            span_of: Where the command that begins at a word of it stands.

        Raises:
            UnsureError: It is not certain what it starts.
            TooMuchError: It starts more than is read.
        """
        found = self.found
        if not part.argv or not (
            starts_others(part.argv[0]) or part.argv[0] in found.functions or (found.files and "/" in part.argv[0])
        ):
            return
        stdin = stdin_of(part, found.parts, place.stdin) if part.redirects or part.reads_from else place.stdin
        inner = self._carried(part, stdin) if found.files or found.functions else carried(part, stdin)
        if inner is not None:
            self.add(index, part, inner, stdin, place.depth, span_of)
        if part.argv[0] in found.functions:
            self._call(part, index, place, stdin)
            if inner is None and stdin is not None:
                raise UnsureError("it has text as the input of a function")

    def _call(self, part: SimpleCommand, index: int, place: Place, stdin: Stdin | None) -> None:
        """
        Adds what the body of the function that *part* calls does with its arguments and
        its input. It was read where it is defined, so only a denial counts.
        """
        found, name = self.found, part.argv[0]
        body = found.functions[name]
        has_input = part.function != name and (part.reads_from or stdin is not None)
        given = has_input or (len(part.argv) > 1 and _TAKES.search(body))
        call = (part.argv, part.cwd, part.reads_from, stdin)
        if not given or name in found.calls or call in found.calls:
            return
        found.calls.add(call)
        place.check_depth()
        setting = part.setting | _WRAPPED | _SUSPECT
        inner = Place(setting, part.inside, index, part.reads_from, name, stdin, place.depth + 1)
        variables = found.variables
        before, evaluates = variables.positional(), variables.evaluates_output
        found.calls.add(name)
        variables.set_arguments(part.argv[1:])
        if _SHIFTS.search(body):
            # In some round of the loop each of them is the first.
            variables.set("1", SPLIT.join(part.argv[1:]))
        span = part.span or (0, 0)
        try:
            self._read(self, body, inner, span, part.cwd)
        except UnsureError:
            self.suspect(body, inner, span)
        finally:
            found.calls.discard(name)
            variables.values.update(before)
            variables.evaluates_output = evaluates

    def add(
        self,
        index: int,
        part: SimpleCommand,
        inner: Carried,
        stdin: Stdin | None = None,
        depth: int = 0,
        span_of: Callable[[int], Span | None] | None = None,
    ) -> None:
        """
        Adds *inner*, which *part* starts.

        Args:
            index, part: The command.
            inner: What it starts.
            stdin: What that reads as standard input.
            depth: How deep the command stands in others.
            span_of: Where the command that begins at a word of it stands.

        Raises:
            UnsureError: It is not certain what that starts in turn.
            TooMuchError: It starts more than is read.
        """
        if depth >= MAX_DEPTH:
            raise TooMuchError(f"its commands stand more than {MAX_DEPTH} deep in each other")
        if inner.own is not None:
            self.found.parts[index] = _owning(part, inner.own)
        for each in inner.commands:
            setting = part.setting | each.setting | _WRAPPED
            place = Place(setting, part.inside, index, part.reads_from, part.function, stdin, depth + 1)
            self._inner(part, each, place, span_of(each.start) if span_of and each.start else part.span)

    def suspect(self, text: str, place: Place, span: Span | None) -> None:
        """
        Adds what may be a command in *text* that cannot be read, and what that would start.

        Args:
            text: The text.
            place: Where it stands.
            span: Where all of it stands in the source, for text within text.

        Raises:
            TooMuchError: It holds more than is read.
        """
        place = place.with_setting(_SUSPECT)
        last: tuple[int, ...] = ()
        for argv, where, is_piped in suspects(text):
            index = self.found.reserve()
            part = SimpleCommand(
                argv,
                span or where,
                setting=place.setting,
                reads_from=last if is_piped else (),
                inside=place.inside,
                outer=place.outer,
            )
            last = (index,)
            self.found.parts[index] = part
            with suppress(UnsureError):
                self.start(index, part, place._replace(depth=place.depth + 1))

    def _carried(self, part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
        found = self.found
        inner = carried(part, stdin)
        if found.files and (written := written_script(part, found.files)) is not None:
            guess = Inner(text=written, setting=_SUSPECT)
            inner = Carried([*inner.commands, guess], inner.own) if inner else Carried([guess])
        if part.program in found.functions and len(part.argv) > 2:
            # It may run its arguments.
            unknown = tuple((at - 1, doubt) for at, doubt in part.unknown if at)
            inner = Carried([Inner(part.argv[1:], unknown, 1, setting=_SUSPECT)])
        return inner

    def _inner(self, part: SimpleCommand, inner: Inner, place: Place, span: Span | None) -> None:
        if inner.text is not None:
            self._text(part, inner, place.with_setting(_TEXT), span)
            return
        index = self.found.reserve()
        started = SimpleCommand(
            argv=inner.argv,
            span=span,
            unknown=inner.unknown,
            assignments=inner.assignments,
            setting=place.setting,
            reads_from=place.reads_from,
            inside=place.inside,
            outer=place.outer,
            function=place.function,
            cwd=_cwd(part, inner),
        )
        if inner.argv and inner.argv[0] in SETTERS:
            started = with_declared(started, self.found.variables)
        self.found.parts[index] = started
        if not inner.argv:
            for assignment in inner.assignments:
                self.found.variables.set(assignment.name, assignment.value)
        self.start(index, started, place)

    def _text(self, part: SimpleCommand, inner: Inner, place: Place, span: Span | None) -> None:
        text, span = inner.text or "", span or part.span or (0, 0)
        if inner.arguments:
            self.found.variables.set_arguments(inner.arguments[1:])
            self.found.variables.set("0", inner.arguments[0])
        evaluates = self.found.variables.evaluates_output
        try:
            self._read(self, text, place, span, _cwd(part, inner))
        except UnsureError:
            if not int.__and__(place.setting, _SUSPECT):
                raise
            self.suspect(text, place, span)
        if int.__and__(place.setting, _SUSPECT):
            # It may be no command at all.
            self.found.variables.evaluates_output = evaluates


def _owning(part: SimpleCommand, own: int) -> SimpleCommand:
    """
    *part* with *own*; `dataclasses.replace` takes ten times as long.
    """
    return SimpleCommand(
        part.argv,
        part.span,
        part.unknown,
        part.assignments,
        part.redirects,
        part.setting,
        part.reads_from,
        part.inside,
        part.outer,
        part.function,
        part.cwd,
        own,
    )


def _cwd(part: SimpleCommand, inner: Inner) -> str | None:
    """
    The directory that what *part* carries begins in.
    """
    return inner.cwd or (None if int.__and__(inner.setting, _REMOTE) else part.cwd)
