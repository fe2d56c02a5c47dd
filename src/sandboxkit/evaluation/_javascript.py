"""
Evaluation of JavaScript in a worker: quickjs-ng, a context for each evaluation.

There is no language gate here: the engine's own realm has no file, no process, no loader of
modules and no object of ours in it, and what an error in its memory handling could reach is
the worker, which the kernel confines. Everything crosses as JSON text.

Runs in the worker only: standard library and the extension module of quickjs-ng. Not its
package, which starts a thread when it is imported.

Source: https://github.com/genotrance/quickjs-ng; ECMA-262.
"""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path

import _quickjs  # type: ignore[import-not-found]  # the extension module, without stubs

from sandboxkit.evaluation._codec import CodecError, Encoder, decode, printable
from sandboxkit.evaluation._tables import MAX_SOURCE, MAX_TEMPLATE
from sandboxkit.evaluation._template import FILTERS, Field, TemplateError, split

TYPE_CHECKING = False  # as in typing, whose import is spared in the worker
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Ask = Callable[[dict[str, object]], object]

__all__ = ["Programs", "reply"]

_loader = __spec__.loader
PRELUDE = "\n" * MAX_SOURCE + _loader.get_data(str(Path(__file__).with_name("_prelude.js"))).decode()  # type: ignore[union-attr]  # what loads ours has it
"""
The engine knows one name of a file only, so that it is by its lines that an error is a
snippet's. By its loader: in a box there is no file of ours.
"""
SAFE_INTEGER = 1 << 53
"""From here on a Number does not hold every integer, and a BigInt does."""
REFUSAL = "the result, or what a function was given"


class Realm:
    """
    A context that ran the prelude and nothing else yet.
    """

    def __init__(self) -> None:
        self.context = _quickjs.Context()
        self.context.add_callable("__ask", self._asked)
        self.speak: Callable[[str], str] = self.context.eval(PRELUDE)
        self.ask: Callable[[str], str] | None = None

    def _asked(self, text: str) -> str:
        return json.dumps({"raised": "nobody is there"}) if self.ask is None else self.ask(text)


class Programs:
    """
    The realm of the next evaluation, made before it is needed: that takes longer than most
    evaluations. Each is used once.
    """

    def __init__(self) -> None:
        self._used: Realm | None = None
        self._next: Realm | None = Realm()

    def take(self) -> Realm:
        """
        A realm nobody used.
        """
        realm, self._next = self._next or Realm(), None
        self._used = realm
        return realm

    def prepare(self) -> None:
        """
        Lets go of the used realm and makes the next; called while nobody waits.
        """
        if self._used is not None:
            self._used.ask = None
        self._used = None
        self._next = self._next or Realm()


class Failure(Exception):  # noqa: N818 - the answer itself, on its way out
    """
    What the engine said went wrong, as it is answered to the caller.
    """

    def __init__(self, answer: dict[str, object]) -> None:
        super().__init__()
        self.answer = answer


class Refused:
    """
    Something of the caller's that does not go along.
    """

    def __init__(self, what: str) -> None:
        self.what = what


