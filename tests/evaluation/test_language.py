"""
What the language of snippets has, and what it refuses.
"""

from __future__ import annotations

import collections.abc
import datetime
import decimal
import enum
import math
import re
import types
from collections import OrderedDict, defaultdict, namedtuple
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

import sandboxkit as sk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.evaluation import SafeEvaluator

DAY = datetime.date(2026, 1, 31)
CONTEXT: dict[str, Any] = {
    "x": 10,
    "word": "Hello",
    "user": {"name": "Alice", "tags": ["a", "b"], "get": 5},
    "rows": [{"k": "a", "v": 1}, {"k": "b", "v": 2}],
    "day": DAY,
    "re": re,
    "math": math,
    "größe": 5,
}

EXPRESSIONS: dict[str, object] = {
    "x ** 2 // 3 % 7 - 0.5": 4.5,
    "1 < x <= 10 and not x == 3": True,
    "word[1:4].upper() + word[-1]": "ELLo",
    "user.name if user.tags else None": "Alice",
    "user['name']": "Alice",
    "user.get('missing', 7)": 7,
    "[r.v * 2 for r in rows if r.k != 'a']": [4],
    "{r.k: r.v for r in rows}": {"a": 1, "b": 2},
    "{n % 2 for n in range(5)}": {0, 1},
    "(n := x + 1) * n": 121,
    "(lambda a, *b, c=1, **d: (a, b, c, d))(1, 2, c=3, e=4)": (1, (2,), 3, {"e": 4}),
    "f'{x:>5}|{word!r}|{x / 3:.2f}|{word:{x}}|'": "   10|'Hello'|3.33|Hello     |",
    "'{} {1} {a:>3}'.replace('1', '').format(1, 2, a=3)": "1 2   3",
    "'{0!r:>{1}}'.format('a', 5)": "  'a'",
    "'%s has %d' % (word, x)": "Hello has 10",
    "str.format('{:,}', 1234567)": "1,234,567",
    "'{0[name]} {u.name} {u.tags[0]!r:>4}'.format(user, u=user)": "Alice Alice  'a'",
    "'{name} {tags[1]}'.format_map(user)": "Alice b",
    "list(map(str.format_map, ['{name}'], [user]))": ["Alice"],
    "[hasattr(user, 'name'), hasattr(user, 'nothing'), hasattr(1, 'mro'), getattr(user, 'name')]": [
        True,
        False,
        False,
        "Alice",
    ],
    "[getattr(user, 'nothing', 5), getattr('{.real}', 'format')(1), getattr(str, 'upper')('a')]": [5, "1", "A"],
    "slice(1, 5, 2).indices(4)": (1, 4, 2),
    "list(map(str.upper, 'ab'))": ["A", "B"],
    "dict.fromkeys('ab', 0)": {"a": 0, "b": 0},
    "sum(range(5)), max(1, 2), min([3, 1]), len(word), sorted('cab'), round(2.567, 1)": (
        10,
        2,
        1,
        5,
        ["a", "b", "c"],
        2.6,
    ),
    "list(zip('ab', enumerate('cd')))": [("a", (0, "c")), ("b", (1, "d"))],
    "math.sqrt(16) + math.pi": 4 + math.pi,
    "day.strftime('%d.%m.%Y') + ' ' + f'{day:%A}'": "31.01.2026 Saturday",
    "day + timedelta(days=1)": datetime.date(2026, 2, 1),
    "datetime.strptime('2026-01-31', '%Y-%m-%d').date() == day": True,
    "re.search('(l+)o', word).group(1)": "ll",
    "re.sub('l', lambda m: m.group().upper(), word)": "HeLLo",
    "re.compile('(l)').sub(r'<\\1>', word) + re.match('(.)', word).expand(r'\\1\\1')": "He<l><l>oHH",
    "'ä'.encode('ascii', 'namereplace')": b"\\N{LATIN SMALL LETTER A WITH DIAERESIS}",
    "divmod(10**9000, 10**4001 + 3)[0] > 10**4998": True,
    "b'ab' + bytes([99])": b"abc",
    "2 ** 200": 2**200,
    "float('inf'), complex(1, -2)": (math.inf, 1 - 2j),
    "{(1, 2): 'a', 3: None, '$date': 1}": {(1, 2): "a", 3: None, "$date": 1},
    "frozenset('a'), range(3), {'a': 1}.keys()": (frozenset("a"), [0, 1, 2], ["a"]),
    "größe + ｘ": 15,
    "'ä'.encode('utf-16-le').decode('utf-16-le') + b'\\xe4'.decode('latin-1') + b'\\x80'.decode('cp1252')": "ää€",
    "day.isocalendar()[1], day.timetuple().tm_yday, day.timetuple()[0]": (5, 31, 2026),
    "day.timetuple()": tuple(DAY.timetuple()),
    "b'\\\\x41'.decode('unicode_escape')": "A",
    "1 is 1": True,
    "...  is not None": True,
}

