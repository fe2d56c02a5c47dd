"""
Regular expressions that always take linear time.

The pattern is turned into a nondeterministic automaton, and the automaton is run over
the text by sets of states, remembered as they appear. There is no backtracking, so no
pattern and no text can make it slow.

Source: Ken Thompson, "Regular Expression Search Algorithm" (1968).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import getitem

from sandboxkit.policy._glob import Later

__all__ = ["MAX_PATTERN", "LinearRegex", "RegexError", "linear_regex"]

MAX_PATTERN = 500
"""
Characters of a pattern.
"""
_MAX_STATES = 2000
_MAX_REPEAT = 100
_MAX_REMEMBERED = 20_000
_DIGITS = frozenset("0123456789")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_WORD = _DIGITS | _LETTERS | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_SPACE = frozenset(" \t\n\r\f\v")
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}

_Test = Callable[[str], bool]


_FINAL = 0
"""
The state at the end of the pattern.
"""


class RegexError(ValueError):
    """
    The pattern is none of this dialect; the message says where and why.
    """


@dataclass(frozen=True, slots=True)
class _Node:
    """
    A piece of the pattern: `char`, `all` (sequence), `any` (alternatives) or `repeat`.
    """

    kind: str
    test: _Test | None = None
    literal: str = ""
    parts: tuple[_Node, ...] = ()
    low: int = 1
    high: int | None = 1


class _Place(dict[str, "_Place"]):
    """
    A place of the automaton: a set of states, and the place that follows on a character
    where that was asked before.
    """

    __slots__ = ("_regex", "states")

    def __init__(self, regex: LinearRegex, states: frozenset[int]) -> None:
        super().__init__()
        self._regex = regex
        self.states = states

    def __missing__(self, char: str) -> _Place:
        return self._regex.follow(self, char)


class LinearRegex:
    """
    A compiled pattern, matched against a whole text.

    The dialect: literals, ``.``, classes ``[a-z]`` ``[^a-z]``, ``\\d \\w \\s \\D \\W \\S``
    (ASCII), groups ``( )`` and ``(?: )``, alternatives ``|``, and ``* + ? {m} {m,} {m,n}``.
    ``.`` also takes a newline. Anchors, look-around, back-references, lazy and
    possessive quantifiers and flags are refused: the whole text is matched anyway.

    Attributes:
        pattern: The pattern.
        has_alternatives: Whether it is one choice as a whole.
        needs: Found in every text that matches, or None.

    Raises:
        RegexError: The pattern is too long or not of this dialect.
    """

    __slots__ = (
        "_after",
        "_free",
        "_places",
        "_reached",
        "_remembered",
        "_start",
        "_tests",
        "has_alternatives",
        "needs",
        "pattern",
    )

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise RegexError(f"it has {len(pattern)} characters, the limit is {MAX_PATTERN}")
        self.pattern = pattern
        # By state: the test a character has to pass to reach the next, that, and those
        # reached without a character.
        self._tests: list[_Test | None] = []
        self._after: list[int] = []
        self._free: list[Sequence[int]] = []
        node = _Parser(pattern).parse()
        self.has_alternatives = node.kind == "any"
        self.needs = _needed(node)
        self._reached: dict[int, frozenset[int]] = {}
        self._new(_FINAL)
        self._start = self._closure({self._build(node, _FINAL)})
        self._places: dict[frozenset[int], _Place] = {}
        self._remembered = 0

    def fullmatch(self, text: str) -> bool:
        """
        Whether the whole of *text* is in the language of the pattern.
        """
        if self.needs is not None and not self.needs.search(text):
            return False
        place: _Place = reduce(getitem, text, self._place_of(self._start))
        return _FINAL in place.states

    def _place_of(self, states: frozenset[int]) -> _Place:
        found = self._places.get(states)
        if found is None:
            found = self._places[states] = _Place(self, states)
        return found

    def follow(self, place: _Place, char: str) -> _Place:
        """
        The place after *place* on *char*; remembered, so that it is not asked again.
        """
        following = self._step(place.states, char)
        if self._remembered >= _MAX_REMEMBERED:
            self._places, self._remembered = {}, 0
        self._remembered += 1
        found = place[char] = self._place_of(following)
        return found

    def meets(
        self, step: Callable[[int, str], int | None], ends: frozenset[int], letters: Mapping[str, Sequence[str]]
    ) -> bool:
        """
        Whether some text is in the language of the pattern and leads the automaton
        *step*, which starts in 0, to one of *ends*.

        Takes time by the states of both and the letters, not by any text.

        Args:
            step: The state after a state and a letter, or None where there is none.
            ends: The states it may end in.
            letters: The letters a text is made of, by one of those *step* treats alike.
        """
        waiting = [(state, 0) for state in self._start]
        found = set(waiting)
        kinds: dict[int, list[str]] = {}
        while waiting:
            mine, other = waiting.pop()
            if mine == _FINAL and other in ends:
                return True
            test = self._tests[mine]
            if test is None:
                continue
            if mine not in kinds:
                kinds[mine] = [kind for kind, alike in letters.items() if any(map(test, alike))]
            others = {step(other, kind) for kind in kinds[mine]}
            for state in self._closure({self._after[mine]}):
                pairs = {(state, after) for after in others if after is not None} - found
                found |= pairs
                waiting.extend(pairs)
        return False

    def following(self, text: str) -> frozenset[str]:
        """
        The ASCII characters that can follow *text* at the beginning of one of the language.
        """
        states = self._start
        for char in text:
            states = self._step(states, char)
        tests = [test for state in states if (test := self._tests[state])]
        return frozenset(char for char in map(chr, range(128)) if any(test(char) for test in tests))

    @property
    def states(self) -> int:
        """
        How large the automaton is.
        """
        return len(self._tests)

    def _step(self, states: frozenset[int], char: str) -> frozenset[int]:
        tests, after = self._tests, self._after
        return self._closure({after[state] for state in states if (test := tests[state]) and test(char)})

    def _closure(self, states: set[int]) -> frozenset[int]:
        """
        *states*, and those reached from them without a character.
        """
        known = self._reached
        return frozenset().union(*[known.get(state) or self._reach(state) for state in states])

    def _reach(self, start: int) -> frozenset[int]:
        waiting, found = [start], {start}
        while waiting:
            for state in self._free[waiting.pop()]:
                if state not in found:
                    found.add(state)
                    waiting.append(state)
        self._reached[start] = frozenset(found)
        return self._reached[start]

    def _new(self, after: int, test: _Test | None = None, free: Sequence[int] = ()) -> int:
        if len(self._tests) >= _MAX_STATES:
            raise RegexError("its repetitions make it too large")
        self._tests.append(test)
        self._after.append(after)
        self._free.append(free)
        return len(self._tests) - 1

    def _build(self, node: _Node, after: int) -> int:
        """
        The first state of *node*, behind which the state *after* follows.
        """
        if node.kind == "char":
            return self._new(after, node.test)
        if node.kind == "any":
            return self._new(after, None, [self._build(part, after) for part in node.parts])
        if node.kind == "all":
            for part in reversed(node.parts):
                after = self._build(part, after)
            return after
        return self._repeat(node.parts[0], node.low, node.high, after)

    def _repeat(self, part: _Node, low: int, high: int | None, after: int) -> int:
        if high is None:
            free = [after]
            after = self._new(after, None, free)
            free.append(self._build(part, after))
        else:
            end = after
            for _ in range(high - low):
                after = self._new(after, None, (end, self._build(part, after)))
        for _ in range(low):
            after = self._build(part, after)
        return after


@lru_cache(maxsize=256)
def linear_regex(pattern: str) -> LinearRegex:
    """
    *pattern* compiled: whoever checks a rule, looks at its pattern and runs it needs the same.

    Raises:
        RegexError: The pattern is too long or not of this dialect.
    """
    return LinearRegex(pattern)


def _needed(node: _Node) -> Later | None:
    """
    Found in every text of the language, behind its beginning: looked for before the
    automaton runs, which takes a look at each character but ends early where the
    beginning is wrong. None where nothing of the kind is plain to see.
    """
    parts = node.parts[_leading(node) :] if node.kind == "all" else ()
    literals = _literals(_Node("all", parts=parts))
    return Later("|".join(map(re.escape, sorted(set(literals))))) if literals else None


def _leading(node: _Node) -> int:
    """
    How many parts are the beginning: a literal, or one choice.
    """
    first = node.parts[0].kind if node.parts else ""
    count = next((place for place, part in enumerate(node.parts) if part.kind != "char"), len(node.parts))
    return count if first == "char" else 1


def _literals(node: _Node) -> tuple[str, ...]:
    """
    Literals of which one stands in every text of *node*'s language; the longer and the
    fewer, the better. Empty where there are none.
    """
    if node.kind == "char":
        return (node.literal,) if node.literal.strip() else ()
    if node.kind == "repeat":
        return _literals(node.parts[0]) if node.low else ()
    if node.kind == "any":
        found = [_literals(part) for part in node.parts]
        return tuple(literal for literals in found for literal in literals) if all(found) else ()
    choices: list[tuple[str, ...]] = [(run,) for run in _runs(node) if run.strip()]
    choices += [literals for part in node.parts if part.kind != "char" and (literals := _literals(part))]
    return max(choices, key=lambda literals: (min(map(len, literals)), -len(literals)), default=())


def _runs(node: _Node) -> list[str]:
    """
    The literals in a sequence.
    """
    runs = [""]
    for part in node.parts:
        if part.kind == "char" and part.literal:
            runs[-1] += part.literal
        else:
            runs.append("")
    return runs


class _Parser:
    """
    Recursive descent over the pattern.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._depth = 0

    def parse(self) -> _Node:
        node = self._alternatives()
        if self._position < len(self._pattern):
            raise self._error("')' without '('")
        return node

    def _error(self, problem: str) -> RegexError:
        return RegexError(f"at character {self._position}: {problem}")

    def _peek(self) -> str:
        return self._pattern[self._position : self._position + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise self._error("it ends too early")
        self._position += 1
        return char

    def _alternatives(self) -> _Node:
        parts = [self._sequence()]
        while self._peek() == "|":
            self._position += 1
            parts.append(self._sequence())
        return _Node("any", parts=tuple(parts)) if len(parts) > 1 else parts[0]

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._quantified(self._atom()))
        return _Node("all", parts=tuple(parts))

    def _atom(self) -> _Node:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return _Node("char", test=self._class())
        if char == "\\":
            return self._escape()
        if char == ".":
            return _Node("char", test=lambda _: True)
        if char in "*+?{":
            raise self._error(f"{char!r} has nothing to repeat")
        if char in "^$":
            raise self._error(
                f"{char!r} is not needed: the whole command is matched; write '\\{char}' for the character"
            )
        return _Node("char", test=char.__eq__, literal=char)

    def _group(self) -> _Node:
        if self._pattern.startswith("?:", self._position):
            self._position += 2
        elif self._peek() == "?":
            raise self._error(
                "only ( ) and (?: ) are groups here; look-around, names and flags are not linear or not needed"
            )
        self._depth += 1
        if self._depth > 50:
            raise self._error("groups are nested more than 50 deep")
        node = self._alternatives()
        if self._take() != ")":
            raise self._error("a group is not closed")
        self._depth -= 1
        return node

    def _quantified(self, node: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            raise self._error("a quantifier cannot follow another; lazy and possessive ones change nothing here")
        return _Node("repeat", parts=(node,), low=bounds[0], high=bounds[1])

    def _bounds(self) -> tuple[int, int | None] | None:
        char = self._peek()
        if char not in ("*", "+", "?", "{"):
            return None
        self._position += 1
        if char != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        body, closed, _ = self._pattern[self._position :].partition("}")
        low, comma, high = body.partition(",")
        if (
            not closed
            or not low.isdecimal()
            or not low.isascii()
            or (high and not (high.isdecimal() and high.isascii()))
        ):
            raise self._error("'{' begins no {m}, {m,} or {m,n}; write '\\{' for the character")
        self._position += len(body) + 1
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > _MAX_REPEAT or (most is not None and most < least):
            raise self._error(f"a repetition goes from at most {_MAX_REPEAT} up to at most {_MAX_REPEAT}")
        return least, most

    def _escape(self) -> _Node:
        char = self._take()
        if char.lower() in _CLASSES and char.isascii():
            members = _CLASSES[char.lower()]
            return _Node("char", test=members.__contains__ if char.islower() else lambda c: c not in members)
        literal = self._escaped(char)
        return _Node("char", test=literal.__eq__, literal=literal)

    def _escaped(self, char: str) -> str:
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char in _WORD or not char.isascii():
            raise self._error(f"'\\{char}' has no meaning here")
        return char

    def _class(self) -> _Test:
        negated = self._peek() == "^"
        self._position += negated
        members: set[str] = set()
        ranges: list[tuple[str, str]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            self._class_item(members, ranges)
        self._position += 1
        chars = frozenset(members)
        bounds = tuple(ranges)

        def inside(char: str) -> bool:
            return char in chars or any(low <= char <= high for low, high in bounds)

        return (lambda char: not inside(char)) if negated else inside

    def _class_item(self, members: set[str], ranges: list[tuple[str, str]]) -> None:
        low = self._take()
        if low == "[":
            raise self._error("write '\\[' for this character within a class")
        if low == "\\":
            char = self._take()
            if char in _CLASSES:
                members |= _CLASSES[char]
                return
            low = self._escaped(char)
        if self._peek() == "-" and self._pattern[self._position + 1 : self._position + 2] not in ("", "]"):
            self._position += 1
            high = self._take()
            high = self._escaped(self._take()) if high == "\\" else high
            if high < low:
                raise self._error(f"the range {low}-{high} is empty")
            ranges.append((low, high))
        else:
            members.add(low)
