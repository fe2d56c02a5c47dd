"""
What it says of itself, and files: a few seconds, for every change. All is in the module
beside.
"""

from __future__ import annotations

import pytest
from sandboxkit_queued import QueuedBackend

from sandboxkit.testing.conformance.claims import *  # noqa: F403 - the behaviours are the tests
from sandboxkit.testing.conformance.files import *  # noqa: F403 - likewise


@pytest.fixture(scope="session")
def backend_factory() -> type[QueuedBackend]:
    return QueuedBackend


@pytest.fixture(scope="session")
def deviations() -> dict[str, str]:
    return {}
