"""
One evaluation: a request in, a reply out, on both sides of no boundary: in a worker, or
in the caller's process for `isolation="in-process"`.

Runs in the worker too: standard library and RestrictedPython only.
"""

from __future__ import annotations

from sandboxkit.evaluation._codec import CodecError, Encoder, decode, printable, printable_line
from sandboxkit.evaluation._language import (
    FILENAME,
    NAMED_TUPLES,
    ForbiddenError,
    HostCall,
    HostFunction,
    Module,
    Record,
    Refused,
    SourceError,
    compiled,
    is_one_call,
    namespace,
    shown,
)
from sandboxkit.evaluation._tables import MAX_TEMPLATE, OWN
from sandboxkit.evaluation._template import FILTERS, Field, TemplateError, split

TYPE_CHECKING = False  # as in typing, whose import is spared in the worker
if TYPE_CHECKING:
    import types
    from collections.abc import Callable
    from typing import Any

    Ask = Callable[[dict[str, object]], object]

__all__ = ["HostError", "LimitError", "Programs", "reply"]

CACHED = 512


class HostError(RuntimeError):
    """
    A function of the caller's failed; a snippet may catch it.
    """


class LimitError(BaseException):
    """
    A limit is passed; raised by what answers calls. No snippet can catch it.
    """


class Programs:
    """
    Compiled snippets and split templates, so that a worker which lives on compiles once.
    """

    __slots__ = ("_codes", "_templates")

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], types.CodeType] = {}
        self._templates: dict[str, list[str | Field]] = {}

    def prepare(self) -> None:
        """
        Nothing: what was compiled can be used again.
        """

    def code(self, source: str, mode: str) -> types.CodeType:
        """
        The code of *source*.
        """
        found = self._codes.get((source, mode))
        if found is None:
            found = compiled(source, mode)
            if len(self._codes) >= CACHED:
                self._codes.clear()
            self._codes[source, mode] = found
        return found

    def arguments(self, text: str) -> types.CodeType:
        """
        The code that gives the arguments of a filter, as they stand between its brackets:
        a tuple of those by position and a dict of those by name.
        """
        found = self._codes.get((text, "arguments"))
        if found is None:
            if not is_one_call(f"f({text})"):
                raise SourceError("the arguments of a filter", text=text[:200])
            found = self.code(f"(lambda *given, **named: (given, named))({text})", "expr")
            self._codes[text, "arguments"] = found
        return found

    def template(self, text: str) -> list[str | Field]:
        """
        The parts of the template *text*.
        """
        found = self._templates.get(text)
        if found is None:
            if len(text) > MAX_TEMPLATE:
                raise ForbiddenError("template", f"{len(text)} characters; {MAX_TEMPLATE} is the most")
            found = split(text)
            if len(self._templates) >= CACHED:
                self._templates.clear()
            self._templates[text] = found
        return found


def reply(request: dict[str, Any], ask: Ask, programs: Programs) -> dict[str, object]:
    """
    What came of *request*: `{"value": …}`, or `{"error": kind, …}`.

    Args:
        request: `mode`, `code`, `values` by name, `functions` (name to kind), `limit` of
            the result in bytes.
        ask: Puts a call of the snippet to the caller.
        programs: What is compiled already.

    Raises:
        LimitError: As *ask* did. Whatever else is no Exception ends the worker: a snippet
            has no name for any.
    """
    try:
        values = decode(request["values"], _special)
        for name, kind in request["functions"].items():
            values[name] = HostFunction(name, kind, _asked(ask, request["limit"]))
        value = _RUN[request["mode"]](request["code"], values, ask, programs, request["limit"])
        return {"value": Encoder(request["limit"], _foreign).encode(value)}
    except MemoryError:
        return {"error": "memory"}
    except Exception as error:
        return _failure(error, request)


def _special(tag: str, raw: dict[str, Any]) -> object:
    if tag == "$refused":
        return Refused(raw[tag])
    if tag == "$record":
        return Record(raw[tag], decode(raw["fields"], _special))
    if tag == "$module":
        return Module(raw[tag])
    if tag == "$own":
        return OWN[raw[tag]]
    raise CodecError(f"a value of the unknown kind {tag[:40]!r}")


def _foreign(encoder: Encoder, value: Any, depth: int) -> object:
    kind = type(value)
    if kind is Record:
        return encoder.mapping(value.fields, depth + 1)
    if kind is Refused:
        value.refuse()
    if kind in NAMED_TUPLES:
        return encoder.encode(tuple(value), depth)
    name = value.__name__ if kind is type else kind.__name__
    lazy = "; make a list of it" if hasattr(kind, "__next__") else ""
    if hasattr(kind, "__await__") or hasattr(kind, "__anext__"):
        name, lazy = "call nobody awaited", "; await it, or go over it with async for, in safe_eval_async()"
    raise ForbiddenError(f"a {name} as a result or argument", f"only plain values leave a snippet{lazy}")


def _asked(ask: Ask, limit: int) -> Ask:
    def call(message: dict[str, object]) -> object:
        encoder = Encoder(limit, _foreign)
        if "call" in message:
            arguments, named = message["arguments"], message["named"]
            message = {**message, "arguments": encoder.encode(arguments), "named": encoder.encode(named)}
        answer: Any = ask(message)
        if "raised" in answer:
            raise HostError(answer["raised"])
        return decode(answer["value"], _special)

    return call


