"""
The four calls, for one evaluation each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandboxkit.evaluation._evaluator import DEFAULT_MEMORY_BYTES, DEFAULT_TIMEOUT, SafeEvaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxkit.evaluation._evaluator import Isolation, Language, Mode, OnError

    Functions = Mapping[str, Callable[..., Any]]

__all__ = ["safe_eval", "safe_eval_async", "safe_eval_condition", "safe_interpolate"]


def safe_eval(
    code: str,
    context: Mapping[str, object] | None = None,
    *,
    mode: Mode = "expr",
    timeout: float = DEFAULT_TIMEOUT,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    functions: Functions | None = None,
    language: Language = "python",
    isolation: Isolation = "worker",
) -> Any:
    """
    The value of *code*, evaluated where it can do no harm.

    Use a `SafeEvaluator` for more than a few, for objects of your own types, and for
    `isolation="reuse"`, whose workers it keeps. Here each call starts from nothing.

    Args:
        code: An expression, or statements that assign `result`.
        context: Names and their values, which go along by copy. Functions in it can be
            called; what cannot go along raises when it is used.
        mode: `expr` or `exec`.
        timeout: Seconds.
        memory_bytes: What it may take.
        functions: Functions by name, besides those of *context*.
        language: `python`, or `javascript` with the extra `js`.
        isolation: `worker`, `reuse`, `box` or `in-process`; see `SafeEvaluator`.

    Raises:
        SafeEvalError: See `SafeEvaluator.evaluate`.
        SetupError: No confined worker comes up; nothing was evaluated.
    """
    with SafeEvaluator(
        functions=functions, language=language, isolation=isolation, timeout=timeout, memory_bytes=memory_bytes
    ) as evaluator:
        return evaluator.evaluate(code, context, mode=mode)


async def safe_eval_async(
    code: str,
    context: Mapping[str, object] | None = None,
    *,
    timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - the worker is killed by it, a cancel scope could not
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    functions: Functions | None = None,
    language: Language = "python",
    isolation: Isolation = "worker",
) -> Any:
    """
    The value of *code*, one expression or a body with `return`, that may await the
    coroutine functions it is given.

    Arguments and errors are those of `safe_eval`. asyncio and trio.
    """
    with SafeEvaluator(
        functions=functions, language=language, isolation=isolation, timeout=timeout, memory_bytes=memory_bytes
    ) as evaluator:
        return await evaluator.evaluate_async(code, context)


def safe_eval_condition(
    code: str,
    context: Mapping[str, object] | None = None,
    *,
    on_error: OnError = "false",
    timeout: float = DEFAULT_TIMEOUT,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    functions: Functions | None = None,
    language: Language = "python",
    isolation: Isolation = "worker",
) -> bool:
    """
    Whether the expression *code* is true. What cannot be decided is False.

    Args:
        on_error: `raise` raises instead; a `SafeEvaluator` also counts and records.

    The others are those of `safe_eval`.
    """
    with SafeEvaluator(
        functions=functions, language=language, isolation=isolation, timeout=timeout, memory_bytes=memory_bytes
    ) as evaluator:
        return evaluator.condition(code, context, on_error=on_error)


def safe_interpolate(
    template: str,
    context: Mapping[str, object] | None = None,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    functions: Functions | None = None,
    language: Language = "python",
    isolation: Isolation = "worker",
) -> str:
    """
    *template* with every `{{ expression | filter : format }}` replaced by its text.

    Arguments and errors are those of `safe_eval`; *functions* are filters too.
    """
    with SafeEvaluator(
        functions=functions, language=language, isolation=isolation, timeout=timeout, memory_bytes=memory_bytes
    ) as evaluator:
        return evaluator.interpolate(template, context)
