"""
The `landlock` backend under the conformance suite.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.conformance.deviations import ROOT, USER, landlock_deviations

from sandboxkit.backends._kernel import landlock_abi
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
ASKED_LESS_BEFORE = {3: Control.FS_WRITE, 6: Control.PROCESS_KILL_TREE}
"""
What it must do without besides, before that ABI.
"""


def factory(abi: int) -> Callable[[], SandboxBackend]:
    """
    What makes the backend of that ABI, or of the kernel's where that is older.
    """
    less = ASKED_LESS | {control for before, control in ASKED_LESS_BEFORE.items() if min(abi, landlock_abi()) < before}
    return partial(asking_less, partial(LandlockBackend, max_abi=abi), less)


def not_kept(abi: int) -> Mapping[str, str]:
    """
    What that backend does not keep for whoever runs the tests.
    """
    return landlock_deviations(ROOT if IS_ROOT else USER, min(abi, landlock_abi()))


@pytest.fixture(scope="session")
def abi(request: pytest.FixtureRequest) -> int:
    """
    The newest ABI that is used: the kernel's, or what `--landlock-abi` names.
    """
    lowered: int | None = request.config.getoption("--landlock-abi", None)
    return lowered or landlock_abi()


@pytest.fixture(scope="session")
def backend_factory(abi: int) -> Callable[[], SandboxBackend]:
    """
    What makes the backend.
    """
    return factory(abi)


@pytest.fixture(scope="session")
def deviations(abi: int) -> Mapping[str, str]:
    """
    What it does not keep for whoever runs the tests.
    """
    return not_kept(abi)


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
