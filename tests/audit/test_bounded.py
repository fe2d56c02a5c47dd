"""
Records are bounded, masked and harmless to look at.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxkit.audit import MemoryAudit
from sandboxkit.audit._bounded import MAX_RECORD_BYTES, encoded
from sandboxkit.model import AuditEvent, AuditSink
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator


def written(
    fields: dict[str, Any], secrets: SecretRegistry | None = None, max_field_chars: int = 4096
) -> dict[str, Any]:
    sink = MemoryAudit(secrets=secrets, max_field_chars=max_field_chars)
    sink.write(AuditEvent("finished", "r", 1.0, fields))
    return dict(sink.events()[0].fields)


def test_a_ring_keeps_the_last() -> None:
    sink = MemoryAudit(3)
    assert isinstance(sink, AuditSink)
    for number in range(5):
        sink.write(AuditEvent("decided", str(number), 1.0, {}))
    assert [event.run_id for event in sink.events()] == ["2", "3", "4"]
    assert (sink.name, sink.paths) == ("memory", ())


def test_a_ring_needs_room() -> None:
    with pytest.raises(ValueError, match="at least one"):
        MemoryAudit(0)


def test_long_text_is_cut_with_a_marker() -> None:
    assert written({"text": "x" * 25}, max_field_chars=10) == {
        "text": "x" * 10 + "…[15 more characters]",
        "cut": ["text"],
    }


def test_a_secret_on_the_border_is_masked_before_the_cut() -> None:
    fields = written({"text": "12345hunter2"}, SecretRegistry({"DB": "hunter2"}), max_field_chars=10)
    assert fields == {"text": "12345⟦DB⟧", "masked": ["text"]}


def test_a_secret_on_the_border_of_a_huge_text_is_not_halved() -> None:
    secret = "s3cret-" * 20
    text = secret * 5000
    fields = written({"text": text}, SecretRegistry({"DB": secret}))
    assert "s3cret" not in fields["text"]
    assert fields["text"].endswith(f"…[cut, {len(text)} characters in all]")


def test_values_of_any_kind_become_json() -> None:
    fields = written({
        "a": None, "b": True, "c": 1, "d": 1.5, "e": b"\xff", "f": (1, {2}),
        "g": {3: object}, "h": math.nan, "i": 10**30, "j": -math.inf,
    })  # fmt: skip
    assert json.loads(encoded(fields)) == {
        "a": None, "b": True, "c": 1, "d": 1.5, "e": "�", "f": [1, [2]],
        "g": {"3": "<class 'object'>"}, "h": "nan", "i": str(10**30), "j": "-inf",
    }  # fmt: skip


def test_many_items_and_deep_nests_are_cut() -> None:
    nest: Any = "leaf"
    for _ in range(50):
        nest = [nest]
    fields = written({"items": list(range(1000)), "keys": {str(n): n for n in range(1000)}, "nest": nest})
    assert fields["items"][-1] == "…[800 more]"
    assert len(fields["keys"]) == 201
    assert len(encoded(fields)) < MAX_RECORD_BYTES


def test_a_record_of_many_long_fields_is_bounded() -> None:
    fields = written({f"field{n}": "ab" * 2048 for n in range(150)})
    assert len(encoded(fields)) <= MAX_RECORD_BYTES
    assert fields["field149"].startswith("abab")


def test_a_record_that_cannot_be_bounded_says_so() -> None:
    assert written({f"field{n}": "é" * 90 for n in range(2000)}) == {"cut": ["*"]}


def test_fields_cannot_forge_the_records_own_keys() -> None:
    assert written(
        {
            "kind": "decided",
            "run_id": "other",
            "prev": "0",
            "torn": True,
            "schema": 9,
            "time": 0,
            "hash": "0",
            "seq": 1,
            "gone": 1,
            "key": "",
            "cut": 1,
            "masked": 1,
            "ok": 1,
        }
    ) == {"ok": 1}


class Named:
    def __str__(self) -> str:
        return "seq"


def test_a_field_that_only_looks_so_cannot_either() -> None:
    assert written({Named(): 1, "ok": b""}) == {"ok": ""}  # type: ignore[dict-item]  # what nobody should give


@given(st.text(st.sampled_from("ab'\"\\\n é\u202e\U0001f600\ud800"), min_size=6, max_size=12), st.integers(0, 2))
def test_a_secret_of_any_characters_is_masked(secret: str, where: int) -> None:
    try:
        secrets = SecretRegistry({"DB": secret})
    except ValueError:
        return
    fields = ({"text": f"x{secret}y"}, {"deep": [{"k": (1, secret)}]}, {f"{secret}": 1})[where]
    line = encoded(written(fields, secrets))
    assert "⟦" in str(json.loads(line))
    assert all(secret not in text for text in strings(json.loads(line)))


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for held in value.values():
            yield from strings(held)
    elif isinstance(value, list):
        for held in value:
            yield from strings(held)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("text", ["a\nb", "\x1b[2Jx", "\u202e", "\x9b", "\u2028", "\udc80", "\0"])
def test_what_a_terminal_would_obey_is_escaped(text: str) -> None:
    line = encoded(written({"text": text}))
    assert all(32 <= byte < 127 for byte in line)
    assert json.loads(line)["text"] == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda c: st.lists(c) | st.dictionaries(st.text(), c),
    )
)
def test_anything_becomes_one_bounded_line(value: object) -> None:
    line = encoded(written({"value": value}))
    assert b"\n" not in line
    assert len(line) <= MAX_RECORD_BYTES