STATEMENTS: dict[str, object] = {
    "result = 0\nfor r in rows:\n    result += r.v": 3,
    "d = {'a': [1]}\nd['a'] += [2]\nd['a'][0] -= 5\nresult = d": {"a": [-4, 2]},
    "calls = []\ndef key():\n    calls.append(1)\n    return 'a'\nd = {'a': 1}\nd[key()] += 1\nresult = d['a'], len(calls)": (
        2,
        1,
    ),
    "n: int = 3\nm: int\nresult = n": 3,
    "first, (second, *rest) = 1, [2, 3, 4]\nresult = first, second, rest": (1, 2, [3, 4]),
    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\nresult = fib(12)": 144,
    "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    result = str(e)\nfinally:\n    done = 1": "division by zero",
    "try:\n    [][1]\nexcept:\n    result = 'caught'": "caught",
    "def count(n):\n    for i in range(n):\n        yield i\nresult = list(count(3))": [0, 1, 2],
    "i = 0\nwhile True:\n    i += 1\n    if i > 5:\n        break\nelse:\n    i = 0\nresult = i": 6,
    "user.tags.append('c')\nresult = user.tags": ["a", "b", "c"],
    "del user['get']\nresult = sorted(user)": ["name", "tags"],
    "x": None,
}

FORBIDDEN = {
    "().__class__": "an attribute",
    "(i for i in ()).gi_frame": "an attribute",
    "__import__('os')": "a name",
    "eval('1')": "a call",
    "[print]": "a name",
    "'{0.__class__}'.format(user)": "the attribute",
    "'{0.name.__class__}'.format(user)": "the attribute",
    "getattr(user, '__class__')": "the attribute",
    "getattr(user, '__class__', None)": "the attribute",
    "hasattr(1, '__class__')": "the attribute",
    "list(map(getattr, [1], ['_x']))": "the attribute",
    "x.ｆoo.__ｃlass__": "an attribute",
    "lambda: (yield)": "a function",
    "(n for n in [1])": "a generator",
    "map(str, [1])": "a map",
    "str": "a str",
    "len": "a builtin_function_or_method",
    "math": "a Module",
    "re.search('a', 'a')": "a Match",
    "'x' * 2_000_000": "the result",
    "list(range(100_000))": "the result",
    "+".join("1" * 10_001): "source",
    "-" * 100 + "1": "source",
    "1" + " " * 20_000 + "+ 1": "source",
}

FORBIDDEN_STATEMENTS = {
    "class A: pass": "class",
    "import os": "import",
    "from os import path": "import",
    "global x": "global",
    "with x as y: pass": "with",
    "match x:\n    case 1: pass": "match",
    "try:\n    pass\nexcept* ValueError:\n    pass": "except*",
    "user.name += 'x'": "an augmented assignment",
    "def f(_getattr_, /): pass": "a function",
    "async def f(): pass\nresult = f()": "a call nobody awaited",
    "a = []\nfor i in range(100):\n    a = [a]\nresult = a": "the result",
    "a = []\na.append(a)\nresult = a": "the result",
}

