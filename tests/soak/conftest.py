"""
How long the soak tests run, and from which seed.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = int(os.environ.get("SANDBOXKIT_SOAK_SEED", random.SystemRandom().randrange(2**32)))


def pytest_report_header() -> str:
    return f"soak: SANDBOXKIT_SOAK_SEED={SEED}"


@pytest.fixture
def rng() -> random.Random:
    """
    The same numbers for the same `SANDBOXKIT_SOAK_SEED`.
    """
    return random.Random(SEED)


@pytest.fixture
def rounds() -> Iterator[int]:
    """
    Counts on for `SANDBOXKIT_SOAK_SECONDS` (default: 2).
    """

    def count() -> Iterator[int]:
        end = time.monotonic() + float(os.environ.get("SANDBOXKIT_SOAK_SECONDS", "2"))
        number = 0
        while time.monotonic() < end:
            yield number
            number += 1

    return count()
