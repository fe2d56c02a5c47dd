"""
What an evaluation costs, next to libraries that evaluate in the caller's process.

    python benchmarks/evaluation.py [--quick] [--json] [--check]

The others bound neither memory nor a loop in C, except monty, which has a process of its
own; they are here for the scale. Those that are not installed are named at the end:
pip install simpleeval asteval jinja2 smolagents pydantic-monty, into an environment of
their own. Nothing fails on timing unless `--check` is given.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import sandboxkit as sk

if TYPE_CHECKING:
    from collections.abc import Callable

CONTEXT: dict[str, Any] = {"x": 10, "y": 20, "user": {"role": "admin", "name": "Al"}, "item": {"price": 50}, "n": 3}
CODES = {
    "x + y": "x + y",
    "condition": "user['role'] == 'admin' and item['price'] < 100",
}
TEMPLATE = "Hi {{ user.name }}, {{ item.price * n }} for {{ n }}"
LIMITS_MS = {"reuse: x + y": 0.040, "worker: x + y": 3.0, "worker: kill and next answer": 50.0}
AT_ONCE = 10
Measures = dict[str, list[float]]
Calls = dict[str, "Callable[[], object]"]


JAVASCRIPT = "user.role == 'admin' && item.price < 100"
PEERS = {
    "simpleeval": "simpleeval",
    "asteval": "asteval",
    "jinja2": "jinja2.sandbox",
    "smolagents": "smolagents.local_python_executor",
    "monty": "pydantic_monty",
}
"""By name the module each is imported from."""
SAFE_LIMITS: dict[str, Any] = {"max_memory": 128 << 20, "max_feed_duration_secs": 10}


def candidates() -> Calls:
    """
    What is measured, by name: this library in each isolation, and those that are installed.
    """
    found: Calls = {"plain eval: x + y": lambda: eval("x + y", dict(CONTEXT))}
    for isolation in ("worker", "reuse", "in-process"):
        evaluator = sk.SafeEvaluator(isolation=isolation, timeout=10)
        for name, code in CODES.items():
            found[f"{isolation}: {name}"] = partial(evaluator.evaluate, code, CONTEXT)
        found[f"{isolation}: template"] = partial(evaluator.interpolate, TEMPLATE, CONTEXT)
    if _library("_quickjs"):
        for confined in ("worker", "reuse"):
            evaluator = sk.SafeEvaluator(language="javascript", isolation=confined, timeout=10)
            found[f"javascript, {confined}: condition"] = partial(evaluator.evaluate, JAVASCRIPT, CONTEXT)
    for name, module in PEERS.items():
        if library := _library(module):
            found |= {f"{name}: {what}": call for what, call in MAKERS[name](library).items()}
    return found


def _simpleeval(library: Any) -> Calls:
    evaluator = library.SimpleEval(names=CONTEXT)
    return {name: partial(evaluator.eval, code) for name, code in CODES.items()}


def _asteval(library: Any) -> Calls:
    interpreter = library.Interpreter(user_symbols=dict(CONTEXT))
    return {name: partial(interpreter, code) for name, code in CODES.items()}


def _jinja2(library: Any) -> Calls:
    environment = library.SandboxedEnvironment()
    compiled = {name: environment.compile_expression(code) for name, code in CODES.items()}
    return {
        **{f"{name}, compiled": partial(call, **CONTEXT) for name, call in compiled.items()},
        "template, compiled": partial(environment.from_string(TEMPLATE).render, **CONTEXT),
    }


def _smolagents(library: Any) -> Calls:
    executor = library.LocalPythonExecutor([])
    executor.send_tools({})
    executor.send_variables(dict(CONTEXT))
    return {name: partial(executor, code) for name, code in CODES.items()}


def _monty(library: Any) -> Calls:
    # One session goes on; a new checkout for every call is what a clean fork compares with.
    pool = library.Monty().__enter__()
    session = pool.checkout(limits=SAFE_LIMITS).__enter__()

    def checked_out(code: str) -> object:
        with pool.checkout(limits=SAFE_LIMITS) as fresh:
            return fresh.feed_run(code, inputs=CONTEXT)

    return {
        **{f"{name}, same session": partial(session.feed_run, code, inputs=CONTEXT) for name, code in CODES.items()},
        **{f"{name}, checkout": partial(checked_out, code) for name, code in CODES.items()},
    }


MAKERS: dict[str, Callable[[Any], Calls]] = {
    "simpleeval": _simpleeval,
    "asteval": _asteval,
    "jinja2": _jinja2,
    "smolagents": _smolagents,
    "monty": _monty,
}


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def recovery(rounds: int) -> list[float]:
    """
    Seconds from a deadline to the next answer, for each of *rounds*.
    """
    taken = []
    with sk.SafeEvaluator(timeout=0.5) as evaluator:
        for _ in range(rounds):
            began = time.perf_counter()
            with contextlib.suppress(sk.SafeEvalTimeoutError):
                evaluator.evaluate("max(range(10**12))")
            evaluator.evaluate("1")
            taken.append(time.perf_counter() - began - 0.5)
    return taken


def measured(rounds: int) -> Measures:
    """
    Seconds of every call. Each round runs every candidate a few times, so that a slow
    moment of the machine hits them all.
    """
    calls = candidates()
    taken: Measures = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(0.002)  # what the one before leaves behind, such as a worker that is ending
            call()
            for _ in range(AT_ONCE):
                began = time.perf_counter()
                call()
                taken[name].append(time.perf_counter() - began)
    return taken | {"worker: kill and next answer": recovery(max(5, rounds // 5))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--check", action="store_true", help="end with 1 where a bar is not kept")
    options = parser.parse_args()
    taken = {name: sorted(times) for name, times in measured(20 if options.quick else 100).items()}
    rows = {name: (times[len(times) // 2] * 1e3, times[int(len(times) * 0.95)] * 1e3) for name, times in taken.items()}
    missed = [name for name, limit in LIMITS_MS.items() if rows[name][0] > limit]
    if options.json:
        print(json.dumps({"p50_ms": {name: row[0] for name, row in rows.items()}, "missed": missed}, indent=2))
    else:
        for name, (p50, p95) in rows.items():
            print(f"{name:36} p50 {p50:8.3f} ms   p95 {p95:8.3f} ms" + ("   over the bar" if name in missed else ""))
        for name, module in PEERS.items():
            if not _library(module):
                print(f"{name:36} is not installed; left out")
    sk.shutdown()
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