RAISED = {
    "user.missing": "AttributeError",
    "user['missing']": "KeyError",
    "word.nothing": "AttributeError",
    "unknown": "NameError",
    "open('/etc/passwd')": "NameError",
    "getattr(user, 'nothing')": "AttributeError",
    "getattr(user, 1)": "TypeError",
    "getattr(len, 'mro', 1, 2)": "TypeError",
    "setattr(user, 'name', 1)": "NameError",
    "'{0.nothing}'.format(user)": "AttributeError",
    "'{0.real.nothing}'.format(1)": "AttributeError",
    "'{0[__class__]}'.format(user)": "KeyError",
    "'{0[0]}'.format({1})": "TypeError",
    "'{x}'.format_map([1])": "TypeError",
    "str.format(1)": "TypeError",
    "list[int]": "TypeError",
    "(lambda: 1).send": "AttributeError",
    "(i for i in [1]).send(None)": "AttributeError",
    "dict.clear.mro": "AttributeError",
    "math.nothing": "AttributeError",
    "'{!z}'.format(1)": "ValueError",
    "str.mro()": "AttributeError",
    "x @ x": "TypeError",
}


@pytest.mark.parametrize("code", EXPRESSIONS)
def test_expressions(code: str, reusing: SafeEvaluator) -> None:
    value = reusing.evaluate(code, CONTEXT)
    assert (value, type(value)) == (EXPRESSIONS[code], type(EXPRESSIONS[code]))


@pytest.mark.parametrize("code", STATEMENTS)
def test_statements(code: str, reusing: SafeEvaluator) -> None:
    assert reusing.evaluate(code, CONTEXT, mode="exec") == STATEMENTS[code]


@pytest.mark.parametrize("code", FORBIDDEN)
def test_forbidden(code: str, reusing: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalForbiddenError) as caught:
        reusing.evaluate(code, CONTEXT)
    assert caught.value.construct.startswith(FORBIDDEN[code])
    assert caught.value.why
    assert isinstance(caught.value, PermissionError)


@pytest.mark.parametrize("code", FORBIDDEN_STATEMENTS)
def test_forbidden_statements(code: str, reusing: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalForbiddenError) as caught:
        reusing.evaluate(code, CONTEXT, mode="exec")
    assert caught.value.construct.startswith(FORBIDDEN_STATEMENTS[code])


@pytest.mark.parametrize("code", RAISED)
def test_raised(code: str, reusing: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalError) as caught:
        reusing.evaluate(code, CONTEXT)
    assert caught.value.kind == RAISED[code]
    assert caught.value.line == 1


def test_an_error_has_its_line_and_no_path(reusing: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalError) as caught:
        reusing.evaluate("def f(v):\n    return 1 / v\n\nresult = f(0)", mode="exec")
    assert (caught.value.kind, caught.value.problem, caught.value.line) == ("ZeroDivisionError", "division by zero", 2)
    assert str(caught.value) == "line 2: ZeroDivisionError: division by zero"


def test_control_characters_of_an_error_are_replaced(reusing: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalError) as caught:
        reusing.evaluate("raise ValueError('\\x1b[2J' + 'a' * 9999)", mode="exec")
    assert caught.value.problem.startswith("?[2Jaaa")
    assert len(caught.value.problem) <= 300


def test_a_syntax_error_shows_the_place(reusing: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalSyntaxError) as caught:
        reusing.evaluate("result = 1\nresult = (2 +* 3)", mode="exec")
    error = caught.value
    assert isinstance(error, SyntaxError)
    assert (error.lineno, error.offset) == (2, 14)
    assert str(error).splitlines()[1:] == ["  result = (2 +* 3)", "  " + " " * 13 + "^"]


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("1 +", ["  1 +", "     ^"]),
        ("\n\n  (1 + \x1b]", ["    (1 + ?]", "         ^"]),
        ("\t'\x1b[2J' $", ["   '?[2J' $", "          ^"]),
        ("é +", ["  é +", "     ^"]),
    ],
)
def test_the_place_is_that_of_what_was_written(code: str, lines: list[str], reusing: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalSyntaxError) as caught:
        reusing.evaluate(code)
    assert str(caught.value).splitlines()[1:] == lines


