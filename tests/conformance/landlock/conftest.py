"""
The `landlock` backend under the conformance suite.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.conformance.deviations import DEVIATIONS, ROOT, USER

from sandboxkit.backends.landlock import LandlockBackend
from sandboxkit.model import Control
from sandboxkit.testing.conformance import asking_less
from sandboxkit.testing.conformance._acts import IS_ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxkit.backends import SandboxBackend

ASKED_LESS = frozenset(
    {
        Control.FS_DENY_INSIDE_ALLOW,
        Control.LIMITS_CPU,
        Control.LIMITS_MEMORY,
        Control.LIMITS_PROCESSES,
        Control.PROCESS_ISOLATION,
    }
)
"""
What a spec must do without to be run by it: there is no pid namespace, a protected name in
a writable directory cannot be held, and limits count each process by itself, root's
processes not at all. What changes a file's mode or times is refused.
"""


@pytest.fixture(scope="session")
def backend_factory() -> Callable[[], SandboxBackend]:
    """
    What makes the backend.
    """
    return partial(asking_less, LandlockBackend, ASKED_LESS)


@pytest.fixture(scope="session")
def deviations() -> Mapping[str, str]:
    """
    What it does not keep for whoever runs the tests.
    """
    return DEVIATIONS["landlock"][ROOT if IS_ROOT else USER]


@pytest.fixture(scope="session")
def crash_count() -> int:
    """
    Half as many as for the first backend: what ends a box is the same program.
    """
    return 8


@pytest.fixture(scope="session")
def run_count() -> int:
    """
    Likewise.
    """
    return 100
