"""
The faults of the conformance suite, as often as it takes to find what is rare.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.backends.landlock import LandlockBackend
from sandboxkit.model import Control
from sandboxkit.testing.conformance import asking_less
from sandboxkit.testing.conformance.faults import *  # noqa: F403 - the behaviours are the tests

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxkit.backends import SandboxBackend

IS_LONG = float(os.environ.get("SANDBOXKIT_SOAK_SECONDS", "2")) >= 100
"""Whether there is time, as `nox -s soak` gives it outside CI."""

pytestmark = pytest.mark.timeout(1200)

FACTORIES: dict[str, Callable[[], SandboxBackend]] = {
    "bubblewrap": BubblewrapBackend,
    "landlock": partial(asking_less, LandlockBackend, {Control.PROCESS_ISOLATION, Control.LIMITS_PROCESSES}),
}


@pytest.fixture(scope="session", params=FACTORIES)
def backend_factory(request: pytest.FixtureRequest) -> Callable[[], SandboxBackend]:
    """
    Where a backend is unavailable, the fixture `backend` skips.
    """
    return FACTORIES[request.param]


@pytest.fixture(scope="session")
def deviations() -> Mapping[str, str]:
    return {}


@pytest.fixture(scope="session")
def crash_count() -> int:
    return 100 if IS_LONG else 20


@pytest.fixture(scope="session")
def run_count() -> int:
    return 2000 if IS_LONG else 200
