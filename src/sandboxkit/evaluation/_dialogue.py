"""
One evaluation as the caller sees it: a request goes out, calls come in, an answer ends
it. Sans I/O, so that the blocking and the async door share every decision.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandboxkit.errors import (
    SafeEvalError,
    SafeEvalForbiddenError,
    SafeEvalMemoryError,
    SafeEvalSyntaxError,
    SafeEvalTimeoutError,
)
from sandboxkit.evaluation._codec import CodecError, LateError, decode, loads, pack
from sandboxkit.evaluation._context import encoded, encoder
from sandboxkit.evaluation._tables import MAX_TEMPLATE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from sandboxkit.evaluation._context import Exposed, Prepared

__all__ = ["Bounds", "Call", "Dialogue", "check_limit"]


HINTS = {
    "AttributeError": "values have the attributes of a table by type; expose() those of a type of yours",
    "HostError": "what it raised stays with you: catch or log it there",
    "NameError": "hand it in by the context or functions=",
    "RecursionError": "a snippet has the stack of one expression: loop instead",
    "ReferenceError": "hand it in by the context or functions=",
}
"""By the name of an exception of a snippet's, what helps its author or whoever calls."""
_LARGE = 1 << 16
_RAISED = " raised "
_OR_DEFAULT = "hand it in, or add | default(...) to the field"
TEMPLATE_HINTS = dict.fromkeys(("AttributeError", "IndexError", "KeyError", "NameError", "ReferenceError"), _OR_DEFAULT)


_LIMITS: dict[str, tuple[tuple[type, ...], int]] = {"timeout": ((int, float), 1_000_000)}
_WHOLE = ((int,), 1 << 60)


def check_limit(name: str, value: Any) -> None:
    """
    Whether *value* can be the limit *name*.

    Raises:
        TypeError: It is no number, or a whole one is needed.
        ValueError: It is not greater than 0, or beyond what a timer and the kernel hold.
    """
    kinds, most = _LIMITS.get(name, _WHOLE)
    if not issubclass(type(value), kinds):
        raise TypeError(f"{name} is {value!r}; it must be {' or '.join(kind.__name__ for kind in kinds)}")
    if not value > 0:
        raise ValueError(f"{name} is {value!r}; it must be greater than 0")
    if value > most:
        raise ValueError(f"{name} is too large; it must be at most {most}")


