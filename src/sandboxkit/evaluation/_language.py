"""
The language gate: RestrictedPython's rewriting of the syntax tree, and the guards the
rewritten code calls.

RestrictedPython refuses syntax and names and routes attributes, items, iteration and
writes to guards. What it leaves open is closed here: attributes by type instead of by
name, no class, import, global or bare except, awaiting only what this module makes, and
`str.format` without attribute access. It is the first wall and not the only one: the
code runs in a worker the kernel confines.

Runs in the worker too: standard library and RestrictedPython only.

Source: RestrictedPython's documentation, "Usage in frameworks"; PEP 492.
"""

from __future__ import annotations

import ast
import datetime
import decimal
import operator
import re
import time
import types
from _string import (  # type: ignore[import-not-found]  # what string.Formatter is made of; no stubs
    formatter_field_name_split,
    formatter_parser,
)

from RestrictedPython.Guards import guarded_iter_unpack_sequence, guarded_unpack_sequence
from RestrictedPython.transformer import RestrictingNodeTransformer, copy_locations

from sandboxkit.evaluation._tables import ATTRIBUTES, BUILTINS, CLASS_ATTRIBUTES, MAX_SOURCE, MODULES, STANDARD_NAMES

TYPE_CHECKING = False  # as in typing, whose import is spared in the worker
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any, NoReturn

__all__ = [
    "MAX_DEPTH",
    "MAX_NODES",
    "NAMED_TUPLES",
    "ForbiddenError",
    "HostCall",
    "HostFunction",
    "HostStream",
    "Module",
    "Record",
    "Refused",
    "SourceError",
    "compiled",
    "is_one_call",
    "namespace",
    "shown",
]

MAX_NODES = 5_000
MAX_DEPTH = 80
FILENAME = "<snippet>"


class ForbiddenError(Exception):
    """
    The snippet does what it may not. Its arguments: what, why, line and column or None.
    """

    def __init__(self, what: str, why: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(f"{what}: {why}")
        self.what, self.why, self.line, self.column = what, why, line, column


class SourceError(Exception):
    """
    The source is no Python. Its arguments: the problem, line, column (from 1), the line's text.
    """

    def __init__(self, problem: str, line: int | None = None, column: int | None = None, text: str = "") -> None:
        super().__init__(problem)
        self.problem, self.line, self.column, self.text = problem, line, column, text


# -- what stands in a snippet for something of the caller's ------------------------------


class Refused:
    """
    Something of the context that did not come along. Every use of it says so.
    """

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what

    def refuse(self, *_: object, **__: object) -> NoReturn:
        """
        Raises ForbiddenError.
        """
        raise ForbiddenError(
            self.what, "it stays outside; hand in plain values within the limits, functions=, or expose() its type"
        )

    __hash__ = refuse


for _name in (
    "call getitem iter len bool str repr format eq ne lt le gt ge contains int float index neg pos invert abs round "
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow and rand or ror xor rxor "
    "lshift rlshift rshift rrshift matmul rmatmul enter exit await aiter anext reversed"
).split():
    setattr(Refused, f"__{_name}__", Refused.refuse)


class Record:
    """
    A copy of an exposed object: its declared attributes, by value.
    """

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: dict[str, object]) -> None:
        self.name = name
        self.fields = fields

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __eq__(self, other: object) -> bool:
        return type(other) is Record and (self.name, self.fields) == (other.name, other.fields)

    __hash__ = None  # type: ignore[assignment]  # as of a dict