class Engine:
    """
    One realm, with the names and functions of one request.
    """

    def __init__(self, request: dict[str, Any], ask: Ask, realm: Realm) -> None:
        self.limit: int = request["limit"]
        self.code: str = request["code"]
        self._ask = ask
        self._realm = realm
        realm.ask = self._asked
        values = {name: to_js(decode(form, special)) for name, form in request["values"].items()}
        self._found({"do": "set", "values": values, "functions": request["functions"]})

    def run(self, code: str, mode: str, shape: str = "value", line: int = 0) -> Any:
        """
        The value of *code*.

        Args:
            code: What to run.
            mode: `expr`, `exec` or `arguments`.
            shape: `value`, `field` (which may not be undefined), `text` or `truth`.
            line: How many lines stand above it.

        Raises:
            Failure: It gave none.
        """
        return from_js(self._found({"do": "run", "code": _short(code), "mode": mode, "as": shape}, line)["value"])

    def wait(self, code: str) -> Any:
        """
        The value of *code*, which may await.

        Raises:
            Failure: It gave none.
        """
        self._found({"do": "begin", "code": _short(code)})
        while self._realm.context.execute_pending_job():
            pass
        return from_js(self._found({"do": "end"})["value"])

    def call(self, name: str, arguments: list[Any]) -> Any:
        """
        What the caller's function *name* gives.

        Raises:
            Failure: It raised.
        """
        encoder = Encoder(self.limit, foreign)
        answer: Any = self._ask({"call": name, "arguments": encoder.encode(arguments), "named": encoder.encode({})})
        if "raised" in answer:
            raise Failure({"error": "host", "text": printable(answer["raised"]), "line": None})
        return decode(answer["value"], special)

    def _found(self, message: dict[str, object], line: int = 0) -> dict[str, Any]:
        answer = self._do(message)
        if "refused" in answer:
            raise Failure(forbidden(answer["refused"], answer["why"]))
        if "never" in answer:
            raise Failure(forbidden("awaiting what never comes", "only the caller's functions take time"))
        for phase in ("syntax", "raised"):
            if phase in answer:
                raise Failure(self._failed(phase, answer, line))
        return answer

    def _failed(self, phase: str, answer: dict[str, Any], above: int) -> dict[str, object]:
        name, text = printable(str(answer[phase])), printable(str(answer["message"]))
        line = answer["line"] + above if isinstance(answer["line"], int) else None
        if name == "InternalError" and text == "out of memory":
            return {"error": "memory"}
        if name == "HostError":
            return {"error": "host", "text": text, "line": line}
        if phase == "syntax":
            lines = self.code.split("\n")
            line = min(line or 1, len(lines))
            return {"error": "syntax", "text": text, "source": printable(lines[line - 1]), "line": line, "column": None}
        return {"error": "raised", "type": name, "text": text, "line": line}

    def _do(self, message: dict[str, object]) -> dict[str, Any]:
        try:
            answer = self._realm.speak(json.dumps({**message, "room": self.limit}))
        except _quickjs.JSException as error:  # it could not even say what went wrong
            if "out of memory" in str(error):
                raise MemoryError from None
            raise Failure(
                {"error": "raised", "type": "InternalError", "text": printable(str(error)), "line": None}
            ) from None
        found: dict[str, Any] = json.loads(answer)
        return found

    def _asked(self, text: str) -> str:
        message = json.loads(text)
        try:
            if "call" in message:
                encoder = Encoder(self.limit, foreign)
                given = encoder.encode([from_js(item) for item in message["arguments"]])
                message = {"call": message["call"], "arguments": given, "named": encoder.encode({})}
            answer: Any = self._ask(message)
            if "raised" in answer:
                return json.dumps({"raised": answer["raised"]})
            return json.dumps({"value": to_js(decode(answer["value"], special))})
        except CodecError as error:
            return json.dumps({"refused": REFUSAL, "why": str(error)})


def _short(code: str) -> str:
    if len(code) > MAX_SOURCE:
        raise Failure(forbidden("source", f"{len(code)} characters; {MAX_SOURCE} is the most"))
    return code


def forbidden(what: object, why: object) -> dict[str, object]:
    """
    The answer that says what is not allowed.
    """
    return {
        "error": "forbidden",
        "what": printable(str(what)),
        "why": printable(str(why)),
        "line": None,
        "column": None,
    }


# -- values --------------------------------------------------------------------------------


def special(tag: str, raw: dict[str, Any]) -> object:
    """
    What stands for something of the caller's that is no plain value.
    """
    if tag == "$refused":
        return Refused(str(raw[tag]))
    if tag == "$record":
        return decode(raw["fields"], special)
    return Refused(f"{raw[tag]}, which is Python's own")


def foreign(_: Encoder, value: object, __: int) -> object:
    """
    Refuses what is no plain value.
    """
    raise CodecError(f"a {type(value).__name__} is no plain value")


def to_js(value: Any) -> object:
    """
    *value* as the prelude takes it.
    """
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return (
            value
            if -SAFE_INTEGER < value < SAFE_INTEGER
            else {"$": "big", "v": hex(value) if value > 0 else str(value)}
        )
    if kind is float:
        return (
            value
            if value - value == 0
            else {"$": "number", "v": str(value).replace("inf", "Infinity").replace("nan", "NaN")}
        )
    if kind is decimal.Decimal:
        return to_js(float(value))
    if kind in (list, tuple):
        return [to_js(item) for item in value]
    if kind in (set, frozenset):
        return {"$": "set", "v": [to_js(item) for item in value]}
    if kind is dict:
        return _mapping(value)
    return _other(value)


def _mapping(value: dict[Any, Any]) -> object:
    if all(type(key) is str and key != "$" for key in value):
        return {key: to_js(item) for key, item in value.items()}
    return {"$": "pairs", "v": [[to_js(key), to_js(item)] for key, item in value.items()]}