@pytest.mark.parametrize(
    ("template", "place", "lines"),
    [
        ("a {{ 1 + }} b", (1, 9), ["  a {{ 1 + }} b", "          ^"]),
        ("a\n{{  (1,\n2 $) }}", (3, 3), ["  2 $) }}", "    ^"]),
        ("a {{ 1", (1, 3), ["  a {{ 1", "    ^"]),
        ("{{ 1 | default(1 2) }}", (1, 1), ["  {{ 1 | default(1 2) }}", "  ^"]),
    ],
)
def test_the_place_in_a_template_is_the_templates(
    template: str, place: tuple[int, int], lines: list[str], reusing: SafeEvaluator
) -> None:
    with pytest.raises(sk.SafeEvalSyntaxError) as caught:
        reusing.interpolate(template)
    assert (caught.value.lineno, caught.value.offset) == place
    assert str(caught.value).splitlines()[1:] == lines


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("nothing", "hand it in by the context or functions="),
        ("(1).nothing", "expose() those of a type of yours"),
        ("1 / 0", ""),
    ],
)
def test_an_exception_comes_with_what_helps(code: str, hint: str, reusing: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalError) as caught:
        reusing.evaluate(code)
    assert caught.value.hint.endswith(hint)
    assert bool(caught.value.hint) == bool(hint)
    assert str(caught.value).endswith(hint)
    with pytest.raises(sk.SafeEvalError, match="default") as caught:
        reusing.interpolate("{{ nothing }}")
    assert caught.value.hint == "hand it in, or add | default(...) to the field"


@pytest.mark.parametrize("code", ["", "   ", "1\n2", "a b", "\x00", "(" * 150, "'", "\ud800"])
def test_what_is_no_expression_is_a_typed_error(code: str, reusing: SafeEvaluator) -> None:
    with pytest.raises((sk.SafeEvalSyntaxError, sk.SafeEvalForbiddenError)):
        reusing.evaluate(code)


# -- what goes along -----------------------------------------------------------------------


class Colour(enum.IntEnum):
    RED = 1


class Level(enum.StrEnum):
    HIGH = "high"


class Account:
    def __init__(self) -> None:
        self.owner = "Alice"
        self.balance = decimal.Decimal("10.50")
        self.secret = "key"

    @property
    def initial(self) -> str:
        return self.owner[0]


Pair = namedtuple("Pair", "a b")


class Moment(datetime.datetime):
    def isoformat(self, *_: object, **__: object) -> str:
        raise RuntimeError


class Day(datetime.date):
    pass


class Hour(datetime.time):
    pass


class Span(datetime.timedelta):
    pass


class Amount(decimal.Decimal):
    def __str__(self) -> str:
        return "another"


class Octets(bytearray):
    def __bytes__(self) -> bytes:
        return b"others"


CARRIED: dict[str, tuple[object, object]] = {
    "IntEnum": (Colour.RED, 1),
    "StrEnum": (Level.HIGH, "high"),
    "bool": (True, True),
    "defaultdict": (defaultdict(list, a=[1]), {"a": [1]}),
    "OrderedDict": (OrderedDict(a=1), {"a": 1}),
    "mapping proxy": (MappingProxyType({"a": 1}), {"a": 1}),
    "namedtuple": (Pair(1, 2), (1, 2)),
    "bytearray": (bytearray(b"a"), b"a"),
    "bytearray of a subclass": (Octets(b"a"), b"a"),
    "datetime of a subclass": (
        Moment(2026, 1, 2, tzinfo=datetime.UTC),
        datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    ),
    "date of a subclass": (Day(2026, 1, 2), datetime.date(2026, 1, 2)),
    "time of a subclass": (Hour(1, 2, 3, 4, datetime.UTC), datetime.time(1, 2, 3, 4, datetime.UTC)),
    "timedelta of a subclass": (Span(1, 2, 3), datetime.timedelta(1, 2, 3)),
    "Decimal of a subclass": (Amount("1.5"), decimal.Decimal("1.5")),
    "Decimal": (decimal.Decimal("1.10"), decimal.Decimal("1.10")),
    "aware": (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)),
    "time": (datetime.time(1, 2, 3, 4), datetime.time(1, 2, 3, 4)),
    "delta": (datetime.timedelta(-1, 2, 3), datetime.timedelta(-1, 2, 3)),
    "nan": (math.inf, math.inf),
    "large": (-(10**5000), -(10**5000)),
    "surrogate": ("\ud800", "\ud800"),
    "keys": ({1: {None: (1,)}, "$set": 2}, {1: {None: (1,)}, "$set": 2}),
}


