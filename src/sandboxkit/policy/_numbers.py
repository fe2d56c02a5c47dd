"""
Numbers that rules may bound: those of the command itself, and those its caller gives.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxkit.model import Command, EvaluationContext

__all__ = ["COUNTED", "exceeds", "with_parts"]

COUNTED = ("arguments", "parts", "urls")
"""
The numbers that are counted where the caller does not give them.
"""
_URL = re.compile(r"(?i)\b[a-z][a-z0-9+.-]*://[^\s]")


def exceeds(name: str, bound: float, arguments: Sequence[str], context: EvaluationContext) -> bool | None:
    """
    Whether the number *name* is greater than *bound*, or None where nobody gave it.

    A number the caller gives comes before one that is counted in *arguments*.
    """
    value = context.numbers.get(name)
    if value is None:
        value = _counted(name, arguments)
    return None if value is None or math.isnan(value) else value > bound


def with_parts(context: EvaluationContext, command: Command) -> EvaluationContext:
    """
    *context* with the number of parts of *command*, unless the caller gave one.
    """
    return replace(context, numbers={"parts": len(command.parts), **context.numbers})


def _counted(name: str, arguments: Sequence[str]) -> int | None:
    if name == "urls":
        return sum(len(_URL.findall(argument)) for argument in arguments)
    return len(arguments) if name == "arguments" else None
