"""
`SafeEvaluator`: declared functions and types, limits and an isolation, for many evaluations.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Literal, Self, final

from sandboxkit.errors import SafeEvalError, SafeEvalForbiddenError, SafeEvalTimeoutError, SetupError
from sandboxkit.evaluation import _in_process, _workers
from sandboxkit.evaluation._codec import LateError
from sandboxkit.evaluation._context import plain_text, prepared
from sandboxkit.evaluation._dialogue import Bounds, Dialogue, check_limit
from sandboxkit.evaluation._tables import MAX_SOURCE, MAX_TEMPLATE
from sandboxkit.model import AuditEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sandboxkit.backends import SandboxRegistry
    from sandboxkit.model import AuditSink, Enforcement

__all__ = ["DEFAULT_MEMORY_BYTES", "DEFAULT_TIMEOUT", "Isolation", "Language", "Mode", "OnError", "SafeEvaluator"]

Language = Literal["python", "javascript"]
Isolation = Literal["worker", "reuse", "box", "in-process"]
Mode = Literal["expr", "exec"]
OnError = Literal["false", "raise"]

DEFAULT_TIMEOUT = 1.0
DEFAULT_MEMORY_BYTES = 128 << 20
DEFAULT_RESULT_BYTES = 1 << 20
DEFAULT_CALLS = 1_000
DEFAULT_RECYCLE = 1_000
_LANGUAGES = ("python", "javascript")
_ISOLATIONS = ("worker", "reuse", "box", "in-process")


@final
class SafeEvaluator:
    """
    Evaluates expressions, snippets, conditions and templates nobody has to trust.

    The language is a subset of Python without classes, imports and attributes that are not
    in a table by type. In `worker` and `reuse` it also runs in a process the kernel
    confines: no file, socket, process or executable memory can be made there.

    Values go in and come out by copy. Functions you declare run in this process when the
    snippet calls them, with values of the snippet's choice as arguments: give none you
    would not let an author of snippets call. A plain function runs in the thread that
    evaluates. When the deadline passes in it, it is interrupted by an exception; that
    works in the main thread only (see `timeout`). A coroutine function is cancelled.

    Args:
        functions: Functions by name, besides those in the context. In templates they are
            filters too.
        language: `python`, the subset; or `javascript`, in an engine (quickjs-ng) without any
            access of its own and a new context for every evaluation. It has no gate in
            front of it, so it is never evaluated in this process.
        isolation: `worker`, a new fork of a confined process for every evaluation;
            `reuse`, a confined worker that goes on, faster, where one evaluation could
            leave something for the next; `box`, a fork for every evaluation inside a box of
            the registry's best backend, for machines where no process can confine itself,
            and slower to start; `in-process`, for authors you trust: the
            language gate alone holds, memory is not bounded, and a loop in C runs on
            past the deadline. `enforcement()` says the same as data.
        timeout: Seconds from the call to its result, functions of yours included.
        memory_bytes: What a worker may add to the memory it starts with.
        max_result_bytes: About how large a result may be, and all that a function gives
            or is given: 16 bytes a value, and the length of texts.
        max_host_calls: How often functions of yours may be called by one evaluation.
        recycle_after: After how many evaluations a worker of `reuse` is replaced.
        registry: Where `box` takes its backend from; None is the process's own.
        audit: Where a record of every condition that could not be decided goes.

    Raises:
        ValueError: A limit is not greater than 0, or beyond what can be kept, *language* or
            *isolation* is none, or they do not go together.
        TypeError: A limit is no number, or one of *functions* none.
        MissingExtraError: What evaluates the language is not installed.
    """

    def __init__(
        self,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        language: Language = "python",
        isolation: Isolation = "worker",
        timeout: float = DEFAULT_TIMEOUT,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        max_result_bytes: int = DEFAULT_RESULT_BYTES,
        max_host_calls: int = DEFAULT_CALLS,
        recycle_after: int = DEFAULT_RECYCLE,
        registry: SandboxRegistry | None = None,
        audit: AuditSink | None = None,
    ) -> None:
        if isolation not in _ISOLATIONS:
            raise ValueError(f"{isolation!r} is no isolation; use {', '.join(_ISOLATIONS)}")
        if language not in _LANGUAGES:
            raise ValueError(f"{language!r} is no language; use {', '.join(_LANGUAGES)}")
        if language == "javascript" and isolation == "in-process":
            raise ValueError('JavaScript has no gate in front of it; use isolation="worker", "reuse" or "box"')
        if registry is not None and isolation != "box":
            raise ValueError(f'no backend carries {isolation!r}; use isolation="box" with a registry')
        self._language = language
        self._bounds = Bounds(timeout, memory_bytes, max_result_bytes, max_host_calls)
        check_limit("recycle_after", recycle_after)
        self._functions = dict(functions or {})
        _check_functions(self._functions.items())
        self._exposed: dict[type, tuple[str, ...]] = {}
        self._audit = audit
        self._refusals = 0
        self._pool: _workers.Pool | None = None
        if isolation == "in-process":
            _in_process.require_language()
        elif isolation == "box":
            from sandboxkit.evaluation._boxes import BoxPool

            self._pool = BoxPool(language, memory_bytes, max_result_bytes, timeout, registry)
        else:
            self._pool = _workers.WorkerPool(
                language,
                memory_bytes,
                max_result_bytes,
                timeout,
                is_reusing=isolation == "reuse",
                recycle_after=recycle_after,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """
        Ends the workers of `reuse` that wait, and the box of `box`. The evaluator can still
        be used.
        """
        if self._pool:
            self._pool.close()

    def expose(self, kind: type, *attributes: str) -> None:
        """
        Lets objects of *kind*, and of its subclasses, go along as a copy of *attributes*.

        They are read when an evaluation begins, properties too. Methods do not go along.

        Raises:
            TypeError: *kind* is no type, or a name no str.
            ValueError: An attribute begins with an underscore: no snippet could read it.
        """
        _check_exposed(kind, attributes)
        if hidden := [name for name in attributes if name.startswith("_")]:
            raise ValueError(f"no snippet can read {', '.join(hidden)}: names with a leading underscore are refused")
        self._exposed[kind] = attributes

    @property
    def refusals(self) -> int:
        """
        How many conditions were False because they could not be decided.
        """
        return self._refusals

    def evaluate(self, code: str, context: Mapping[str, object] | None = None, *, mode: Mode = "expr") -> Any:
        """
        The value of the expression *code*; in mode `exec`, of `result` after its statements.

        Blocks; called inside an event loop it blocks the loop, so use `evaluate_async` there.

        Args:
            code: What to evaluate.
            context: Names and their values.
            mode: `expr` or `exec`.

        Raises:
            SafeEvalSyntaxError: *code* cannot be read.
            SafeEvalForbiddenError: It does what it may not.
            SafeEvalTimeoutError: The deadline passed, or too many functions were called.
            SafeEvalMemoryError: It takes more than `memory_bytes`.
            SafeEvalError: It raised.
            SetupError: No confined worker comes up; nothing was evaluated.
            NoBackendError: `box`: no backend is available.
            EnforcementError: `box`: none holds enough.
        """
        if mode not in ("expr", "exec"):
            raise ValueError(f"{mode!r} is no mode; use expr or exec")
        return self._run(mode, code, context)

    async def evaluate_async(self, code: str, context: Mapping[str, object] | None = None) -> Any:
        """
        The value of *code*, one expression or a body with `return`, that may await
        coroutine functions of the context and go over its async generators.

        Raises:
            SafeEvalError: As `evaluate`.
        """
        dialogue = self._dialogue("async", code, context)
        if self._pool:
            return await _workers.talk_async(dialogue, self._pool)
        return await _in_process.talk_async(dialogue)

    def condition(self, code: str, context: Mapping[str, object] | None = None, *, on_error: OnError = "false") -> bool:
        """
        Whether *code* is true.

        Args:
            code: An expression.
            context: Names and their values.
            on_error: `false` makes a condition that cannot be decided (wrong, refused, too
                slow, raising) False, counts it in `refusals` and records it; `raise` raises.

        Raises:
            SafeEvalError: As `evaluate`, where *on_error* is `raise`.
            SetupError: No confined worker comes up, whatever *on_error* is.
        """
        if on_error not in ("false", "raise"):
            raise ValueError(f"{on_error!r} is no answer to an error; use false or raise")
        try:
            return self._run("condition", code, context) is True
        except SafeEvalError as exc:
            if on_error == "raise":
                raise
            self._refusals += 1
            self._record(code, exc)
            return False

    def interpolate(self, template: str, context: Mapping[str, object] | None = None) -> str:
        """
        *template* with every `{{ expression | filter : format }}` replaced by its text.

        An unknown name raises, unless the field has `| default(…)`.

        Raises:
            SafeEvalError: As `evaluate`; line and column are those of the template.
        """
        text = self._run("template", template, context)
        if not isinstance(text, str):
            raise SafeEvalError("WorkerAnswer", "the worker gave no text")
        return text

    def enforcement(self) -> Enforcement:
        """
        What holds for evaluations of this evaluator, control by control. Starts the
        process workers are forked from, or the box, where there is none yet.

        Raises:
            SetupError: It does not come up.
            NoBackendError: `box`: no backend is available.
            EnforcementError: `box`: none holds enough.
        """
        return self._pool.enforcement() if self._pool else _in_process.ENFORCEMENT

    def _dialogue(self, mode: str, code: str, context: Mapping[str, object] | None) -> Dialogue:
        if type(code) is not str:
            code = plain_text(code, "what is evaluated is a str")
        longest = MAX_TEMPLATE if mode == "template" else MAX_SOURCE
        if len(code) > longest:  # nor does it cross: that alone could take longer than its deadline
            what = "template" if mode == "template" else "source"
            raise SafeEvalForbiddenError(what, f"{len(code)} characters; {longest} is the most")
        began, timeout = time.monotonic(), self._bounds.timeout
        try:
            given = prepared({} if context is None else context, self._functions, self._exposed, code, began + timeout)
        except LateError:
            raise SafeEvalTimeoutError("timeout", timeout) from None
        return Dialogue(mode, code, given, self._exposed, self._bounds, time.monotonic() - began)

    def _run(self, mode: str, code: str, context: Mapping[str, object] | None) -> Any:
        dialogue = self._dialogue(mode, code, context)
        return _workers.talk(dialogue, self._pool) if self._pool else _in_process.talk(dialogue)

    def _record(self, code: str, error: SafeEvalError) -> None:
        if self._audit is None:
            return
        fields = {"tool": "safe_eval_condition", "code": code, "outcome": "refused", "error": type(error).__name__}
        self._audit.write(AuditEvent("finished", uuid.uuid4().hex, time.time(), {**fields, "reason": str(error)}))


def _check_functions(functions: Iterable[tuple[object, object]]) -> None:
    for name, function in functions:
        if not isinstance(name, str) or not callable(function):
            raise TypeError(f"functions has {function!r} by the name {name!r}; it takes callables by names, each a str")


def _check_exposed(kind: object, attributes: Iterable[object]) -> None:
    if not isinstance(kind, type) or not all(isinstance(name, str) for name in attributes):
        raise TypeError("expose() takes a type and the names of attributes, each a str")


def available() -> str | None:
    """
    None where confined workers can be had here, and otherwise why not.
    """
    try:
        _workers.zygote().report()
    except SetupError as exc:
        return str(exc)
    return None