@pytest.mark.parametrize("name", CARRIED)
def test_values_come_back_as_they_went(name: str, reusing: SafeEvaluator) -> None:
    given, expected = CARRIED[name]
    value = reusing.evaluate("v", {"v": given})
    assert value == expected
    assert type(value) is type(expected)


class NoTime(datetime.datetime):
    """
    What some libraries put where a moment is missing.
    """

    __hash__ = None  # type: ignore[assignment]  # it equals nothing

    def __eq__(self, _: object) -> bool:
        return False


class Timeless(datetime.tzinfo):
    def utcoffset(self, _: datetime.datetime | None) -> datetime.timedelta:
        raise KeyError("the secret")


class Unhashable(type):
    __hash__ = None  # type: ignore[assignment]  # that is the point

    def __eq__(cls, _: object) -> bool:
        return True


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]  # that is the point
        raise RuntimeError("the secret")


class Odd(metaclass=Unhashable):
    pass


class Unnamed(metaclass=Nameless):
    pass


def _circular() -> list[object]:
    made: list[object] = []
    made.append(made)
    return made


REFUSED = {
    "an object": (Account(), "Account"),
    "a class": (Account, "class Account"),
    "a bound method": (Account().__init__, "method"),  # type: ignore[misc]  # a method of an object is what is wanted
    "a builtin": (open, "builtin"),
    "an open file": (open, "builtin"),
    "a module": (enum, "module enum"),
    "itself": (_circular(), "contains itself"),
    "too much": ("a" * (17 << 20), "larger than"),
    "no time": (NoTime(1, 1, 1), "NoTime"),
    "a zone that fails": (datetime.datetime(2026, 1, 1, tzinfo=Timeless()), "reading it raised KeyError"),  # type: ignore[abstract]  # the offset is all that is asked for
    "a class without a hash": (Odd(), "Odd, reading it raised TypeError"),
    "a class without a name": (Unnamed(), "Unnamed, reading it raised RuntimeError"),
}
USES = [
    "v + 1",
    "v.a",
    "v[0]",
    "v()",
    "str(v)",
    "f'{v}'",
    "v == 1",
    "bool(v)",
    "v",
    "[v]",
    "len(v)",
    "[*v]",
    "1 in v",
    "not v",
    "-v",
    "{v: 1}",
]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_go_along_raises_when_used(name: str, reusing: SafeEvaluator) -> None:
    value, said = REFUSED[name]
    assert reusing.evaluate("1 + 1", {"v": value}) == 2
    with pytest.raises(sk.SafeEvalForbiddenError) as caught:
        reusing.evaluate("v.a", {"v": value})
    assert said in caught.value.construct
    with pytest.raises(sk.SafeEvalError) as caught_too:
        reusing.evaluate("f().a", {"f": lambda: value})
    assert "secret" not in str(caught_too.value)


@pytest.mark.parametrize("code", USES)
def test_every_use_of_it_raises(code: str, reusing: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalForbiddenError, match="expose"):
        reusing.evaluate(code, {"v": Account()})


def test_it_is_refused_where_it_is_nested(reusing: SafeEvaluator) -> None:
    assert reusing.evaluate("v[0]", {"v": [1, Account()]}) == 1
    with pytest.raises(sk.SafeEvalForbiddenError, match="Account"):
        reusing.evaluate("v[1].owner", {"v": [1, Account()]})


def test_an_exposed_object_goes_along_by_its_attributes(reusing: SafeEvaluator) -> None:
    reusing.expose(Account, "owner", "balance", "initial")
    account = Account()
    context = {"account": account, "more": [account]}
    assert reusing.evaluate("account.owner + account.initial + str(more[0].balance)", context) == "AliceA10.50"
    assert reusing.evaluate("account", context) == {
        "owner": "Alice",
        "balance": decimal.Decimal("10.50"),
        "initial": "A",
    }
    with pytest.raises(sk.SafeEvalError, match="no attribute 'secret'"):
        reusing.evaluate("account.secret", context)
    with pytest.raises(sk.SafeEvalError, match="cannot be indexed"):
        reusing.evaluate("account['secret']", context)
    with pytest.raises(ValueError, match="_hidden"):
        reusing.expose(Account, "_hidden")


