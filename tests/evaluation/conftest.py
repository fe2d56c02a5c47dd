"""
Evaluation needs its extra and a kernel that confines; where CI says so, both must be there.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.evaluation import SafeEvaluator


def _missing() -> str | None:
    if sys.platform != "linux":
        return "evaluation workers need Linux"
    from sandboxkit.errors import MissingExtraError
    from sandboxkit.evaluation._evaluator import available

    try:
        return available()
    except MissingExtraError as exc:
        return str(exc)


@pytest.fixture(scope="session", autouse=True)
def _workers() -> None:
    if reason := _missing():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


@pytest.fixture
def reusing() -> Iterator[SafeEvaluator]:
    """
    An evaluator that reuses its workers, closed afterwards.
    """
    from sandboxkit.evaluation import SafeEvaluator

    with SafeEvaluator(isolation="reuse", timeout=10) as evaluator:
        yield evaluator
