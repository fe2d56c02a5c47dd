"""
The reader against bash and shfmt, for as long as there is time.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.shell.judge import Tally
from tests.shell.oracle import BASH, SHFMT
from tests.shell.test_differential import disagreements, escapes
from tests.shell.texts import damage, jumble, write
from tests.shell.traced import trace

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

AT_ONCE = 100

pytestmark = [
    pytest.mark.skipif(BASH is None, reason="bash is not installed"),
    pytest.mark.skipif(SHFMT is None, reason="shfmt is not installed"),
]


def test_no_command_is_missed(rounds: Iterator[int], rng: random.Random) -> None:
    tally = Tally()
    found: list[tuple[str, str]] = []
    for _ in rounds:
        texts = [rng.choice((write, write, lambda rng: damage(rng, write(rng)), jumble))(rng) for _ in range(AT_ONCE)]
        found += disagreements(texts, tally)
    print(tally)
    assert found == []


@pytest.mark.requires("bubblewrap")
def test_nothing_runs_unseen(rounds: Iterator[int], rng: random.Random, tmp_path: Path) -> None:
    tally = Tally()
    found: list[tuple[str, str]] = []
    for number in rounds:
        texts = [write(rng) for _ in range(AT_ONCE)]
        directory = tmp_path / str(number)
        directory.mkdir()
        found += escapes(texts, trace(texts, directory), tally)
        shutil.rmtree(directory)
    print(tally)
    assert found == []