def test_exposed_objects_that_hold_each_other_have_a_depth(reusing: SafeEvaluator) -> None:
    class Node:
        def __init__(self) -> None:
            self.next = self

    reusing.expose(Node, "next")
    assert reusing.evaluate("len('v')", {"v": Node()}) == 1
    with pytest.raises(sk.SafeEvalForbiddenError, match="a Node, nested more than 64 deep"):
        reusing.evaluate("v", {"v": Node()})
    with pytest.raises(sk.SafeEvalError, match="what f gave cannot be taken along: nested more than 64 deep"):
        reusing.evaluate("f()", {"f": lambda: Node()})


def test_an_attribute_that_cannot_be_read_is_told_to_who_uses_it(reusing: SafeEvaluator) -> None:
    class Broken:
        @property
        def value(self) -> int:
            raise RuntimeError("the secret")

    reusing.expose(Broken, "value")
    assert reusing.evaluate("len([v])", {"v": Broken()}) == 1
    with pytest.raises(sk.SafeEvalForbiddenError, match="cannot be read \\(RuntimeError\\)") as caught:
        reusing.evaluate("v.value", {"v": Broken()})
    assert "secret" not in str(caught.value)


def test_the_names_of_a_context_are_text(reusing: SafeEvaluator) -> None:
    wrong: Any = {1: 2}
    with pytest.raises(TypeError, match="names of a context"):
        reusing.evaluate("1", wrong)


def test_a_context_cannot_replace_the_guards(reusing: SafeEvaluator) -> None:
    context = {"_getattr_": getattr, "__builtins__": {"open": open}, "_await_": None}
    with pytest.raises(sk.SafeEvalError):
        reusing.evaluate("'a'.gi_code", context)
    assert reusing.evaluate("len('a')", context) == 1


def test_what_a_snippet_changes_stays_there(reusing: SafeEvaluator) -> None:
    context = {"items": [1], "d": {"a": [1]}}
    assert reusing.evaluate("items.append(2)\nd['a'].clear()\nresult = items", context, mode="exec") == [1, 2]
    assert context == {"items": [1], "d": {"a": [1]}}


def test_only_what_the_text_can_name_goes_along(reusing: SafeEvaluator) -> None:
    read: list[str] = []

    class Watched:
        @property
        def value(self) -> int:
            read.append("value")
            return 7

    reusing.expose(Watched, "value")
    assert reusing.evaluate("1 + 1", {"watched": Watched()}) == 2
    assert read == []
    assert reusing.evaluate("watched.value", {"watched": Watched()}) == 7
    assert reusing.evaluate("ｗatched.value", {"watched": Watched()}) == 7  # Python folds the first letter
    assert (
        reusing.interpolate("{{ watched.value | double }}", {"watched": Watched(), "double": lambda v: 2 * v}) == "14"
    )


def test_one_evaluation_leaves_nothing_for_the_next(reusing: SafeEvaluator) -> None:
    reusing.evaluate("left = 1\nlen = 5\nresult = 0", mode="exec")
    assert reusing.evaluate("len('ab')") == 2
    with pytest.raises(sk.SafeEvalError, match="NameError"):
        reusing.evaluate("left")


class Lying(dict[str, int]):
    __class__ = int  # type: ignore[assignment]  # what it is there for


class Awaited:
    __class__ = types.CoroutineType  # type: ignore[assignment]  # likewise


