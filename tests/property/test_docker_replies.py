"""
Whatever the first process of a container says, it is an answer of the agreed form or a
`ValueError`: nothing else comes out, and what comes out can be counted with.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from sandboxkit.backends.docker import _agent as wire
from sandboxkit.backends.docker import _replies as replies
from sandboxkit.backends.docker._labels import Owner, is_own_name
from sandboxkit.backends.docker._readback import held, misplaced, too_many_cpus

if TYPE_CHECKING:
    from collections.abc import Callable

from sandboxkit.backends.docker import DockerFacts
from sandboxkit.backends.docker._enforcement import enforcement
from sandboxkit.model import SandboxSpec

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
END = {
    "code": 0,
    "signal": None,
    "ended": None,
    "user_s": 0.1,
    "system_s": 0.0,
    "rss_bytes": 1,
    "cpu_s": 0.1,
    "oom": 0,
    "refused": 0,
}
FAILED = {"step": "exec", "errno": 2, "interpreter": ""}
GREETING = {**wire.in_force(), "places": [None], "shut": ""}


def changed(answer: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """
    *answer* with one field that is something else, or gone.
    """
    return st.tuples(st.sampled_from(sorted(answer)), VALUES, st.booleans()).map(
        lambda row: json.dumps(
            {**{key: text for key, text in answer.items() if key != row[0]}, **({} if row[2] else {row[0]: row[1]})}
        ).encode()
    )


def taken(read: Callable[[bytes], object], content: bytes) -> object:
    try:
        return read(content)
    except ValueError:
        return None


@given(st.binary(max_size=64) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_no_answer_is_anything_but_read_or_refused(content: bytes) -> None:
    for read in (replies.end, replies.failure, replies.listener, replies.count):
        taken(read, content)
    taken(lambda data: replies.report(data, 1), content)


@given(changed(END))
def test_an_end_that_is_read_can_be_counted_with(content: bytes) -> None:
    found = taken(replies.end, content)
    if isinstance(found, dict):
        assert found["user_s"] + found["system_s"] + (found["cpu_s"] or 0.0) >= 0
        assert (found["code"] is None) is not (found["signal"] is None)


@given(changed(FAILED))
def test_a_failure_that_is_read_names_a_step(content: bytes) -> None:
    found = taken(replies.failure, content)
    if isinstance(found, tuple):
        step, number, interpreter = found
        assert isinstance(step, str)
        assert 0 < number < 1 << 12
        assert isinstance(interpreter, str)


@given(changed(GREETING))
def test_a_greeting_that_is_read_can_be_compared(content: bytes) -> None:
    found = taken(lambda data: replies.report(data, 1), content)
    if isinstance(found, dict):
        spec, facts = SandboxSpec.isolated(), DockerFacts()
        held(enforcement(spec, facts), spec, facts, found)
        misplaced(facts, ("/a",), found)
        too_many_cpus(facts, found)


@given(st.text(max_size=40) | st.tuples(st.text(max_size=4), st.text(max_size=12)).map("/".join))
def test_any_label_is_an_owner_or_none(text: str) -> None:
    found = Owner.parse(text)
    assert found is None or found.pid < 10**10
    assert not is_own_name(text) or text.startswith("sandboxkit-")
