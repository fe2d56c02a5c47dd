"""
The table of token shapes does what its rows say.
"""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from sandboxkit.secrets import SHAPES, SecretRegistry, Shape

EXAMPLES = [pytest.param(shape, text, id=f"{shape.name}-{text[:12]}") for shape in SHAPES for text in shape.examples]
OTHERS = [pytest.param(shape, text, id=f"{shape.name}-{text[:20]}") for shape in SHAPES for text in shape.others]


@pytest.mark.parametrize(("shape", "text"), EXAMPLES)
def test_an_example_is_masked_under_the_rows_name(shape: Shape, text: str) -> None:
    masked = SecretRegistry().mask(f"say '{text}' now")
    assert f"⟦{shape.name}⟧" in masked
    assert text not in masked
    assert masked.startswith("say '")
    assert masked.endswith(" now")


@pytest.mark.parametrize(("shape", "text"), OTHERS)
def test_a_counter_example_stays(shape: Shape, text: str) -> None:
    assert SecretRegistry().mask(f"say {text} now") == f"say {text} now"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_no_match_is_longer_than_the_row_says(shape: Shape) -> None:
    parser: Any = re._parser  # type: ignore[attr-defined]  # the only place that knows a pattern's width
    assert parser.parse(shape.pattern.pattern).getwidth()[1] <= shape.longest


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_pattern_looks_at_nothing_outside_its_match(shape: Shape) -> None:
    assert not re.search(rb"\(\?[=!<]|\\b|\\B|\^|\$", shape.pattern.pattern)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_an_anchor_stands_in_every_example(shape: Shape) -> None:
    assert all(any(anchor in text.encode() for anchor in shape.anchors) for text in shape.examples)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_row_names_its_source(shape: Shape) -> None:
    assert shape.source


@pytest.mark.parametrize(
    "text",
    [
        "eyJ" * 60_000,
        "://" * 60_000,
        "://a:" * 40_000,
        "-----BEGIN PRIVATE KEY-----" * 6000,
        "sk-" * 60_000,
        "a" * 200_000,
    ],
    ids=["jwt", "url", "userinfo", "pem", "sk", "plain"],
)
def test_hostile_text_takes_no_time(text: str) -> None:
    started = time.perf_counter()
    SecretRegistry({"LONG_RUN": "aaaaaaa"}).mask(text)
    assert time.perf_counter() - started < 5
