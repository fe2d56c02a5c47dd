"""
Snippets by chance, from a grammar that likes what escapes are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

NAMES = "x n text user rows nums cfg obj cls fn err math string dt day now fetch_price slow arange len str int list dict sorted max".split()
ATTRIBUTES = (
    "name role tags items keys values get upper format format_map join split strip replace encode append pop update real "
    "send throw close asend gi_frame gi_code cr_frame cr_await ag_frame f_globals f_back f_builtins tb_frame co_consts "
    "obj args mro __class__ __globals__ __dict__ __mro__ __subclasses__ __init__ __builtins__ _secret __self__ fromkeys "
    "strftime total sqrt Formatter gr_frame __traceback__ with_traceback add_note ｇi_frame"
).split()
CONSTANTS = [
    "0",
    "1",
    "-1",
    "3.5",
    "10**6",
    "'a'",
    "'{0.__class__}'",
    "'{0[a]}'",
    "'{x}'",
    "'%s'",
    "b'a'",
    "None",
    "True",
    "...",
    "()",
    "[]",
    "{}",
    "1j",
    "'\\x1b[2J'",
    "'_secret'",
    "10**400",
]
OPERATORS = "+ - * / // % ** << >> & | ^ @ and or == != < <= > >= in is".split()


def expression(rng: random.Random, depth: int = 4) -> str:
    """
    An expression, most often a right one.
    """
    if depth <= 0:
        return rng.choice(NAMES if rng.random() < 0.6 else CONSTANTS)

    def sub() -> str:
        return expression(rng, depth - 1 - rng.randrange(2))

    makers: list[Callable[[], str]] = [
        lambda: f"({sub()} {rng.choice(OPERATORS)} {sub()})",
        lambda: f"{sub()}.{rng.choice(ATTRIBUTES)}",
        lambda: f"{sub()}.{rng.choice(ATTRIBUTES)}({sub()})",
        lambda: f"{rng.choice(NAMES)}({', '.join(sub() for _ in range(rng.randrange(3)))})",
        lambda: f"{sub()}[{sub()}]",
        lambda: f"{sub()}[{sub()}:{sub()}]",
        lambda: f"[{sub()} for {rng.choice('abx')} in {sub()} if {sub()}]",
        lambda: f"({sub()} for a in {sub()})",
        lambda: f"{{{sub()}: {sub()} for a in {sub()}}}",
        lambda: f"(lambda a, *b: {sub()})({sub()})",
        lambda: f"(a := {sub()})",
        lambda: f"({sub()} if {sub()} else {sub()})",
        lambda: "f'{" + sub().replace("'", '"').replace("\\", "") + "!r:>{n}}'",
        lambda: f"[*{sub()}, {sub()}]",
        lambda: f"{{**{sub()}, 'k': {sub()}}}",
        lambda: f"not {sub()}",
        lambda: f"'{{0.{rng.choice(ATTRIBUTES)}}}'.format({sub()})",
        lambda: f"'{field(rng)}'.format({sub()}, a={sub()})",
        lambda: f"'{{{rng.choice(ATTRIBUTES)}}}'.format_map({sub()})",
        lambda: f"{rng.choice(['getattr', 'hasattr'])}({sub()}, '{rng.choice(ATTRIBUTES)}')",
        lambda: f"getattr({sub()}, {sub()}, {sub()})",
        lambda: f"('%({rng.choice(ATTRIBUTES)})s' % {sub()})",
        lambda: f"{rng.choice(['__import__', 'eval', 'type', 'open', 'globals', 'vars'])}({sub()})",
    ]
    return rng.choice(makers)()


def field(rng: random.Random) -> str:
    """
    A field of `str.format`, which goes on from what it names.
    """
    steps = [f".{rng.choice(ATTRIBUTES)}", f"[{rng.choice(ATTRIBUTES)}]", "[0]", "[-1]", "[a", "."]
    walk = "".join(rng.choice(steps) for _ in range(rng.randrange(4)))
    end = rng.choice(["", "", "!r", "!z", ":>{0}", ":{a.real}", ":{0[0]}"])
    return f"{{{rng.choice(['', '0', 'a', '1', '_'])}{walk}{end}}}"


def statements(rng: random.Random, count: int = 4) -> str:
    """
    A few statements, the last of which assigns `result`.
    """
    makers: list[Callable[[], str]] = [
        lambda: f"{rng.choice('abx')} = {expression(rng)}",
        lambda: f"{rng.choice('abx')} += {expression(rng)}",
        lambda: f"{expression(rng, 1)}[{expression(rng, 1)}] = {expression(rng)}",
        lambda: f"{rng.choice(NAMES)}[{expression(rng, 1)}] += {expression(rng)}",
        lambda: f"{expression(rng, 1)}.{rng.choice(ATTRIBUTES)} = {expression(rng)}",
        lambda: f"del {rng.choice(NAMES)}[{expression(rng, 1)}]",
        lambda: f"for a, b in {expression(rng)}:\n    x = {expression(rng)}",
        lambda: f"try:\n    x = {expression(rng)}\nexcept Exception as e:\n    x = e.{rng.choice(ATTRIBUTES)}",
        lambda: f"def f(a={expression(rng, 1)}, *b, **c):\n    yield {expression(rng)}\nx = f({expression(rng, 1)})",
        lambda: f"while {expression(rng, 1)}:\n    break",
        lambda: f"class C({rng.choice(NAMES)}):\n    pass",
        lambda: f"import {rng.choice(['os', 'math', 're'])}",
        lambda: f"with {expression(rng, 1)} as a:\n    pass",
        lambda: f"[a, *b] = {expression(rng)}",
        lambda: f"raise {rng.choice(['ValueError', 'KeyError', 'SystemExit', 'BaseException'])}({expression(rng, 1)})",
        lambda: f"global {rng.choice(NAMES)}",
        lambda: f"assert {expression(rng)}",
    ]
    lines = [rng.choice(makers)() for _ in range(rng.randrange(count))]
    return "\n".join([*lines, f"result = {expression(rng)}"])


def template(rng: random.Random) -> str:
    """
    A template of a few parts.
    """
    pieces = ["text ", "{", "}}", "{{", "\n", "'", "|"]
    filters = ["upper", "default('d')", "json", "join(',')", "nothing", "length", f"default({expression(rng, 1)})"]
    fields = [
        f"{{{{ {expression(rng, 2)}{''.join(f' | {rng.choice(filters)}' for _ in range(rng.randrange(3)))}{rng.choice(['', ':>5', ':.2f'])} }}}}"
        for _ in range(rng.randrange(1, 4))
    ]
    return "".join(piece for field in fields for piece in (rng.choice(pieces) if rng.random() < 0.3 else "", field))


def asynchronous(rng: random.Random) -> str:
    """
    A body that awaits.
    """
    makers = [
        f"return await slow({expression(rng, 2)})",
        f"c = slow({expression(rng, 1)})\nreturn c.{rng.choice(ATTRIBUTES)}",
        f"async for a in {expression(rng, 2)}:\n    x = {expression(rng, 2)}\nreturn x",
        f"async for a, b in arange({expression(rng, 1)}):\n    pass\nreturn {expression(rng, 2)}",
        f"return [{expression(rng, 2)} async for a in arange(3)]",
        f"return [{expression(rng, 2)} async for {rng.choice(['a, b', '(a, *b)', '[a]', 'x.role, a', 'a[0], b'])} in arange(3)]",
        f"async def f(a):\n    yield {expression(rng, 2)}\nreturn [v async for v in f({expression(rng, 1)})]",
        f"try:\n    await {expression(rng, 2)}\nexcept Exception as e:\n    return e.{rng.choice(ATTRIBUTES)}",
    ]
    return rng.choice(makers)


JS_NAMES = (
    "x n text user rows nums cfg obj err day now fetch_price Math JSON Object Array String Symbol Reflect Proxy".split()
)
JS_ATTRIBUTES = (
    "name role length map filter constructor prototype __proto__ call apply bind toString valueOf caller callee arguments "
    "raw then return next throw push concat repeat padStart replace match stack message getPrototypeOf defineProperty"
).split()
JS_CONSTANTS = [
    "0",
    "-1",
    "1e308",
    "2n ** 64n",
    "NaN",
    "'a'",
    "'\\x1b[2J'",
    "null",
    "undefined",
    "[]",
    "({})",
    "/(a+)+$/",
    "`${x}`",
    "Symbol.iterator",
    "this",
    "globalThis",
    "new Error('\\x1b')",
]
JS_OPERATORS = "+ - * / % ** << >>> & | ^ && || ?? == === != < > in instanceof".split()


def javascript(rng: random.Random, depth: int = 4) -> str:
    """
    An expression of JavaScript, most often a right one.
    """
    if depth <= 0:
        return rng.choice(JS_NAMES if rng.random() < 0.6 else JS_CONSTANTS)

    def sub() -> str:
        return javascript(rng, depth - 1 - rng.randrange(2))

    makers: list[Callable[[], str]] = [
        lambda: f"({sub()} {rng.choice(JS_OPERATORS)} {sub()})",
        lambda: f"({sub()})?.{rng.choice(JS_ATTRIBUTES)}",
        lambda: f"({sub()}).{rng.choice(JS_ATTRIBUTES)}({sub()})",
        lambda: f"({sub()})[{sub()}]",
        lambda: f"[{sub()}, ...({sub()})]",
        lambda: f"({{a: {sub()}, ...({sub()}), [{sub()}]: 1, get b() {{ return {sub()} }}}})",
        lambda: f"(({rng.choice('abx')}, ...r) => {sub()})({sub()})",
        lambda: f"(function*() {{ yield {sub()}; return {sub()} }})()",
        lambda: f"(async () => {sub()})()",
        lambda: f"(() => {{ try {{ throw {sub()} }} catch (e) {{ return e }} finally {{ {sub()} }} }})()",
        lambda: f"(() => {{ {rng.choice(JS_NAMES)} = {sub()}; return {sub()} }})()",
        lambda: f"new ({sub()})({sub()})",
        lambda: f"new Proxy({sub()}, {{get: () => {sub()}}})",
        lambda: f"{rng.choice(['eval', 'Function', '__ask', 'import', 'structuredClone', 'setTimeout'])}({sub()})",
        lambda: f"({sub()} ? {sub()} : {sub()})",
        lambda: f"`${{{sub()}}}`",
        lambda: f"Reflect.ownKeys({sub()})",
        lambda: f"delete {sub()}",
    ]
    return rng.choice(makers)()