@dataclass(frozen=True, slots=True)
class Bounds:
    """
    What one evaluation may take.

    Attributes:
        timeout: Seconds from the call to its result, waiting for functions included.
        memory_bytes: Bytes of memory a worker may add to what it has when it starts.
        max_result_bytes: About how large a result is, and what functions give and are given.
        max_host_calls: How often functions of the caller's may be called.
    """

    timeout: float
    memory_bytes: int
    max_result_bytes: int
    max_host_calls: int

    def __post_init__(self) -> None:
        for name in ("timeout", "memory_bytes", "max_result_bytes", "max_host_calls"):
            check_limit(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Call:
    """
    To do: call *function* and hand in (True, value) or (False, exception). An awaitable is
    awaited where *is_async*.
    """

    function: Callable[..., Any]
    arguments: list[Any]
    named: dict[str, Any]
    is_async: bool


class Dialogue:
    """
    One evaluation.

    Args:
        mode: `expr`, `condition`, `exec`, `async` or `template`.
        code: What to evaluate.
        context: What goes along.
        exposed: The types whose objects may be given back by functions.
        bounds: What it may take.
        spent: How many seconds of its timeout are gone already.

    Attributes:
        deadline: When it has to be over, in time.monotonic(); `begin` sets it.
        is_over: Whether it was answered, by a value or a failure.
        streams: The caller's async generators that are being read, by number.
    """

    __slots__ = ("_calls", "_exposed", "_spent", "bounds", "context", "deadline", "is_over", "request", "streams")

    def __init__(
        self, mode: str, code: str, context: Prepared, exposed: Exposed, bounds: Bounds, spent: float = 0.0
    ) -> None:
        self.context = context
        self.bounds = bounds
        self.request = {
            "mode": mode,
            "code": code,
            "values": context.values,
            "functions": context.kinds,
            "limit": bounds.max_result_bytes,
        }
        self.streams: dict[int, AsyncIterator[Any]] = {}
        self.deadline = 0.0
        self.is_over = False
        self._exposed = exposed
        self._spent = spent
        self._calls = 0

    def begin(self) -> None:
        """
        Starts its clock: a worker can be had now.
        """
        self.deadline = time.monotonic() + self.bounds.timeout - self._spent

    def steps(self) -> Generator[bytes | Call, Any, Any]:
        """
        What to do, one after the other: a message to send, after which the one that comes
        back is handed in, or a call. Returns the value.

        Raises:
            SafeEvalError: As the answer says.
        """
        message = self._message((yield pack(self.request)))
        while True:
            if "call" not in message and "next" not in message:
                self.is_over = True
                return self.outcome(message)
            answer = yield from self.answers(message)
            message = self._message((yield pack(answer)))

    def _message(self, data: bytes) -> dict[str, Any]:
        try:
            message = loads(data)
        except CodecError as error:
            raise _nonsense(str(error)) from None
        if not isinstance(message, dict):
            raise _nonsense("it is no message")
        # An encoder counts 16 bytes a value, which has five parts at most: made of empty lists,
        # a message of the permitted length would have twenty times as many.
        if len(data) > _LARGE and not _is_within(self.bounds.max_result_bytes // 3 + _LARGE, message):
            raise _nonsense("it has more parts than it may")
        return message

    def answers(self, message: dict[str, Any]) -> Generator[Call, Any, dict[str, object]]:
        """
        The answer to a call of the snippet.
        """
        self._calls += 1
        if self._calls > self.bounds.max_host_calls:
            raise SafeEvalTimeoutError("max_host_calls", self.bounds.max_host_calls)
        if "next" in message:
            return (yield from self._next(message["next"]))
        name = message["call"]
        function = self.context.table.get(name) if isinstance(name, str) else None
        try:
            arguments, named = decode(message.get("arguments")), decode(message.get("named"))
        except CodecError as error:
            raise _nonsense(str(error)) from None
        if function is None or not isinstance(arguments, list) or not isinstance(named, dict):
            raise _nonsense("it calls what it was not given")
        kind = self.context.kinds[name]
        done, value = yield Call(function, arguments, named, kind == "coroutine")
        if not done:
            return _raised(name, value)
        if kind == "stream":
            self.streams[self._calls] = value
            return {"value": self._calls}
        return self._given(name, value)

    def _next(self, number: object) -> Generator[Call, Any, dict[str, object]]:
        stream = self.streams.get(number) if isinstance(number, int) else None
        if stream is None:
            raise _nonsense("it reads what it did not begin")
        done, value = yield Call(stream.__anext__, [], {}, True)
        if done:
            return self._given("an async generator", [value])
        del self.streams[number]  # type: ignore[arg-type]  # an int, since it was found
        return {"value": None} if isinstance(value, StopAsyncIteration) else _raised("an async generator", value)

    def _given(self, name: str, value: object) -> dict[str, object]:
        made = encoder(self.bounds.max_result_bytes, self._exposed, self.deadline)
        try:
            return {"value": encoded(made, value)}
        except LateError:
            raise self.late() from None
        except CodecError as error:
            return {"raised": f"what {name} gave cannot be taken along: {error}"}

    def outcome(self, message: dict[str, Any]) -> Any:
        """
        The value a reply holds.

        Raises:
            SafeEvalError: It holds a failure.
        """
        try:
            if "value" in message:
                return decode(message["value"])
            raise self._failure(message)
        except (CodecError, KeyError, TypeError, ValueError) as error:
            raise _nonsense(type(error).__name__) from None

    def _failure(self, message: dict[str, Any]) -> SafeEvalError:
        kind = message["error"]
        line, column = _place(message.get("line")), _place(message.get("column"))
        if kind == "memory":
            return SafeEvalMemoryError(self.bounds.memory_bytes)
        if kind == "forbidden":
            return SafeEvalForbiddenError(clean(message["what"]), clean(message["why"]), line, column)
        if kind == "syntax":
            return SafeEvalSyntaxError(clean(message["text"]), line, column, clean(message["source"]))
        if kind == "host":
            text = clean(message["text"])
            return SafeEvalError("HostError", text, line, HINTS["HostError"] if _RAISED in text else "")
        found = clean(message["type"])
        hints = {**HINTS, **TEMPLATE_HINTS} if self.request["mode"] == "template" else HINTS
        return SafeEvalError(found, clean(message["text"]), line, hints.get(found, ""))

    def late(self) -> SafeEvalTimeoutError:
        """
        The error that says its time is over.
        """
        return SafeEvalTimeoutError("timeout", self.bounds.timeout)

    def unclosed(self, error: Exception) -> SafeEvalError:
        """
        The error that says that an async generator of the caller's raised *error* when it was closed.
        """
        text = f"an async generator{_RAISED}{type(error).__name__} when it was closed"
        return SafeEvalError("HostError", text, None, HINTS["HostError"])

    def gone(self) -> SafeEvalError:
        """
        The error that says its worker ended without an answer.
        """
        if time.monotonic() >= self.deadline:
            return self.late()
        return SafeEvalError("WorkerEnded", "the worker ended before it answered, as it does when the stack overflows")


def _place(number: object) -> int | None:
    return number if type(number) is int and 0 <= number <= MAX_TEMPLATE else None


def clean(text: object) -> str:
    """
    A worker's text, made safe to show again: it may not be ours that wrote it.
    """
    return "".join(char if char.isprintable() else "?" for char in str(text)[:400])


def _is_within(most: int, message: dict[str, Any]) -> bool:
    """
    Whether *message* has no more parts than *most*.
    """
    waiting: list[Any] = [message]
    while waiting and most >= 0:
        part = waiting.pop()
        most -= len(part)
        waiting += [item for item in (part.values() if type(part) is dict else part) if type(item) in (dict, list)]
    return most >= 0


def _raised(name: str, error: BaseException) -> dict[str, object]:
    # Its text may hold what the snippet is not to see.
    return {"raised": f"{name}{_RAISED}{type(error).__name__}"}


def _nonsense(what: str) -> SafeEvalError:
    return SafeEvalError("WorkerAnswer", f"the worker does not answer as it should: {what}")
