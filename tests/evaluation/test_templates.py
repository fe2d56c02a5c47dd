"""
Templates and conditions.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

import sandboxkit as sk
from sandboxkit.evaluation import SafeEvaluator

if TYPE_CHECKING:
    from sandboxkit.model import AuditEvent

CONTEXT: dict[str, Any] = {
    "user": {"name": "Alice", "email": None},
    "order": {"total": 123.456},
    "items": ["pen", "ink"],
    "n": 3,
    "arguments": "given",
    "day": datetime.date(2026, 1, 31),
}
TEMPLATES = {
    "": "",
    "no field": "no field",
    "Hello {{ user.name }}, {{ order.total:.2f }}": "Hello Alice, 123.46",
    "{{ user.name | lower | title }}": "Alice",
    "{{ user.phone | default('none') }}{{ user.email|default }}{{ nobody | default(n + 1) }}": "none4",
    "{{ items | join(', ') }} {{ items|length }} {{ items|json }}": 'pen, ink 2 ["pen", "ink"]',
    "{{ '}}' }}{{ \"a|b:c\" | upper }}{{ '{{' }}": "}}A|B:C{{",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ items[0:1] }}": "1['pen']",
    "{{ (n | 4) }} {{ (lambda v: v + 1)(n) }}": "7 4",
    "{{ (m := n) + m }}": "6",
    "{{ nobody | default(arguments) }}": "given",
    "{{ day:%Y-%m-%d }}|{{ user.name:>8 }}|{{ order.total | round(1) :,.1f }}": "2026-01-31|   Alice|123.5",
    "a { b } }} {c: {{ n }}": "a { b } }} {c: 3",
    "${{n}}{{n}}": "$33",
    "{{ f'{n:>{n}}' }}": "  3",
    "{{ '''it's''' }}": "it's",
    "line\n{{ n }}\r\n": "line\n3\r\n",
    "{{ user.name\n   if n > 2\n   else 'nobody'  # who\n   | upper }}": "ALICE",
    "{{ '''a\n b''' +\n 'c' }}": "a\n bc",
    "{{\n  n\n}}": "3",
    "{{ 'ab' | replace('a', 'x') | shout(times=2) }}": "XB!!",
}
WRONG = {
    "ab\n  {{ n": ("SyntaxError", 2, "not closed"),
    "{{ }}": ("SyntaxError", 1, "no expression"),
    "{{ 'a }}": ("SyntaxError", 1, "string"),
    "\n{{ 1 + }}": ("SyntaxError", 2, "cannot be read"),
    "\n{{ n\n  ; n }}": ("SyntaxError", 3, "cannot be read"),
    "{{ n) + (n }}": ("SyntaxError", 1, "not opened"),
    "{{ n)\n + (n }}": ("SyntaxError", 1, "not opened"),
    "{{ (n, }}{{ n\n, n) }}": ("SyntaxError", 1, "not opened"),
    "{{ n | no such }}": ("SyntaxError", 1, "is no filter"),
    "{{ n | default(1), (2) }}": ("SyntaxError", 1, "arguments of a filter"),
    "{{ n | default(1) + str(2) }}": ("SyntaxError", 1, "arguments of a filter"),
    "{{ n | default(1 +) }}": ("SyntaxError", 1, "arguments of a filter"),
}
REFUSED = {
    "{{ n | nothing }}": "the filter 'nothing'",
    "{{ n.__class__ }}": "an attribute",
    "\n{{ len }}": "in a template",
    "{{ (i for i in items) }}": "in a template",
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates(template: str) -> None:
    def shout(text: str, times: int = 1) -> str:
        return text.upper() + "!" * times

    assert sk.safe_interpolate(template, CONTEXT, functions={"shout": shout}, timeout=10) == TEMPLATES[template]


@pytest.mark.parametrize("template", WRONG)
def test_a_wrong_template_says_where(template: str) -> None:
    kind, line, said = WRONG[template]
    with pytest.raises(sk.SafeEvalSyntaxError, match=said) as caught:
        sk.safe_interpolate(template, CONTEXT, timeout=10)
    assert (caught.value.kind, caught.value.line) == (kind, line)


@pytest.mark.parametrize("template", REFUSED)
def test_refused(template: str) -> None:
    with pytest.raises(sk.SafeEvalForbiddenError, match=REFUSED[template]) as caught:
        sk.safe_interpolate(template, CONTEXT, timeout=10)
    assert caught.value.line == template.count("\n") + 1


@pytest.mark.parametrize("template", ["\n{{ nobody }}", "\n{{ user.phone }}", "\n{{ items[5] }}", "\n{{ user['x'] }}"])
def test_what_is_not_there_raises(template: str) -> None:
    with pytest.raises(sk.SafeEvalError) as caught:
        sk.safe_interpolate(template, CONTEXT, timeout=10)
    assert caught.value.kind in ("NameError", "AttributeError", "IndexError", "KeyError")
    assert caught.value.line == 2


def test_a_default_hides_nothing_but_what_is_missing() -> None:
    with pytest.raises(sk.SafeEvalError, match="ZeroDivisionError"):
        sk.safe_interpolate("{{ 1 / 0 | default(1) }}", timeout=10)
    with pytest.raises(sk.SafeEvalForbiddenError):
        sk.safe_interpolate("{{ n.__class__ | default(1) }}", CONTEXT, timeout=10)


class Sink:
    name = "test"

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def write(self, event: AuditEvent) -> None:
        self.events.append(event)


@pytest.mark.parametrize("code", ["n < 5", "user", "items", "not user.email"])
def test_a_true_condition(code: str) -> None:
    assert sk.safe_eval_condition(code, CONTEXT, timeout=10) is True


@pytest.mark.parametrize("code", ["n > 5", "[]", "user.email", "0.0"])
def test_a_false_condition_is_no_error(code: str) -> None:
    assert sk.safe_eval_condition(code, CONTEXT, on_error="raise", timeout=10) is False


@pytest.mark.parametrize("code", ["", "a b", "nobody", "n.__class__", "1 / 0", "'9' * 10**9", "max(range(10**12))"])
def test_what_cannot_be_decided_is_false_and_seen(code: str) -> None:
    sink = Sink()
    with SafeEvaluator(audit=sink, timeout=0.5) as evaluator:
        assert evaluator.condition(code, CONTEXT) is False
        assert evaluator.refusals == 1
        assert sink.events[0].fields["outcome"] == "refused"
        assert sink.events[0].fields["code"] == code
        with pytest.raises(sk.SafeEvalError):
            evaluator.condition(code, CONTEXT, on_error="raise")


def test_wrong_words_are_refused() -> None:
    wrong: Any = "other"
    with pytest.raises(ValueError, match="no mode"):
        sk.safe_eval("1", mode=wrong)
    with pytest.raises(ValueError, match="no isolation"):
        sk.safe_eval("1", isolation=wrong)
    with pytest.raises(ValueError, match="no answer"):
        sk.safe_eval_condition("1", on_error=wrong)
    with pytest.raises(TypeError, match="a str"):
        sk.safe_eval(wrong_type := b"1")  # type: ignore[arg-type]  # what is wrong is the point
    assert wrong_type
