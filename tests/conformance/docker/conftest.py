"""
The `docker` backend under the conformance suite.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.conformance.deviations import DEVIATIONS, ROOT, USER

from sandboxkit.backends.docker import DockerBackend
from sandboxkit.model import Control
from sandboxkit.testing.conformance import asking_less
from sandboxkit.testing.conformance._acts import IS_ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sandboxkit.backends import SandboxBackend

ASKED_LESS = frozenset({Control.PROCESS_ISOLATION}) if IS_ROOT else frozenset()
"""
What a spec must do without to be run by it: root's own directories take root, because an
engine binds them as they are.
"""


@pytest.fixture(scope="session")
def backend_factory() -> Callable[[], SandboxBackend]:
    """
    What makes the backend.
    """
    return partial(asking_less, DockerBackend, ASKED_LESS)


@pytest.fixture(scope="session", autouse=True)
def pruned() -> Iterator[None]:
    """
    Removes what an application that was killed while it made a container has left.
    """
    yield
    backend = DockerBackend()
    if anyio.run(backend.is_available):
        anyio.run(backend.prune)


@pytest.fixture(scope="session")
def deviations() -> Mapping[str, str]:
    """
    What it does not keep for whoever runs the tests.
    """
    return DEVIATIONS["docker"][ROOT if IS_ROOT else USER]
