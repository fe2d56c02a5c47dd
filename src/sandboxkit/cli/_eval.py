"""
`sandboxkit eval` and `sandboxkit render`: expressions and templates from anywhere.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandboxkit.cli._exit import Exit
from sandboxkit.cli._output import note, say
from sandboxkit.cli._verbs import Usage
from sandboxkit.evaluation import SafeEvaluator
from sandboxkit.model import Grade

if TYPE_CHECKING:
    import argparse

    from sandboxkit.cli._report import Report
    from sandboxkit.model import Enforcement

__all__ = ["eval", "render"]

_LONG = 10_000
"""From this many bits on an int is shown in hexadecimal: Python writes no more than 4,300 decimal digits."""

_LONGEST = 64 << 20
"""Bytes of a context's file; a context takes at most 16 MiB of values along."""


def eval(options: argparse.Namespace, report: Report) -> int:  # noqa: A001 - a verb's function has its name
    """
    Prints the value of the expression as JSON.
    """
    context = _context(options.context)
    with _evaluator(options) as evaluator:
        value = evaluator.evaluate(options.code, context, mode="exec" if options.exec else "expr")
    shown = _as_json(value)
    if not report.is_json:
        say(json.dumps(shown))
    return report.done(Exit.DONE, "evaluated", {"value": shown})


def render(options: argparse.Namespace, report: Report) -> int:
    """
    Prints the template, filled in.
    """
    context = _context(options.context)
    with _evaluator(options) as evaluator:
        text = evaluator.interpolate(options.code, context)
    if not report.is_json:
        say(text)
    return report.done(Exit.DONE, "rendered", {"text": text})


def _evaluator(options: argparse.Namespace) -> SafeEvaluator:
    """
    An evaluator as *options* have it. One in this process says what does not hold.

    Raises:
        Usage: The language and the isolation do not go together.
    """
    is_here = options.isolation == "in-process"
    if is_here and options.language == "javascript":
        raise Usage(
            "JavaScript has no gate in front of it, so it is never evaluated in this process",
            "usage: ... --language javascript --isolation worker|reuse|box",
        )
    evaluator = SafeEvaluator(
        language=options.language,
        isolation=options.isolation,
        timeout=options.timeout,
        memory_bytes=int(options.memory * (1 << 20)) or 1,
    )
    if is_here:
        note(f"evaluated in this process, for authors you trust; not enforced: {_gaps(evaluator.enforcement())}")
    return evaluator


def _gaps(enforcement: Enforcement) -> str:
    return ", ".join(str(control) for control, state in enforcement if state.grade is not Grade.ENFORCED)


def _context(path: str | None) -> dict[str, Any]:
    """
    The names in the file *path*.

    Raises:
        Usage: It cannot be read, or is no JSON object.
    """
    if path is None:
        return {}
    usage = "usage: ... --context FILE, holding a JSON object"
    try:
        with Path(path).open("rb") as file:  # which may have no end
            text = file.read(_LONGEST + 1)
        if len(text) > _LONGEST:
            raise Usage(f"the context {path} is longer than {_LONGEST >> 20} MiB; give the part the names need", usage)
        found = json.loads(text.decode("utf-8-sig"))  # some editors begin a file with a mark
    except OSError as exc:
        raise Usage(f"the context {path} cannot be read: {exc.strerror}", usage) from exc
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Usage(f"the context {path} is no JSON: {exc}", usage) from exc
    except ValueError as exc:
        raise Usage(f"the context {path} holds an integer of too many digits; write it as a text", usage) from exc
    if not isinstance(found, dict):
        raise Usage(f"the context {path} is a {type(found).__name__}, not an object", usage)
    return found


def _as_json(value: Any) -> Any:
    """
    *value* as JSON has it: what it has no form for becomes a list or a text.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < _LONG else hex(value)
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, dict):
        made = {_key(key): _as_json(item) for key, item in value.items()}
        # Keys that become the same text: nothing is left out.
        return made if len(made) == len(value) else [[_as_json(key), _as_json(item)] for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_as_json(item) for item in value), key=repr)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return str(value)


def _key(key: Any) -> str:
    shown = _as_json(key)
    return shown if isinstance(shown, str) else str(shown)
