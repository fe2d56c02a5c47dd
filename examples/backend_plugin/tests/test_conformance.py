"""
The conformance suite, as every author of a backend runs it.
"""

from __future__ import annotations

import pytest
from sandboxkit_queued import QueuedBackend

from sandboxkit.testing.conformance import *  # noqa: F403 - the behaviours are the tests


@pytest.fixture(scope="session")
def backend_factory() -> type[QueuedBackend]:
    return QueuedBackend


@pytest.fixture(scope="session")
def deviations() -> dict[str, str]:
    return {}