# -- modes -------------------------------------------------------------------------------


def _expression(code: str, values: dict[str, object], ask: Ask, programs: Programs, limit: int) -> object:
    return eval(programs.code(code, "expr"), namespace(values))


def _condition(code: str, values: dict[str, object], ask: Ask, programs: Programs, limit: int) -> object:
    return bool(_expression(code, values, ask, programs, limit))


def _statements(code: str, values: dict[str, object], ask: Ask, programs: Programs, limit: int) -> object:
    names = namespace(values)
    exec(programs.code(code, "exec"), names)
    return names.get("result")


def _coroutine(code: str, values: dict[str, object], ask: Ask, programs: Programs, limit: int) -> object:
    made: dict[str, Any] = {}
    exec(programs.code(code, "async"), namespace(values), made)
    coroutine, answer, call = made["main"](), None, _asked(ask, limit)
    failure: Exception | None = None
    # No event loop exists here, so none can be reached: what a snippet awaits is a
    # message, and this is all that ever resumes it.
    while True:
        try:
            wanted = coroutine.send(answer) if failure is None else coroutine.throw(failure)
        except StopIteration as end:
            return end.value
        if type(wanted) is not HostCall:
            raise ForbiddenError(
                f"awaiting a {type(wanted).__name__}", "only calls of the caller's functions can be awaited"
            )
        answer = failure = None
        try:
            answer = call(wanted.message)
        except Exception as error:
            failure = error


def _template(code: str, values: dict[str, object], ask: Ask, programs: Programs, limit: int) -> object:
    names = namespace(values)
    written, size = [], 0
    for part in programs.template(code):
        text = part if isinstance(part, str) else _filled(part, names, code, programs)
        size += len(text)
        if size > limit:
            raise CodecError(f"larger than {limit} bytes")
        written.append(text)
    return "".join(written)


def _filled(field: Field, names: dict[str, Any], template: str, programs: Programs) -> str:
    try:
        return _text_of(field, names, programs)
    except SourceError as error:
        raise _in_template(error, field, template) from None
    except ForbiddenError as error:
        error.line, error.column = _place(template, field.position)
        raise
    except Exception as error:
        error.__notes__ = [str(_place(template, field.position)[0])]
        raise


def _in_template(error: SourceError, field: Field, template: str) -> SourceError:
    """
    *error* of the field's expression, at its place in the template.
    """
    at = field.position
    if error.line is not None and error.column is not None:
        before = "".join(line + "\n" for line in field.expression.split("\n")[: error.line - 1])
        at = template.index(field.expression, at + 2) + len(before) + error.column - 1
    line, column = _place(template, at)
    return SourceError(error.problem, line, column + 1, template.split("\n")[line - 1])


def _text_of(field: Field, names: dict[str, Any], programs: Programs) -> str:
    try:
        value: Any = eval(programs.code(field.expression, "field"), names)
    except (AttributeError, KeyError, IndexError, NameError):
        if not field.has_default:
            raise
        value = None
    for name, arguments in field.filters:
        function = names.get(name) if name not in FILTERS or type(names.get(name)) is HostFunction else FILTERS[name]
        if type(function) is not HostFunction and name not in FILTERS:
            raise ForbiddenError(
                f"the filter {name[:60]!r}", f"there is none; there are {', '.join(FILTERS)} and functions you declare"
            )
        given, named = (), {}
        if arguments:
            given, named = eval(programs.arguments(arguments), names)
        value = function(value, *given, **named)  # type: ignore[misc]  # checked above
    return shown(value) if field.spec is None else format(_formattable(value), field.spec)


def _formattable(value: object) -> object:
    shown(value)
    return value


def _place(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, position - before.rfind("\n") - 1


_RUN: dict[str, Callable[[str, dict[str, object], Ask, Programs, int], object]] = {
    "expr": _expression,
    "condition": _condition,
    "exec": _statements,
    "async": _coroutine,
    "template": _template,
}


# -- failures ----------------------------------------------------------------------------


def _failure(error: Exception, request: dict[str, Any]) -> dict[str, object]:
    if isinstance(error, ForbiddenError):
        found = {"error": "forbidden", "what": printable(error.what), "why": printable(error.why)}
        return {**found, "line": error.line or _line(error), "column": error.column}
    if isinstance(error, SourceError):
        found = {"error": "syntax", "text": printable(error.problem), "source": printable_line(error.text)}
        return {**found, "line": error.line, "column": error.column}
    if isinstance(error, TemplateError):
        line, column = _place(request["code"], error.position)
        source = request["code"].split("\n")[line - 1]
        return {
            "error": "syntax",
            "text": printable(error.problem),
            "source": printable_line(source),
            "line": line,
            "column": column + 1,
        }
    if isinstance(error, CodecError):
        return {
            "error": "forbidden",
            "what": "the result, or what a function was given",
            "why": printable(str(error)),
            "line": None,
            "column": None,
        }
    if isinstance(error, HostError):
        return {"error": "host", "text": printable(str(error)), "line": _line(error)}
    return {
        "error": "raised",
        "type": printable(type(error).__name__),
        "text": printable(_text(error)),
        "line": _line(error),
    }


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _line(error: BaseException) -> int | None:
    """
    The snippet's line that raised *error*, the innermost.
    """
    for note in getattr(error, "__notes__", ()):
        return int(note)
    line, traceback = None, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == FILENAME:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
