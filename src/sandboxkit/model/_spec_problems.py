"""
What is wrong with a spec, in sentences: one for each problem, with its key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import ValidationError

__all__ = ["Problem", "key_text", "problems"]

_SHOWN = 80
"""Characters of a wrong value that a message repeats."""

_WORDS = {
    "tuple_type": "must be a list",
    "frozen_set_type": "must be a list",
    "model_type": "must be a table of keys",
    "dict_type": "must be a table of keys",
    "mapping_type": "must be a table of keys",
}
"""Pydantic's names of types, in the words of somebody who writes a file."""

Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """
    One thing that is wrong.

    Attributes:
        key: Where: names of keys and positions in lists, from the outside in.
        text: What, with the remedy.
    """

    key: Key
    text: str

    def __str__(self) -> str:
        return f"{key_text(self.key)}: {self.text}" if self.key else self.text


def key_text(key: Key) -> str:
    """
    A key as people write it: `filesystem.read[0]`.
    """
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in key).removeprefix(".")


def problems(exc: ValidationError, model: type[BaseModel]) -> tuple[Problem, ...]:
    """
    Everything *exc* found wrong with a *model*.
    """
    return tuple(_problem(error, model) for error in exc.errors(include_url=False))


def _problem(error: Mapping[str, Any], model: type[BaseModel]) -> Problem:
    key = tuple(step for step in error["loc"] if step != "[key]")
    cause = error.get("ctx", {}).get("error")
    if error["type"] == "extra_forbidden":
        return Problem(key, _unknown(key, model))
    if cause is not None:
        return Problem(key, str(cause))
    if error["type"] in ("enum", "literal_error") and (
        close := _close(error["input"], re.findall(r"'([^']+)'", error["ctx"]["expected"]))
    ):
        return Problem(key, f"{error['input']!r} is not known; did you mean {close!r}?")
    return Problem(
        key, _WORDS.get(error["type"]) or error["msg"].replace("Input should be", "must be") + _instead(error)
    )


def _unknown(key: Key, model: type[BaseModel]) -> str:
    *parents, name = map(str, key)
    for parent in parents:
        inner = model.model_fields[parent].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break
        model = inner
    names = sorted(model.model_fields)
    close = _close(name, names)
    return (
        f"there is no such key; did you mean {close!r}?"
        if close
        else f"there is no such key; use one of {', '.join(names)}"
    )


def _close(value: object, known: Sequence[str]) -> str | None:
    import difflib  # takes as long to import as all of the model

    return next(iter(difflib.get_close_matches(value, known, n=1)), None) if isinstance(value, str) else None


def _instead(error: Mapping[str, Any]) -> str:
    value = error["input"]
    if isinstance(value, dict | list | tuple) or "set" in error["loc"]:
        return ""  # a variable's value may be a secret
    shown = repr(value)
    return f", not {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'}"
