"""
What the backend says about itself with each ABI below this kernel's. `nox -s abis` tries
every behaviour with each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conformance.landlock.conftest import factory, not_kept

from sandboxkit.testing.conformance.claims import *  # noqa: F403 - the behaviours are the tests

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxkit.backends import SandboxBackend


@pytest.fixture(scope="session", params=range(1, 7), ids="ABI {}".format)
def older(request: pytest.FixtureRequest) -> int:
    """
    An ABI, up to the last that took a right away.
    """
    abi: int = request.param
    return abi


@pytest.fixture(scope="session")
def backend_factory(older: int) -> Callable[[], SandboxBackend]:
    """
    What makes the backend.
    """
    return factory(older)


@pytest.fixture(scope="session")
def deviations(older: int) -> Mapping[str, str]:
    """
    What it does not keep for whoever runs the tests.
    """
    return not_kept(older)