class Module:
    """
    A module of the worker's own, with what the table lists.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<module {self.name}>"


class HostCall:
    """
    A call of the caller's coroutine function: it can be awaited, once, and nothing else.
    """

    __slots__ = ("message",)

    def __init__(self, message: dict[str, object]) -> None:
        self.message = message

    def __await__(self) -> Generator[HostCall, object, object]:
        return (yield self)


class HostStream:
    """
    A call of the caller's async generator function: `async for` goes over it.
    """

    __slots__ = ("begin", "handle")

    def __init__(self, begin: dict[str, object]) -> None:
        self.begin = begin
        self.handle: object = None

    def __aiter__(self) -> HostStream:
        return self

    async def __anext__(self) -> object:
        if self.handle is None:
            self.handle = await HostCall(self.begin)
        item = await HostCall({"next": self.handle})
        if type(item) is not list or len(item) != 1:
            raise StopAsyncIteration
        return item[0]


class HostFunction:
    """
    A function of the caller's: calling it asks the caller, with values by copy.
    """

    __slots__ = ("ask", "kind", "name")

    def __init__(self, name: str, kind: str, ask: Callable[[dict[str, object]], object]) -> None:
        self.name = name
        self.kind = kind
        self.ask = ask

    def __call__(self, /, *arguments: object, **named: object) -> object:
        message: dict[str, object] = {"call": self.name, "arguments": list(arguments), "named": named}
        if self.kind == "plain":
            return self.ask(message)
        return HostCall(message) if self.kind == "coroutine" else HostStream(message)

    def __repr__(self) -> str:
        return f"<function {self.name}>"


# -- guards ------------------------------------------------------------------------------


def _attribute(value: Any, name: str) -> object:
    kind = type(value)
    allowed = ATTRIBUTES.get(kind)
    if allowed is not None and name in allowed:
        return _FORMATTERS[name](value) if kind is str and name in _FORMATTERS else getattr(value, name)
    if kind is dict and name in value:
        return value[name]
    if kind is Record and name in value.fields:
        return value.fields[name]
    if kind is Module and name in MODULES[value.name]:
        return MODULES[value.name][name]
    if kind is type and name in CLASS_ATTRIBUTES.get(value, ()):
        return _UNBOUND[name] if value is str and name in _UNBOUND else getattr(value, name)
    if kind is Refused:
        value.refuse()
    shown = value.name if kind in (Record, Module) else value.__name__ if kind is type else kind.__name__
    raise AttributeError(f"{shown!r} has no attribute {name[:60]!r} here")


def _formatter(text: str) -> Callable[..., str]:
    def formatted(*arguments: object, **named: object) -> str:
        return _format(text, arguments, named)

    return formatted


def _mapping_formatter(text: str) -> Callable[..., str]:
    def formatted(named: object) -> str:
        if type(named) is Refused:
            named.refuse()
        if type(named) is not dict:
            raise TypeError("str.format_map() takes a dict here")
        return _format(text, (), named)

    return formatted


_FORMATTERS = {"format": _formatter, "format_map": _mapping_formatter}
"""Stand for the methods of a str, which would read any attribute of what they format."""


def _unbound(name: str) -> Callable[..., str]:
    def formatted(text: str, /, *arguments: Any, **named: object) -> str:
        if type(text) is not str:
            raise TypeError(f"str.{name} needs a str")
        return _FORMATTERS[name](text)(*arguments, **named)

    return formatted


_UNBOUND = {name: _unbound(name) for name in _FORMATTERS}


def _format(text: str, arguments: tuple[object, ...], named: dict[str, object]) -> str:
    parts, automatic = [], iter(range(len(arguments) + 1))
    for literal, field, spec, conversion in formatter_parser(text):
        parts.append(literal)
        if field is not None:
            value = _field(field, arguments, named, automatic)
            if conversion:
                value = _conversion(conversion)(value)
            if "{" in spec:
                spec = _format(spec, arguments, named)
            parts.append(format(value, spec))
    return "".join(parts)


def _conversion(sign: str) -> Callable[[object], str]:
    if sign not in _CONVERSIONS:
        raise ValueError(f"unknown conversion {sign[:9]!r}")
    return _CONVERSIONS[sign]


_CONVERSIONS: dict[str, Callable[[object], str]] = {"r": repr, "s": str, "a": ascii}


def _field(field: str, arguments: tuple[object, ...], named: dict[str, object], automatic: Iterator[int]) -> object:
    first, rest = formatter_field_name_split(field)
    if first == "":
        first = next(automatic)
    value = arguments[first] if type(first) is int else named[first]
    for is_attribute, name in rest:
        value = _named_attribute(value, name) if is_attribute else _item(value, name)
    return value


def _named_attribute(value: object, name: object) -> object:
    """
    As an expression with a dot, for a name that came as text.
    """
    if type(name) is not str:
        raise TypeError("the name of an attribute is a str")
    if name.startswith("_"):
        raise ForbiddenError(f"the attribute {name[:60]!r}", "its name starts with an underscore")
    return _attribute(value, name)


def _getattr(value: object, name: str, /, *default: object) -> object:
    if len(default) > 1:
        raise TypeError(f"getattr expected at most 3 arguments, got {2 + len(default)}")
    try:
        return _named_attribute(value, name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _hasattr(value: object, name: str, /) -> bool:
    try:
        _named_attribute(value, name)
    except AttributeError:
        return False
    return True


NAMED_TUPLES = (type(datetime.date(2024, 1, 1).isocalendar()), decimal.DecimalTuple, time.struct_time)
"""Tuples with names, which methods in the table give; outside they are plain tuples."""

_SUBSCRIPTABLE = frozenset({str, bytes, list, tuple, dict, range, re.Match, *NAMED_TUPLES})


def _item(value: Any, key: Any) -> object:
    if type(value) in _SUBSCRIPTABLE:
        return value[key]
    if type(value) is Refused:
        value.refuse()
    raise TypeError(f"{type(value).__name__!r} cannot be indexed here")


def _writable(value: Any) -> object:
    if type(value) in (dict, list):
        return value
    if type(value) is Refused:
        value.refuse()
    raise TypeError(f"{type(value).__name__!r} cannot be changed here")


def _inplace(sign: str, left: Any, right: Any) -> object:
    return _INPLACE[sign](left, right)


def _inplace_item(value: Any, key: object, sign: str, right: object) -> None:
    _writable(value)[key] = _INPLACE[sign](value[key], right)  # type: ignore[index]  # a dict or a list by now


_INPLACE: dict[str, Callable[[Any, Any], object]] = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "//=": operator.ifloordiv,
    "%=": operator.imod,
    "**=": operator.ipow,
    "|=": operator.ior,
    "&=": operator.iand,
    "^=": operator.ixor,
    "<<=": operator.ilshift,
    ">>=": operator.irshift,
    "@=": operator.imatmul,
}
_SIGNS = {
    ast.Add: "+=",
    ast.Sub: "-=",
    ast.Mult: "*=",
    ast.Div: "/=",
    ast.FloorDiv: "//=",
    ast.Mod: "%=",
    ast.Pow: "**=",
    ast.BitOr: "|=",
    ast.BitAnd: "&=",
    ast.BitXor: "^=",
    ast.LShift: "<<=",
    ast.RShift: ">>=",
    ast.MatMult: "@=",
}


def _awaitable(value: object) -> object:
    if type(value) in (HostCall, types.CoroutineType):
        return value
    if type(value) is Refused:
        value.refuse()
    raise TypeError(f"{type(value).__name__!r} cannot be awaited here")


def _async_iterable(value: object) -> object:
    if type(value) in (HostStream, types.AsyncGeneratorType):
        return value
    if type(value) is Refused:
        value.refuse()
    raise TypeError(f"{type(value).__name__!r} cannot be iterated with async for here")


def _import_for_c_code(name: str, *_: object) -> types.ModuleType:
    # Dates, patterns with groups in a replacement, the error handler namereplace, a coroutine
    # nobody awaited and, from 3.12 on, the division of long integers import these through the
    # builtins of whoever calls them. The snippet itself cannot: an import statement and the name are both refused.
    if name in ("_pylong", "_strptime", "re", "time", "unicodedata", "warnings"):
        return __import__(name)
    raise ForbiddenError(f"import of {name[:60]!r}", "a snippet imports nothing")


_GUARDS: dict[str, object] = {
    "_getattr_": _attribute,
    "_getitem_": _item,
    "_getiter_": iter,
    "_iter_unpack_sequence_": guarded_iter_unpack_sequence,
    "_unpack_sequence_": guarded_unpack_sequence,
    "_write_": _writable,
    "_inplacevar_": _inplace,
    "_inplaceitem_": _inplace_item,
    "_apply_": lambda function, /, *arguments, **named: function(*arguments, **named),
    "_await_": _awaitable,
    "_aiter_": _async_iterable,
    "__name__": "snippet",
}


_STANDARD = {**STANDARD_NAMES, "math": Module("math")}
_BUILTINS = {**BUILTINS, "getattr": _getattr, "hasattr": _hasattr, "__import__": _import_for_c_code}


def namespace(values: dict[str, object]) -> dict[str, Any]:
    """
    The globals of one evaluation: *values* by name, the guards and fresh builtins.
    """
    return {
        **_STANDARD,
        **values,
        **_GUARDS,
        "__builtins__": _BUILTINS.copy(),
    }


def shown(value: object) -> str:
    """
    *value* as text for a template: plain values and exposed objects only.

    Raises:
        ForbiddenError: It is a function, a generator or the like.
    """
    if value is None or type(value) in ATTRIBUTES or type(value) is Record:
        return str(value)
    raise ForbiddenError(f"a {type(value).__name__} in a template", "only values have a text here")


# -- the gate ----------------------------------------------------------------------------


_CONSTRUCTS = {
    "AnnAssign": "an annotated assignment",
    "AsyncFor": "async for",
    "AsyncFunctionDef": "a function definition",
    "AsyncWith": "async with",
    "Attribute": "an attribute",
    "AugAssign": "an augmented assignment",
    "Call": "a call",
    "ClassDef": "class",
    "ExceptHandler": "an except clause",
    "FunctionDef": "a function definition",
    "Global": "global",
    "Import": "import",
    "ImportFrom": "import",
    "Lambda": "a lambda",
    "Match": "match",
    "Name": "a name",
    "Nonlocal": "nonlocal",
    "Try": "try",
    "TryStar": "except*",
    "With": "with",
    "arg": "a parameter",
}


class Policy(RestrictingNodeTransformer):
    """
    RestrictedPython's policy with what this library adds and takes away.
    """

    def error(self, node: ast.AST, info: str) -> NoReturn:
        """
        Refuses *node* at once.
        """
        raise ForbiddenError(
            _CONSTRUCTS.get(type(node).__name__, type(node).__name__),
            info,
            getattr(node, "lineno", None),
            getattr(node, "col_offset", None),
        )

    def visit_ClassDef(self, node: ast.ClassDef) -> NoReturn:
        """
        No class: its methods would be what others' code calls.
        """
        self.error(node, "a snippet defines no classes")

    def visit_Global(self, node: ast.Global) -> NoReturn:
        """
        No global statement: it can name the guards.
        """
        self.error(node, "a snippet has no globals of its own")

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        """
        Names of a function around this one; the guards are not among them, and no snippet
        can give a name that looks like theirs.
        """
        for name in node.names:
            self.check_name(node, name)
        return node

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> NoReturn:
        """
        No import.
        """
        self.error(node, "a snippet imports nothing; math is there, hand in re or datetime in the context")

    visit_ImportFrom = visit_Import

    def visit_With(self, node: ast.With | ast.AsyncWith) -> NoReturn:
        """
        No with: nothing here can be entered.
        """
        self.error(node, "nothing here can be entered")

    visit_AsyncWith = visit_With

    def visit_Name(self, node: ast.Name) -> Any:
        """
        `print` has nowhere to print to; RestrictedPython would collect it.
        """
        if node.id == "print":
            self.error(node, "there is nowhere to print to; return the text")
        return super().visit_Name(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """
        `x: int = 1` is `x = 1`; the annotation says nothing at run time.
        """
        plain: ast.stmt = ast.Pass() if node.value is None else ast.Assign(targets=[node.target], value=node.value)
        ast.fix_missing_locations(ast.copy_location(plain, node))
        return self.visit(plain)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """
        `d[k] += v`, which RestrictedPython refuses, evaluates `d` and `k` once.
        """
        target, sign = node.target, _SIGNS.get(type(node.op))
        if isinstance(target, ast.Name) or sign is None:
            return super().visit_AugAssign(node)
        if not isinstance(target, ast.Subscript) or isinstance(target.slice, ast.Slice):
            self.error(node, "only names and items can be changed in place")
        parts = [self.visit(target.value), self.visit(target.slice), ast.Constant(sign), self.visit(node.value)]
        call = ast.Expr(ast.Call(ast.Name("_inplaceitem_", ast.Load()), parts, []))
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        """
        A bare `except:` catches what a snippet may catch.
        """
        if node.type is None:
            node.type = ast.copy_location(ast.Name("Exception", ast.Load()), node)
        return super().visit_ExceptHandler(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        """
        As `def`.
        """
        return super().visit_FunctionDef(node)  # type: ignore[arg-type]  # it has the same fields

    def visit_Await(self, node: ast.Await) -> ast.AST:
        """
        Awaits what `_await_` lets pass.
        """
        node = self.node_contents_visit(node)
        node.value = self._guarded("_await_", node.value)
        return node

    def visit_AsyncFor(self, node: ast.AsyncFor) -> Any:
        """
        Goes over what `_aiter_` lets pass. The target is assigned in the body, where
        unpacking is guarded.
        """
        self._items = getattr(self, "_items", 0) + 1
        held = f"item {self._items}"  # no snippet can write a name with a space
        assign = ast.Assign([node.target], ast.Name(held, ast.Load()))
        ast.fix_missing_locations(ast.copy_location(assign, node.target))
        body = self._statements([assign, *node.body])
        node.iter = self._guarded("_aiter_", self.visit(node.iter))
        node.body = body
        node.orelse = self._statements(node.orelse)
        node.target = ast.copy_location(ast.Name(held, ast.Store()), node.target)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        """
        `async for` in a comprehension goes over what `_aiter_` lets pass.
        """
        if not node.is_async:
            return super().visit_comprehension(node)
        if not isinstance(node.target, (ast.Name, ast.Tuple, ast.List)):
            self.error(node.target, "an async comprehension assigns to names")
        node = self.node_contents_visit(node)
        node.iter = self._guarded("_aiter_", node.iter)
        return node

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        visited: list[ast.stmt] = []
        for statement in body:
            made = self.visit(statement)
            visited += made if isinstance(made, list) else [made]
        return visited

    def _guarded(self, guard: str, value: ast.expr) -> ast.Call:
        call = ast.Call(ast.Name(guard, ast.Load()), [value], [])
        copy_locations(call, value)
        return call


def compiled(source: str, mode: str) -> types.CodeType:
    """
    The code object of *source*, after every check of the language.

    Args:
        source: What was written.
        mode: `expr`, `exec`, `field`, an expression that may go over several lines, or
            `async`: the code of the last defines the coroutine function `main`, whose
            result is the one expression's or what it returns.

    Raises:
        SourceError: It is no Python, or too large.
        ForbiddenError: It holds what is not allowed.
    """
    if len(source) > MAX_SOURCE:
        raise ForbiddenError("source", f"{len(source)} characters; {MAX_SOURCE} is the most")
    try:
        tree = _parsed(source, mode)
        _check_size(tree)
        Policy([], [], {}).visit(tree)
        return compile(
            ast.fix_missing_locations(tree),
            FILENAME,
            "eval" if isinstance(tree, ast.Expression) else "exec",
            dont_inherit=True,
        )
    except SyntaxError as error:
        raise _source_error(error, source, mode) from None
    except (RecursionError, ValueError, MemoryError) as error:
        raise SourceError(f"it cannot be parsed ({type(error).__name__}: {str(error)[:100]})") from None


def _source_error(error: SyntaxError, source: str, mode: str) -> SourceError:
    # The line as it was written: the parser has none to give where the source ends too early,
    # and saw an expression without the space around it.
    if error.lineno is None or error.offset is None:
        return SourceError(error.msg)
    before = source[: len(source) - len(source.lstrip())] if mode == "expr" else ""
    line, column = max(error.lineno, 1) + before.count("\n"), error.offset
    text = [*source.split("\n"), ""][line - 1].rstrip()
    if column < 1:  # as 3.11 has it where the source ends too early
        column = len(text) + 1
    elif error.lineno == 1:
        column += len(before) - before.rfind("\n") - 1 - (mode == "field" and "\n" in source)
    return SourceError(error.msg, line, min(column, len(text) + 1), text)


def is_one_call(source: str) -> bool:
    """
    Whether *source* is the call of a name and nothing else; `f(1), (2)` is not.
    """
    try:
        body = ast.parse(source, FILENAME, "eval").body if len(source) <= MAX_SOURCE else None
    except (SyntaxError, RecursionError, ValueError, MemoryError):
        return False
    return isinstance(body, ast.Call) and isinstance(body.func, ast.Name)


def _parsed(source: str, mode: str) -> ast.Module | ast.Expression:
    if mode == "expr":
        if not source.strip():
            raise SourceError("it is empty", 1, 1, "")
        return ast.parse(source.strip(), FILENAME, "eval")
    if mode == "field":  # its brackets are known to be in pairs
        return ast.parse(f"({source}\n)" if "\n" in source else source, FILENAME, "eval")
    tree = ast.parse(source, FILENAME)
    if mode == "async":
        main = ast.parse("async def main(): pass").body[0]
        if not isinstance(main, ast.AsyncFunctionDef):
            raise SourceError("it cannot be wrapped")
        main.body = list(tree.body) or main.body
        if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
            main.body = [ast.copy_location(ast.Return(tree.body[0].value), tree.body[0])]
        tree.body = [main]
    return tree


def _check_size(tree: ast.AST) -> None:
    nodes, waiting = 0, [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        nodes += 1
        if nodes > MAX_NODES or depth > MAX_DEPTH:
            raise ForbiddenError("source", f"more than {MAX_NODES} parts, or nested more than {MAX_DEPTH} deep")
        waiting += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
