"""
The backend that the behaviours of `sandboxkit.testing.conformance` are tried on here, and
the parts they are made of for tests that are this repository's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conformance.deviations import DEVIATIONS, ROOT, USER

from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.testing.conformance._acts import (
    BOXED,
    IS_ROOT,
    PYTHON,
    REFUSED,
    Act,
    Boxes,
    git,
    gone,
    importable,
    running,
)
from sandboxkit.testing.conformance._fixtures import *  # noqa: F403 - for every test of this directory
from sandboxkit.testing.conformance._fixtures import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxkit.backends import SandboxBackend

__all__ = [
    *FIXTURES,
    "BOXED",
    "IS_ROOT",
    "PYTHON",
    "REFUSED",
    "Act",
    "Boxes",
    "git",
    "gone",
    "importable",
    "running",
]


@pytest.fixture(scope="session")
def backend_factory() -> Callable[[], SandboxBackend]:
    """
    What makes the backend.
    """
    return BubblewrapBackend


@pytest.fixture(scope="session")
def deviations() -> Mapping[str, str]:
    """
    What it does not keep for whoever runs the tests.
    """
    return DEVIATIONS["bubblewrap"][ROOT if IS_ROOT else USER]