class Broken(collections.abc.Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise RuntimeError(key)

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1


def test_a_value_is_taken_for_what_it_is_and_not_for_what_it_says(reusing: SafeEvaluator) -> None:
    assert reusing.evaluate("x['a']", {"x": Lying(a=1)}) == 1
    assert reusing.evaluate("f()['a']", {"f": lambda: Lying(a=1)}) == 1
    with pytest.raises(sk.SafeEvalForbiddenError, match="a Awaited of the caller's"):
        reusing.evaluate("f()", {"f": lambda: Awaited()})
    with pytest.raises(sk.SafeEvalForbiddenError, match=r"a Broken that cannot be read \(RuntimeError\)"):
        reusing.evaluate("x", {"x": Broken()})


def test_a_function_changes_a_name_of_the_one_around_it(reusing: SafeEvaluator) -> None:
    code = "def f():\n    count = 0\n    def g():\n        nonlocal count\n        count += 1\n        return count\n    return g\n"
    assert reusing.evaluate(f"{code}g = f()\nresult = [g(), g()]", mode="exec") == [1, 2]
    for name in ("_getattr_", "__builtins__"):
        with pytest.raises(sk.SafeEvalForbiddenError, match="nonlocal"):
            reusing.evaluate(code.replace("nonlocal count", f"nonlocal {name}"), mode="exec")


# -- what a caller may get wrong ---------------------------------------------------------------


class Shy:
    """
    Something whose class cannot be asked for.
    """

    @property  # type: ignore[misc]  # that it can be set otherwise is not the point
    def __class__(self) -> type:
        raise KeyError("shy")


class Word(str):
    """
    A text that nobody may look at.
    """

    __slots__ = ()

    def __len__(self) -> int:
        raise RuntimeError

    def __contains__(self, _: object) -> bool:
        raise RuntimeError


@pytest.mark.parametrize("wrong", [[("x", 1)], [], "ab", 5, {"x": 1}.items()])
def test_a_context_is_a_mapping(wrong: Any, reusing: SafeEvaluator) -> None:
    with pytest.raises(TypeError, match="a context is a mapping of names to values, not a "):
        reusing.evaluate("1", wrong)


def test_texts_and_names_of_a_subclass_are_taken_as_texts(reusing: SafeEvaluator) -> None:
    assert reusing.evaluate(Word("x + y"), {Word("x"): 1, "y": 2}) == 3
    assert reusing.interpolate(Word("{{ x }}"), {"x": Word("b")}) == "b"
    with pytest.raises(TypeError, match="not a bytes"):
        reusing.evaluate(b"1")  # type: ignore[arg-type]  # that is the point


def test_an_object_whose_class_cannot_be_asked_for_stays_outside(reusing: SafeEvaluator) -> None:
    assert reusing.evaluate("x and 1 if 0 else 2", {"x": Shy()}) == 2
    with pytest.raises(sk.SafeEvalForbiddenError, match="a Shy of the caller's"):
        reusing.evaluate("x", {"x": Shy()})


@pytest.mark.parametrize("functions", [{"f": 5}, {5: print}])
def test_functions_are_callables_by_names(functions: Any) -> None:
    with pytest.raises(TypeError, match="it takes callables by names"):
        sk.SafeEvaluator(functions=functions)


@pytest.mark.parametrize("what", [("str", "a"), (int, 5)])
def test_what_is_exposed_is_a_type_with_names(what: Any, reusing: SafeEvaluator) -> None:
    with pytest.raises(TypeError, match="takes a type and the names"):
        reusing.expose(*what)


def test_names_of_arguments_are_the_functions_own(reusing: SafeEvaluator) -> None:
    def given(**named: object) -> object:
        return named

    code = "[f(**{'self': 1, 'name': 2, 'function': 3}), '{text}{self}'.format(**{'text': 1, 'self': 2}), str.format('{text}', text=4)]"
    assert reusing.evaluate(code, {"f": given}) == [{"self": 1, "name": 2, "function": 3}, "12", "4"]


@pytest.mark.filterwarnings("error")
def test_a_call_that_nobody_awaited_is_told(reusing: SafeEvaluator) -> None:
    async def later() -> int:
        return 1

    with pytest.raises(sk.SafeEvalForbiddenError, match=r"nobody awaited.*safe_eval_async"):
        reusing.evaluate("f()", {"f": later})
    with pytest.raises(sk.SafeEvalError, match="a coroutine of the caller's"):
        reusing.evaluate("f()", {"f": lambda: later()})
