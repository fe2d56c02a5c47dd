"""
The arguments of `sandboxkit eval` and `sandboxkit render`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sandboxkit.cli._verbs import named

if TYPE_CHECKING:
    from sandboxkit.cli._verbs import Parser, Verbs

__all__ = ["add_eval_arguments"]

_EVAL = """\
Evaluates EXPR, an expression in a subset of Python or in JavaScript, in a process that can
reach no file, network or other process, and prints its value as JSON. Needs the extra
`eval`, or `js`. Where no such process comes up, --isolation box evaluates in a box of the
best backend.

Ends with 1 where EXPR raises, 119 where it cannot be read, 120 where it does what it may
not, 122 where no such process comes up, and 124 at its limit of time or memory.
"""
_RENDER = """\
Prints TEMPLATE with every {{ expression | filter : format }} in it replaced, evaluated as
`eval` does and with its exit codes. A name that is missing is an error, unless the field
has `| default("...")`.
"""


def add_eval_arguments(verbs: Verbs) -> None:
    """
    Adds both verbs.
    """
    evaluate = verbs.add("eval", "evaluate an expression", _EVAL, takes="EXPR")
    evaluate.add_argument("code", metavar="EXPR", help="the expression")
    evaluate.add_argument("--exec", action="store_true", help="EXPR is statements; what they assign to `result` counts")
    render = verbs.add("render", "fill in a template", _RENDER, takes="TEMPLATE")
    render.add_argument("code", metavar="TEMPLATE", help="the template")
    for verb in (evaluate, render):
        _add_common(verb)


def _add_common(verb: Parser) -> None:
    verb.add_argument(
        "--context", metavar="FILE", type=named, help="names and their values, as a JSON object in this file"
    )
    verb.add_argument(
        "--language",
        choices=("python", "javascript"),
        default="python",
        help="what the expressions are written in; javascript needs the extra js (default: python)",
    )
    verb.add_argument(
        "--isolation",
        choices=("worker", "reuse", "box", "in-process"),
        default="worker",
        help="where it runs: a process the kernel confines (worker; reuse keeps it for the next), a box of the best "
        "backend, or, for authors you trust, this process, with Python only and no bound of memory (default: worker)",
    )
    verb.add_argument("--timeout", metavar="S", type=_positive, default=1.0, help="seconds (default: 1)")
    verb.add_argument("--memory", metavar="MIB", type=_positive, default=128.0, help="MiB of memory (default: 128)")


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number greater than 0, and at most a million; give one")
    return number