def _other(value: Any) -> object:
    if isinstance(value, datetime.datetime):
        return {"$": "date", "v": (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).isoformat()}
    if isinstance(value, datetime.date):
        return {"$": "date", "v": value.isoformat()}
    if isinstance(value, datetime.timedelta):
        return value / datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return {"$": "bytes", "v": list(value)}
    return {"$": "refused", "v": value.what if isinstance(value, Refused) else f"a {type(value).__name__}"}


def from_js(form: Any) -> Any:
    """
    The value the prelude gave as *form*.
    """
    if isinstance(form, list):
        return [from_js(item) for item in form]
    if not isinstance(form, dict):
        return form
    if "$" not in form:
        return {key: from_js(item) for key, item in form.items()}
    return _READERS[form["$"]](form["v"])


def _pairs(pairs: Any) -> object:
    try:
        return {from_js(key): from_js(item) for key, item in pairs}
    except TypeError:
        raise CodecError("a Map with keys that are lists or objects") from None


def _date(text: str) -> object:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        raise CodecError("a Date outside of the years 1 to 9999") from None


_READERS: dict[str, Callable[[Any], object]] = {
    "big": lambda text: int(text, 16),
    "date": _date,
    "number": float,
    "bytes": bytes,
    "pairs": _pairs,
}


# -- modes -----------------------------------------------------------------------------------


def reply(request: dict[str, Any], ask: Ask, programs: Programs) -> dict[str, object]:
    """
    What came of *request*, as `_evaluate.reply` has it for Python.
    """
    try:
        value = _value(Engine(request, ask, programs.take()), request)
        return {"value": Encoder(request["limit"], foreign).encode(value)}
    except Failure as failure:
        return failure.answer
    except TemplateError as error:
        line, source = _place(request["code"], error.position)
        return {"error": "syntax", "text": printable(error.problem), "source": source, "line": line, "column": None}
    except CodecError as error:
        return forbidden(REFUSAL, error)
    except MemoryError:
        return {"error": "memory"}
    except Exception as error:  # noqa: BLE001 - a filter's, or a format's
        return {"error": "raised", "type": type(error).__name__, "text": printable(str(error)), "line": None}


def _value(engine: Engine, request: dict[str, Any]) -> Any:
    match request["mode"]:
        case "template":
            return _template(engine, request)
        case "async":
            return engine.wait(engine.code)
        case "condition":
            return engine.run(engine.code, "expr", "truth")
        case mode:
            return engine.run(engine.code, mode)


def _place(template: str, position: int) -> tuple[int, str]:
    line = template[:position].count("\n")
    return line + 1, printable(template.split("\n")[line])


def _template(engine: Engine, request: dict[str, Any]) -> str:
    template: str = request["code"]
    if len(template) > MAX_TEMPLATE:
        raise Failure(forbidden("template", f"{len(template)} characters; {MAX_TEMPLATE} is the most"))
    written, size = [], 0
    for part in split(template, is_javascript=True):
        text = part if isinstance(part, str) else _placed(engine, part, request)
        size += len(text)
        if size > engine.limit:
            raise CodecError(f"larger than {engine.limit} bytes")
        written.append(text)
    return "".join(written)


def _placed(engine: Engine, field: Field, request: dict[str, Any]) -> str:
    above = request["code"][: field.position].count("\n")
    try:
        return _filled(engine, field, request, above)
    except Failure as failure:
        if failure.answer.get("line", 0) is None:
            failure.answer["line"] = above + 1
        raise


def _filled(engine: Engine, field: Field, request: dict[str, Any], above: int) -> str:
    if not field.filters and field.spec is None:
        return str(engine.run(field.expression, "expr", "text", above))
    try:
        value = engine.run(field.expression, "expr", "field", above)
    except Failure as failure:
        if not field.has_default or failure.answer.get("type") not in ("ReferenceError", "TypeError"):
            raise
        value = None
    for name, arguments in field.filters:
        given = engine.run(arguments, "arguments", line=above)
        value = _filtered(engine, name, [value, *given], request["functions"])
    return _text(value) if field.spec is None else format(value, field.spec)


def _filtered(engine: Engine, name: str, given: list[Any], functions: dict[str, str]) -> Any:
    if name in functions:
        return engine.call(name, given)
    if name not in FILTERS:
        why = f"there is none; there are {', '.join(FILTERS)} and functions you declare"
        raise Failure(forbidden(f"the filter {name[:60]!r}", why))
    return FILTERS[name](*given)


def _text(value: Any) -> str:
    if isinstance(value, (bool, list, dict)) or value is None:
        return json.dumps(value, ensure_ascii=False)
    return str(value)
