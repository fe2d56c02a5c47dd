"""
Templates: text with `{{ expression | filter(arguments) : format }}` in it.

Runs in the worker too: standard library only.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

TYPE_CHECKING = False  # as in typing, whose import is spared in the worker
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

__all__ = ["FILTERS", "Field", "TemplateError", "split"]


class TemplateError(Exception):
    """
    A template cannot be read: the problem, and the place it begins at.
    """

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(problem)
        self.problem, self.position = problem, position


@dataclass(frozen=True, slots=True)
class Field:
    """
    One `{{ … }}`.

    Attributes:
        expression: The text of the expression.
        filters: (name, text of the arguments) of each filter, in order.
        spec: The format specification, or None.
        position: Where the field begins in the template.
    """

    expression: str
    filters: tuple[tuple[str, str], ...]
    spec: str | None
    position: int

    @property
    def has_default(self) -> bool:
        """
        Whether a missing value is permitted.
        """
        return any(name == "default" for name, _ in self.filters)


def split(template: str, *, is_javascript: bool = False) -> list[str | Field]:
    """
    The literal texts and the fields of *template*.

    A `{{` opens a field and the first `}}` outside of strings and brackets closes it. All
    else is literal, single braces and a `}}` without a field among them; a literal `{{` is
    written `{{ '{{' }}`. An expression may go over several lines.

    Args:
        template: The template.
        is_javascript: Its expressions are JavaScript, where strings may stand in backticks,
            `||` is no filter, and the `:` of `a ? b : c` begins no format.

    Raises:
        TemplateError: A field is not closed, is empty, or its brackets or filters cannot be read.
    """
    parts: list[str | Field] = []
    at = 0
    while (opened := template.find("{{", at)) >= 0:
        if opened > at:
            parts.append(template[at:opened])
        field, at = _field(template, opened, is_javascript=is_javascript)
        parts.append(field)
    if at < len(template):
        parts.append(template[at:])
    return parts


def _field(template: str, opened: int, *, is_javascript: bool) -> tuple[Field, int]:
    """
    The field that opens at *opened*, and the place behind it.
    """
    segments: list[str] = []
    start = opened + 2
    for at, mark in _marks(template, opened, is_javascript=is_javascript):
        if mark == "}}":
            return _made([*segments, template[start:at]], None, opened), at + 2
        if mark == "|":
            segments.append(template[start:at])
            start = at + 1
        elif "lambda" not in template[start:at]:
            closed = template.find("}}", at)
            if closed < 0:
                break
            spec = template[at + 1 : closed].strip()
            return _made([*segments, template[start:at]], spec, opened), closed + 2
    raise TemplateError("a {{ is not closed by }}", opened)


_OPERATOR = re.compile(r"\|\||\?\?|\?\.(?![0-9])")
"""Those of JavaScript that hold a mark, or would begin a choice."""


def _marks(template: str, opened: int, *, is_javascript: bool) -> Iterator[tuple[int, str]]:
    """
    Each `|` and `:` outside of strings and brackets that may end an expression, and the
    `}}` that does, with its place.
    """
    at, depth, choices = opened + 2, 0, 0
    while at < len(template):
        char = template[at]
        if char in "'\"" or (char == "`" and is_javascript):
            at = _string_end(template, at, opened, is_javascript=is_javascript)
            continue
        if char in "([{":
            depth += 1
        elif depth:
            depth -= char in ")]}"
        elif template.startswith("}}", at):
            yield at, "}}"
            return
        elif char in ")]}":
            raise TemplateError("a bracket in a {{ … }} is closed that was not opened", at)
        elif is_javascript and (found := _OPERATOR.match(template, at)):
            at = found.end()
            continue
        elif is_javascript and char == "?":
            choices += 1
        elif char == ":" and choices:
            choices -= 1
        elif char in "|:":
            yield at, char
        at += 1


def _string_end(template: str, at: int, opened: int, *, is_javascript: bool) -> int:
    quote = template[at]
    if not is_javascript and template.startswith(quote * 3, at):
        quote *= 3
    at += len(quote)
    while at < len(template):
        if template[at] == "\\":
            at += 2
        elif template.startswith(quote, at):
            return at + len(quote)
        elif quote == "`" and template.startswith("${", at):
            at = _hole_end(template, at + 2, opened)
        else:
            at += 1
    raise TemplateError("a string in a {{ … }} is not closed", opened)


def _hole_end(template: str, at: int, opened: int) -> int:
    """
    The place behind the `}` of a `${` in a text of JavaScript.
    """
    depth = 0
    while at < len(template):
        char = template[at]
        if char in "'\"`":
            at = _string_end(template, at, opened, is_javascript=True)
            continue
        if char == "}" and not depth:
            return at + 1
        depth += (char == "{") - (char == "}")
        at += 1
    raise TemplateError("a string in a {{ … }} is not closed", opened)


def _made(segments: list[str], spec: str | None, opened: int) -> Field:
    expression, *filters = (segment.strip() for segment in segments)
    if not expression:
        raise TemplateError("a {{ … }} holds no expression", opened)
    return Field(expression, tuple(_filter(text, opened) for text in filters), spec, opened)


def _filter(text: str, opened: int) -> tuple[str, str]:
    name, bracket, arguments = text.partition("(")
    name = name.strip()
    if not name.isidentifier() or (bracket and not arguments.endswith(")")):
        raise TemplateError(
            f"{text[:60]!r} is no filter; write |name or |name(arguments), and | of numbers in brackets", opened
        )
    return name, arguments[:-1].strip()


def _default(value: object, fallback: object = "") -> object:
    return fallback if value is None or value == "" else value


def _rounded(value: Any, digits: int = 0) -> object:
    return round(value, digits)


FILTERS: dict[str, Callable[..., object]] = {
    "abs": abs,
    "capitalize": lambda value: str(value).capitalize(),
    "default": _default,
    "first": lambda value: value[0],
    "float": float,
    "int": int,
    "join": lambda value, between="": between.join(map(str, value)),
    "json": lambda value: json.dumps(value),
    "last": lambda value: value[-1],
    "length": len,
    "list": list,
    "lower": lambda value: str(value).lower(),
    "max": max,
    "min": min,
    "replace": lambda value, old, new: str(value).replace(old, new),
    "reverse": lambda value: value[::-1],
    "round": _rounded,
    "sort": sorted,
    "string": str,
    "sum": sum,
    "title": lambda value: str(value).title(),
    "trim": lambda value: str(value).strip(),
    "upper": lambda value: str(value).upper(),
}
"""The filters there are without declaring any; functions of the caller's come behind them."""
